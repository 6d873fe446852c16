"""User statistics: number of users, inequality, sessions, and repetitions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable
from kilowait.synth.fidelity.job_features import REPEATED, previous_job

__all__ = ["has_users", "user_distributions", "user_statistics"]

Floats = npt.NDArray[np.float64]

SESSION_S = 1800.0
"""Maximum time between a user's jobs of one session, seconds."""


def has_users(jobs: JobTable) -> bool:
    """Whether any job of the workload has a user."""
    return "user" in jobs and bool((jobs["user"] >= 0).any())


def user_statistics(jobs: JobTable) -> dict[str, float]:
    """Number of users, inequality of use, session lengths, and share of repeated jobs."""
    jobs = jobs.sorted()
    per_user = _jobs_per_user(jobs)
    before = previous_job(jobs)
    known = before >= 0
    gap_s = (jobs["submit_s"] - jobs["submit_s"][before])[known]
    count = max(1, len(per_user) // 10)
    statistics = {
        "users": float(len(per_user)),
        "median_jobs_a_user": float(np.median(per_user)),
        "share_of_busiest_tenth": float(per_user[:count].sum() / len(jobs)),
        "jobs_a_session": float(len(jobs) / (len(jobs) - int((gap_s <= SESSION_S).sum()))),
        "median_user_gap_s": float(np.median(gap_s)) if len(gap_s) else 0.0,
    }
    for name in REPEATED:
        if name in jobs:
            same = (jobs[name] == jobs[name][before])[known]
            statistics[f"same_{name}"] = float(same.mean()) if len(same) else 0.0
    return statistics


def user_distributions(jobs: JobTable) -> dict[str, Floats]:
    """Distributions over users: jobs per user, jobs per session, and time between a user's jobs."""
    jobs = jobs.sorted()
    before = previous_job(jobs)
    known = before >= 0
    gap_s = np.full(len(jobs), np.inf)
    gap_s[known] = (jobs["submit_s"] - jobs["submit_s"][before])[known]
    return {"jobs_a_user": _jobs_per_user(jobs), "jobs_a_session": _sessions(before, gap_s), "user_gap_s": gap_s[known]}


def _jobs_per_user(jobs: JobTable) -> Floats:
    """Jobs per user, largest first."""
    return np.sort(np.unique(jobs.column("user"), return_counts=True)[1])[::-1].astype(np.float64)


def _sessions(before: npt.NDArray[np.int64], gap_s: Floats) -> Floats:
    """Number of jobs of every session."""
    first = np.arange(len(before))
    # In order of submission, so that the first job of the previous job's session is known.
    for job in np.flatnonzero(gap_s <= SESSION_S).tolist():
        first[job] = first[before[job]]
    return np.unique(first, return_counts=True)[1].astype(np.float64)
