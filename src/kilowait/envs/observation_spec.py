"""Observation of `kilowait/Batch-v0`: name, unit and scale of every number about the queue and the machine.

Numbers are scaled by fixed units (hours, days, the size of the machine), never by statistics of a log. No data of later
jobs leaks into them, and an agent can be used on another machine. The true run time is not among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.engine.run_times import resolve_run_times
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = [
    "FEATURES",
    "PREFERENCE_PREFIX",
    "SUMMARY",
    "PREDICTION_FEATURES",
    "ObservationSpec",
    "fixed_features",
    "preference_summary",
    "prediction_features",
]

FEATURES: dict[str, str] = {
    "length": "ln(estimate / 1 h) / 3",
    "width": "ln(nodes) / ln(1 + nodes of the machine)",
    "share": "nodes / nodes of the machine",
    "area": "ln(1 + estimate x nodes / (nodes of the machine x 1 h)) / 3",
    "hour": "wait / (wait + 1 h)",
    "day": "wait / (wait + 1 day)",
    "patience": "wait / (wait + estimate)",
    "fits": "1 if its nodes are free now, else 0",
    "spare": "(free nodes - its nodes) / nodes of the machine",
    "place": "waiting jobs submitted before it / waiting jobs",
}
"""Features of a waiting job, in the order of the columns. The first four are constant while it waits."""

FIXED = 4
"""Number of FEATURES that are constant."""

PREDICTION_FEATURES: dict[str, str] = {
    "bound": "ln(planned / 1 h) / 3, planned: run time that reservations assume",
    "expected_inverse_runtime": "expected 10 s / run time, at most 1",
    "cut": "ln(estimate / request) / 3; 0 where no request is known",
}
"""Further features of a waiting job from run-time predictions. All are constant while it waits."""

SUMMARY: dict[str, str] = {
    "free": "free nodes / nodes of the machine",
    "queue": "ln(1 + waiting jobs) / 5",
    "backlog": "ln(1 + estimated node-hours of waiting jobs / nodes of the machine) / 3",
    "running": "ln(1 + running jobs) / 5",
    "release": "t / (t + 1 h), t: seconds until the next expected end of a job",
    "backfilling": "1 if a reservation has been made in this scheduling pass, else 0",
    "hidden": "waiting jobs that are not shown / waiting jobs",
    "day_sin": "sin of the time of day",
    "day_cos": "cos of the time of day",
    "week_sin": "sin of the time of week",
    "week_cos": "cos of the time of week",
}
"""Summary of the machine, the queue and the time, in order. Times of the log are taken as local time."""

EDGES: dict[str, int] = {"user": 1, "compete": 2, "near": 4}
"""Bits of an edge between two jobs: same user or account; do not fit together; submitted within ten minutes."""


PREFERENCE_PREFIX = "prefers_"
"""Prefix of the names of preference weights in the summary (see `envs.preferences`)."""


def preference_summary(terms: Iterable[str]) -> dict[str, str]:
    """Names and descriptions of the preference weights, which are the last numbers of the summary.

    >>> preference_summary(["energy"])
    {'prefers_energy': 'weight of energy in the cost of the episode, from 0 to 1; all weights sum to 1'}
    """
    meaning = "weight of {} in the cost of the episode, from 0 to 1; all weights sum to 1"
    return {PREFERENCE_PREFIX + term: meaning.format(term) for term in terms}


@dataclass(frozen=True)
class ObservationSpec:
    """Shape of an observation. A network is built for it and stored with it."""

    features: tuple[str, ...]
    summary: tuple[str, ...]
    slots: int
    """Jobs shown at once (the queue window)."""
    choices: int = 1
    """Ways to start a job (DVFS states, GPU types): action = slot x choices + choice."""
    extra: int = 0
    """Actions that choose no job; they are the last ones."""
    graph: bool = False
    """Whether the observation has edges between jobs."""

    @property
    def actions(self) -> int:
        """Number of actions.

        >>> ObservationSpec(("length",), ("free",), slots=8, choices=2, extra=1).actions
        17
        """
        return self.slots * self.choices + self.extra


def fixed_features(jobs: JobTable, machine_nodes: int, *, predictions: bool = False) -> npt.NDArray[np.float32]:
    """The constant FEATURES, one row per job; with `predictions`, PREDICTION_FEATURES after them.

    >>> table = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], estimate_s=[3600], nodes=[8])
    >>> fixed_features(table, 16).round(2).tolist()
    [[0.0, 0.73..., 0.5, 0.14...]]
    """
    estimate = np.maximum(jobs["estimate_s"], 1.0)
    nodes = np.asarray(jobs["nodes"], np.float64)
    columns = (
        np.log(estimate / 3600.0) / 3.0,
        np.log(np.maximum(nodes, 1.0)) / np.log(1.0 + machine_nodes),
        nodes / machine_nodes,
        np.log1p(estimate * nodes / (machine_nodes * 3600.0)) / 3.0,
    )
    features = np.ascontiguousarray(np.stack(columns, axis=1), np.float32)
    return np.concatenate([features, prediction_features(jobs)], axis=1) if predictions else features


def prediction_features(jobs: JobTable) -> npt.NDArray[np.float32]:
    """PREDICTION_FEATURES, one row per job; raises an error if the jobs have no predictions.

    >>> columns = {"estimate_s": [1800], "planned_s": [3600], "expected_inverse_runtime": [0.25], "limit_s": [3600]}
    >>> prediction_features(JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[8], **columns)).tolist()
    [[0.0, 0.25, -0.2310...]]
    """
    if "planned_s" not in jobs:
        raise InputError(
            "prediction_features is True and the jobs have no predicted run times (column planned_s); predict run "
            "times first, or set prediction_features to False"
        )
    times = resolve_run_times(jobs)
    estimate = np.maximum(times.estimate_s, 1.0)
    limit_s = jobs.column("limit_s")
    request = np.where(np.isnan(limit_s), estimate, np.maximum(limit_s, 1.0))
    columns = (
        np.log(np.maximum(times.planned_s, 1.0) / 3600.0) / 3.0,
        times.expected_inverse_runtime,
        np.log(estimate / request) / 3.0,
    )
    return np.ascontiguousarray(np.stack(columns, axis=1), np.float32)
