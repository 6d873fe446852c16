"""The columns a job may have: their names, types, units and rules.

This is the only list of them; the table, its validation and its exchange formats read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["COLUMNS", "LABELLED", "MOST", "REQUIRED", "Column", "ColumnArray"]

ColumnArray = npt.NDArray[Any]


MOST = 1e15
"""Times beyond 1e15 s (31 million years) lose whole seconds in a float64."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: type, the smallest value allowed, what stands for "unknown" (None: must be known), the largest."""

    dtype: type[np.generic]
    least: float
    missing: float | None
    meaning: str
    most: float = MOST
    """Of whole numbers only where it is below `MOST`."""


COLUMNS: dict[str, Column] = {
    "job_id": Column(np.int64, -(2**62), None, "the log's own number of the job, unique"),
    "submit_s": Column(np.float64, -1e15, None, "submission, seconds on the log's own clock"),
    "runtime_s": Column(np.float64, 0, None, "true run time, seconds; deciders never see it"),
    "estimate_s": Column(np.float64, 0, None, "the user's request or a prediction, seconds"),
    "planned_s": Column(
        np.float64, 0, np.nan, "what planners reserve and backfill with, seconds; the estimate where unknown"
    ),
    "limit_s": Column(
        np.float64,
        0,
        np.nan,
        "the user's limit, seconds: killed then, never planned beyond while it lies ahead; none where unknown",
    ),
    "overrun_planned_s": Column(
        np.float64, 0, np.nan, "what it is believed to take once it has overrun planned_s, seconds"
    ),
    "expected_inverse_runtime": Column(
        np.float64, 0, np.nan, "expected 10 s / run time, at most 1; of the estimate where unknown", 1
    ),
    "nodes": Column(np.int64, 1, None, "whole nodes (processors, where the log counts those)"),
    "cores": Column(np.int64, 0, None, "cores in all, for shared groups"),
    "memory_mb": Column(np.float64, 0, None, "memory in all, MB (10^6 bytes), for shared groups"),
    "gpus": Column(np.int64, 0, None, "GPUs in all, for shared groups"),
    "cpu_milli": Column(np.int64, -1, -1, "thousandths of a core in all, where it is not whole cores"),
    "gpu_milli": Column(np.int64, 1, 1000, "thousandths of its GPU, for nodes where jobs are placed", 1000),
    "gpu_types": Column(
        np.int32, -1, -1, "GPU types it may run on, a label of names with bars between; any if unknown"
    ),
    "model": Column(np.int32, -1, -1, "kind of work, for measured speeds: 'ResNet-18 (batch size 16)'"),
    "gpus_may_span_nodes": Column(np.int8, 0, 0, "1: its GPUs may lie on any number of nodes, each apart", 1),
    "priority": Column(np.float64, -1e15, 0, "larger is more important"),
    "checkpoint_s": Column(
        np.float64, 0, np.nan, "seconds of work between checkpoints; 0: when preempted; inf: never", np.inf
    ),
    "checkpoint_load_s": Column(np.float64, 0, np.nan, "seconds it takes to go on from a checkpoint"),
    "user": Column(np.int32, -1, -1, "user, a number or an index into labels['user']"),
    "account": Column(np.int32, -1, -1, "account, project or Unix group"),
    "queue": Column(np.int32, -1, -1, "queue or partition"),
    "qos": Column(np.int32, -1, -1, "quality of service"),
    "name": Column(np.int32, -1, -1, "job name or executable"),
    "node_list": Column(np.int32, -1, -1, "nodes it ran on, a label as Slurm writes it: 'node[01-04],gpu7'"),
    "status": Column(np.int8, -1, -1, "how it ended in the log: 0 failed, 1 ok, 5 cancelled"),
    "wait_s": Column(np.float64, 0, np.nan, "wait the log recorded, seconds"),
    "after_id": Column(np.int64, -1, -1, "job_id that must end before this one is submitted"),
    "think_s": Column(np.float64, 0, 0, "seconds between that end and this submission"),
    "begin_s": Column(np.float64, -1e15, -np.inf, "held until then, on the log's clock"),
    "cancel_s": Column(np.float64, -1e15, np.inf, "withdrawn then, if it has not started"),
    "energy_j": Column(np.float64, 0, np.nan, "measured energy, joules"),
    "power_w": Column(np.float64, 0, np.nan, "mean power at full speed, all its nodes together, watts"),
    "predicted_power_w": Column(
        np.float64, 0, np.nan, "what levers take its mean power to be, watts; the power model's where unknown"
    ),
    "beta": Column(
        np.float64, 0, np.nan, "share of its run time that grows as the clock slows down, 0 to 1", 1
    ),
    "cpu_utilization": Column(np.float64, 0, np.nan, "mean load of its processors, 0 to 1", 1),
    "gpu_utilization": Column(np.float64, 0, np.nan, "mean load of its GPUs, 0 to 1", 1),
    "slack_s": Column(np.float64, 0, np.nan, "how long the scheduler may hold it back, seconds"),
    "hold_until_s": Column(
        np.float64, -1e15, -np.inf, "the scheduler holds it until then; its waiting counts on"
    ),
}
"""Every column, in the order in which tables show them."""

REQUIRED = ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes")
"""Columns every table has."""

LABELLED = ("user", "account", "queue", "qos", "name", "node_list", "gpu_types", "model")
"""Columns whose whole numbers may stand for names."""
