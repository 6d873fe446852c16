"""Gavel's policies as in its simulator: the share of time that a job spends on each GPU type.

Narayanan et al., OSDI'20, stanford-futuredata/gavel, scheduler/policies. Types are in alphabetical order: K80, P100,
V100. All jobs have one GPU.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks.reproduce.gavel_rounds import WORKERS, View
from benchmarks.reproduce.max_min_shares import max_min_shares

__all__ = ["AlloX", "Fifo", "fifo_by_type", "las", "las_by_type"]

Real = NDArray[np.float64]
KINDS = range(len(WORKERS))


class Fifo:
    """First come, first served; a job keeps its type until it is done.

    Gavel's code draws a random type for a job, but then takes the last one on its list: V100 if one is free, then
    P100, then K80. When a type is full, the drawn type leaves the list. If that is another type, the full one stays and
    gets all waiting jobs, so that it has more jobs than GPUs until they end. Both errors are reproduced here.

    >>> view = View([0, 1], 0.0, np.zeros(2), np.ones(2), np.ones((2, 3)))
    >>> Fifo(seed=0)(view).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._kind: dict[int, int] = {}

    def __call__(self, view: View) -> Real:
        """All of a job's time on its type, if it has one."""
        present = set(view.jobs)
        waiting = [job for job in view.jobs if job not in self._kind]
        free = list(WORKERS)
        for job, kind in sorted(self._kind.items()):
            if job in present:
                free[kind] -= 1
                continue
            del self._kind[job]
            if waiting and free[kind] >= 1:
                self._kind[waiting.pop(0)] = kind
                free[kind] -= 1
        listed = [kind for kind in KINDS if free[kind] > 0]
        while waiting and (free_positions := [row for row, kind in enumerate(listed) if free[kind] >= 1]):
            position = free_positions[self._rng.randrange(len(free_positions))]
            kind = listed[-1]
            self._kind[waiting.pop(0)] = kind
            free[kind] -= 1
            if free[kind] == 0:
                listed.pop(position)
        return _full_shares(view, self._kind)


def fifo_by_type(view: View) -> Real:
    """First come, first served: each job takes the fastest GPU type with free GPUs, recomputed every time.

    >>> view = View([3, 4], 0.0, np.zeros(2), np.ones(2), np.array([[1.0, 3.0, 2.0]] * 2))
    >>> fifo_by_type(view).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """
    free = list(WORKERS)
    kinds = {}
    for job, speed in zip(view.jobs, view.speed.tolist(), strict=True):
        if not any(free):
            break
        kinds[job] = max((kind for kind in KINDS if free[kind]), key=speed.__getitem__)
        free[kinds[job]] -= 1
    return _full_shares(view, kinds)


def las(view: View) -> Real:
    """Equal shares of every type for all, the analytic centre of the max-min fair solutions."""
    jobs = len(view.jobs)
    return np.tile(np.array(WORKERS) / max(jobs, sum(WORKERS)), (jobs, 1))


def las_by_type(view: View) -> Real:
    """Maximize the minimum speed-up over an equal share of every type."""
    if not view.jobs:
        return np.zeros((0, len(WORKERS)))
    workers = np.array(WORKERS, float)
    equal = view.speed @ (workers / workers.sum())
    return max_min_shares(view.speed / equal[:, None], workers)


class AlloX:
    """Minimum total completion time (Le et al., EuroSys'20): a matching of jobs to queue positions of GPUs.

    A job that has a GPU keeps its type until it ends; of the others, those first in the queue of a free GPU get it.
    """

    def __init__(self) -> None:
        self._kind: dict[int, int] = {}

    def __call__(self, view: View) -> Real:
        """All of a job's time on its type, if it has one."""
        self._kind = {job: self._kind[job] for job in view.jobs if job in self._kind}
        busy = list(self._kind.values())
        gpus = [kind for kind in KINDS for _ in range(WORKERS[kind] - busy.count(kind))]
        rows = [row for row, job in enumerate(view.jobs) if job not in self._kind]
        if gpus and rows:
            runs = view.left[rows, None] / view.speed[rows][:, gpus]
            # A job that is the k-th from the end of a queue delays k jobs, itself among them.
            cost = np.concatenate([runs * k for k in range(1, len(rows) + 1)], axis=1)
            first_in_queue: dict[int, tuple[int, int]] = {}
            for row, column in zip(*linear_sum_assignment(cost + view.waited_s[rows, None]), strict=True):
                from_end, gpu = divmod(int(column), len(gpus))
                if from_end >= first_in_queue.get(gpu, (0, 0))[0]:
                    first_in_queue[gpu] = (from_end, view.jobs[rows[row]])
            self._kind.update({job: gpus[gpu] for gpu, (_, job) in first_in_queue.items()})
        return _full_shares(view, self._kind)


def _full_shares(view: View, kinds: dict[int, int]) -> Real:
    """Shares of 1 for the type of each job that has one."""
    shares = np.zeros((len(view.jobs), len(WORKERS)))
    for row, job in enumerate(view.jobs):
        if job in kinds:
            shares[row, kinds[job]] = 1.0
    return shares
