"""Execution logs in run and comparison folders: columns, node states, node-level allocations, machine and policies.

Each column of a stored log has a type and a range, and the columns of one log must agree. In files with several logs
``cell`` numbers the logs. Node-level allocations (pieces.parquet) have one row per segment and node: ``segment`` is the
row of the log from 0; the group of every node is in the schema's metadata. Work done and lost by each segment is
stored with the segments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, TableError, UnknownNameError
from kilowait.evaluation.comparison.result import KINDS
from kilowait.files.fields import Either, Flag, Items, Null, Number, Record, Text, Values, check_fields
from kilowait.files.parquet_file import META_KEY, ColumnType, ParquetColumns, read_parquet_columns, read_parquet_table
from kilowait.jobs import ExecutionLog, JobTable, NodeStates
from kilowait.jobs.columns import MAX_TIME_S
from kilowait.jobs.execution_log import Allocations, Outcome

MAX_NODES = 2**40
NUMBER_OR_NULL = Either(Null(), Number())
METRICS = Values(NUMBER_OR_NULL)
"""Metrics by name; null where a metric is undefined."""
COUNT = Number(minimum=0, whole=True)
_NODE_GROUP = Record(
    {"name": Text(), "nodes": Number(0, 2**40, whole=True)},
    {
        "cores": Number(1, 2**40, whole=True),
        "memory_gb": Number(minimum=0),
        "gpus": Number(0, 2**40, whole=True),
        "gpu_type": Text(),
        "shared": Flag(),
        "node_level": Flag(),
        "total_cores": Number(0, 2**40, whole=True),
        "nodes_known": Flag(),
    },
)
CLUSTER = Record(
    {},
    {
        "name": Text(),
        "group": Items(_NODE_GROUP),
        "queue": Items(Record({"name": Text(), "groups": Items(Text())})),
        "layout": Items(COUNT),
    },
)
"""A machine, as in a cluster file; outages and reservations are in the capacity steps of the logs."""
POLICY = Record(
    {"policy": Text(), "backfill": Either(Text(), COUNT), "kind": Text(KINDS)},
    {"name": Either(Null(), Text()), "power_controls": Text(), "node_level": Flag()},
)
"""A policy configuration."""
SETTINGS = Record(
    {}, {"policy": Text(), "backfill": Either(Text(), COUNT), "at_limit": Text(), "placement": Either(Null(), Text())}
)
"""Settings of a run; others are only displayed."""
CLEANING_REPORT = Either(
    Null(),
    Record(
        {
            "rows_read": COUNT,
            "jobs": COUNT,
            "folded": COUNT,
            "entries": Items(
                Record({"kind": Text(), "reason": Text(), "count": COUNT, "first_line": Either(Null(), COUNT)})
            ),
        }
    ),
)
"""The cleaning report of a log; null if the jobs were not read from a file."""
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
        "capacity": Items(Number(0, MAX_NODES, whole=True), 1),
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
    if len(steps_s) != len(data["capacity"]) or (np.diff(steps_s) <= 0).any() or np.isinf(steps_s[1:]).any():
        raise InputError(f"{fspath(source)}: capacity_s and capacity are not steps in ascending order")
    return {"groups": tuple(data["groups"]), "capacity_s": steps_s, "capacity": np.array(data["capacity"], np.int64)}


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


_COLUMNS = ("segment", "node", "gpus", "gpu_milli", "count")
_COUNT = ColumnType(np.int64, minimum=0)
_TYPES = {"cell": ColumnType(np.int32, minimum=0), **dict.fromkeys(_COLUMNS, _COUNT)}
_NOTE = Record({"node_groups": Items(Items(Number(0, 2**15 - 1, whole=True))), "cells": Items(Items(COUNT, 2, 2))})
WORK_COLUMNS = ("work_s", "lost_s")
"""Columns that only the segments of node-level clusters have; 0 for other segments in the same file."""


def _table(by_cell: Mapping[int, Allocations | NodeStates], names: Iterable[str], note: Any) -> Any:
    """The columns `names` of these records as an Arrow table with the column ``cell``, and `note` in its metadata."""
    import pyarrow as pa

    records = list(by_cell.values())
    columns = {"cell": np.repeat(list(by_cell), [len(record) for record in records]).astype(np.int32)}
    for name in names:
        columns[name] = np.concatenate([getattr(record, name) for record in records])
    return pa.table(columns).replace_schema_metadata({META_KEY: json.dumps(note).encode()})


def rows_of_cell(columns: ParquetColumns, cell: int) -> slice:
    """The rows of one log in a file with several logs, which are in the order of their cells."""
    low, high = np.searchsorted(columns["cell"], (cell, cell + 1))
    return slice(int(low), int(high))


def _write_pieces(by_cell: Mapping[int, Allocations], path: Path) -> None:
    import pyarrow.parquet as pq

    machines: list[list[int]] = []
    of_cell: list[tuple[int, int]] = []
    for cell, allocations in by_cell.items():
        machine = allocations.node_group.tolist()
        if machine not in machines:
            machines.append(machine)
        of_cell.append((cell, machines.index(machine)))
    note = {"node_groups": machines, "cells": of_cell}
    pq.write_table(_table(by_cell, _COLUMNS, note), path, compression="zstd")


def _read_pieces(path: Path, cells: int) -> dict[int, dict[str, npt.NDArray[Any]]]:
    found = read_parquet_columns(path, _TYPES)
    check_fields(found.note, _NOTE, f"{path}: metadata")
    machines = [np.array(machine, np.int64) for machine in found.note["node_groups"]]
    result = {}
    for cell, machine in found.note["cells"]:
        if cell >= cells or machine >= len(machines):
            raise InputError(f"{path}: metadata: cell {cell} of {cells} has machine {machine} of {len(machines)}")
        rows = rows_of_cell(found, cell)
        result[cell] = {**{name: found[name][rows] for name in _COLUMNS}, "node_group": machines[machine]}
    return result


def pieces_from(
    columns: Mapping[str, npt.NDArray[Any]] | None, worked: Mapping[str, npt.NDArray[Any]]
) -> Allocations | None:
    """The allocations of one log, from `read_states_and_allocations` and the columns `WORK_COLUMNS` of its segments."""
    if columns is None:
        return None
    if any(name not in worked for name in WORK_COLUMNS):
        raise InputError(f"segments with node-level allocations have no column {' or '.join(WORK_COLUMNS)}")
    return Allocations(**columns, **{name: worked[name] for name in WORK_COLUMNS})


def worked_columns(logs: Sequence[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """The columns `WORK_COLUMNS` of the segments of several logs; empty if no log has allocations."""
    if all(log.pieces is None for log in logs):
        return {}
    return {
        name: np.concatenate([np.zeros(len(log)) if log.pieces is None else getattr(log.pieces, name) for log in logs])
        for name in WORK_COLUMNS
    }


def _read_node_states(path: Path, cells: int) -> dict[int, NodeStates]:
    found = read_parquet_columns(path, {"cell": ColumnType(np.int32, minimum=0), **STATE_COLUMNS})
    check_fields(found.note, Items(Number(0, cells - 1, whole=True)), f"{path}: metadata")
    states = {}
    for cell in found.note:
        rows = rows_of_cell(found, cell)
        states[cell] = NodeStates(**{name: found[name][rows] for name in STATE_COLUMNS})
    return states


def write_states_and_allocations(logs: Sequence[ExecutionLog], folder: Path) -> None:
    """Write the node states and the allocations of several logs, each if any log has them."""
    import pyarrow.parquet as pq

    states = {cell: log.states for cell, log in enumerate(logs) if log.states is not None}
    pieces = {cell: log.pieces for cell, log in enumerate(logs) if log.pieces is not None}
    if states:
        # The note lists the logs that have states: the states of a log may be empty.
        pq.write_table(_table(states, STATE_COLUMNS, list(states)), folder / "states.parquet")
    if pieces:
        _write_pieces(pieces, folder / "pieces.parquet")


def read_states_and_allocations(
    folder: Path, files: Container[str], cells: int
) -> tuple[dict[int, NodeStates], dict[int, dict[str, npt.NDArray[Any]]]]:
    """Read what `write_states_and_allocations` wrote for `cells` logs, each by cell; the second for `pieces_from`."""
    return (
        _read_node_states(folder / "states.parquet", cells) if "states.parquet" in files else {},
        _read_pieces(folder / "pieces.parquet", cells) if "pieces.parquet" in files else {},
    )


def machine_to_dict(log: ExecutionLog) -> dict[str, Any]:
    """Node groups and capacity steps of the machine, as plain data; `machine_from_dict` is the inverse."""
    return {
        "groups": list(log.groups),
        # The first step begins at minus infinity, which JSON does not have.
        "capacity_s": [None if math.isinf(step) else step for step in log.capacity_s.tolist()],
        "capacity": log.capacity.tolist(),
    }
