"""Definition of all job columns: names, types, units and valid ranges.

The job table, its validation and its file formats use this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

ColumnArray = npt.NDArray[Any]


MAX_TIME_S = 1e15
"""Times beyond 1e15 s (31 million years) lose whole seconds in a float64."""


@dataclass(frozen=True, slots=True)
class JobColumn:
    """One column: type, minimum, value that means "unknown" (None: required), maximum."""

    dtype: type[np.generic]
    minimum: float
    missing: float | None
    meaning: str
    maximum: float = MAX_TIME_S
    """Checked for integer columns only if below `MOST`."""


COLUMNS: dict[str, JobColumn] = {
    "job_id": JobColumn(np.int64, -(2**62), None, "unique job number of the log"),
    "submit_s": JobColumn(np.float64, -1e15, None, "submission time, seconds of the log"),
    "runtime_s": JobColumn(np.float64, 0, None, "true run time, seconds; hidden from policies"),
    "estimate_s": JobColumn(np.float64, 0, None, "run time estimate: the user's request or a prediction, seconds"),
    "planned_s": JobColumn(
        np.float64, 0, np.nan, "run time used for reservations and backfilling, seconds; the estimate if unknown"
    ),
    "limit_s": JobColumn(
        np.float64, 0, np.nan, "walltime limit, seconds; upper bound of planned run times; no limit if unknown"
    ),
    "overrun_planned_s": JobColumn(
        np.float64, 0, np.nan, "expected run time of a job that has exceeded planned_s, seconds"
    ),
    "expected_inverse_runtime": JobColumn(
        np.float64, 0, np.nan, "expected value of 10 s / run time, at most 1; from the estimate if unknown", 1
    ),
    "nodes": JobColumn(np.int64, 1, None, "nodes"),
    "cores": JobColumn(np.int64, 0, None, "total cores (processors); what a job takes of shared nodes"),
    "memory_mb": JobColumn(np.float64, 0, None, "total memory, MB (10^6 bytes), for shared groups"),
    "gpus": JobColumn(np.int64, 0, None, "total GPUs, for shared groups"),
    "cpu_milli": JobColumn(np.int64, -1, -1, "total thousandths of a core, for fractions of cores"),
    "gpu_milli": JobColumn(np.int64, 1, 1000, "thousandths of its GPU, for GPU sharing on node-level clusters", 1000),
    "gpu_types": JobColumn(np.int32, -1, -1, "GPU types it may run on, names separated by bars; any if unknown"),
    "runtime_gpu_type": JobColumn(
        np.int32, -1, -1, "GPU type on which runtime_s was measured; the requested type if unknown"
    ),
    "model": JobColumn(np.int32, -1, -1, "workload, for measured speeds: 'ResNet-18 (batch size 16)'"),
    "gpus_may_span_nodes": JobColumn(np.int8, 0, 0, "1: its GPUs may be on any number of nodes", 1),
    "priority": JobColumn(np.float64, -1e15, 0, "priority, larger is more important"),
    "checkpoint_s": JobColumn(
        np.float64, 0, np.nan, "seconds of work between checkpoints; 0: when preempted; inf: never", np.inf
    ),
    "checkpoint_load_s": JobColumn(np.float64, 0, np.nan, "time to resume from a checkpoint, seconds"),
    "user": JobColumn(np.int32, -1, -1, "user, a number or an index into labels['user']"),
    "account": JobColumn(np.int32, -1, -1, "account, project or Unix group"),
    "queue": JobColumn(np.int32, -1, -1, "queue or partition"),
    "qos": JobColumn(np.int32, -1, -1, "quality of service"),
    "name": JobColumn(np.int32, -1, -1, "job name or executable"),
    "log_id": JobColumn(np.int32, -1, -1, "job ID in the log, where that is text"),
    "node_list": JobColumn(np.int32, -1, -1, "nodes it ran on, a label as Slurm writes it: 'node[01-04],gpu7'"),
    "status": JobColumn(np.int8, -1, -1, "exit status in the log: 0 failed, 1 ok, 5 cancelled"),
    "wait_s": JobColumn(np.float64, 0, np.nan, "recorded wait time, seconds"),
    "after_id": JobColumn(np.int64, -1, -1, "dependency: job_id that must end before this submission"),
    "think_s": JobColumn(np.float64, 0, 0, "think time between that end and this submission, seconds"),
    "begin_s": JobColumn(np.float64, -1e15, -np.inf, "earliest start requested by the user, seconds of the log"),
    "cancel_s": JobColumn(np.float64, -1e15, np.inf, "time of cancellation if it has not started, seconds of the log"),
    "energy_j": JobColumn(np.float64, 0, np.nan, "measured energy, joules"),
    "power_w": JobColumn(np.float64, 0, np.nan, "mean power of all its nodes at full speed, watts"),
    "predicted_power_w": JobColumn(
        np.float64, 0, np.nan, "mean power assumed by power controls, watts; the power model's if unknown"
    ),
    "beta": JobColumn(np.float64, 0, np.nan, "share of its run time that scales with CPU frequency, 0 to 1", 1),
    "cpu_utilization": JobColumn(np.float64, 0, np.nan, "mean load of its processors, 0 to 1", 1),
    "gpu_utilization": JobColumn(np.float64, 0, np.nan, "mean load of its GPUs, 0 to 1", 1),
    "slack_s": JobColumn(np.float64, 0, np.nan, "how long load shifting may delay it, seconds"),
    "hold_until_s": JobColumn(
        np.float64, -1e15, -np.inf, "delayed until then by load shifting; the delay counts as waiting"
    ),
}
"""All columns, in display order."""

REQUIRED = ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes")
"""Columns every table has."""

LABEL_COLUMNS = (
    "user", "account", "queue", "qos", "name", "log_id", "node_list", "gpu_types", "runtime_gpu_type", "model",
)  # fmt: skip
"""Columns whose integers may be codes of labels."""


class NamedColumns:
    """Arrays of equal length by name; `kilowait.jobs.JobTable` and `kilowait.jobs.JobRecords` are such."""

    __slots__ = ("_columns",)

    _columns: dict[str, ColumnArray]

    def __len__(self) -> int:
        return len(self._columns["job_id"])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns this table has."""
        return tuple(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns
