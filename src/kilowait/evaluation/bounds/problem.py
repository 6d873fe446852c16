"""What is left of a workload when only its best schedule is asked for: release, run time and size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kilowait.errors import InputError
from kilowait.evaluation.job_measures import Floats, Ints, Mask
from kilowait.jobs import JobTable

__all__ = ["SchedulingProblem", "checked_bound", "problem_of"]


@dataclass(frozen=True, slots=True)
class SchedulingProblem:
    """Jobs as columns, in the table's order; times are seconds since the first submission."""

    first_submit_s: float
    """On the log's clock."""
    release_s: Floats
    """When a job can start at the earliest: its submission, or the end of its hold (begin_s)."""
    run_s: Floats
    nodes: Ints
    follows: Mask
    """Jobs that also wait for the end of another one of the table."""


def problem_of(jobs: JobTable, nodes: int) -> SchedulingProblem:
    """The problem these jobs are on that many whole nodes, or an InputError where it is none."""
    if len(jobs) == 0:
        raise InputError("there are no jobs, so no schedule to look for; give a table of one job or more")
    if nodes < 1:
        raise InputError(f"the machine has {nodes} nodes; give it 1 or more")
    largest = int(np.argmax(jobs["nodes"]))
    if jobs["nodes"][largest] > nodes:
        raise InputError(
            f"job {jobs['job_id'][largest]} needs {jobs['nodes'][largest]} nodes of a machine of {nodes}; "
            "leave out jobs that can never run"
        )
    if np.isfinite(jobs.column("cancel_s")).any():
        raise InputError(
            "some jobs have a cancel_s: which of them run depends on the schedule, and schedules of different "
            "jobs cannot be compared; take it off with jobs.with_columns(cancel_s=None)"
        )
    first = float(jobs["submit_s"].min())
    after = jobs.column("after_id")
    return SchedulingProblem(
        first_submit_s=first,
        release_s=np.maximum(jobs["submit_s"], jobs.column("begin_s")) - first,
        run_s=jobs["runtime_s"],
        nodes=jobs["nodes"],
        follows=(after >= 0) & np.isin(after, jobs["job_id"]),
    )


def checked_bound(bound_s: float) -> float:
    """The bound of the slowdown, seconds, if it can be one."""
    if not (math.isfinite(bound_s) and bound_s > 0):
        raise InputError(f"bound_s is {bound_s}; the bound of the slowdown must be a finite number above 0")
    return float(bound_s)
