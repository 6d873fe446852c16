"""Reader of Alibaba's spot-GPU cluster trace, 2026: the published job list and a derivative in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.gpu.csv import CsvRows, TraceFile, one_part, read_rows, report_rows
from kilowait.traces.gpu.resource_columns import set_cpus, set_workers

__all__ = ["read_spot"]


def read_spot(parts: Sequence[TraceFile], report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read a job list with one job per row."""
    rows = read_rows(one_part(parts, "a list of spot jobs").text, report)
    return (_published if "job_type" in rows else _derived)(rows, report), {}


def _derived(rows: CsvRows, report: CleaningReport) -> RawColumns:
    rows.need("arrival_time", "runtime", "gpus", "priority")
    gpus = rows.numbers("gpus")
    draft = RawColumns(rows.line, {"submit_s": rows.numbers("arrival_time"), "runtime_s": rows.numbers("runtime")})
    draft.numbers["priority"] = rows.numbers("priority")
    report_rows(
        report, "corrected", "gpus is 0, a fractional GPU of unknown size: one whole GPU used",
        gpus == 0, rows.line,
    )  # fmt: skip
    set_workers(draft, np.where(gpus == 0, 1.0, gpus), np.ones(len(rows)), report)
    report.add("note", "priority follows from gpus in this derivative: it is derived, not recorded")
    report.add("note", "workers and GPU types are not in this derivative: every job on one node, of any type")
    return draft


def _published(rows: CsvRows, report: CleaningReport) -> RawColumns:
    rows.need("job_name", "gpu_request", "worker_num", "cpu_request", "submit_time", "duration")
    workers = rows.numbers("worker_num")
    draft = RawColumns(rows.line, {"job_id": rows.numbers("job_name"), "submit_s": rows.numbers("submit_time")})
    draft.numbers["runtime_s"] = rows.numbers("duration")
    set_workers(draft, rows.numbers("gpu_request"), workers, report)
    set_cpus(draft, rows.numbers("cpu_request") * 1000 * workers)
    kind = rows.words("job_type")
    draft.words["qos"] = kind
    urgent = [] if kind[1] is None else [code for code, name in enumerate(kind[1]) if name.upper() == "HP"]
    draft.numbers["priority"] = np.isin(kind[0], urgent).astype(np.float64)
    for column, name in (("account", "organization"), ("gpu_types", "gpu_model")):
        if name in rows:
            draft.words[column] = rows.words(name)
    report.add("note", "requests are read as those of one worker; priority 1 for HP jobs, 0 for spot")
    return draft
