"""Observations of the environments: name, unit and scale of every number about jobs, queue, machine and signals.

Numbers are scaled by fixed units (hours, days, the size of the machine), never by statistics of a log. No data of later
jobs leaks into them, and an agent can be used on another machine. The true run time is not among them. Shares of a GPU
count as fractions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.gpu.demand import node_types
from kilowait.engine.run_times import resolve_run_times
from kilowait.errors import InputError
from kilowait.jobs import JobTable

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

REQUEST_FEATURES: dict[str, str] = {
    "memory": "ln(1 + GB of memory per node) / 5; 0 where the log has none",
    "priority": "p / (1 + |p|); 0 where the log has none",
    "queue_cos": "cos of an angle that stands for the name of its queue; 0 where it is unknown",
    "queue_sin": "sin of the same angle",
    "account_cos": "cos of an angle that stands for the name of its account; 0 where it is unknown",
    "account_sin": "sin of the same angle",
}
"""Further features of a waiting job from columns that not every log has. All are constant while it waits. The angle of
a name is the same on every log."""

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


def fixed_features(
    jobs: JobTable, machine_nodes: int, *, predictions: bool = False, requests: bool = False
) -> npt.NDArray[np.float32]:
    """The constant FEATURES, one row per job; with `predictions`, PREDICTION_FEATURES after them; with `requests`,
    REQUEST_FEATURES after these.

    >>> table = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], estimate_s=[3600], nodes=[8])
    >>> fixed_features(table, 16).round(2).tolist()
    [[0.0, 0.73..., 0.5, 0.14...]]
    """
    estimate = np.maximum(jobs["estimate_s"], 1.0)
    nodes = np.asarray(jobs.size, np.float64)
    columns = (
        np.log(estimate / 3600.0) / 3.0,
        np.log(np.maximum(nodes, 1.0)) / np.log(1.0 + machine_nodes),
        nodes / machine_nodes,
        np.log1p(estimate * nodes / (machine_nodes * 3600.0)) / 3.0,
    )
    parts = [np.stack(columns, axis=1)]
    parts += [prediction_features(jobs)] if predictions else []
    parts += [request_features(jobs)] if requests else []
    return np.ascontiguousarray(np.concatenate(parts, axis=1), np.float32)


def request_features(jobs: JobTable) -> npt.NDArray[np.float32]:
    """REQUEST_FEATURES, one row per job.

    >>> columns = {"memory_mb": [2000 * np.expm1(5)], "priority": [-3], "queue": [0]}
    >>> table = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[2], labels={"queue": ("debug",)}, **columns)
    >>> request_features(table).round(2).tolist()
    [[1.0, -0.75, ..., ..., 0.0, 0.0]]
    """
    memory_mb = jobs["memory_mb"] if "memory_mb" in jobs else np.zeros(len(jobs))
    priority = jobs.column("priority")
    columns = (
        np.log1p(memory_mb / 1000.0 / np.maximum(jobs["nodes"], 1)) / 5.0,
        priority / (1.0 + np.abs(priority)),
        *_name_angles(jobs, "queue"),
        *_name_angles(jobs, "account"),
    )
    return np.ascontiguousarray(np.stack(columns, axis=1), np.float32)


def _name_angles(jobs: JobTable, column: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """cos and sin of the angle of each job's name in a column: a fraction of a turn, from a hash of the name."""
    codes, place = np.unique(jobs.column(column), return_inverse=True)
    labels = jobs.labels.get(column)
    turns = []
    for code in codes.tolist():
        name = str(code) if labels is None or code < 0 else labels[code]
        turns.append(
            int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:6], "big") / 2.0**48
        )
    known = codes >= 0
    angle = 2.0 * np.pi * np.array(turns, np.float64)
    return np.where(known, np.cos(angle), 0.0)[place], np.where(known, np.sin(angle), 0.0)[place]


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


ENERGY_FEATURES: dict[str, str] = {
    **FEATURES,
    "draw": "watts at full speed / watts of its nodes at full load",
    "stretch": "run time at the slowest allowed DVFS state / at full speed, less 1",
    "saving": "1 - minimum energy over the allowed DVFS states / energy at full speed",
}
"""Features of a waiting job. Its power is `predicted_power_w` where the jobs have that column, else the measured or
modelled power.
"""

