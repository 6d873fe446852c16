"""Columns of stored execution logs: their types and ranges, and checks that the columns of one log agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError, TableError, UnknownNameError
from kilowait.files.fields import Either, Items, Null, Number, Record, Text
from kilowait.files.parquet_file import ColumnType, read_parquet_table
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.columns import MAX_TIME_S
from kilowait.jobs.execution_log import Outcome

__all__ = [
    "MACHINE",
    "RECORD_COLUMNS",
    "SEGMENT_COLUMNS",
    "STATE_COLUMNS",
    "check_log",
    "machine_from_dict",
    "read_jobs",
]

MAX_NODES = 2**40
_OUTCOME = ColumnType(np.int8, minimum=min(Outcome), maximum=max(Outcome))
_TIME_S = ColumnType(np.float64, minimum=-MAX_TIME_S, maximum=10 * MAX_TIME_S)
_WORK_S = ColumnType(np.float64, minimum=0, maximum=10 * MAX_TIME_S)
_GROUP = ColumnType(np.int16, minimum=0)
_NODES = ColumnType(np.int64, minimum=0, maximum=MAX_NODES)
SEGMENT_COLUMNS = {
    "start_s": _TIME_S,
    "end_s": _TIME_S,
    "group": _GROUP,
    "level": _GROUP,
    "outcome": _OUTCOME,
    "work_s": _WORK_S,
    "lost_s": _WORK_S,
}
"""Columns of the segments; the last two only of node-level clusters."""
RECORD_COLUMNS = {
    "eligible_s": ColumnType(np.float64, minimum=-MAX_TIME_S, maximum=10 * MAX_TIME_S, nan=True),
    "outcome": _OUTCOME,
}
"""Columns of the per-job records that are read; the others are computed from the segments."""
STATE_COLUMNS = {"time_s": _TIME_S, "group": _GROUP, "shutting_down": _NODES, "asleep": _NODES, "waking": _NODES}
"""Columns of the states of sleeping nodes."""
MACHINE = Record(
    {
        "groups": Items(Text(), 1),
        "capacity_s": Items(Either(Null(), Number(-MAX_TIME_S, MAX_TIME_S)), 1),
        "capacity_nodes": Items(Number(0, MAX_NODES, whole=True), 1),
    }
)
"""Node groups and capacity steps of a machine; the first step begins at minus infinity, which is null in JSON."""


def read_jobs(path: Path) -> JobTable:
    """The jobs of a folder, written by `JobTable.to_parquet`; an InputError names the file."""
    try:
        return JobTable.from_arrow(read_parquet_table(path))
    except (TableError, UnknownNameError) as problem:
        raise InputError(f"{path}: {problem}") from None


def machine_from_dict(data: Mapping[str, Any], source: str | PathLike[str]) -> dict[str, Any]:
    """The node groups and capacity steps of `MACHINE` as arguments of an ExecutionLog; `source` is for errors."""
    steps_s = np.array([-math.inf if step is None else step for step in data["capacity_s"]], np.float64)
    if len(steps_s) != len(data["capacity_nodes"]) or (np.diff(steps_s) <= 0).any() or np.isinf(steps_s[1:]).any():
        raise InputError(f"{fspath(source)}: capacity_s and capacity_nodes are not steps in ascending order")
    return {
        "groups": tuple(data["groups"]),
        "capacity_s": steps_s,
        "capacity_nodes": np.array(data["capacity_nodes"], np.int64),
    }


def check_log(log: ExecutionLog, source: str | PathLike[str]) -> ExecutionLog:
    """Return the log if its columns agree with one another; an InputError that names `source` if they do not."""
    groups = len(log.groups)
    problem = None
    if (log.end_s < log.start_s).any():
        problem = f"segment {int(np.argmax(log.end_s < log.start_s))} ends before it starts"
    elif (log.group >= groups).any():
        problem = f"segments have group {int(log.group.max())}, and the machine has {groups} groups"
    elif log.states is not None and (log.states.group >= groups).any():
        problem = f"node states have group {int(log.states.group.max())}, and the machine has {groups} groups"
    elif log.states is not None and (np.diff(log.states.time_s) < 0).any():
        problem = "the node states are not in the order of time"
    elif log.pieces is not None:
        problem = _allocation_problem(log)
    if problem is not None:
        raise InputError(f"{fspath(source)}: {problem}; write the folder again")
    return log


def _allocation_problem(log: ExecutionLog) -> str | None:
    """What is wrong with the node-level allocations of a log; None if nothing is."""
    pieces = log.pieces
    assert pieces is not None
    if len(pieces.work_s) != len(log) or len(pieces.lost_s) != len(log):
        return f"{len(log):,} segments have the work of {len(pieces.work_s):,}"
    if (pieces.segment >= len(log)).any() or (np.diff(pieces.segment) < 0).any():
        return "the allocations are not those of the segments, in their order"
    if (pieces.node >= len(pieces.node_group)).any():
        return f"allocations are on node {int(pieces.node.max())}, and the machine has {len(pieces.node_group)} nodes"
    if (pieces.node_group >= len(log.groups)).any():
        return f"nodes have group {int(pieces.node_group.max())}, and the machine has {len(log.groups)} groups"
    return None
