"""Alternative interpretations of EASY+ and EASY++ where the paper is ambiguous.

`kilowait.policies.priority` contains the interpretation of the policies easy+ and easy++.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.jit_entry import SCORE_SIGNATURE
from kilowait.engine.kernels.jit import compile_entry
from kilowait.jobs import JobTable
from kilowait.policies import priority
from kilowait.policies.compile import compiled_score

__all__ = ["READINGS", "Reading"]


class Reading(NamedTuple):
    """One interpretation: how predictions are computed and used."""

    words: str
    overrun: str = "steps"
    by_submission: bool = False
    """Use the two ended jobs submitted last, instead of the two that ended last."""
    both: bool = False
    """With fewer than two ended jobs, the request is the prediction."""
    renewed: bool = False
    """Predictions of waiting jobs are recomputed at every scheduling pass."""
    variant: str = ""
    """Variant of the set-up, see `tsafrir.VARIANTS`."""

    def rule(self, name: str) -> PriorityPolicy:
        """EASY+ or EASY++ in this interpretation."""
        shortest = PriorityPolicy("sjf", compiled_score(priority.sjf), time_dependent=self.renewed)
        return PriorityPolicy(
            name,
            compile_entry(_last_two, SCORE_SIGNATURE),
            time_dependent=self.renewed,
            observes_jobs=True,
            predicts=True,
            overrun=self.overrun,
            backfill_order=shortest if name == "EASY++" else None,
            prepare=self._no_history,
        )

    def _no_history(self, jobs: JobTable, cluster: Cluster) -> npt.NDArray[np.float64]:
        memory = np.zeros(2 + 4 * (int(jobs["user"].max()) + 1))
        memory[:2] = self.by_submission, self.both
        return memory


def _last_two(job: Any, now: float, parameters: Any) -> Any:
    """First come, first served; keeps run time and number (from 1) of each user's last two jobs."""
    last = 2 + 4 * job.user
    if job.ran_s > 0.0:
        number = job.number + 1.0
        if parameters[0] == 0.0 or number > parameters[last + 1]:
            parameters[last + 2] = parameters[last]
            parameters[last + 3] = parameters[last + 1]
            parameters[last] = job.ran_s
            parameters[last + 1] = number
        elif number > parameters[last + 3]:
            parameters[last + 2] = job.ran_s
            parameters[last + 3] = number
    elif job.ran_s == 0.0:
        prediction = job.limit_s  # requested time
        if parameters[last + 2] > 0.0:
            prediction = 0.5 * (parameters[last] + parameters[last + 2])
        elif parameters[last] > 0.0 and parameters[1] == 0.0:
            prediction = parameters[last]
        job.estimate_s = max(min(prediction, job.limit_s), 1.0)
        job.planned_s = job.estimate_s
    return job.submit_s


READINGS = {
    "doubled": Reading("an overrun prediction is doubled, not taken on in steps", overrun="double"),
    "to request": Reading("an overrun prediction becomes the request at once", overrun="quantile"),
    "by submission": Reading("a user's last two are by submission among the ended", by_submission=True),
    "renewed": Reading("waiting jobs are predicted anew whenever something happens", renewed=True),
    "nearest": Reading(
        "to request, by submission, renewed, only from two jobs, requests stay below the run time",
        overrun="quantile",
        by_submission=True,
        both=True,
        renewed=True,
        variant="extended",
    ),
}
"""Interpretations by name; each but the last differs in one point from the policies easy+ and easy++."""