ENERGY_SUMMARY: dict[str, str] = {
    **SUMMARY,
    "power": "IT power now / IT power with every node at full load; nodes that boot for a job count as idle",
    "idle": "free nodes that are awake / nodes of the machine",
    "asleep": "nodes asleep / nodes of the machine",
    "in_transition": "nodes shutting down or booting / nodes of the machine",
}
"""Summary of the machine, the queue and the time; `signal_summary` comes after it."""


def energy_feature_names(predictions: bool, requests: bool = False) -> tuple[str, ...]:
    """Names of the feature columns of a job; features of predictions and requests come before its power.

    >>> energy_feature_names(True)[9:]
    ('place', 'bound', 'expected_inverse_runtime', 'cut', 'draw', 'stretch', 'saving')
    """
    power_features = tuple(name for name in ENERGY_FEATURES if name not in FEATURES)
    return (
        *FEATURES,
        *(PREDICTION_FEATURES if predictions else ()),
        *(REQUEST_FEATURES if requests else ()),
        *power_features,
    )


CARBON_UNIT, PRICE_UNIT = 500.0, 100.0
"""Scales: g/kWh, money per MWh."""

FORECAST_LEAD_H = (1, 3, 6, 12, 24)
FORECAST_STEP_S = 900.0
MAX_SIGNAL_RATIO = 10.0
"""Largest value of a signal over its mean."""


def signal_summary(names: Iterable[str]) -> dict[str, str]:
    """Names and descriptions of the summary of each signal; forecasts are at most a quarter of an hour old.

    >>> list(signal_summary(["carbon"]))
    ['carbon', 'carbon_now', 'carbon_1h', 'carbon_3h', 'carbon_6h', 'carbon_12h', 'carbon_24h']
    """
    descriptions: dict[str, str] = {}
    for name in names:
        unit = f"{CARBON_UNIT:g} g/kWh" if name == "carbon" else f"{PRICE_UNIT:g} per MWh"
        descriptions[name] = f"{name} now / {unit}"
        descriptions[f"{name}_now"] = f"{name} now / its mean over the week before, from -10 to 10"
        for hours in FORECAST_LEAD_H:
            descriptions[f"{name}_{hours}h"] = f"mean forecast for the next {hours} h / the same"
    return descriptions


GPU_CONSTANT_FEATURES: dict[str, str] = {
    "length": "ln(estimate / 1 h) / 3",
    "gpus": "ln(1 + GPUs) / ln(1 + GPUs of the machine)",
    "share": "GPUs / GPUs of the machine",
    "part": "share of a GPU it requests; 1: whole GPUs, 0: none",
    "pieces": "ln(1 + pieces, one per node unless GPUs may span nodes) / ln(1 + nodes of the machine)",
    "cores": "cores / cores of the machine",
    "priority": "p / (1 + p); 0 for priorities below 0",
}
"""Constant features of a job, in the order of the columns. After them, for each type, `speed_`: s / (1 + s), s being
its speed on that type; 0 where it may not run."""

GPU_VARYING_FEATURES: dict[str, str] = {
    "remaining": "ln(remaining / 1 h) / 3, by its estimate",
    "work": "ln(1 + remaining x GPUs / (GPUs of the machine x 1 h)) / 3",
    "attained": "t / (t + 1 h), t: time for which it had GPUs allocated",
    "hour": "wait / (wait + 1 h); the wait is all the time without allocated GPUs",
    "day": "wait / (wait + 1 day)",
    "patience": "wait / (wait + estimate)",
    "place": "waiting jobs submitted before it / waiting jobs; 0 for running jobs",
    "running": "1: running and preemptible; 0: waiting",
}
"""Features that change, after the constant ones. Last, for each type, `fits_`: 1 if it fits or runs on that type
now."""

