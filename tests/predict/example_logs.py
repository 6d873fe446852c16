"""Small logs for tests of predictions."""

from __future__ import annotations

import numpy as np

from kilowait.jobs import JobTable

DAY = 86400.0


def habits(seed: int = 0, jobs: int = 900) -> JobTable:
    """Three users who ask for an hour: one takes a minute, one most of it, one throws a coin."""
    random = np.random.default_rng(seed)
    user = random.integers(0, 3, jobs)
    coin = random.random(jobs) < 0.5
    usual_s = np.choose(user, [60.0, 3000.0, np.where(coin, 5.0, 2000.0)])
    return JobTable(
        job_id=np.arange(jobs),
        submit_s=np.sort(random.uniform(0, 9 * DAY, jobs)),
        runtime_s=usual_s * np.exp(random.normal(0, 0.1, jobs)),
        estimate_s=np.full(jobs, 3600.0),
        nodes=np.ones(jobs, np.int64),
        user=user,
        wait_s=np.zeros(jobs),
    )
