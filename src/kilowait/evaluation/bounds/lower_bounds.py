"""Lower bounds on mean wait, mean bounded slowdown and makespan over all schedules, clairvoyant ones included."""

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
    """Lower bounds of the metrics of any schedule of the jobs, as defined in `metrics`."""

    mean_wait_s: float
    mean_bsld: float
    makespan_s: float


def lower_bounds(jobs: JobTable, nodes: int, *, bound_s: float = 10.0) -> Bounds:
    """Lower bounds on the mean wait, mean bounded slowdown and makespan of these jobs on `nodes` whole nodes.

    No schedule that runs every job for its `runtime_s` on its `nodes` does better, whether clairvoyant, or even
    preemptive if waits are defined as turnaround minus run time. The bounds are computed in floating point: they
    hold to about nine digits. They are tight for queues of wide jobs, and far below any schedule for narrow
    jobs: they account for work, not for the gaps between jobs that do not fit.

    *Makespan.* The work released at or after r ends no earlier than r + its node-seconds / `nodes`; nor
    than r + the sum of the run times of its jobs that need more than half of the nodes; and no job
    ends before its release + run time. The bound is the largest of these minus the first submission.

    *Mean wait* (Goemans' relaxation by mean busy times). Let job j have release r, run time p, area
    a = nodes · p, weight w, and let a schedule serve it at the rate x(t), so that ∫x = a. Its mean busy time
    is M = ∫ t·x(t) dt / a. At a constant rate, without interruption, from its start S, M = S + p/2; with
    interruptions its completion still satisfies C >= M + p/2. So the weighted sum of C - p - r, that is of waits,
    is at least the sum of w·(M - p/2 - r). Relax the machine to a fluid: any rates that sum to at most `nodes`.
    The sum of w·M is the sum of ∫ (w/a)·t·x(t) dt, a transport of areas to times, and an exchange argument shows
    that serving the released job with the largest w/a at the full rate minimises it. Real schedules are feasible
    in the relaxation, so this minimum is a bound with w = 1 / number of jobs.

    It is also a bound for any subset of the jobs, since the others wait 0 s or more. The fluid machine is idle at
    times; between two idle times is a *busy period*, and busy periods are independent. So those with a sum
    below 0 are left out. So are jobs of 0 s, which need no area, and jobs that depend on the end of another
    (`after_id`): their wait is counted from a time that depends on the schedule.

    *Mean bounded slowdown.* With D = max(p, `bound_s`) it is max(1, (C - r)/D) = 1 + max(0, C - p - r - (D - p))/D
    for each job: the same bound, with weights 1/D and D - p taken off each wait.

    Args:
        jobs: the workload; `begin_s` is respected. With `at_limit="kill"` jobs run only for
            `kilowait.engine.run_times.times_of(jobs, "kill").run_s`: pass a table with that `runtime_s`.
        nodes: whole nodes of the machine; outages only make schedules worse, so the bounds still hold.
        bound_s: bound of the bounded slowdown, seconds.

    Two jobs need the whole machine: the shorter runs first and the longer waits 10 s.

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
    return Bounds(mean_wait_s=wait_s / count, mean_bsld=1.0 + slowdown / count, makespan_s=_makespan(problem, nodes))


def _makespan(problem: SchedulingProblem, nodes: int) -> float:
    order = np.argsort(problem.release_s)
    release, run, size = problem.release_s[order], problem.run_s[order], problem.nodes[order]

    def one_after_another(work_s: Floats) -> float:
        """Latest end, over all release times, of the work released from then on, run without gaps."""
        return float((release + np.cumsum(work_s[::-1])[::-1]).max())

    return max(
        float((release + run).max()),
        one_after_another(run * (size / nodes)),
        one_after_another(np.where(2 * size > nodes, run, 0.0)),
    )


def _fluid_excess(problem: SchedulingProblem, nodes: int, weight: Floats, allowed_s: Floats) -> float:
    """Minimum sum of weight · (wait - allowed) of the fluid machine, over the busy periods with a positive sum.

    Times within a period are relative to its start, which keeps precision when absolute times are large.
    """
    rows = np.flatnonzero((problem.run_s > 0) & ~problem.follows)
    # Jobs are numbered by density, so that the heap holds plain numbers.
    area_s = problem.run_s * (problem.nodes / nodes)  # seconds of the whole machine
    rows = rows[np.argsort(area_s[rows] / weight[rows], kind="stable")]
    weights, release = weight[rows], problem.release_s[rows]
    arrivals = np.argsort(release, kind="stable")
    arrival_s: list[float] = release[arrivals].tolist()
    number: list[int] = arrivals.tolist()
    remaining_s: list[float] = area_s[rows].tolist()
    gain: list[float] = (weights / area_s[rows]).tolist()
    due: list[float] = (weights * (problem.run_s[rows] / 2.0 + allowed_s[rows])).tolist()
    weight_of: list[float] = weights.tolist()

    total, next_arrival, count = 0.0, 0, len(number)
    waiting: list[int] = []
    while next_arrival < count:
        period_start_s = arrival_s[next_arrival]
        now, excess = 0.0, 0.0  # since the start of the busy period
        next_s = 0.0
        while True:
            while next_s <= now:
                job = number[next_arrival]
                heappush(waiting, job)
                excess -= weight_of[job] * next_s + due[job]
                next_arrival += 1
                next_s = arrival_s[next_arrival] - period_start_s if next_arrival < count else math.inf
            if not waiting:
                break
            job = waiting[0]
            served_s = remaining_s[job]
            if now + served_s <= next_s:
                heappop(waiting)
                end = now + served_s
            else:
                served_s, end = next_s - now, next_s
                remaining_s[job] -= served_s
            excess += gain[job] * served_s * (now + served_s / 2.0)
            now = end
        total += max(excess, 0.0)
    return total
