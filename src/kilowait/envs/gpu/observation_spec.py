"""What an agent sees of jobs and GPUs: names, units and scales of every number.

All are scaled by fixed units (hours, days, the size of the machine), never by statistics of a log, so that nothing of
later jobs leaks into what is seen. The true run time is not among them. GPUs are counted with parts as parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.gpu.demand import types_of

__all__ = [
    "EDGES",
    "FIXED",
    "MOVING",
    "SUMMARY",
    "feature_names",
    "fixed_features",
    "may_use",
    "priority_weights",
    "summary_names",
    "type_names",
]

FIXED: dict[str, str] = {
    "length": "ln(estimate / 1 h) / 3",
    "gpus": "ln(1 + GPUs) / ln(1 + GPUs of the machine)",
    "share": "GPUs / GPUs of the machine",
    "part": "part of a GPU it asks for; 1: whole ones, 0: none",
    "pieces": "ln(1 + pieces, which lie on a node each unless it may be spread) / ln(1 + nodes of the machine)",
    "cores": "cores / cores of the machine",
    "priority": "p / (1 + p); 0 for priorities below 0",
}
"""Of a job, in the order of the columns, whatever becomes of it. Then, for each type, `speed_`: s / (1 + s), s being
its speed there; 0 where it may not run."""

MOVING: dict[str, str] = {
    "remaining": "ln(remaining / 1 h) / 3, by its estimate",
    "work": "ln(1 + remaining x GPUs / (GPUs of the machine x 1 h)) / 3",
    "attained": "t / (t + 1 h), t: how long it has held places",
    "hour": "wait / (wait + 1 h); the wait is all the time without a place",
    "day": "wait / (wait + 1 day)",
    "patience": "wait / (wait + estimate)",
    "place": "jobs that came before it and still wait / jobs that wait; 0 for running ones",
    "running": "1: it runs and may be put out; 0: it waits",
}
"""The columns after these: as of now. Last, for each type, `fits_`: 1 if it fits there now, or runs there."""

SUMMARY: dict[str, str] = {
    "free": "free GPUs / GPUs",
    "whole": "GPUs that are wholly free / GPUs; what it lacks to `free` lies in fragments",
    "widest": "wholly free GPUs of the node with the most of them / GPUs of the largest node",
    "queue": "ln(1 + waiting jobs) / 5",
    "backlog": "ln(1 + remaining GPU-hours that wait, by estimates / GPUs) / 3",
    "running": "ln(1 + running jobs) / 5",
    "ahead": "ln(1 + remaining GPU-hours that run, by estimates / GPUs) / 3",
    "ending": "ln(1 + jobs that have notice to leave) / 5",
    "release": "t / (t + 1 h), t: seconds until the next job is believed to end",
    "hidden": "waiting jobs that are not shown / waiting jobs",
    "day_sin": "sin of the time of day",
    "day_cos": "cos of the time of day",
    "week_sin": "sin of the time of week",
    "week_cos": "cos of the time of week",
}
"""Of the machine, the queue and the time, in the order of the columns. Then, for each type, `free_`: its free GPUs /
its GPUs (of nodes without GPUs: cores). The log's clock is taken for local time."""

EDGES: dict[str, str] = {
    "user": "1: same user or account, where they are known",
    "compete": "2: there are types that both may use, and of those not enough GPUs or cores are free for both; of a "
    "running job it is the type it lies on, and it wants no more than it has",
    "near": "4: came within ten minutes of one another",
}
"""Bits of an edge between two shown jobs, the same three as `envs.observation_spec.EDGES` has."""


def type_names(cluster: Cluster) -> tuple[str, ...]:
    """Names of the types an agent may choose, in their order; nodes without GPUs are "cpu".

    Nodes of one GPU type that different queues may use are types of their own, and numbered.

    >>> type_names(Cluster.preset("gpu-mixed"))
    ('A100', 'V100', 'T4', 'RTX4090')
    >>> type_names(Cluster.preset("helios-venus"))[:2]
    ('V100', 'V100-2')
    """
    names: list[str] = []
    many: dict[str, int] = {}
    for kind in types_of(cluster):
        name = kind.gpu or "cpu"
        many[name] = many.get(name, 0) + 1
        names.append(name if many[name] == 1 else f"{name}-{many[name]}")
    return tuple(names)


def feature_names(types: tuple[str, ...]) -> tuple[str, ...]:
    """All columns of a job."""
    return (*FIXED, *(f"speed_{name}" for name in types), *MOVING, *(f"fits_{name}" for name in types))


def summary_names(types: tuple[str, ...]) -> tuple[str, ...]:
    """All columns of the summary."""
    return (*SUMMARY, *(f"free_{name}" for name in types))


def fixed_features(state: Any) -> npt.NDArray[np.float32]:
    """FIXED and the speeds, one job of the state a row."""
    job_state, seen, nodes = state.job_state, state.seen, state.nodes
    gpus = max(int(nodes["gpus"].sum()), 1)
    share = seen["gpu_share"]
    priority = np.maximum(seen["priority"], 0.0)
    speed = state.speed[job_state["kind"]]
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


def may_use(state: Any) -> npt.NDArray[np.int64]:
    """Types that jobs of each kind may use, as bits."""
    bits = 1 << np.arange(state.speed.shape[1])
    return np.ascontiguousarray((state.speed > 0) @ bits, np.int64)


def priority_weights(state: Any) -> npt.NDArray[np.float64]:
    """What a job counts in the term `priority`: 1 + its priority, or 1 where that is below 0."""
    return np.ascontiguousarray(1.0 + np.maximum(state.seen["priority"], 0.0))
