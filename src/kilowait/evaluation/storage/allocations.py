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

from kilowait.jobs.execution_log import Allocations

__all__ = ["WORK_COLUMNS", "pieces_from", "read_pieces", "worked_columns", "write_pieces"]

_META_KEY = b"kilowait"
_COLUMNS = ("segment", "node", "gpus", "gpu_milli", "count")
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


def read_pieces(path: Path) -> dict[int, dict[str, npt.NDArray[Any]]]:
    """Read what `write_pieces` wrote, by cell, for `pieces_from`; empty if the file does not exist."""
    import pyarrow.parquet as pq

    if not path.exists():
        return {}
    table = pq.read_table(path)
    note = json.loads(table.schema.metadata[_META_KEY])
    machines = [np.array(machine, np.int64) for machine in note["node_groups"]]
    cells = table["cell"].to_numpy()
    columns = {name: table[name].to_numpy() for name in _COLUMNS}
    result = {}
    for cell, machine in note["cells"]:
        low, high = np.searchsorted(cells, (cell, cell + 1))
        result[cell] = {**{name: columns[name][low:high] for name in _COLUMNS}, "node_group": machines[machine]}
    return result


def pieces_from(
    columns: Mapping[str, npt.NDArray[Any]] | None, worked: Mapping[str, npt.NDArray[Any]]
) -> Allocations | None:
    """The allocations of one log, from the result of `read_pieces` and the columns `WORK_COLUMNS` of its segments."""
    return None if columns is None else Allocations(**columns, **{name: worked[name] for name in WORK_COLUMNS})


def worked_columns(logs: Sequence[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """The columns `WORK_COLUMNS` of the segments of several logs; empty if no log has allocations."""
    if all(log.pieces is None for log in logs):
        return {}
    return {
        name: np.concatenate([np.zeros(len(log)) if log.pieces is None else getattr(log.pieces, name) for log in logs])
        for name in WORK_COLUMNS
    }
