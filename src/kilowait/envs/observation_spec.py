"""What an agent sees of the queue and the machine: names, units and scales of every number.

All are scaled by fixed units (hours, days, the size of the machine), never by statistics of a log, so that nothing of
later jobs leaks into what is seen and an agent can be carried to another machine. The true run time is not among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.engine.job_times import resolve_job_times
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = [
    "EDGES",
    "FEATURES",
    "PREFIX",
    "SUMMARY",
    "PREDICTION_FEATURES",
    "ObservationSpec",
    "fixed_features",
    "of_preferences",
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
    "place": "jobs that came before it and still wait / jobs that wait",
}
"""Of a waiting job, in the order of the columns. The first four never change while it waits."""

FIXED = 4
"""How many of FEATURES never change."""

PREDICTION_FEATURES: dict[str, str] = {
    "bound": "ln(planned / 1 h) / 3, planned: what reservations are made with",
    "expected_inverse_runtime": "expected 10 s / run time, at most 1",
    "cut": "ln(estimate / request) / 3; 0 where no request is known",
}
"""Of a waiting job, where predictions are shown: what they know besides the estimate. None changes while it waits."""

SUMMARY: dict[str, str] = {
    "free": "free nodes / nodes of the machine",
    "queue": "ln(1 + waiting jobs) / 5",
    "backlog": "ln(1 + estimated node-hours that wait / nodes of the machine) / 3",
    "running": "ln(1 + running jobs) / 5",
    "release": "t / (t + 1 h), t: seconds until the next job is believed to end",
    "backfilling": "1 if a reservation has been made in this pass, else 0",
    "hidden": "waiting jobs that are not shown / waiting jobs",
    "day_sin": "sin of the time of day",
    "day_cos": "cos of the time of day",
    "week_sin": "sin of the time of week",
    "week_cos": "cos of the time of week",
}
"""Of the machine, the queue and the time, in the order of the columns. The log's clock is taken for local time."""

EDGES: dict[str, int] = {"user": 1, "compete": 2, "near": 4}
"""Bits of an edge between two jobs: same user or account; both do not fit at once; came within ten minutes."""


PREFIX = "prefers_"
"""Of the names of weights in the summary, where the env draws preferences (`envs.preferences`)."""


def of_preferences(terms: Iterable[str]) -> dict[str, str]:
    """Names and meanings of what is shown of a preference, after all else in the summary.

    >>> of_preferences(["energy"])
    {'prefers_energy': 'weight of energy in what the episode costs, from 0 to 1; all weights sum to 1'}
    """
    meaning = "weight of {} in what the episode costs, from 0 to 1; all weights sum to 1"
    return {PREFIX + term: meaning.format(term) for term in terms}


@dataclass(frozen=True)
class ObservationSpec:
    """The shape of an observation: what a network is built for, and stored with it."""

    features: tuple[str, ...]
    summary: tuple[str, ...]
    slots: int
    """Waiting jobs shown at once."""
    choices: int = 1
    """Ways to choose a job (levels, types): action = slot x choices + choice."""
    extra: int = 0
    """Actions that choose no job; they come last."""
    graph: bool = False
    """Whether edges between jobs are shown."""

    @property
    def actions(self) -> int:
        """How many actions there are.

        >>> ObservationSpec(("length",), ("free",), slots=8, choices=2, extra=1).actions
        17
        """
        return self.slots * self.choices + self.extra


def fixed_features(jobs: JobTable, machine_nodes: int, *, told: bool = False) -> npt.NDArray[np.float32]:
    """The first four FEATURES, one job a row; with `told` TOLD after them.

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
    found = np.ascontiguousarray(np.stack(columns, axis=1), np.float32)
    return np.concatenate([found, prediction_features(jobs)], axis=1) if told else found


def prediction_features(jobs: JobTable) -> npt.NDArray[np.float32]:
    """TOLD, one job a row; an error where jobs bring no predictions.

    >>> told = {
    ...     "estimate_s": [1800],
    ...     "planned_s": [3600],
    ...     "expected_inverse_runtime": [0.25],
    ...     "limit_s": [3600],
    ... }
    >>> prediction_features(JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[8], **told)).tolist()
    [[0.0, 0.25, -0.2310...]]
    """
    if "planned_s" not in jobs:
        raise InputError(
            "predictions are to be shown, and these jobs bring none (planned_s); predict run times "
            "(--runtime-predictor forest; in a comparison with --without-user-estimates), or leave told out"
        )
    times = resolve_job_times(jobs)
    estimate = np.maximum(times.estimate_s, 1.0)
    asked = jobs.column("limit_s")
    request = np.where(np.isnan(asked), estimate, np.maximum(asked, 1.0))
    columns = (
        np.log(np.maximum(times.planned_s, 1.0) / 3600.0) / 3.0,
        times.expected_inverse_runtime,
        np.log(estimate / request) / 3.0,
    )
    return np.ascontiguousarray(np.stack(columns, axis=1), np.float32)
