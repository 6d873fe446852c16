"""Checks of a log as a whole: a machine that is too small, overload, absurd estimates, clock jumps, missing days."""

from __future__ import annotations

import numpy as np

from kilowait.cluster.cluster import peak_use
from kilowait.jobs import JobTable

DAY_S = 86400.0
LONGEST_ESTIMATE_S = 366 * DAY_S
"""A longer estimate is absurd: no scheduler plans with it."""
CLOCK_JUMP_S = 3600.0
"""A submission earlier than that of a job with a smaller number by this much is a clock that was set back."""
ORDERED_SHARE = 0.99
"""Share of jobs in order of submission from which job numbers are taken as the order of submission."""
BUSY_DAY_JOBS = 10
"""Mean number of jobs a day from which a day without jobs is a gap in the log."""


def findings(jobs: JobTable, size: int | None) -> list[str]:
    """Texts about properties of the log that are probably wrong, or make its simulation meaningless.

    `size` is the size of the machine in the unit of the jobs; None: unknown.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 100], runtime_s=[500, 500], nodes=[3, 3], wait_s=[0, 0])
    >>> for text in findings(jobs, 4):
    ...     print(text)
    recorded use peaks at 6 nodes, above the 4 of the cluster: the size of the cluster is wrong, or jobs share nodes
    offered load 7.5: the queue grows without bound; use a larger cluster or a lower --load
    """
    checks = (
        _exceeded_machine(jobs, size), _overload(jobs, size), _absurd_estimates(jobs), _clock_jumps(jobs),
        _missing_days(jobs),
    )  # fmt: skip
    return [text for text in checks if text is not None]


def _exceeded_machine(jobs: JobTable, size: int | None) -> str | None:
    peak = peak_use(jobs)
    if peak is None or size is None or peak <= size:
        return None
    shared = ", or jobs share nodes" if jobs.unit == "node" else ""
    return (
        f"recorded use peaks at {peak:,} {jobs.unit}s, above the {size:,} of the cluster: the size of the cluster is "
        f"wrong{shared}"
    )


def _overload(jobs: JobTable, size: int | None) -> str | None:
    span_s = float(np.ptp(jobs["submit_s"]))
    if size is None or not span_s > 0:
        return None
    load = float(np.dot(jobs.size.astype(np.float64), jobs["runtime_s"])) / (size * span_s)
    if load <= 1:
        return None
    return f"offered load {load:.3g}: the queue grows without bound; use a larger cluster or a lower --load"


def _absurd_estimates(jobs: JobTable) -> str | None:
    estimate = jobs["estimate_s"]
    absurd = estimate > LONGEST_ESTIMATE_S
    if not absurd.any():
        return None
    days = float(estimate.max()) / DAY_S
    return (
        f"{int(absurd.sum()):,} jobs have estimates above a year, up to {days:,.0f} days: reservations cannot use them"
    )


def _clock_jumps(jobs: JobTable) -> str | None:
    """Job numbers in the order of submission, except at a few places where the time goes back."""
    submit = jobs["submit_s"][np.argsort(jobs["job_id"], kind="stable")]
    step = np.diff(submit)
    if not len(step) or (step >= 0).mean() < ORDERED_SHARE:
        return None
    back = step <= -CLOCK_JUMP_S
    if not back.any():
        return None
    return (
        f"the clock jumps back {int(back.sum()):,} times in the order of job numbers, by up to "
        f"{float(-step.min()) / 3600:,.1f} h: submission times there are doubtful"
    )


def _missing_days(jobs: JobTable) -> str | None:
    submit = np.sort(jobs["submit_s"])
    days = float(submit[-1] - submit[0]) / DAY_S
    if days < 3 or len(submit) / days < BUSY_DAY_JOBS:
        return None
    gap_s = np.diff(submit)
    missing = gap_s >= 3 * DAY_S
    if not missing.any():
        return None
    longest = int(np.argmax(gap_s))
    return (
        f"{int(missing.sum()):,} gaps of three days or more without a submission, the longest of "
        f"{gap_s[longest] / DAY_S:.1f} days from day {(submit[longest] - submit[0]) / DAY_S:.0f} of the log: data are "
        "missing, or the machine was down"
    )
