"""Perfect (clairvoyant) run-time estimates."""

from __future__ import annotations

from kilowait.jobs import JobTable

__all__ = ["with_perfect_estimates"]


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
