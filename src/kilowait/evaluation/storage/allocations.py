"""Node-level allocations of run and comparison folders, stored as pieces.parquet.

One row per segment and node: ``cell`` numbers the logs, ``segment`` is the row of the log from 0. The group of every
node is in the schema's metadata. Work done and lost by each segment is stored with the segments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.fields import Items, Number, Record, check_fields
from kilowait.files.parquet_file import ColumnType, read_parquet_columns
from kilowait.jobs.execution_log import Allocations

__all__ = ["WORK_COLUMNS", "pieces_from", "read_pieces", "worked_columns", "write_pieces"]

_META_KEY = b"kilowait"
_COLUMNS = ("segment", "node", "gpus", "gpu_milli", "count")
_COUNT = ColumnType(np.int64, minimum=0)
_TYPES = {"cell": ColumnType(np.int32, minimum=0), **dict.fromkeys(_COLUMNS, _COUNT)}
_NOTE = Record(
    {
        "node_groups": Items(Items(Number(0, 2**15 - 1, whole=True))),
        "cells": Items(Items(Number(minimum=0, whole=True), 2, 2)),
    }
)
WORK_COLUMNS = ("work_s", "lost_s")
"""Columns that only the segments of node-level clusters have; 0 for other segments in the same file."""


def write_pieces(logs: Sequence[Allocations | None], path: Path) -> None:
    """Write the allocations of several logs, some of which may have none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbered = [(cell, allocations) for cell, allocations in enumerate(logs) if allocations is not None]
    columns = {
        "cell": np.repeat([cell for cell, _ in numbered], [len(allocations) for _, allocations in numbered]).astype(
            np.int32
        )
    }
    for name in _COLUMNS:
        columns[name] = np.concatenate([getattr(allocations, name) for _, allocations in numbered])
    machines: list[list[int]] = []
    of_cell: list[tuple[int, int]] = []
    for cell, allocations in numbered:
        machine = allocations.node_group.tolist()
        if machine not in machines:
            machines.append(machine)
        of_cell.append((cell, machines.index(machine)))
    note = {_META_KEY: json.dumps({"node_groups": machines, "cells": of_cell}).encode()}
    pq.write_table(pa.table(columns).replace_schema_metadata(note), path, compression="zstd")


def read_pieces(path: Path, cells: int) -> dict[int, dict[str, npt.NDArray[Any]]]:
    """Read what `write_pieces` wrote for `cells` logs, by cell, for `pieces_from`."""
    found = read_parquet_columns(path, _TYPES)
    check_fields(found.note, _NOTE, f"{path}: metadata")
    machines = [np.array(machine, np.int64) for machine in found.note["node_groups"]]
    result = {}
    for cell, machine in found.note["cells"]:
        if cell >= cells or machine >= len(machines):
            raise InputError(f"{path}: metadata: cell {cell} of {cells} has machine {machine} of {len(machines)}")
        low, high = np.searchsorted(found["cell"], (cell, cell + 1))
        result[cell] = {**{name: found[name][low:high] for name in _COLUMNS}, "node_group": machines[machine]}
    return result


def pieces_from(
    columns: Mapping[str, npt.NDArray[Any]] | None, worked: Mapping[str, npt.NDArray[Any]]
) -> Allocations | None:
    """The allocations of one log, from the result of `read_pieces` and the columns `WORK_COLUMNS` of its segments."""
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
