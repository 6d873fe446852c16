"""Reader of tables of jobs in the schema oda.job of hpc-oda-commons, versions 0.1 and 0.2."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.alcf import machine_facts
from kilowait.traces.formats.cell_values import job_numbers
from kilowait.traces.formats.csv_rows import CsvRows
from kilowait.traces.formats.table_rows import table_rows
from kilowait.traces.trace_input import TraceInput

_USED = (
    "job_id submit_time start_time end_time runtime_seconds allocated_cpus partition node_list requested_seconds "
    "num_nodes_alloc num_nodes_req num_cores_alloc num_cores_req qos job_state exit_code user account queue name "
    "machine"
).split()
"""The columns of the schema, then those that the project's descriptors of data sets add."""


def read_oda(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read a table of jobs that ran; only the submission may be unknown."""
    rows = table_rows(source, report, "a table of jobs", _USED)
    rows.need("job_id", "start_time", "end_time", "runtime_seconds")
    start, end, runtime = rows.moments("start_time"), rows.moments("end_time"), rows.numbers("runtime_seconds")
    submit = rows.moments("submit_time") if "submit_time" in rows else np.full(len(rows), np.nan)
    ids, names = job_numbers(rows.texts("job_id"), rows.line, report)
    draft = RawColumns(rows.line, {"job_id": ids, "wait_s": start - submit})
    if names is not None:
        draft.words["log_id"] = names
    at_start = np.isnan(submit) & ~np.isnan(start)
    report.add_rows("corrected", "submit_time unknown: start_time used, the wait is unknown", at_start, rows.line)
    derived = np.isnan(runtime) & ~np.isnan(end - start)
    report.add_rows("corrected", "runtime_seconds unknown: end_time - start_time used", derived, rows.line)
    draft.numbers |= {
        "submit_s": np.where(at_start, start, submit),
        "runtime_s": np.where(derived, end - start, runtime),
        "cores": _positive(rows, "allocated_cpus", "num_cores_alloc", "num_cores_req"),
        "nodes": _positive(rows, "num_nodes_alloc", "num_nodes_req"),
    }
    requested = ~(_positive(rows, "num_nodes_alloc") > 0) & (draft.numbers["nodes"] > 0)
    report.add_rows("note", "num_nodes_alloc unknown: num_nodes_req used", requested, rows.line)
    if "num_nodes_alloc" not in rows and "num_nodes_req" not in rows:
        report.add("note", "no column of nodes: CPUs used as nodes")
        draft.numbers["nodes"] = draft.numbers["cores"]
        draft.unit = "processor"
    if "requested_seconds" in rows:
        draft.numbers["estimate_s"] = _positive(rows, "requested_seconds")
    _status(draft, rows, report)
    queue = "queue" if "queue" in rows else "partition"
    draft.words |= rows.labels(
        ("", "None"), user="user", account="account", queue=queue, qos="qos", name="name", node_list="node_list"
    )
    machine = machine_facts(rows.texts("machine"), "machine", report) if "machine" in rows else {}
    report.add("note", "times without a zone are read as UTC")
    return draft, {"unix_start_s": 0, "time_zone": "UTC", **machine}


def _positive(rows: CsvRows, *names: str) -> Floats:
    """Per row the first value above 0 of these columns."""
    values = np.full(len(rows), np.nan)
    for name in names:
        if name in rows:
            found = rows.numbers(name)
            values = np.where(np.isnan(values) & (found > 0), found, values)
    return values


def _status(draft: RawColumns, rows: CsvRows, report: CleaningReport) -> None:
    """Status by job_state where it is a word, else by exit_code."""
    status = np.full(len(rows), -1.0)
    if "job_state" in rows:
        status = rows.statuses("job_state")
        numbers = ~np.isnan(rows.numbers("job_state"))
        report.add_rows("note", "job_state is a number of unknown meaning: left out", numbers, rows.line)
    if "exit_code" in rows:
        code = rows.numbers("exit_code")
        status = np.where((status == -1) & ~np.isnan(code), (code == 0).astype(np.float64), status)
    draft.numbers["status"] = status