GPU_SUMMARY: dict[str, str] = {
    "free": "free GPUs / GPUs",
    "whole": "wholly free GPUs / GPUs; the difference to `free` is fragmentation",
    "widest": "wholly free GPUs of the node with the most of them / GPUs of the largest node",
    "queue": "ln(1 + waiting jobs) / 5",
    "backlog": "ln(1 + remaining estimated GPU-hours of waiting jobs / GPUs) / 3",
    "running": "ln(1 + running jobs) / 5",
    "ahead": "ln(1 + remaining estimated GPU-hours of running jobs / GPUs) / 3",
    "ending": "ln(1 + jobs in their preemption grace period) / 5",
    "release": "t / (t + 1 h), t: seconds until the next expected end of a job",
    "hidden": "waiting jobs that are not shown / waiting jobs",
    "day_sin": "sin of the time of day",
    "day_cos": "cos of the time of day",
    "week_sin": "sin of the time of week",
    "week_cos": "cos of the time of week",
}
"""Summary of the machine, the queue and the time, in order. After it, for each type, `free_`: its free GPUs / its GPUs
(for nodes without GPUs: cores). Times of the log are taken as local time."""

GPU_EDGES: dict[str, str] = {
    "user": "1: same user or account, where they are known",
    "compete": "2: both may use the same types, and these have too few free GPUs or cores for both; a running job uses "
    "its current type and needs nothing more",
    "near": "4: submitted within ten minutes of each other",
}
"""Bits of an edge between two shown jobs, the same three as `EDGES` has."""


def gpu_type_names(cluster: Cluster) -> tuple[str, ...]:
    """Names of the node types an agent may choose, in order; nodes without GPUs are "cpu".

    Nodes of one GPU type that serve different queues are separate, numbered types.

    >>> gpu_type_names(Cluster.preset("gpu-mixed"))
    ('A100', 'V100', 'T4', 'RTX4090')
    >>> gpu_type_names(Cluster.preset("helios-venus"))[:2]
    ('V100', 'V100-2')
    """
    names: list[str] = []
    counts: dict[str, int] = {}
    for node_type in node_types(cluster):
        name = node_type.gpu or "cpu"
        counts[name] = counts.get(name, 0) + 1
        names.append(name if counts[name] == 1 else f"{name}-{counts[name]}")
    return tuple(names)


def gpu_feature_names(types: tuple[str, ...]) -> tuple[str, ...]:
    """Names of all feature columns of a job."""
    return (
        *GPU_CONSTANT_FEATURES,
        *(f"speed_{name}" for name in types),
        *GPU_VARYING_FEATURES,
        *(f"fits_{name}" for name in types),
    )


def gpu_summary_names(types: tuple[str, ...]) -> tuple[str, ...]:
    """Names of all numbers of the summary."""
    return (*GPU_SUMMARY, *(f"free_{name}" for name in types))


def gpu_fixed_features(state: Any) -> npt.NDArray[np.float32]:
    """FIXED features and speeds, one row per job of the state."""
    job_state, seen, nodes = state.job_state, state.jobs, state.nodes
    gpus = max(int(nodes["gpus"].sum()), 1)
    share = seen["gpu_share"]
    priority = np.maximum(seen["priority"], 0.0)
    speed = state.speed[job_state["speed_class"]]
    columns = (
        np.log(job_state["estimate_s"] / 3600.0) / 3.0,
        np.log1p(share) / np.log1p(gpus),
        share / gpus,
        np.where(job_state["gpus"] > 0, job_state["gpu_milli"] / 1000.0, 0.0),
        np.log1p(job_state["pieces"]) / np.log1p(len(nodes)),
        job_state["cpu"] * job_state["pieces"] / max(int(nodes["cpu"].sum()), 1),
        priority / (1.0 + priority),
        *(speed / (1.0 + speed)).T,
    )
    return np.ascontiguousarray(np.stack(columns, axis=1), np.float32)


def usable_node_types(state: Any) -> npt.NDArray[np.int64]:
    """Node types that jobs of each kind may use, as bits."""
    bits = 1 << np.arange(state.speed.shape[1])
    return np.ascontiguousarray((state.speed > 0) @ bits, np.int64)


def priority_weights(state: Any) -> npt.NDArray[np.float64]:
    """Weight of each job in the reward term `priority`: 1 + its priority, or 1 where that is below 0."""
    return np.ascontiguousarray(1.0 + np.maximum(state.jobs["priority"], 0.0))
