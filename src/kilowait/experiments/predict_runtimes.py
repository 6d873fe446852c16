"""Predictions for a log that is to be replayed: every job's from what was known when it was submitted.

What had ended by then is taken from a first replay of the whole log, first come, first served, with the users' own
estimates: what the record says of another machine, load or time is not what happens here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_settings import usual_backfill
from kilowait.experiments.saved_predictor import check_kept
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.predict.dataset import case_of
from kilowait.predict.known_times import KnownTimes, from_run, request_s
from kilowait.predict.past_events import PastEvents, keyed
from kilowait.predict.predictor import load
from kilowait.predict.runtime import predict_runtimes

__all__ = [
    "PREDICTORS",
    "USERS",
    "check_predictor",
    "first_replay",
    "foreseen",
    "is_kept",
    "last_two",
    "with_requests",
]

USERS = "users:"
"""Before a policy of a comparison: it is told what the users asked for, whatever is predicted."""

PREDICTORS = {
    "forest": "a forest of distributions, fitted anew every week on jobs that have ended",
    "last2": "the mean of the last two ended jobs of the user (Tsafrir)",
}
"""Who predicts, by name; anything else is the folder of one that was kept (`kilowait predict fit`)."""
OWN = ("planned_s", "overrun_planned_s", "expected_inverse_runtime", "limit_s")
"""Columns that predictions bring besides the estimate."""


def is_kept(predictor: str) -> bool:
    """Whether a folder is named: whatever is none of the names, and is there or is written as a path."""
    return predictor not in PREDICTORS and (
        os.sep in predictor or "/" in predictor or Path(predictor).exists()
    )


def check_predictor(predictor: str) -> None:
    """Raise unless there is one of that name, or a folder with one of run times."""
    if is_kept(predictor):
        check_kept(predictor, "runtime")
    elif predictor not in PREDICTORS:
        raise UnknownNameError("predictor (no folder of that name either)", predictor, PREDICTORS)


def first_replay(jobs: JobTable, cluster: Cluster) -> KnownTimes:
    """When jobs start and end, first come, first served, with the users' estimates."""
    placed = cluster.node_level
    backfill = "skip" if placed else usual_backfill(placed)
    return from_run(simulate(jobs, cluster, "fcfs", backfill, on_oversized="drop"))


def foreseen(
    jobs: JobTable,
    cluster: Cluster,
    predictor: str = "forest",
    *,
    seed: int = 0,
    progress: Callable[[Any], None] | None = None,
) -> JobTable:
    """The jobs with predicted run times: `estimate_s` for rules, `planned_s` for planners; `limit_s` is the request.

    `predictor` is one of `PREDICTORS` or the folder of a kept one, which is asked as it is and fitted no more. `seed`
    is that of forests, and `progress` hears of every fit.

    >>> import kilowait as kw
    >>> jobs = kw.lublin(50, 16, load=0.9, seed=1, estimates="rounded")
    >>> told = foreseen(jobs, Cluster.from_nodes(16), "last2")
    >>> bool((told["estimate_s"] <= jobs["estimate_s"]).all()), "limit_s" in told
    (True, True)
    """
    check_predictor(predictor)
    ordered = jobs.sorted()
    if np.isnan(request_s(ordered)).all() and predictor == "last2":
        raise InputError(
            "this log has no requests, so there is no limit to predictions; take --runtime-predictor forest"
        )
    world = first_replay(ordered, cluster)
    columns: dict[str, Any]
    if predictor == "last2":
        columns = last_two(ordered, world)
    elif is_kept(predictor):
        columns = load(predictor).columns(case_of(ordered, world, cluster.nodes))
    else:
        found = predict_runtimes(
            ordered, world, cluster.nodes, seed=seed, threads=min(2, os.cpu_count() or 1), progress=progress
        )
        columns = found.columns()
    if jobs.order is not None:  # back to the rows of the table as it was given
        back = np.empty_like(jobs.order)
        back[jobs.order] = np.arange(len(jobs))
        columns = {name: values[back] for name, values in columns.items()}
    return jobs.with_columns(**columns)


def with_requests(jobs: JobTable) -> JobTable:
    """The same jobs as their users described them, without predictions.

    >>> jobs = JobTable(
    ...     job_id=[1], submit_s=[0], runtime_s=[9], estimate_s=[20], limit_s=[60], planned_s=[30], nodes=[1]
    ... )
    >>> with_requests(jobs)["estimate_s"].tolist(), "planned_s" in with_requests(jobs)
    ([60.0], False)
    """
    if "limit_s" not in jobs:
        return jobs
    # A request that the log does not know is read as the run time.
    asked = np.where(np.isnan(jobs["limit_s"]), jobs["runtime_s"], jobs["limit_s"])
    return jobs.with_columns(estimate_s=asked, **dict.fromkeys(OWN))


def last_two(jobs: JobTable, world: KnownTimes) -> dict[str, Any]:
    """As EASY+ predicts: the mean of the last two ended jobs of the user, at most the request; else the request."""
    request = request_s(jobs)
    ended = PastEvents(keyed(jobs.column("user")), world.end_s, jobs["submit_s"])
    last, second = ended.several(np.maximum(jobs["runtime_s"], 1.0), 2)
    mean = np.where(np.isnan(second), last, (last + second) / 2.0)
    told = np.fmin(np.where(np.isnan(mean), request, mean), request)
    return {"estimate_s": told, "limit_s": request}
