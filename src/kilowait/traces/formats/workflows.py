"""Readers of task tables: Workflow Trace Archive (WTA) and OpenDC. Times are in milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.traces.clean import Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.cell_values import job_numbers
from kilowait.traces.formats.csv_rows import CsvRows, set_gpus_on_any_nodes
from kilowait.traces.formats.table_rows import Lists, lists, table_rows
from kilowait.traces.trace_input import TraceInput

_WTA = (
    "id ts_submit runtime wait_time resource_type resource_amount_requested parents user_id group_id workflow_id"
).split()
_OPENDC = (
    "id name submission_time start_time stop_time duration cpu_count mem_capacity gpu_count parents nature deferrable "
    "deadline"
).split()
_MS = 1e-3


def read_wta(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the tasks of workflows: a task requests a number of CPUs, which count as nodes, or of GPUs."""
    rows = table_rows(source, report, "a table of tasks", _WTA)
    rows.need("id", "ts_submit", "runtime", "resource_amount_requested", "workflow_id")
    draft = _with_ids(rows, report)
    draft.numbers["submit_s"] = rows.numbers("ts_submit") * _MS
    amount = rows.numbers("resource_amount_requested")
    fraction = amount != np.floor(amount)
    fraction &= ~np.isnan(amount)
    report.add_rows("corrected", "resource_amount_requested is a fraction: rounded up", fraction, rows.line)
    amount = np.where(fraction, np.ceil(amount), amount)
    draft.numbers |= {"runtime_s": rows.numbers("runtime") * _MS, "nodes": amount}
    if "wait_time" in rows:
        wait = rows.numbers("wait_time")
        draft.numbers["wait_s"] = np.where(wait == -1, np.nan, wait * _MS)
    _resource_types(draft, rows, amount, report)
    for column, name in (("user", "user_id"), ("account", "workflow_id")):
        if name in rows:
            draft.words[column] = rows.words(name, ("", "-1"))
    if "group_id" in rows:
        groups = rows.numbers("group_id") >= 0
        report.add_rows("note", "group_id left out: the account is the workflow", groups, rows.line)
    if "parents" in rows:
        _last_parents(draft, rows.texts("id"), lists(rows, "parents"), report)
    return draft, {}


def _resource_types(draft: RawColumns, rows: CsvRows, amount: Floats, report: CleaningReport) -> None:
    if "resource_type" not in rows:
        report.add("note", "no column of nodes: resources used as nodes")
        return
    places, kinds = rows.kinds("resource_type")
    gpu = np.array([kind.lower().rstrip("s") == "gpu" for kind in kinds], np.bool_)[places]
    if gpu.any():
        set_gpus_on_any_nodes(draft, amount, gpu)
    else:
        draft.unit = "processor"
    draft.numbers["cores"] = np.where(gpu, np.nan, amount)
    report.add_rows("note", "resource_type is no GPU: the resources are CPUs and count as nodes", ~gpu, rows.line)


def read_opendc(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the tasks of a workload, each on one node."""
    rows = table_rows(source, report, "a table of tasks", _OPENDC)
    rows.need("id", "cpu_count", "mem_capacity")
    if "start_time" in rows and "stop_time" in rows:  # The first version: virtual machines.
        submit, runtime = _time_ms(rows, "start_time"), _time_ms(rows, "stop_time")
        runtime -= submit
        report.add("note", "start_time is read as submission: the table has no waits")
    else:
        rows.need("submission_time", "duration")
        submit, runtime = _time_ms(rows, "submission_time"), rows.numbers("duration")
    draft = _with_ids(rows, report)
    draft.numbers |= {"submit_s": submit * _MS, "runtime_s": runtime * _MS}
    draft.numbers |= {"cores": rows.numbers("cpu_count"), "memory_mb": rows.numbers("mem_capacity")}
    draft.numbers["nodes"] = np.ones(len(rows))
    if "gpu_count" in rows:
        draft.numbers["gpus"] = rows.numbers("gpu_count")
    draft.words |= rows.labels(name="name")
    _slack(draft, rows, submit, runtime, report)
    if "parents" in rows:
        _last_parents(draft, rows.texts("id"), lists(rows, "parents"), report)
    report.add("note", "each task uses one node, with its CPUs as cores")
    return draft, {"unix_start_s": 0} if np.nanmax(submit, initial=0) > 5e11 else {}


def _time_ms(rows: CsvRows, name: str) -> Floats:
    """Milliseconds of a time, which is a timestamp, a date, or a number of milliseconds."""
    dates = rows.moments(name)
    return np.where(np.isnan(dates), rows.numbers(name) if np.isnan(dates).all() else np.nan, dates * 1e3)


def _slack(draft: RawColumns, rows: CsvRows, submit: Floats, runtime: Floats, report: CleaningReport) -> None:
    """The time by which a deferrable task may be delayed: until its deadline."""
    if "deadline" not in rows:
        return
    deadline = _time_ms(rows, "deadline")
    deferrable = ~np.isnan(deadline)
    if "deferrable" in rows:
        deferrable &= np.array([text.lower() in ("true", "1") for text in rows.texts("deferrable")], np.bool_)
    elif "nature" in rows:
        deferrable &= np.array([text.lower() == "deferrable" for text in rows.texts("nature")], np.bool_)
    slack = (deadline - submit - runtime) * _MS
    late = deferrable & (slack < 0)
    report.add_rows("corrected", "deadline before submission + duration: no slack", late, draft.line)
    draft.numbers["slack_s"] = np.where(deferrable, np.maximum(slack, 0.0), np.nan)


def _with_ids(rows: CsvRows, report: CleaningReport) -> RawColumns:
    """Rows with their job numbers, and with their ids where these are texts."""
    ids, names = job_numbers(rows.texts("id"), rows.line, report)
    return RawColumns(rows.line, {"job_id": ids}, {} if names is None else {"log_id": names})


def _last_parents(draft: RawColumns, texts: list[str], parents: Lists, report: CleaningReport) -> None:
    """Each task depends on the parent that ended last, since a job has one dependency."""
    ids = draft.numbers["job_id"]
    wait = np.nan_to_num(draft.get("wait_s"))
    end = draft.numbers["submit_s"] + wait + draft.numbers["runtime_s"]
    row_of = {text: row for row, text in reversed(list(enumerate(texts)))}
    found = [row_of.get(str(value).removesuffix(".0"), -1) for value in parents.values.tolist()]
    row = np.array(found, np.int64)
    known = row >= 0
    child = np.repeat(np.arange(len(ids)), parents.lengths)
    after = np.full(len(ids), np.nan)
    latest = np.full(len(ids), -np.inf)
    for task, parent in zip(child[known].tolist(), row[known].tolist(), strict=True):
        if end[parent] > latest[task]:
            latest[task], after[task] = end[parent], ids[parent]
    draft.numbers["after_id"] = after
    pause = draft.numbers["submit_s"] - latest
    draft.numbers["think_s"] = np.where(np.isnan(after), np.nan, np.maximum(pause, 0.0))
    several = _counts(child[known], len(ids)) > 1
    reason = "several parents: the dependency on the one that ended last is kept, the others left out"
    report.add_rows("note", reason, several, draft.line)
    absent = _counts(child[~known], len(ids)) > 0
    report.add_rows("corrected", "parent that is not in the table: left out", absent, draft.line)


def _counts(rows: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    return np.bincount(rows, minlength=size)
