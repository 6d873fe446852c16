"""How many GPUs on how many nodes: what counts of GPUs, nodes and workers say, in the columns of a job."""

from __future__ import annotations

import numpy as np

from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.gpu.csv import Flags, Floats, mark

__all__ = ["MIB_MB", "scatter", "set_cpus", "set_workers", "share_out"]

MIB_MB = 1.048576
"""MB (10^6 bytes) in a MiB."""


def scatter(draft: RawColumns, gpus: Floats, where: Flags | None = None) -> None:
    """GPUs that may lie anywhere: `spread` where there are several; `nodes` counts GPUs then, 1 for none.

    >>> draft = RawColumns(np.arange(3), {})
    >>> scatter(draft, np.array([0.0, 1.0, 8.0]))
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


def share_out(draft: RawColumns, gpus: Floats, nodes: Floats, ledger: CleaningReport) -> None:
    """GPUs on a known number of nodes, the same on each; where they do not divide, they may lie anywhere."""
    with np.errstate(invalid="ignore", divide="ignore"):
        even = (nodes >= 1) & (gpus >= 0) & (np.mod(gpus, nodes) == 0)
        odd = (nodes >= 1) & (gpus >= 1) & ~even
    draft.numbers |= {"gpus": gpus, "nodes": nodes}
    mark(ledger, "note", "GPUs not the same on each node: they may lie on any", odd, draft.line)
    scatter(draft, gpus, odd)


def set_workers(draft: RawColumns, each: Floats, workers: Floats, ledger: CleaningReport) -> None:
    """`workers` like parts that ask for `each` GPUs, whole or not.

    One worker lies on one node, with part of a GPU if it asks for less than one. Several with one GPU each may lie
    anywhere, several with more on a node each. What a job cannot say, parts of several GPUs, is rounded up.
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
    mark(
        ledger, "mended", "several workers with part of a GPU each: as many whole GPUs as they make together",
        part & many, draft.line,
    )  # fmt: skip
    mark(ledger, "mended", "a worker with several GPUs and a part: rounded up", uneven, draft.line)
    scatter(draft, gpus, loose)


def set_cpus(draft: RawColumns, milli: Floats) -> None:
    """Thousandths of cores, and the cores they take, rounded up."""
    with np.errstate(invalid="ignore"):
        sound = milli >= 0
        draft.numbers["cpu_milli"] = np.where(sound, np.ceil(np.round(milli, 6)), milli)
        draft.numbers["cores"] = np.where(sound, np.ceil(np.round(milli, 6) / 1000), np.nan)
