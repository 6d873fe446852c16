"""Gavel's rounds of 360 s: assignment of GPUs to single-GPU jobs in each round, by the time shares of a policy.

As in its simulator (OSDI'20, stanford-futuredata/gavel, scheduler/scheduler.py):

- A round ends when the last of its jobs has done the whole steps that fit in 360 s, usually a little earlier. A job
  that finishes leaves its GPU idle until then. Moving a job costs nothing.
- Shares are recomputed at the end of a round only if jobs arrived or ended and 1,920 s have passed since the last time.
  Until then an arrived job has no share: it occupies a GPU of the round, but does not run there.
- A job's priority on a type is its share divided by the fraction of the time of that type that it got since then.
  Jobs without share follow, in the order of their deficits; under FIFO they do not run at all.
- Type-aware policies fill V100, P100 and K80 in this order, the others in a random order every round.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from kilowait.errors import InputError

__all__ = ["TYPES", "WORKERS", "Policy", "View", "Work", "completion_times"]

Real = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])
TYPES = ("k80", "p100", "v100")
WORKERS = (36, 36, 36)
ROUND_S = 360.0
HOLD_S = 1920.0
"""Minimum time between recomputations of the shares."""


class Work(NamedTuple):
    """Jobs in order of arrival."""

    arrival_s: Real
    steps: Real
    speed: Real
    """Steps a second, (jobs, types)."""


class View(NamedTuple):
    """The state passed to a policy: the present jobs, in order of arrival."""

    jobs: list[int]
    now_s: float
    waited_s: Real
    left: Real
    """Steps left."""
    speed: Real


class Policy(Protocol):
    """A policy that computes time shares."""

    def __call__(self, view: View) -> Real:
        """Shares of a job's time on each type, (jobs, types), for the jobs in view."""


def completion_times(
    work: Work, share: Policy, first: int, last: int, *, seed: int, by_type: bool, strict: bool
) -> Real:
    """Seconds from arrival to finish of the jobs `first` to `last` - 1, while others keep coming.

    Args:
        work: jobs; arrivals must continue until the counted jobs have finished.
        share: the policy.
        first: number of the first counted job.
        last: number after the last counted job.
        seed: seed of the random order of types.
        by_type: whether the policy is type-aware.
        strict: whether jobs without share never run (FIFO).
    """
    count = len(work.steps)
    rng = random.Random(seed + 5)
    left = work.steps.copy()
    finished = np.full(count, np.inf)
    share_of, has_share = np.zeros((count, len(TYPES))), np.zeros(count, np.bool_)
    received_s, owed = np.full((count, len(TYPES)), ROUND_S / 2), np.zeros((count, len(TYPES)))
    type_time_s = np.zeros(len(TYPES))
    present, arrived = np.zeros(0, np.int64), 0
    running, kind, steps = present, present, np.zeros(0)
    ends = np.zeros(0)
    now_s, round_start_s, round_end_s, shares_time_s, stale = 0.0, 0.0, -1.0, 0.0, True
    while np.isinf(finished[first:last]).any():
        if len(running):
            round_start_s = max(round_end_s, 0.0)
            now_s = round_end_s = float(ends.max())
            left[running] -= steps
            received_s[running, kind] += ends - round_start_s
            type_time_s += np.bincount(kind, ends - round_start_s, minlength=len(TYPES))
            done = left[running] <= 0.0
            if done.any():
                finished[running[done]] = ends[done]
                present, stale = present[left[present] > 0.0], True
        else:
            now_s = float(work.arrival_s[arrived])
        arrived_now = int(np.searchsorted(work.arrival_s, now_s, "right"))
        if arrived_now == count:
            raise InputError(f"{count:,} jobs are too few to finish jobs {first:,} to {last:,}; generate more")
        if arrived_now > arrived:
            present, arrived, stale = (np.concatenate([present, np.arange(arrived, arrived_now)]), arrived_now, True)
        if stale and (now_s - shares_time_s >= HOLD_S or shares_time_s == 0.0):
            owed[present] += share_of[present] * (now_s - shares_time_s) - (received_s[present] - ROUND_S / 2)
            received_s[present], type_time_s = ROUND_S / 2, np.full(len(TYPES), len(present) * ROUND_S / 2)
            view = View(present.tolist(), now_s, now_s - work.arrival_s[present], left[present], work.speed[present])
            share_of[present], has_share[present] = share(view), True
            shares_time_s, stale = now_s, False
        order = [2, 1, 0]
        if not by_type:
            rng.shuffle(order)
        running, kind = _chosen(
            np.array(order), np.array(WORKERS), present, share_of, has_share, received_s, type_time_s, owed, strict
        )
        speed = work.speed[running, kind]
        steps = np.minimum(np.floor(speed * ROUND_S), left[running])
        ends = now_s + steps / speed
    completion_s: Real = finished[first:last] - work.arrival_s[first:last]
    return completion_s


def compiled(function: F) -> F:
    """Compile with a cache."""
    return cast(F, numba.njit(cache=True)(function))


@compiled
def _chosen(
    order: NDArray[np.int64],
    workers: NDArray[np.int64],
    present: NDArray[np.int64],
    share_of: Real,
    has_share: NDArray[np.bool_],
    received_s: Real,
    type_time_s: Real,
    owed: Real,
    strict: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The jobs of the next round and their GPU types."""
    running = np.empty(workers.sum(), np.int64)
    kinds = np.empty(workers.sum(), np.int64)
    selected = np.zeros(len(present), np.bool_)
    count = 0
    for kind in order:
        free = np.flatnonzero(~selected)
        jobs = present[free]
        share, deficit, priority = np.empty(len(jobs)), np.empty(len(jobs)), np.zeros(len(jobs))
        for row, job in enumerate(jobs):
            share[row], deficit[row] = share_of[job, kind], owed[job, kind]
            if share[row] > 0.0:
                fraction = received_s[job, kind] / type_time_s[kind]
                priority[row] = share[row] / fraction if fraction > 0.0 else share[row] * 1e9
        # By priority, then deficit, then share; ties by arrival.
        ranks = np.argsort(-share, kind="mergesort")
        ranks = ranks[np.argsort(-deficit[ranks], kind="mergesort")]
        ranks = ranks[np.argsort(-priority[ranks], kind="mergesort")]
        for row in ranks[: workers[kind]]:
            if strict and priority[row] <= 0.0:
                break
            selected[free[row]] = True
            if has_share[jobs[row]]:
                running[count], kinds[count] = jobs[row], kind
                count += 1
    return running[:count], kinds[:count]
