"""Reader of SenseTime's Helios traces, 2020: the published cluster_log.csv and slices of it for fleetsim."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import CsvRows, read_rows, set_gpus_per_node
from kilowait.traces.trace_input import TraceInput


def read_helios(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read a cluster log with one job per row; the virtual cluster becomes the queue."""
    rows = read_rows(source.take_text(report, "a cluster log"), report)
    return _slice(rows, report) if "num_chips" in rows else _log(rows, report)


def _log(rows: CsvRows, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    rows.need("job_id", "gpu_num", "node_num", "state", "submit_time", "start_time", "end_time")
    submit, start, end = (rows.moments(f"{what}_time") for what in ("submit", "start", "end"))
    draft = RawColumns(rows.line, {"job_id": rows.numbers("job_id"), "submit_s": submit})
    draft.numbers |= {"runtime_s": end - start, "wait_s": start - submit, "status": rows.statuses("state")}
    unstarted = np.isnan(start) & ~np.isnan(end)
    draft.never_ran["it has no start"] = unstarted
    draft.numbers["cancel_s"] = np.where(unstarted, end, np.nan)
    set_gpus_per_node(draft, rows.numbers("gpu_num"), rows.numbers("node_num"), report)
    if "cpu_num" in rows:
        draft.numbers["cores"] = rows.numbers("cpu_num")
    draft.words |= rows.labels(user="user", queue="vc", name="jobname")
    report.add("note", "times without a zone are read as UTC")
    return draft, {"unix_start_s": 0, "time_zone": "UTC (assumed)"}


def _slice(rows: CsvRows, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    rows.need("job_id", "submit_time", "num_nodes", "duration_s", "final_status")
    draft = RawColumns(rows.line, rows.columns_of(job_id="job_id", runtime_s="duration_s"))
    draft.numbers["submit_s"] = rows.numbers("submit_time") / 1e6
    draft.numbers["status"] = rows.statuses("final_status")
    report.add("note", "submit_time is in microseconds, from the beginning of the slice")
    set_gpus_per_node(draft, rows.numbers("num_chips"), rows.numbers("num_nodes"), report)
    if "walltime_limit_s" in rows:
        limit, run = rows.numbers("walltime_limit_s"), draft.numbers["runtime_s"]
        if ((limit == run) | np.isnan(limit)).all():
            report.add("note", "walltime_limit_s equals the duration (a perfect estimate): not used as a request")
        else:
            draft.numbers["estimate_s"] = limit
    draft.words |= rows.labels(user="user", queue="tenant", gpu_types="chip_type")
    return draft, {"header": rows.header} if rows.header else {}
