"""Lower bounds on the metrics of all schedules, optimal schedules of small problems, and perfect run-time estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.evaluation.job_measures import Mask, checked_bound
from kilowait.jobs import JobTable
from kilowait.series import Floats, Ints

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


@dataclass(frozen=True, slots=True)
class SchedulingProblem:
    """Jobs as columns, in the table's order; times are seconds since the first submission."""

    first_submit_s: float
    """In the time of the log."""
    release_s: Floats
    """Earliest possible start of each job: its submission, or its begin time (`begin_s`) if later."""
    run_s: Floats
    nodes: Ints
    follows: Mask
    """Jobs that depend on the end of another job of the table."""


def problem_of(jobs: JobTable, nodes: int) -> SchedulingProblem:
    """The scheduling problem of these jobs on `nodes` whole nodes; InputError if it is not well defined."""
    if len(jobs) == 0:
        raise InputError("there are no jobs to schedule; give a table of one job or more")
    if nodes < 1:
        raise InputError(f"the machine has {nodes} nodes; give it 1 or more")
    largest = int(np.argmax(jobs.size))
    if jobs.size[largest] > nodes:
        raise InputError(
            f"job {jobs['job_id'][largest]} needs {jobs['nodes'][largest]} nodes of a machine of {nodes}; "
            "remove jobs that can never run"
        )
    if np.isfinite(jobs.column("cancel_s")).any():
        raise InputError(
            "some jobs have a cancel_s: which of them run depends on the schedule, and schedules of different "
            "jobs cannot be compared; remove it with jobs.with_columns(cancel_s=None)"
        )
    first = float(jobs["submit_s"].min())
    after = jobs.column("after_id")
    return SchedulingProblem(
        first_submit_s=first,
        release_s=np.maximum(jobs["submit_s"], jobs.column("begin_s")) - first,
        run_s=jobs["runtime_s"],
        nodes=jobs.size,
        follows=(after >= 0) & np.isin(after, jobs["job_id"]),
    )


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
            `kilowait.engine.run_times.resolve_run_times(jobs, "kill").run_s`: pass a table with that `runtime_s`.
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


_OBJECTIVES = ("mean_wait_s", "mean_bsld", "makespan_s")
_MAX_JOBS = 12
_MAX_HORIZON_S = 2**36
"""About 2,000 years, from the first submission to the end of all jobs run sequentially."""
_MAX_SUM = 2**52
"""Largest sum in the solver, which also stores sums as float64."""


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The best schedule found."""

    value: float
    """Of the objective, computed from `start_s` as `metrics` does."""
    start_s: Floats
    """Start of each job in the time of the log, in the table's order."""
    proven: bool
    """Whether the solver proved that no schedule has a value below `value` - `tolerance`."""
    tolerance: float
    """0, except for mean bounded slowdowns whose weights had to be rounded for the solver."""


def optimum(
    jobs: JobTable, nodes: int, *, objective: str = "mean_wait_s", seconds: float = 30.0, bound_s: float = 10.0
) -> Optimum:
    """The non-preemptive schedule of at most 12 jobs on `nodes` whole nodes with the smallest `objective`.

    The schedule is clairvoyant: it knows all run times and future arrivals, and may leave nodes idle for them.

    Starts are whole seconds, and so must be run times, `bound_s`, and submissions (and `begin_s`) relative to
    the first one. This loses nothing: moving each job as early as the others allow makes no objective
    worse, and then every start is a release, or the end (or start) of another job: a sum of whole numbers.

    A mean bounded slowdown weights waits by 1/D, D = max(run time, `bound_s`). The solver gets integer
    weights K/D: exact if a small enough common multiple K of all D exists. Otherwise K is a large power of 2
    and K/D is rounded. Then weights are off by at most 1/(2K), the mean of a schedule by at most H/(2K), H
    being the longest wait considered, and the optimum for these weights is within `tolerance` = H/K of the true one.

    The search runs on one thread from a fixed seed, so that a proven result is reproducible; one that was stopped
    after `seconds` depends on the speed of the computer. Ten jobs usually take a fraction of a second; twelve that
    all compete may take more than a minute.

    Args:
        jobs: the workload; `estimate_s` is ignored. Jobs with a dependency (`after_id`) are refused:
            their waits are counted from a time that depends on the schedule.
        nodes: whole nodes of the machine.
        objective: ``"mean_wait_s"``, ``"mean_bsld"`` or ``"makespan_s"``, as in `metrics`.
        seconds: time limit of the search.
        bound_s: bound of the bounded slowdown, seconds.

    In this example it is optimal to leave a node idle for a second, until the wide job arrives:

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[100, 10], nodes=[1, 4])
    >>> best = optimum(jobs, 4)
    >>> best.value, best.start_s.tolist(), best.proven
    (5.5, [11.0, 1.0], True)
    """
    if objective not in _OBJECTIVES:
        raise UnknownNameError("objective", objective, _OBJECTIVES)
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"seconds is {seconds}; give the search a finite time above 0")
    problem = _checked_problem(jobs, nodes)
    release, run = (
        _whole_seconds("submission, from the first one on,", problem.release_s),
        _whole_seconds("run time", problem.run_s),
    )
    (bound,) = _whole_seconds("bound_s", np.array([checked_bound(bound_s)]))
    horizon = max(release) + sum(run)
    if horizon > _MAX_HORIZON_S:
        raise InputError(f"the jobs span {horizon} s; the search counts to {_MAX_HORIZON_S}")
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingExtraError("ortools", "opt") from None

    model = cp_model.CpModel()
    start = [model.new_int_var(r, horizon - p, "") for r, p in zip(release, run, strict=True)]
    _limit_nodes(model, start, run, problem.nodes.tolist(), nodes)
    tolerance = _minimize(model, start, objective, (release, run), bound, horizon)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_time_in_seconds = seconds
    # Reasoning over work and time: slower steps, but proofs take fewer of them.
    solver.parameters.linearization_level = 2
    solver.parameters.use_timetable_edge_finding_in_cumulative = True
    solver.parameters.use_overload_checker_in_cumulative = True
    solver.parameters.use_disjunctive_constraint_in_cumulative = True
    solver.parameters.use_conservative_scale_overload_checker = True
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise InputError(f"the search found no schedule in {seconds} s; allow it more seconds")
    begin = np.array([solver.value(s) for s in start], np.float64)
    return Optimum(
        value=_value(problem, begin, objective, float(bound)),
        start_s=begin + problem.first_submit_s,
        proven=status == cp_model.OPTIMAL,
        tolerance=tolerance,
    )


