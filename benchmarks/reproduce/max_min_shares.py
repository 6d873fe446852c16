"""Max-min shares of GPU types: the analytic centre of the optimal solutions, as an interior-point solver returns it.

Maximise the smallest of sum_j worth[i, j] x[i, j] over the jobs i, with x >= 0, a job's shares at most 1 in all, and of
type j at most workers[j]. As a rule many x are equally good. Gavel takes what ECOS returns: not a corner of these, but
their analytic centre. So this is a primal-dual method too (Mehrotra's); it uses that jobs meet only in the types, so
that a step costs a 3 x 3 system a job and one of 4 x 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["max_min_shares"]

Real = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])
CLOSE = 1e-9
"""Mean product of slack and price at which it stops."""


def compiled(function: F) -> F:
    """Compile with a cache."""
    return cast(F, numba.njit(cache=True)(function))


def max_min_shares(worth: Real, workers: Real) -> Real:
    """Shares (jobs, types) of each job's time.

    Args:
        worth: of all time on a type, to a job; (jobs, types), above 0.
        workers: how many there are of each type.

    >>> max_min_shares(np.ones((4, 3)), np.ones(3)).round(3)[0].tolist()
    [0.25, 0.25, 0.25]
    >>> max_min_shares(np.array([[2.0, 1.0], [1.0, 2.0]]), np.ones(2)).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.clip(_solved(np.ascontiguousarray(worth), np.asarray(workers, float)), 0.0, 1.0)


@compiled
def _solved(worth: Real, workers: Real) -> Real:
    """Slacks and prices of four sorts of limits, one after another: x, value of a job, time of a job, type."""
    jobs, types = worth.shape
    values, times, kinds = jobs * types, jobs * types + jobs, jobs * types + 2 * jobs
    limits = kinds + types
    x = np.full((jobs, types), 0.9 * min(1.0 / types, workers.min() / jobs))
    least = 0.5 * np.min(np.sum(worth * x, axis=1))
    slack = _left(x, least, worth, workers)
    price = 1.0 / slack
    price /= np.sum(price[values:times])
    factors = np.zeros((jobs, types, types))
    toward_least = np.empty((jobs, types))
    step, d_price = np.empty(limits), np.empty(limits)
    for _ in range(80):
        gap = np.sum(slack * price) / limits
        if gap < CLOSE:
            break
        weight = price / slack
        off = _left(x, least, worth, workers) - slack
        off_least = 1.0 - np.sum(price[values:times])
        common = np.zeros((types + 1, types + 1))
        for job in range(jobs):
            _factor(factors[job], weight, worth[job], job, values, times)
            for kind in range(types):
                unit = np.zeros(types)
                unit[kind] = 1.0
                common[:types, kind] += _solve(factors[job], unit)
            slope = -weight[values + job] * worth[job]
            toward_least[job] = _solve(factors[job], slope)
            common[:types, types] += toward_least[job]
            common[types, types] += np.sum(slope * toward_least[job]) - weight[values + job]
        for kind in range(types):
            common[kind, kind] += 1.0 / weight[kinds + kind]
            common[types, kind] = common[kind, types]
        target, reach = -slack * price, 1.0
        d_x, d_least = np.empty((jobs, types)), 0.0
        for corrected in range(2):
            if corrected:
                target = (1.0 - reach) ** 3 * gap - slack * price - step * d_price
            pull = target / slack - weight * off
            right = np.zeros(types + 1)
            right[types] = np.sum(pull[values:times]) - off_least
            for job in range(jobs):
                row = np.empty(types)
                for kind in range(types):
                    at = job * types + kind
                    row[kind] = price[at] + worth[job, kind] * price[values + job] - price[times + job]
                    row[kind] += pull[at] + worth[job, kind] * pull[values + job] - pull[times + job]
                    row[kind] -= price[kinds + kind] + pull[kinds + kind]
                d_x[job] = _solve(factors[job], row)
                right[:types] += d_x[job]
                right[types] -= weight[values + job] * np.sum(worth[job] * d_x[job])
            shared = np.linalg.solve(common, right)
            d_least = float(shared[types])
            for job in range(jobs):
                d_x[job] -= _solve(factors[job], shared[:types]) + toward_least[job] * d_least
            step = _left(d_x, d_least, worth, np.zeros(types)) + off
            step[times:kinds] -= 1.0  # _left counts from a whole job
            d_price = (target - price * step) / slack
            reach = 1.0
            for at in range(limits):
                if step[at] < 0.0:
                    reach = min(reach, -slack[at] / step[at])
                if d_price[at] < 0.0:
                    reach = min(reach, -price[at] / d_price[at])
        reach = min(1.0, 0.99 * reach)
        x += reach * d_x
        least += reach * d_least
        slack += reach * step
        price += reach * d_price
    return x


@compiled
def _left(x: Real, least: float, worth: Real, workers: Real) -> Real:
    """How far every limit is from being reached."""
    per_type = workers - np.sum(x, axis=0)
    per_job = np.sum(worth * x, axis=1) - least
    return np.concatenate((x.copy().ravel(), per_job, 1.0 - np.sum(x, axis=1), per_type))


@compiled
def _factor(factor: Real, weight: Real, worth: Real, job: int, values: int, times: int) -> None:
    """Cholesky's factor of the job's own part of the system."""
    types = len(worth)
    for row in range(types):
        for column in range(row + 1):
            entry = weight[values + job] * worth[row] * worth[column] + weight[times + job]
            if row == column:
                entry += weight[job * types + row]
            for k in range(column):
                entry -= factor[row, k] * factor[column, k]
            factor[row, column] = (
                np.sqrt(max(entry, 1e-300)) if row == column else entry / factor[column, column]
            )


@compiled
def _solve(factor: Real, right: Real) -> Real:
    """The job's own part of the system solved."""
    types, right = len(right), right.copy()
    for row in range(types):
        for k in range(row):
            right[row] -= factor[row, k] * right[k]
        right[row] /= factor[row, row]
    for row in range(types - 1, -1, -1):
        for k in range(row + 1, types):
            right[row] -= factor[k, row] * right[k]
        right[row] /= factor[row, row]
    return right
