"""GPU, node and CPU columns of jobs from numbers of GPUs, nodes and workers in a trace."""

from __future__ import annotations

import numpy as np

from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.gpu.csv import Flags, Floats, report_rows

__all__ = ["MB_PER_MIB", "set_gpus_on_any_nodes", "set_cpus", "set_workers", "set_gpus_per_node"]

MB_PER_MIB = 1.048576
"""MB (10^6 bytes) per MiB."""


def set_gpus_on_any_nodes(draft: RawColumns, gpus: Floats, where: Flags | None = None) -> None:
    """GPUs that may lie anywhere: `spread` where there are several; `nodes` counts GPUs then, 1 for none.

    >>> draft = RawColumns(np.arange(3), {})
    >>> set_gpus_on_any_nodes(draft, np.array([0.0, 1.0, 8.0]))
    >>> draft.numbers["nodes"].tolist(), draft.numbers["gpus_may_span_nodes"].tolist()
    ([1.0, 1.0, 8.0], [nan, nan, 1.0])
    """
    rows = np.ones(len(draft), np.bool_) if where is None else where
    with np.errstate(invalid="ignore"):
        nodes = np.where(gpus >= 0, np.maximum(gpus, 1), np.nan)
        apart = np.where(gpus > 1, 1.0, np.nan)
    draft.numbers["gpus"] = np.where(rows, gpus, draft.get("gpus"))
    draft.numbers["nodes"] = np.where(rows, nodes, draft.get("nodes"))
    draft.numbers["gpus_may_span_nodes"] = np.where(rows, apart, draft.get("gpus_may_span_nodes"))


def set_gpus_per_node(draft: RawColumns, gpus: Floats, nodes: Floats, report: CleaningReport) -> None:
    """Set GPUs on a known number of nodes, equal on each; if not divisible, the GPUs may be on any nodes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        even = (nodes >= 1) & (gpus >= 0) & (np.mod(gpus, nodes) == 0)
        odd = (nodes >= 1) & (gpus >= 1) & ~even
    draft.numbers |= {"gpus": gpus, "nodes": nodes}
    report_rows(report, "note", "GPUs not equal on each node: they may be on any nodes", odd, draft.line)
    set_gpus_on_any_nodes(draft, gpus, odd)


def set_workers(draft: RawColumns, each: Floats, workers: Floats, report: CleaningReport) -> None:
    """Set the GPUs and nodes of jobs with `workers` equal workers that request `each` GPUs, possibly fractional.

    One worker runs on one node, with a fractional GPU if it requests less than one. Several workers with one GPU each
    may run on any nodes, several with more GPUs on one node each. Fractions of several GPUs are rounded up.
    """
    with np.errstate(invalid="ignore"):
        single, many = workers == 1, workers > 1
        part = (each > 0) & (each < 1)
        uneven = (each > 1) & (each != np.floor(each))
        whole = np.where(uneven, np.ceil(each), each)
        total = np.where(part & many, np.ceil(np.round(each * workers, 6)), whole * workers)
        gpus = np.where(part & single, 1.0, total)
        milli = np.where(part & single, np.maximum(np.round(each * 1000), 1), np.nan)
        loose = many & (part | (whole == 1))
    draft.numbers |= {"gpus": gpus, "nodes": workers, "gpu_milli": milli}
    report_rows(
        report, "corrected", "several workers with a fractional GPU each: the sum rounded up to whole GPUs",
        part & many, draft.line,
    )  # fmt: skip
    report_rows(report, "corrected", "a worker with several GPUs and a fraction: rounded up", uneven, draft.line)
    set_gpus_on_any_nodes(draft, gpus, loose)


def set_cpus(draft: RawColumns, milli: Floats) -> None:
    """Set the CPU request in thousandths of cores, and the cores rounded up."""
    with np.errstate(invalid="ignore"):
        sound = milli >= 0
        draft.numbers["cpu_milli"] = np.where(sound, np.ceil(np.round(milli, 6)), milli)
        draft.numbers["cores"] = np.where(sound, np.ceil(np.round(milli, 6) / 1000), np.nan)
