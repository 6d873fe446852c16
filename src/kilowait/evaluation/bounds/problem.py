"""The scheduling problem of a workload: release time, run time and size of each job."""

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
    largest = int(np.argmax(jobs["nodes"]))
    if jobs["nodes"][largest] > nodes:
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
        nodes=jobs["nodes"],
        follows=(after >= 0) & np.isin(after, jobs["job_id"]),
    )


def checked_bound(bound_s: float) -> float:
    """Return the bound of the bounded slowdown in seconds, or raise an InputError."""
    if not (math.isfinite(bound_s) and bound_s > 0):
        raise InputError(f"bound_s is {bound_s}; the bound of the slowdown must be a finite number above 0")
    return float(bound_s)
