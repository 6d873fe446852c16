"""Run-time predictions for the replay of a log, each from what was known at the job's submission.

The end times of earlier jobs come from a first replay of the full log, first come, first served, with the users' own
estimates: the recorded times of another cluster or load would not match the simulation.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_options import default_backfill
from kilowait.experiments.saved_predictor import read_predictor_card
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.predict.dataset import make_dataset
from kilowait.predict.job_history import JobHistory, from_run, request_s
from kilowait.predict.past_events import PastEvents, group_keys
from kilowait.predict.predictor import load
from kilowait.predict.runtime_predictions import predict_runtimes

__all__ = [
    "PREDICTORS",
    "USERS_PREFIX",
    "check_predictor",
    "first_replay",
    "with_predicted_runtimes",
    "is_saved_predictor",
    "last_two",
    "with_requests",
]

USERS_PREFIX = "users:"
"""Prefix of a policy in a comparison that uses the users' estimates instead of predictions."""

PREDICTORS = {
    "forest": "a distribution forest, refitted every week on jobs that have ended",
    "last2": "the mean of the last two ended jobs of the user (Tsafrir)",
}
"""Predictors by name; anything else is the folder of a saved one (`kilowait predict fit`)."""
ADDED_COLUMNS = ("planned_s", "overrun_planned_s", "expected_inverse_runtime", "limit_s")
"""Columns that predictions add besides the estimate."""


def is_saved_predictor(predictor: str) -> bool:
    """Whether the predictor is a folder: not a known name, and an existing path or a text with a slash."""
    return predictor not in PREDICTORS and (os.sep in predictor or "/" in predictor or Path(predictor).exists())


def check_predictor(predictor: str) -> None:
    """Raise unless it is a known name or the folder of a run-time predictor."""
    if is_saved_predictor(predictor):
        read_predictor_card(predictor, "runtime")
    elif predictor not in PREDICTORS:
        raise UnknownNameError("predictor (no folder of that name either)", predictor, PREDICTORS)


def first_replay(jobs: JobTable, cluster: Cluster) -> JobHistory:
    """Start and end times of a simulation with fcfs and the users' estimates."""
    backfill = "skip" if cluster.node_level else default_backfill(False)
    return from_run(simulate(jobs, cluster, "fcfs", backfill, on_oversized="drop"))


def with_predicted_runtimes(
    jobs: JobTable,
    cluster: Cluster,
    predictor: str = "forest",
    *,
    seed: int = 0,
    progress: Callable[[Any], None] | None = None,
) -> JobTable:
    """The jobs with predicted run times: `estimate_s` for priorities, `planned_s` for reservations; `limit_s` is the
    request.

    `predictor` is one of `PREDICTORS` or the folder of a saved one, which is not refitted. `seed` is that of forests,
    and `progress` is called after every fit.

    >>> import kilowait as kw
    >>> jobs = kw.lublin(50, 16, load=0.9, seed=1, estimates="rounded")
    >>> predicted = with_predicted_runtimes(jobs, Cluster.from_nodes(16), "last2")
    >>> bool((predicted["estimate_s"] <= jobs["estimate_s"]).all()), "limit_s" in predicted
    (True, True)
    """
    check_predictor(predictor)
    ordered = jobs.sorted()
    if np.isnan(request_s(ordered)).all() and predictor == "last2":
        raise InputError("this log has no requests, which last2 needs; use --runtime-predictor forest")
    times = first_replay(ordered, cluster)
    columns: dict[str, Any]
    if predictor == "last2":
        columns = last_two(ordered, times)
    elif is_saved_predictor(predictor):
        columns = load(predictor).columns(make_dataset(ordered, times, cluster.nodes))
    else:
        prediction = predict_runtimes(
            ordered, times, cluster.nodes, seed=seed, threads=min(2, os.cpu_count() or 1), progress=progress
        )
        columns = prediction.columns()
    if jobs.order is not None:  # restore the table's original order
        rank = np.empty_like(jobs.order)
        rank[jobs.order] = np.arange(len(jobs))
        columns = {name: values[rank] for name, values in columns.items()}
    return jobs.with_columns(**columns)


def with_requests(jobs: JobTable) -> JobTable:
    """The same jobs with the users' requests instead of predictions.

    >>> jobs = JobTable(
    ...     job_id=[1], submit_s=[0], runtime_s=[9], estimate_s=[20], limit_s=[60], planned_s=[30], nodes=[1]
    ... )
    >>> with_requests(jobs)["estimate_s"].tolist(), "planned_s" in with_requests(jobs)
    ([60.0], False)
    """
    if "limit_s" not in jobs:
        return jobs
    # An unknown request is replaced by the run time.
    requested_s = np.where(np.isnan(jobs["limit_s"]), jobs["runtime_s"], jobs["limit_s"])
    return jobs.with_columns(estimate_s=requested_s, **dict.fromkeys(ADDED_COLUMNS))


def last_two(jobs: JobTable, times: JobHistory) -> dict[str, Any]:
    """EASY++ prediction: the mean of the user's last two ended jobs, at most the request; else the request."""
    request = request_s(jobs)
    ended_jobs = PastEvents(group_keys(jobs.column("user")), times.end_s, jobs["submit_s"])
    last, second = ended_jobs.latest_values(np.maximum(jobs["runtime_s"], 1.0), 2)
    mean = np.where(np.isnan(second), last, (last + second) / 2.0)
    estimate_s = np.fmin(np.where(np.isnan(mean), request, mean), request)
    return {"estimate_s": estimate_s, "limit_s": request}
