"""Observation of `kilowait/Gpu-v0`: name, unit and scale of every number about jobs and GPUs.

Numbers are scaled by fixed units (hours, days, the size of the machine), never by statistics of a log, so that no data
of later jobs leaks into them. The true run time is not among them. Shares of a GPU count as fractions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.gpu.demand import node_types

__all__ = [
    "CONSTANT_FEATURES",
    "VARYING_FEATURES",
    "SUMMARY",
    "feature_names",
    "fixed_features",
    "usable_node_types",
    "priority_weights",
    "summary_names",
    "type_names",
]

CONSTANT_FEATURES: dict[str, str] = {
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

VARYING_FEATURES: dict[str, str] = {
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

SUMMARY: dict[str, str] = {
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

EDGES: dict[str, str] = {
    "user": "1: same user or account, where they are known",
    "compete": "2: both may use the same types, and these have too few free GPUs or cores for both; a running job uses "
    "its current type and needs nothing more",
    "near": "4: submitted within ten minutes of each other",
}
"""Bits of an edge between two shown jobs, the same three as `envs.observation_spec.EDGES` has."""


def type_names(cluster: Cluster) -> tuple[str, ...]:
    """Names of the node types an agent may choose, in order; nodes without GPUs are "cpu".

    Nodes of one GPU type that serve different queues are separate, numbered types.

    >>> type_names(Cluster.preset("gpu-mixed"))
    ('A100', 'V100', 'T4', 'RTX4090')
    >>> type_names(Cluster.preset("helios-venus"))[:2]
    ('V100', 'V100-2')
    """
    names: list[str] = []
    counts: dict[str, int] = {}
    for node_type in node_types(cluster):
        name = node_type.gpu or "cpu"
        counts[name] = counts.get(name, 0) + 1
        names.append(name if counts[name] == 1 else f"{name}-{counts[name]}")
    return tuple(names)


def feature_names(types: tuple[str, ...]) -> tuple[str, ...]:
    """Names of all feature columns of a job."""
    return (
        *CONSTANT_FEATURES,
        *(f"speed_{name}" for name in types),
        *VARYING_FEATURES,
        *(f"fits_{name}" for name in types),
    )


def summary_names(types: tuple[str, ...]) -> tuple[str, ...]:
    """Names of all numbers of the summary."""
    return (*SUMMARY, *(f"free_{name}" for name in types))


def fixed_features(state: Any) -> npt.NDArray[np.float32]:
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
