"""Baseline predictions without learning: the user's request, and statistics of earlier similar jobs.

A model has to beat these. All use only jobs whose value was known at the submission, and no prediction exceeds the
user's request. Where no such job exists, the request is the prediction.
"""

from __future__ import annotations

import numpy as np

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.features import all_job_keys, first_known, nearest_median
from kilowait.predict.job_history import UNKNOWN_REQUEST_S, Floats, PastEvents, request_s, row_median
from kilowait.predict.targets import DEFAULT_NODE_W, Target

MEDIAN_JOBS = 31
"""Number of latest values in a median."""
BASELINES = {
    "request": "the user's request",
    "last2": "mean of the user's last two (Tsafrir et al. 2007)",
    "user-median": f"median of the user's last {MEDIAN_JOBS}",
    "class-median": f"median of the user's last {MEDIAN_JOBS} with a similar request",
    "recent": "median of the last five of the most similar jobs, which is the anchor of the features",
    "rate": "watts and joules: nodes x mean watts per node of all earlier jobs (x recent run time)",
}
"""Names and descriptions of the baselines."""


def predict_baseline(name: str, jobs: JobTable, target: Target) -> Floats:
    """Predictions of a baseline for every job, in the target's unit.

    Args:
        name: one of `BASELINES`.
        jobs: by (submit_s, job_id).
        target: of these jobs.

    >>> from kilowait.predict.targets import runtime
    >>> from kilowait.predict.job_history import from_log
    >>> jobs = JobTable(
    ...     job_id=[1, 2, 3],
    ...     submit_s=[0, 100, 200],
    ...     runtime_s=[60, 40, 9],
    ...     estimate_s=[90, 90, 90],
    ...     nodes=[1, 1, 1],
    ...     wait_s=[0, 0, 0],
    ... )
    >>> predict_baseline("last2", jobs, runtime(jobs, from_log(jobs))).tolist()
    [90.0, 60.0, 50.0]
    """
    if name not in BASELINES:
        raise UnknownNameError("baseline prediction", name, BASELINES)
    if name == "request":
        if np.isnan(target.requested).any():
            raise InputError(
                f"{int(np.isnan(target.requested).sum()):,} of {len(jobs):,} jobs have no request "
                f"for {target.name}: the "
                "request cannot be the prediction; use last2 or a median"
            )
        return target.requested
    if name == "rate":
        return _rate(jobs, target)
    keys = all_job_keys(jobs)
    values = target.values / target.scale
    kinds = {"user", "user_request", "everyone", *target.anchor_kinds} & set(keys)
    known = {kind: PastEvents(keys[kind], target.known_s, jobs["submit_s"]) for kind in kinds}
    if name == "last2":
        last_two = known["user"].latest_values(values, 2)
        prediction = np.where(np.isnan(last_two[1]), last_two[0], (last_two[0] + last_two[1]) / 2)
    elif name == "recent":
        prediction = np.exp(nearest_median(known, target.logarithm(), target.anchor_kinds))
    else:
        prediction = row_median(known["user"].latest_values(values, MEDIAN_JOBS))
        if name == "class-median":
            prediction = first_known(row_median(known["user_request"].latest_values(values, MEDIAN_JOBS)), prediction)
    all_users = row_median(known["everyone"].latest_values(values, MEDIAN_JOBS))
    prediction = first_known(
        prediction * target.scale, target.requested, all_users * target.scale, target.default * target.scale
    )
    return np.minimum(prediction, target.max_value)


def _rate(jobs: JobTable, target: Target) -> Floats:
    """Nodes x mean watts per node of all earlier jobs; for energy also x the run time of the user's similar jobs."""
    if target.name not in ("power", "energy"):
        raise InputError(f"rate is a prediction of power and energy, not of {target.name}; use recent or last2")
    nodes: Floats = jobs.size.astype(np.float64)
    submit_s: Floats = jobs["submit_s"]
    known = PastEvents(np.zeros(len(jobs), np.int64), target.known_s, submit_s)
    node_h = np.where(np.isfinite(target.values), nodes * jobs["runtime_s"] / 3600.0, 0.0)
    watt_h = target.values / 3600.0 if target.name == "energy" else target.values * jobs["runtime_s"] / 3600.0
    known_node_h = known.sum(node_h)
    watts: Floats = np.where(
        known_node_h > 0, known.sum(watt_h) / np.where(known_node_h > 0, known_node_h, 1.0), DEFAULT_NODE_W
    )
    if target.name == "power":
        return nodes * watts
    keys = all_job_keys(jobs)
    known_runtimes = {
        kind: PastEvents(keys[kind], target.known_s, submit_s) for kind in ("user_same", "user_request", "user")
    }
    log_runtime = nearest_median(known_runtimes, np.log(np.maximum(jobs["runtime_s"], 1.0)))
    request = np.nan_to_num(request_s(jobs), nan=UNKNOWN_REQUEST_S)
    return nodes * watts * np.where(np.isnan(log_runtime), request, np.exp(log_runtime))
