"""Reader of node lists of GPU clusters; the result is a node-level Cluster."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from kilowait.cluster import Cluster, NodeGroup
from kilowait.errors import ClusterError, TraceError
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.alibaba import PAI_TABLES, pai_table
from kilowait.traces.formats.csv_rows import MB_PER_MIB, CsvRows, first_line, read_rows
from kilowait.traces.trace_input import as_text, as_utf8, file_bytes, refuse_binary, unpack

_NODES = {"sn cpu_milli memory_mib gpu model": "openb", "node_name gpu_model gpu_capacity_num cpu_num": "spot"}
_Kind = tuple[int, float, int, str]
"""Cores, memory in GB (10^9 bytes), GPUs and their type, of one node."""


def read_nodes(path: str | PathLike[str]) -> Cluster:
    """Read a node list; identical nodes form node-level groups, `node_groups` keeps the order of the file.

    Supported are Alibaba's lists: 2023 (openb_node_list_*.csv), 2026 (node_info_df.csv, which has no memory) and 2020
    (pai_machine_spec.csv). An invalid row is an error: a machine with missing nodes is a different machine.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "nodes.csv"
    >>> _ = path.write_text("sn,cpu_milli,memory_mib,gpu,model\\na,64000,262144,2,P100\\nb,32000,262144,0,\\n")
    >>> cluster = read_nodes(path)
    >>> [group.name for group in cluster.groups], cluster.node_groups
    (['P100', 'cpu'], (0, 1))
    """
    path = Path(path)
    report = CleaningReport()
    data = as_utf8(unpack(file_bytes(path), str(path), report), report)
    try:
        refuse_binary(data)
        kinds = _kinds(as_text(data, report), report)
    except TraceError as problem:
        raise TraceError(f"cannot read the nodes in {path}: {problem}") from None
    numbered = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    layout = tuple(numbered[kind] for kind in kinds)
    sizes = np.bincount(layout)
    groups = tuple(
        NodeGroup(name, int(size), cores=kind[0], memory_gb=kind[1], gpus=kind[2], gpu_type=kind[3], node_level=True)
        for name, kind, size in zip(_group_names(list(numbered)), numbered, sizes, strict=True)
    )
    return Cluster(groups, name=path.name.split(".")[0], node_groups=layout)


def node_list(rows: Sequence[str]) -> str | None:
    """Origin of the node list that starts with these rows, without comments; None if it is not a node list.

    >>> node_list(["sn,cpu_milli,memory_mib,gpu,model"]), node_list(["job_id,submit_s"])
    ('openb', None)
    """
    first = rows[0] if rows else ""
    names = {name.strip() for name in first.split(",")}
    for wanted, found in _NODES.items():
        if names >= set(wanted.split()):
            return found
    return "pai" if pai_table(first) == "machine" else None


def _kinds(text: str, report: CleaningReport) -> list[_Kind]:
    """Cores, memory, GPUs and GPU type of each node, in the order of the file."""
    origin = node_list([first_line(text)])
    if origin is None:
        raise TraceError("it is not a supported node list: openb's, PAI's or node_info_df.csv")
    rows = read_rows(text, report, PAI_TABLES["machine"].split(",") if origin == "pai" else None)
    if report.dropped:
        raise TraceError(f"it is incomplete: {'; '.join(report.lines()[1:])}")
    if origin == "openb":
        cores, memory, gpus, model = (rows.numbers("cpu_milli") / 1000, rows.numbers("memory_mib"), "gpu", "model")
        memory = memory * MB_PER_MIB / 1000
    elif origin == "pai":
        cores, memory, gpus, model = rows.numbers("cap_cpu"), rows.numbers("cap_mem"), "cap_gpu", "gpu_type"
        memory = memory * 1024 * MB_PER_MIB / 1000
    else:
        cores, gpus, model = rows.numbers("cpu_num"), "gpu_capacity_num", "gpu_model"
        memory = np.zeros(len(rows))
    gpu_counts = rows.numbers(gpus)
    _check(rows, cores, memory, gpu_counts)
    types = [kind if count else "" for kind, count in zip(rows.texts(model), gpu_counts, strict=True)]
    columns = (cores.astype(int).tolist(), memory.tolist(), gpu_counts.astype(int).tolist(), types)
    return list(zip(*columns, strict=True))


def _check(rows: CsvRows, *columns: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    cores, memory, gpus = columns
    fine = (cores >= 1) & (cores % 1 == 0) & (memory >= 0) & (gpus >= 0) & (gpus % 1 == 0)
    if not fine.all():
        row = int(np.argmin(fine))
        raise ClusterError(
            f"the node in line {rows.line[row]} has {cores[row]:g} cores, {memory[row]:g} GB of memory and "
            f"{gpus[row]:g} GPUs; cores and GPUs must be whole numbers, with at least 1 core"
        )


def _group_names(kinds: list[_Kind]) -> list[str]:
    """Group names: the GPU type if it is unique, else with GPUs, cores and memory added."""
    types = [kind[3] or "cpu" for kind in kinds]
    plain = [name for name in types if types.count(name) == 1]
    group_names: list[str] = []
    for name, (cores, memory, gpus, _) in zip(types, kinds, strict=True):
        sizes = [f"{gpus}x"] * (gpus > 0) + [f"{cores}c"] + [f"{memory:.0f}g"] * (memory > 0)
        group_names.append(name if name in plain else f"{name} {' '.join(sizes)}")
    return group_names
