"""Bounds that no schedule can beat, however clever and whatever it knows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from kilowait.evaluation.bounds.problem import SchedulingProblem, checked_bound, problem_of
from kilowait.evaluation.job_measures import Floats
from kilowait.jobs import JobTable

__all__ = ["Bounds", "lower_bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What every schedule of the jobs reaches or exceeds, as `metrics` would measure it."""

    mean_wait_s: float
    mean_bsld: float
    makespan_s: float


def lower_bounds(jobs: JobTable, nodes: int, *, bound_s: float = 10.0) -> Bounds:
    """Bounds on the mean wait, mean bounded slowdown and makespan of these jobs on `nodes` whole nodes.

    No schedule that runs every job for its `runtime_s` on its `nodes` does better, be it clairvoyant, or even
    preemptive if its waits are turnarounds less run times. The bounds are computed in floating point: they
    hold to about nine digits. They are easily met where jobs are wide and queue up, and far below what any
    schedule reaches where jobs are narrow: they see work, not the gaps between jobs that do not fit.

    *Makespan.* What is released at or after r is done no earlier than r + its node-seconds / `nodes`; nor
    than r + the run times, one after the other, of its jobs that need more than half of the nodes; and no job
    ends before its release + run time. The largest of these, less the first submission.

    *Mean wait* (Goemans' relaxation by mean busy times). Let job j have release r, run time p, area
    a = nodes · p, weight w, and let a schedule serve it at the rate x(t), so that ∫x = a. Its mean busy time
    is M = ∫ t·x(t) dt / a. At a constant rate, without a break, from its start S, M = S + p/2; with breaks its
    completion is C >= M + p/2 still. So the weighted sum of C - p - r, that is of waits, is at least the
    sum of w·(M - p/2 - r). Now let the machine be a fluid: any rates that sum to at most `nodes`. The sum of
    w·M is the sum of ∫ (w/a)·t·x(t) dt, a transport of areas to times, and an exchange of two pieces shows
    that serving the released job with the largest w/a at the full rate minimises it. Real schedules are among
    the fluid ones, so this minimum is a bound with w = 1 / number of jobs.

    It is also a bound for any part of the jobs, and the others wait 0 s or more. The fluid is idle at times;
    between two such times is a *busy period*, and periods have nothing to do with one another. So those
    with a sum below 0 are left out. So are jobs of 0 s, which need no area, and jobs that wait for the end
    of another (`after_id`): their wait is counted from a time that the schedule itself decides.

    *Mean bounded slowdown.* With D = max(p, `bound_s`) it is max(1, (C - r)/D) = 1 + max(0, C - p - r - (D - p))/D
    for each job: the same bound, with weights 1/D and D - p taken off each wait.

    Args:
        jobs: the workload; `begin_s` is obeyed. Under the walltime rule `kill` jobs run for
            `kilowait.engine.job_times.times_of(jobs, "kill").run_s` only: pass a table whose `runtime_s` is that.
        nodes: whole nodes of the machine; outages only make schedules worse.
        bound_s: bound of the bounded slowdown, seconds.

    Two jobs of the whole machine, one after the other: the shorter first, and the longer waits 10 s.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[30, 10], nodes=[4, 4])
    >>> lower_bounds(jobs, 4)
    Bounds(mean_wait_s=5.0, mean_bsld=1.1666666666666667, makespan_s=40.0)
    """
    bound_s = checked_bound(bound_s)
    problem = problem_of(jobs, nodes)
    floor = np.maximum(problem.run_s, bound_s)
    count = len(jobs)
    wait_s = _fluid_excess(problem, nodes, np.ones(count), np.zeros(count))
    slowdown = _fluid_excess(problem, nodes, 1.0 / floor, floor - problem.run_s)
    return Bounds(
        mean_wait_s=wait_s / count,
        mean_bsld=1.0 + slowdown / count,
        makespan_s=_makespan(problem, nodes),
    )


def _makespan(problem: SchedulingProblem, nodes: int) -> float:
    order = np.argsort(problem.release_s)
    release, run, size = problem.release_s[order], problem.run_s[order], problem.nodes[order]

    def one_after_another(work_s: Floats) -> float:
        """The end of the work released at or after any time, done without a gap."""
        return float((release + np.cumsum(work_s[::-1])[::-1]).max())

    return max(
        float((release + run).max()),
        one_after_another(run * (size / nodes)),
        one_after_another(np.where(2 * size > nodes, run, 0.0)),
    )


def _fluid_excess(problem: SchedulingProblem, nodes: int, weight: Floats, allowed_s: Floats) -> float:
    """The least sum of weight · (wait - allowed) of the fluid machine, over its busy periods where it is above 0.

    Times within a period are taken from its start, so that little is lost when they are large.
    """
    rows = np.flatnonzero((problem.run_s > 0) & ~problem.follows)
    # A job's number is its place by density, so that the heap holds plain numbers.
    area_s = problem.run_s * (problem.nodes / nodes)  # seconds of the whole machine
    rows = rows[np.argsort(area_s[rows] / weight[rows], kind="stable")]
    weights, release = weight[rows], problem.release_s[rows]
    arrivals = np.argsort(release, kind="stable")
    arrival_s: list[float] = release[arrivals].tolist()
    number: list[int] = arrivals.tolist()
    left_s: list[float] = area_s[rows].tolist()
    gain: list[float] = (weights / area_s[rows]).tolist()
    due: list[float] = (weights * (problem.run_s[rows] / 2.0 + allowed_s[rows])).tolist()
    weight_of: list[float] = weights.tolist()

    total, coming, count = 0.0, 0, len(number)
    waiting: list[int] = []
    while coming < count:
        opened_s = arrival_s[coming]
        now, excess = 0.0, 0.0  # since the period opened
        next_s = 0.0
        while True:
            while next_s <= now:
                job = number[coming]
                heappush(waiting, job)
                excess -= weight_of[job] * next_s + due[job]
                coming += 1
                next_s = arrival_s[coming] - opened_s if coming < count else math.inf
            if not waiting:
                break
            job = waiting[0]
            served_s = left_s[job]
            if now + served_s <= next_s:
                heappop(waiting)
                end = now + served_s
            else:
                served_s, end = next_s - now, next_s
                left_s[job] -= served_s
            excess += gain[job] * served_s * (now + served_s / 2.0)
            now = end
        total += max(excess, 0.0)
    return total
