"""Predictions without learning: what the user said, and what became of jobs like this one.

They are what a model has to beat. All look only at jobs whose value was known at the submission, and say at most what
the user asked for; where there is no such job they say just that.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.features import first_known, nearest_middle
from kilowait.predict.known_times import UNKNOWN_REQUEST_S, request_s
from kilowait.predict.past_events import PastEvents, middle
from kilowait.predict.target_features import kinds_of
from kilowait.predict.targets import USUAL_W, Target

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
    "rate": "watts and joules: nodes x mean watts a node of all jobs before (x recent run time)",
}
"""The predictions by name, and what they are."""


def simple(name: str, jobs: JobTable, target: Target) -> Floats:
    """What the prediction so called says of every job, in the target's unit.

    Args:
        name: one of `SIMPLE`.
        jobs: by (submit_s, job_id).
        target: of these jobs.

    >>> from kilowait.predict.targets import runtime
    >>> from kilowait.predict.known_times import from_log
    >>> jobs = JobTable(
    ...     job_id=[1, 2, 3],
    ...     submit_s=[0, 100, 200],
    ...     runtime_s=[60, 40, 9],
    ...     estimate_s=[90, 90, 90],
    ...     nodes=[1, 1, 1],
    ...     wait_s=[0, 0, 0],
    ... )
    >>> simple("last2", jobs, runtime(jobs, from_log(jobs))).tolist()
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
    if name == "rate":
        return _rate(jobs, target)
    keys = kinds_of(jobs)
    values = target.values / target.scale
    wanted = {"user", "user_request", "everyone", *target.nearest} & set(keys)
    known = {kind: PastEvents(keys[kind], target.known_s, jobs["submit_s"]) for kind in wanted}
    if name == "last2":
        two = known["user"].several(values, 2)
        found = np.where(np.isnan(two[1]), two[0], (two[0] + two[1]) / 2)
    elif name == "recent":
        found = np.exp(nearest_middle(known, target.logarithm(), target.nearest))
    else:
        found = middle(known["user"].several(values, MANY))
        if name == "class-median":
            found = first_known(middle(known["user_request"].several(values, MANY)), found)
    others = middle(known["everyone"].several(values, MANY))
    found = first_known(
        found * target.scale, target.asked, others * target.scale, target.usual * target.scale
    )
    return np.minimum(found, target.most)


def _rate(jobs: JobTable, target: Target) -> Floats:
    """Nodes x mean watts a node of all jobs before; for joules x the run time of the user's jobs like this one."""
    if target.name not in ("power", "energy"):
        raise InputError(
            f"rate is a prediction of power and energy, not of {target.name}; take recent or last2"
        )
    nodes: Floats = jobs["nodes"].astype(np.float64)
    submit_s: Floats = jobs["submit_s"]
    known = PastEvents(np.zeros(len(jobs), np.int64), target.known_s, submit_s)
    node_h = np.where(np.isfinite(target.values), nodes * jobs["runtime_s"] / 3600.0, 0.0)
    watt_h = target.values / 3600.0 if target.name == "energy" else target.values * jobs["runtime_s"] / 3600.0
    spent_h = known.sum(node_h)
    watts: Floats = np.where(spent_h > 0, known.sum(watt_h) / np.where(spent_h > 0, spent_h, 1.0), USUAL_W)
    if target.name == "power":
        return nodes * watts
    keys = kinds_of(jobs)
    ended = {
        kind: PastEvents(keys[kind], target.known_s, submit_s)
        for kind in ("user_same", "user_request", "user")
    }
    took = nearest_middle(ended, np.log(np.maximum(jobs["runtime_s"], 1.0)))
    request = np.nan_to_num(request_s(jobs), nan=UNKNOWN_REQUEST_S)
    return nodes * watts * np.where(np.isnan(took), request, np.exp(took))
