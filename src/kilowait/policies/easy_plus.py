"""EASY+ and EASY++: backfilling with run times predicted from the user's last two jobs.

Source: Tsafrir, Etsion, Feitelson, "Backfilling using system-generated predictions rather than user runtime
estimates", IEEE TPDS 18(6), 2007. Both require EASY backfilling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.jobs import JobTable
from kilowait.policies import priority
from kilowait.policies.compile import compiled_score

__all__ = ["easy_plus", "easy_plus_plus"]


def last_two(job: Any, now: float, parameters: Any) -> float:
    """First come, first served; the predicted run time is the mean of the user's last two ended jobs.

    parameters[2 u] is the run time of user u's last job, seconds, parameters[2 u + 1] of the one before; 0: none.
    """
    if job.user >= 0:
        last = 2 * job.user
        if job.ran_s > 0.0:
            parameters[last + 1] = parameters[last]
            parameters[last] = job.ran_s
        elif job.ran_s == 0.0 and parameters[last] > 0.0:
            predicted = parameters[last]
            if parameters[last + 1] > 0.0:
                predicted = 0.5 * (parameters[last] + parameters[last + 1])
            job.estimate_s = max(min(predicted, job.estimate_s), 1.0)
            job.planned_s = job.estimate_s
    return job.submit_s


def _empty_history(jobs: JobTable, cluster: Cluster) -> npt.NDArray[np.float64]:
    return np.zeros(2 * (int(jobs.column("user").max(initial=-1)) + 1))


def easy_plus() -> PriorityPolicy:
    """First come, first served, with run times predicted by the user's last two jobs (EASY+)."""
    score = compiled_score(last_two)
    return PriorityPolicy("easy+", score, observes_jobs=True, predicts=True, overrun="steps", prepare=_empty_history)


def easy_plus_plus() -> PriorityPolicy:
    """Like easy+, with backfill candidates in order of predicted run time (EASY++)."""
    return replace(easy_plus(), name="easy++", backfill_order=PriorityPolicy("sjf", compiled_score(priority.sjf)))
