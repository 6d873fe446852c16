"""Optimal schedules of at most 12 jobs, by constraint programming."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.evaluation.bounds.problem import SchedulingProblem, checked_bound, problem_of
from kilowait.evaluation.job_measures import Floats
from kilowait.jobs import JobTable

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Optimum", "optimum"]

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
    tolerance = 0.0
    if objective == "mean_wait_s":
        model.minimize(sum(start))
    elif objective == "makespan_s":
        end = model.new_int_var(0, horizon, "")
        for s, p in zip(start, run, strict=True):
            model.add(end >= s + p)
        model.minimize(end)
    else:
        floor = [max(p, bound) for p in run]
        scale = _scale(floor, horizon)
        over = []  # seconds by which a job exceeds a bounded slowdown of 1
        for s, r, p, d in zip(start, release, run, floor, strict=True):
            over.append(model.new_int_var(0, horizon, ""))
            model.add(over[-1] >= s - r - (d - p))
        model.minimize(sum(round(scale / d) * seconds_over for d, seconds_over in zip(floor, over, strict=True)))
        tolerance = horizon / scale if any(scale % d for d in floor) else 0.0

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
