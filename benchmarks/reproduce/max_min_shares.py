"""Max-min fair shares of GPU types: the analytic centre of the optimal solutions, as an interior-point solver finds it.

Maximise the smallest of sum_j worth[i, j] x[i, j] over the jobs i, with x >= 0, a job's shares at most 1 in all, and of
type j at most workers[j]. Usually many x are optimal. Gavel uses the solution of ECOS: not a vertex, but
their analytic centre. So this is also a primal-dual method (Mehrotra's); jobs are coupled only by the types, so
that a step needs one 3 x 3 system per job and one 4 x 4 system.
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
TOLERANCE = 1e-9
"""Mean product of slack and dual value at which the iteration stops."""


def compiled(function: F) -> F:
    """Compile with a cache."""
    return cast(F, numba.njit(cache=True)(function))


def max_min_shares(worth: Real, workers: Real) -> Real:
    """Shares (jobs, types) of each job's time.

    Args:
        worth: value of full time on a type for a job; (jobs, types), above 0.
        workers: number of GPUs of each type.

    >>> max_min_shares(np.ones((4, 3)), np.ones(3)).round(3)[0].tolist()
    [0.25, 0.25, 0.25]
    >>> max_min_shares(np.array([[2.0, 1.0], [1.0, 2.0]]), np.ones(2)).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.clip(_mehrotra(np.ascontiguousarray(worth), np.asarray(workers, float)), 0.0, 1.0)


@compiled
def _mehrotra(worth: Real, workers: Real) -> Real:
    """Shares by Mehrotra's method; constraints in the order: x, value of a job, time of a job, type."""
    jobs, types = worth.shape
    values, times, kinds = jobs * types, jobs * types + jobs, jobs * types + 2 * jobs
    limits = kinds + types
    x = np.full((jobs, types), 0.9 * min(1.0 / types, workers.min() / jobs))
    minimum = 0.5 * np.min(np.sum(worth * x, axis=1))
    slack = _slacks(x, minimum, worth, workers)
    price = 1.0 / slack
    price /= np.sum(price[values:times])
    factors = np.zeros((jobs, types, types))
    toward_minimum = np.empty((jobs, types))
    step, d_price = np.empty(limits), np.empty(limits)
    for _ in range(80):
        gap = np.sum(slack * price) / limits
        if gap < TOLERANCE:
            break
        weight = price / slack
        residual = _slacks(x, minimum, worth, workers) - slack
        residual_minimum = 1.0 - np.sum(price[values:times])
        shared_system = np.zeros((types + 1, types + 1))
        for job in range(jobs):
            _factor(factors[job], weight, worth[job], job, values, times)
            for kind in range(types):
                unit = np.zeros(types)
                unit[kind] = 1.0
                shared_system[:types, kind] += _solve(factors[job], unit)
            slope = -weight[values + job] * worth[job]
            toward_minimum[job] = _solve(factors[job], slope)
            shared_system[:types, types] += toward_minimum[job]
            shared_system[types, types] += np.sum(slope * toward_minimum[job]) - weight[values + job]
        for kind in range(types):
            shared_system[kind, kind] += 1.0 / weight[kinds + kind]
            shared_system[types, kind] = shared_system[kind, types]
        target, step_size = -slack * price, 1.0
        d_x, d_minimum = np.empty((jobs, types)), 0.0
        for corrected in range(2):
            if corrected:
                target = (1.0 - step_size) ** 3 * gap - slack * price - step * d_price
            dual_target = target / slack - weight * residual
            rhs = np.zeros(types + 1)
            rhs[types] = np.sum(dual_target[values:times]) - residual_minimum
            for job in range(jobs):
                row = np.empty(types)
                for kind in range(types):
                    index = job * types + kind
                    row[kind] = price[index] + worth[job, kind] * price[values + job] - price[times + job]
                    row[kind] += (
                        dual_target[index] + worth[job, kind] * dual_target[values + job] - dual_target[times + job]
                    )
                    row[kind] -= price[kinds + kind] + dual_target[kinds + kind]
                d_x[job] = _solve(factors[job], row)
                rhs[:types] += d_x[job]
                rhs[types] -= weight[values + job] * np.sum(worth[job] * d_x[job])
            shared_step = np.linalg.solve(shared_system, rhs)
            d_minimum = float(shared_step[types])
            for job in range(jobs):
                d_x[job] -= _solve(factors[job], shared_step[:types]) + toward_minimum[job] * d_minimum
            step = _slacks(d_x, d_minimum, worth, np.zeros(types)) + residual
            step[times:kinds] -= 1.0  # _slacks assumes a total of 1 per job
            d_price = (target - price * step) / slack
            step_size = 1.0
            for index in range(limits):
                if step[index] < 0.0:
                    step_size = min(step_size, -slack[index] / step[index])
                if d_price[index] < 0.0:
                    step_size = min(step_size, -price[index] / d_price[index])
        step_size = min(1.0, 0.99 * step_size)
        x += step_size * d_x
        minimum += step_size * d_minimum
        slack += step_size * step
        price += step_size * d_price
    return x


@compiled
def _slacks(x: Real, minimum: float, worth: Real, workers: Real) -> Real:
    """The slack of every constraint."""
    per_type = workers - np.sum(x, axis=0)
    per_job = np.sum(worth * x, axis=1) - minimum
    return np.concatenate((x.copy().ravel(), per_job, 1.0 - np.sum(x, axis=1), per_type))


@compiled
def _factor(factor: Real, weight: Real, worth: Real, job: int, values: int, times: int) -> None:
    """Cholesky factor of a job's block of the system."""
    types = len(worth)
    for row in range(types):
        for column in range(row + 1):
            entry = weight[values + job] * worth[row] * worth[column] + weight[times + job]
            if row == column:
                entry += weight[job * types + row]
            for k in range(column):
                entry -= factor[row, k] * factor[column, k]
            factor[row, column] = np.sqrt(max(entry, 1e-300)) if row == column else entry / factor[column, column]


@compiled
def _solve(factor: Real, rhs: Real) -> Real:
    """Solve a job's block of the system."""
    types, rhs = len(rhs), rhs.copy()
    for row in range(types):
        for k in range(row):
            rhs[row] -= factor[row, k] * rhs[k]
        rhs[row] /= factor[row, row]
    for row in range(types - 1, -1, -1):
        for k in range(row + 1, types):
            rhs[row] -= factor[k, row] * rhs[k]
        rhs[row] /= factor[row, row]
    return rhs
