"""Small logs for tests of predictions."""

from __future__ import annotations

import numpy as np

from kilowait.jobs import JobTable

DAY = 86400.0


def repetitive_log(seed: int = 0, jobs: int = 900) -> JobTable:
    """Three users who request an hour: jobs of the first run a minute, of the second most of the hour, of the third
    either 5 s or about half of the hour."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 3, jobs)
    short = rng.random(jobs) < 0.5
    typical_s = np.choose(user, [60.0, 3000.0, np.where(short, 5.0, 2000.0)])
    return JobTable(
        job_id=np.arange(jobs),
        submit_s=np.sort(rng.uniform(0, 9 * DAY, jobs)),
        runtime_s=typical_s * np.exp(rng.normal(0, 0.1, jobs)),
        estimate_s=np.full(jobs, 3600.0),
        nodes=np.ones(jobs, np.int64),
        user=user,
        wait_s=np.zeros(jobs),
    )
