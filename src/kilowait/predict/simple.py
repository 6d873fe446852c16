"""Predictions without learning: what the user said, and what became of jobs like this one.

They are what a model has to beat. All look only at jobs whose value was known at the submission, and say at most what
the user asked for; where there is no such job they say just that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.features import first_known, keys_of, nearest_middle
from kilowait.predict.history import Happened, middle
from kilowait.predict.targets import Target

__all__ = ["SIMPLE", "simple"]

Floats = npt.NDArray[np.float64]

MANY = 31
"""Latest values a median is taken of."""
SIMPLE = {
    "request": "what the user asked for",
    "last2": "mean of the user's last two (Tsafrir et al. 2007)",
    "user-median": f"median of the user's last {MANY}",
    "class-median": f"median of the user's last {MANY} with such a request",
    "recent": "middle of the last five of the nearest kind of jobs: the anchor of the features",
}
"""The predictions by name, and what they are."""


def simple(name: str, jobs: JobTable, target: Target) -> Floats:
    """What the prediction so called says of every job, in the target's unit.

    Args:
        name: one of `SIMPLE`.
        jobs: by (submit_s, job_id).
        target: of these jobs.

    >>> from kilowait.predict.targets import runtime
    >>> from kilowait.predict.world import recorded
    >>> jobs = JobTable(
    ...     job_id=[1, 2, 3],
    ...     submit_s=[0, 100, 200],
    ...     runtime_s=[60, 40, 9],
    ...     estimate_s=[90, 90, 90],
    ...     nodes=[1, 1, 1],
    ...     wait_s=[0, 0, 0],
    ... )
    >>> simple("last2", jobs, runtime(jobs, recorded(jobs))).tolist()
    [90.0, 60.0, 50.0]
    """
    if name not in SIMPLE:
        raise UnknownNameError("simple prediction", name, SIMPLE)
    if name == "request":
        if np.isnan(target.asked).any():
            raise InputError(
                f"{int(np.isnan(target.asked).sum()):,} of {len(jobs):,} jobs asked for no {target.name}, so the "
                "request cannot be the prediction; take last2 or a median"
            )
        return target.asked
    keys = keys_of(jobs)
    values = target.values / target.scale
    known = {
        kind: Happened(keys[kind], target.known_s, jobs["submit_s"])
        for kind in ("user_same", "user_request", "user", "everyone")
    }
    if name == "last2":
        two = known["user"].several(values, 2)
        found = np.where(np.isnan(two[1]), two[0], (two[0] + two[1]) / 2)
    elif name == "recent":
        found = np.exp(nearest_middle(known, target.logarithm()))
    else:
        found = middle(known["user"].several(values, MANY))
        if name == "class-median":
            found = first_known(middle(known["user_request"].several(values, MANY)), found)
    others = middle(known["everyone"].several(values, MANY))
    found = first_known(
        found * target.scale, target.asked, others * target.scale, target.usual * target.scale
    )
    return np.minimum(found, target.most)
