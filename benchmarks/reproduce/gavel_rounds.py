"""Gavel's rounds of 360 s: assignment of GPUs to single-GPU jobs in each round, by the time shares of a policy.

As in its simulator (OSDI'20, stanford-futuredata/gavel, scheduler/scheduler.py):

- A round ends when the last of its jobs has done its steps, whole ones in 360 s, so as a rule a little earlier. A job
  that finishes leaves its GPU idle until then. Nothing is lost or paid when a job moves.
- Shares are made anew at the end of a round only if jobs came or went and 1,920 s have passed since the last time.
  Until then a job that came has none: it takes a place in the round, and does not run there.
- A job's priority on a type is its share over the part of the time of that type that it got since then. Behind
  those without share go by what they were owed; only under FIFO do they not run at all.
- Policies that know the types fill V100, P100 and K80 in this order, the others in a random order every round.
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
        work: enough jobs to keep coming until those are done.
        share: the policy.
        first: of the jobs that count.
        last: the one after them.
        seed: Gavel's; it draws the order of types.
        by_type: the policy knows the types.
        strict: jobs without share do not run (FIFO).
    """
    count = len(work.steps)
    shuffling = random.Random(seed + 5)
    left = work.steps.copy()
    finished = np.full(count, np.inf)
    share_of, has_share = np.zeros((count, len(TYPES))), np.zeros(count, np.bool_)
    got, owed = np.full((count, len(TYPES)), ROUND_S / 2), np.zeros((count, len(TYPES)))
    given = np.zeros(len(TYPES))
    here, arrived = np.zeros(0, np.int64), 0
    running, kind, steps = here, here, np.zeros(0)
    ends = np.zeros(0)
    now_s, begun_s, ended_s, made_s, stale = 0.0, 0.0, -1.0, 0.0, True
    while np.isinf(finished[first:last]).any():
        if len(running):
            begun_s = max(ended_s, 0.0)
            now_s = ended_s = float(ends.max())
            left[running] -= steps
            got[running, kind] += ends - begun_s
            given += np.bincount(kind, ends - begun_s, minlength=len(TYPES))
            done = left[running] <= 0.0
            if done.any():
                finished[running[done]] = ends[done]
                here, stale = here[left[here] > 0.0], True
        else:
            now_s = float(work.arrival_s[arrived])
        came = int(np.searchsorted(work.arrival_s, now_s, "right"))
        if came == count:
            raise InputError(
                f"{count:,} jobs are too few to finish jobs {first:,} to {last:,}; generate more"
            )
        if came > arrived:
            here, arrived, stale = np.concatenate([here, np.arange(arrived, came)]), came, True
        if stale and (now_s - made_s >= HOLD_S or made_s == 0.0):
            owed[here] += share_of[here] * (now_s - made_s) - (got[here] - ROUND_S / 2)
            got[here], given = ROUND_S / 2, np.full(len(TYPES), len(here) * ROUND_S / 2)
            view = View(here.tolist(), now_s, now_s - work.arrival_s[here], left[here], work.speed[here])
            share_of[here], has_share[here] = share(view), True
            made_s, stale = now_s, False
        order = [2, 1, 0]
        if not by_type:
            shuffling.shuffle(order)
        running, kind = _chosen(
            np.array(order), np.array(WORKERS), here, share_of, has_share, got, given, owed, strict
        )
        speed = work.speed[running, kind]
        steps = np.minimum(np.floor(speed * ROUND_S), left[running])
        ends = now_s + steps / speed
    wanted: Real = finished[first:last] - work.arrival_s[first:last]
    return wanted


def compiled(function: F) -> F:
    """Compile with a cache."""
    return cast(F, numba.njit(cache=True)(function))


@compiled
def _chosen(
    order: NDArray[np.int64],
    workers: NDArray[np.int64],
    here: NDArray[np.int64],
    share_of: Real,
    has_share: NDArray[np.bool_],
    got: Real,
    given: Real,
    owed: Real,
    strict: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The jobs of the next round and their GPU types."""
    running = np.empty(workers.sum(), np.int64)
    kinds = np.empty(workers.sum(), np.int64)
    taken = np.zeros(len(here), np.bool_)
    count = 0
    for kind in order:
        free = np.flatnonzero(~taken)
        jobs = here[free]
        share, late, priority = np.empty(len(jobs)), np.empty(len(jobs)), np.zeros(len(jobs))
        for place, job in enumerate(jobs):
            share[place], late[place] = share_of[job, kind], owed[job, kind]
            if share[place] > 0.0:
                part = got[job, kind] / given[kind]
                priority[place] = share[place] / part if part > 0.0 else share[place] * 1e9
        # By priority, then deficit, then share; ties by arrival.
        ranks = np.argsort(-share, kind="mergesort")
        ranks = ranks[np.argsort(-late[ranks], kind="mergesort")]
        ranks = ranks[np.argsort(-priority[ranks], kind="mergesort")]
        for place in ranks[: workers[kind]]:
            if strict and priority[place] <= 0.0:
                break
            taken[free[place]] = True
            if has_share[jobs[place]]:
                running[count], kinds[count] = jobs[place], kind
                count += 1
    return running[:count], kinds[:count]
