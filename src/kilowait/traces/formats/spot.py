"""Reader of Alibaba's spot-GPU cluster trace, 2026: the published job list and a derivative in batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import CsvRows, read_rows, report_rows, set_cpus, set_workers
from kilowait.traces.trace_input import TraceInput


def read_spot(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read a job list with one job per row."""
    rows = read_rows(source.take_text(report, "a list of spot jobs"), report)
    return (_published if "job_type" in rows else _derived)(rows, report), {}


def _derived(rows: CsvRows, report: CleaningReport) -> RawColumns:
    rows.need("arrival_time", "runtime", "gpus", "priority")
    gpus = rows.numbers("gpus")
    draft = RawColumns(rows.line, rows.columns_of(submit_s="arrival_time", runtime_s="runtime", priority="priority"))
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
    draft = RawColumns(rows.line, rows.columns_of(job_id="job_name", submit_s="submit_time", runtime_s="duration"))
    set_workers(draft, rows.numbers("gpu_request"), workers, report)
    set_cpus(draft, rows.numbers("cpu_request") * 1000 * workers)
    kind = rows.words("job_type")
    draft.words["qos"] = kind
    urgent = [] if kind[1] is None else [code for code, name in enumerate(kind[1]) if name.upper() == "HP"]
    draft.numbers["priority"] = np.isin(kind[0], urgent).astype(np.float64)
    draft.words |= rows.labels(account="organization", gpu_types="gpu_model")
    report.add("note", "requests are read as those of one worker; priority 1 for HP jobs, 0 for spot")
    return draft