def _minimize(
    model: cp_model.CpModel,
    start: list[cp_model.IntVar],
    objective: str,
    release_and_run: tuple[list[int], list[int]],
    bound: int,
    horizon: int,
) -> float:
    """Set the objective of the model; returns its tolerance."""
    release, run = release_and_run
    if objective == "mean_wait_s":
        model.minimize(sum(start))
        return 0.0
    if objective == "makespan_s":
        end = model.new_int_var(0, horizon, "")
        for s, p in zip(start, run, strict=True):
            model.add(end >= s + p)
        model.minimize(end)
        return 0.0
    floor = [max(p, bound) for p in run]
    scale = _scale(floor, horizon)
    over = []  # seconds by which a job exceeds a bounded slowdown of 1
    for s, r, p, d in zip(start, release, run, floor, strict=True):
        over.append(model.new_int_var(0, horizon, ""))
        model.add(over[-1] >= s - r - (d - p))
    model.minimize(sum(round(scale / d) * seconds_over for d, seconds_over in zip(floor, over, strict=True)))
    return horizon / scale if any(scale % d for d in floor) else 0.0


def _checked_problem(jobs: JobTable, nodes: int) -> SchedulingProblem:
    if len(jobs) > _MAX_JOBS:
        raise InputError(
            f"{len(jobs)} jobs are too many for an optimal schedule; give at most {_MAX_JOBS}, or use lower_bounds"
        )
    problem = problem_of(jobs, nodes)
    if problem.follows.any():
        row = int(np.argmax(problem.follows))
        raise InputError(
            f"job {jobs['job_id'][row]} depends on the end of job {jobs['after_id'][row]}, and the search does not "
            "support dependencies; remove them with jobs.with_columns(after_id=None)"
        )
    return problem


def _whole_seconds(what: str, times_s: Floats) -> list[int]:
    odd = times_s != np.floor(times_s)
    if odd.any():
        raise InputError(
            f"a {what} is {times_s[odd][0]} s; the search needs whole seconds, "
            "so round the times, or give all of them in a finer unit"
        )
    return [int(time_s) for time_s in times_s]


def _limit_nodes(
    model: cp_model.CpModel, start: list[cp_model.IntVar], run: list[int], size: list[int], nodes: int
) -> None:
    """Constrain the nodes used at any time to `nodes`.

    A job of 0 s must fit beside the jobs that run before and after its instant. Jobs that end or start at that
    instant may do so before or after it, and several jobs of 0 s run one by one. So each of them gets a constraint
    in half seconds: the other jobs occupy those strictly between their start and end, and it occupies its start.
    """
    lasting = [j for j, p in enumerate(run) if p > 0]
    sizes = [size[j] for j in lasting]
    model.add_cumulative([model.new_fixed_size_interval_var(start[j], run[j], "") for j in lasting], sizes, nodes)
    between = [model.new_fixed_size_interval_var(2 * start[j] + 1, 2 * run[j] - 1, "") for j in lasting]
    for j, p in enumerate(run):
        if p == 0:
            instant = model.new_fixed_size_interval_var(2 * start[j], 1, "")
            model.add_cumulative([*between, instant], [*sizes, size[j]], nodes)


def _scale(floor: list[int], horizon: int) -> int:
    """The factor K of the weights K/D: a common multiple of all D if it fits, else as large as sums allow."""
    max_scale = _MAX_SUM * min(floor) // (len(floor) * max(horizon, 1))
    exact = math.lcm(*floor)
    return exact if exact <= max_scale else 1 << (max_scale.bit_length() - 1)


def _value(problem: SchedulingProblem, begin_s: Floats, objective: str, bound_s: float) -> float:
    wait_s = begin_s - problem.release_s
    if objective == "mean_wait_s":
        return float(wait_s.mean())
    if objective == "makespan_s":
        return float((begin_s + problem.run_s).max())
    floor = np.maximum(problem.run_s, bound_s)
    return float(np.maximum(1.0, (wait_s + problem.run_s) / floor).mean())


def with_perfect_estimates(jobs: JobTable) -> JobTable:
    """The same jobs with their actual run times as estimates, to measure a policy with perfect knowledge.

    Predictions (`planned_s`, `overrun_planned_s`) and walltime limits are removed, because no job exceeds its
    estimate. The difference of a policy's results on the two tables is the possible gain from better estimates.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], estimate_s=[3600, 3600], nodes=[4, 1])
    >>> with_perfect_estimates(jobs)["estimate_s"].tolist()
    [60.0, 30.0]
    """
    return jobs.with_columns(
        estimate_s=jobs["runtime_s"],
        planned_s=None,
        limit_s=None,
        overrun_planned_s=None,
        expected_inverse_runtime=None,
    )
