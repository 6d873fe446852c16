"""Reader of the pod lists of Alibaba's GPU-sharing cluster, 2023 (openb_pod_list_*.csv)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from kilowait.traces.clean import LONGEST_S, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import MB_PER_MIB, CsvRows, Floats, read_rows, report_rows, set_cpus
from kilowait.traces.trace_input import TraceInput

_STATUS = {"SUCCEEDED": 1.0, "FAILED": 0.0, "PENDING": 5.0}


def read_openb(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read one job per pod, on one node, with a fractional GPU if it requests less than one."""
    rows = read_rows(source.take_text(report, "a pod list"), report)
    rows.need("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    gpus, milli = rows.numbers("num_gpu"), rows.numbers("gpu_milli")
    draft = RawColumns(rows.line, {"job_id": _numbered(rows.texts("name")), "gpus": gpus})
    draft.numbers["nodes"] = np.ones(len(rows))
    draft.numbers["memory_mb"] = rows.numbers("memory_mib") * MB_PER_MIB
    draft.numbers["gpu_milli"] = np.where(gpus == 0, np.nan, milli)  # Undefined for jobs without GPUs.
    draft.invalid["number of GPUs not known"] = np.isnan(gpus)
    set_cpus(draft, rows.numbers("cpu_milli"))
    draft.words |= rows.labels(("", "nan"), gpu_types="gpu_spec", qos="qos")
    if "creation_time" in rows:
        _timed(draft, rows, report)
    else:
        draft.numbers["submit_s"] = np.arange(len(rows), dtype=np.float64)
        draft.numbers["runtime_s"] = np.full(len(rows), LONGEST_S)
        report.add("note", "no times in this list: pods submitted one a second, in the order of the file")
        report.add("note", f"no times in this list: pods never end (run time {LONGEST_S:g} s, 317 years)")
    return draft, {}


def _numbered(names: list[str]) -> Floats:
    """The number at the end of each pod's name."""
    found = (re.search(r"(\d{1,15})$", name) for name in names)
    return np.array([float(match.group(1)) if match else np.nan for match in found], np.float64)


def _timed(draft: RawColumns, rows: CsvRows, report: CleaningReport) -> None:
    rows.need("deletion_time", "scheduled_time")
    created, scheduled, deleted = (rows.numbers(name) for name in ("creation_time", "scheduled_time", "deletion_time"))
    last = float(np.nanmax(np.concatenate([created, scheduled, deleted]), initial=0))
    endless = np.isnan(deleted) & ~np.isnan(scheduled)
    report_rows(
        report, "corrected", f"not deleted in the trace: assumed to end with it, at {last:,.0f} s", endless, rows.line
    )
    report_rows(
        report, "note", f"deleted at the last moment of the trace, {last:,.0f} s: it may have run on, and is cut there",
        deleted == last, rows.line,
    )  # fmt: skip
    ended = np.where(endless, last, deleted)
    draft.numbers |= {"submit_s": created, "runtime_s": ended - scheduled, "wait_s": scheduled - created}
    if "pod_phase" in rows:
        status = rows.statuses("pod_phase", _STATUS)
        draft.numbers["status"] = status
        waiting = np.isnan(scheduled) & (status == _STATUS["PENDING"])
        draft.never_ran["still pending when it was deleted"] = waiting
        draft.numbers["cancel_s"] = np.where(waiting, deleted, np.nan)
