"""Readers of Alibaba's traces: tables of PAI (2020), pod lists (2023, openb), jobs of the spot-GPU cluster (2026)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.traces.clean import LONGEST_S, Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import MB_PER_MIB, CsvRows, first_line, read_rows, set_cpus, set_workers
from kilowait.traces.trace_input import TraceFile, TraceInput

# -- PAI, 2020 -------------------------------------------------------------------------------------

PAI_TABLES = {
    "task": "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
    "job": "job_name,inst_id,user,status,start_time,end_time",
    "tag": "inst_id,user,gpu_type_spec,group,workload",
    "instance": "job_name,task_name,inst_name,worker_name,inst_id,status,start_time,end_time,machine",
    "machine": "machine,gpu_type,cap_cpu,cap_mem,cap_gpu",
}
"""Columns of the published tables, from their .header files."""
GAIA_HEADER = "arrival_time,length,cpus"

_HEX = re.compile(r"[0-9a-f]{12,}")
_TASK_STATES = ("Terminated", "Failed", "Running", "Waiting")
_TASK_STATUS = {"TERMINATED": 1.0, "FAILED": 0.0}


def pai_table(line: str) -> str | None:
    """The table in `PAI_TABLES` a line belongs to, by the form of the line or because it is the header.

    >>> pai_table("4f057009a5d481acec67b088,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.29,50.0,MISC")
    'task'
    """
    for kind, names in PAI_TABLES.items():
        if line.strip() == names:
            return kind
    fields = line.split(",")
    width = len(fields)
    if width == 5 and _HEX.fullmatch(fields[0]):
        return "tag" if len(fields[0]) > 40 else "machine"
    states = {"task": (10, 3), "job": (6, 3), "instance": (9, 5)}
    for kind, (columns, place) in states.items():
        if width == columns and _HEX.fullmatch(fields[0]) and fields[place] in _TASK_STATES:
            return kind
    return None


def count_rows(lines: Sequence[str]) -> int:
    """Number of lines that are rows of a table of PAI."""
    return sum(pai_table(line) is not None for line in lines)


def read_pai(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read one job per row of the task table, joined with the job and tag tables if they are given."""
    parts = source.take_files(report)
    part_of_table: dict[str, TraceFile] = {}
    for part in parts:
        first = first_line(part.text)
        if first.strip() == GAIA_HEADER:
            if len(parts) > 1:
                raise TraceError(f"{part.name} is a complete log among {len(parts)} files; name one of them")
            return _gaia(read_rows(part.text, report), report), {}
        kind = pai_table(first)
        if kind is None:
            raise TraceError(f"{part.name} is not a table of PAI: it starts with {first[:60]!r}")
        if kind in part_of_table:
            raise TraceError(
                f"{part.name} and {part_of_table[kind].name} are both PAI's {kind} table; leave one of them"
            )
        part_of_table[kind] = part
    if "task" not in part_of_table:
        raise TraceError(
            f"PAI's task table (pai_task_table.csv) is required, but this is the {', '.join(part_of_table)} table; "
            "name the folder with both tables, or the task table"
        )
    tables: dict[str, CsvRows] = {
        kind: _table(part_of_table[kind], kind, report) for kind in ("job", "tag") if kind in part_of_table
    }
    return _tasks(_table(part_of_table["task"], "task", report), tables, report), {}


def _table(part: TraceFile, kind: str, report: CleaningReport) -> CsvRows:
    """Read one table; only tasks become jobs, the rows of the other tables are looked up."""
    own = report if kind == "task" else CleaningReport()
    rows = read_rows(part.text, own, PAI_TABLES[kind].split(","))
    if own is not report and own.dropped:
        report.add("note", f"{own.dropped:,} broken rows of {part.name} left out")
    return rows


def _tasks(tasks: CsvRows, tables: dict[str, CsvRows], report: CleaningReport) -> RawColumns:
    start, end = (np.where(x > 0, x, np.nan) for x in map(tasks.numbers, ("start_time", "end_time")))
    workers = tasks.numbers("inst_num")
    draft = RawColumns(tasks.line, {"submit_s": start, "runtime_s": end - start})
    share = tasks.numbers("plan_gpu") / 100
    set_workers(draft, np.where(np.isnan(share), 0.0, share), workers, report)
    set_cpus(draft, tasks.numbers("plan_cpu") * 10 * workers)
    draft.numbers["memory_mb"] = tasks.numbers("plan_mem") * 1024 * MB_PER_MIB * workers
    draft.numbers["status"] = tasks.statuses("status", _TASK_STATUS)
    draft.words["name"] = tasks.words("task_name")
    codes, states = tasks.kinds("status")
    waiting = np.array([state == "Waiting" for state in states], np.bool_)[codes] & np.isnan(start)
    draft.never_ran["still waiting when the trace ends"] = waiting
    if "job" in tables:
        _joined(draft, tasks, tables, start, report)
    else:
        report.add("note", "no job table at hand: the start of a task is taken as its submission; no users")
    job_of_task, _ = tasks.kinds("job_name")
    shared = np.bincount(job_of_task)[job_of_task] > 1
    report.add_rows("note", "one of several tasks of a job: a job of its own here", shared, tasks.line)
    draft.words["runtime_gpu_type"] = tasks.words("gpu_type", ("", "nan", "CPU"))
    report.add("note", "gpu_type is the type on which a task ran, not its request: runtime_gpu_type")
    return draft


def _joined(
    draft: RawColumns, tasks: CsvRows, tables: dict[str, CsvRows], start: Floats, report: CleaningReport
) -> None:
    jobs = tables["job"]
    place = _found(tasks.columns["job_name"], jobs.columns["job_name"])
    known = place >= 0
    submitted = np.where(known, jobs.numbers("start_time")[place], np.nan)
    early = known & (submitted > 0) & (submitted <= start)
    odd = ~early & ~np.isnan(start)
    report.add_rows("corrected", "submission of the job unknown or after the start: the start is used", odd, tasks.line)
    submit = np.where(early | np.isnan(start) & known, submitted, start)
    draft.numbers |= {"submit_s": submit, "wait_s": np.where(early, start - submit, np.nan)}
    codes, names = jobs.words("user")
    draft.words["user"] = np.where(known, codes[place], -1).astype(np.int32), names
    if "tag" not in tables:
        return
    tags = tables["tag"]
    own = _found(jobs.columns["inst_id"], tags.columns["inst_id"])
    tagged = np.where(known, own[place], -1)
    for column, name in (("gpu_types", "gpu_type_spec"), ("model", "workload"), ("account", "group")):
        codes, names = tags.words(name, ("", "nan"))
        draft.words[column] = np.where(tagged >= 0, codes[tagged], -1).astype(np.int32), names


def _found(wanted: Any, among: Any) -> npt.NDArray[np.int64]:
    """Row of the first match of each name in `among`, or -1."""
    import pyarrow.compute as pc

    rows = pc.fill_null(pc.index_in(wanted, value_set=among.combine_chunks()), -1)
    return np.asarray(rows.to_numpy(zero_copy_only=False), np.int64)


def _gaia(rows: CsvRows, report: CleaningReport) -> RawColumns:
    cpus = rows.numbers("cpus")
    draft = RawColumns(rows.line, {"submit_s": rows.numbers("arrival_time") * 3600, "cores": cpus, "nodes": cpus})
    draft.numbers["runtime_s"] = rows.numbers("length") * 3600
    draft.unit = "processor"
    report.add("note", "arrival_time and length are in hours; cpus used as nodes")
    report.add("note", "this sample of two months has arrivals resampled over a year by its authors")
    return draft


# -- pod lists of the GPU-sharing cluster, 2023 ----------------------------------------------------


_POD_STATUS = {"SUCCEEDED": 1.0, "FAILED": 0.0, "PENDING": 5.0}


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
        _set_times(draft, rows, report)
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


def _set_times(draft: RawColumns, rows: CsvRows, report: CleaningReport) -> None:
    rows.need("deletion_time", "scheduled_time")
    created, scheduled, deleted = (rows.numbers(name) for name in ("creation_time", "scheduled_time", "deletion_time"))
    last = float(np.nanmax(np.concatenate([created, scheduled, deleted]), initial=0))
    endless = np.isnan(deleted) & ~np.isnan(scheduled)
    report.add_rows(
        "corrected", f"not deleted in the trace: assumed to end with it, at {last:,.0f} s", endless, rows.line
    )
    report.add_rows(
        "note", f"deleted at the last moment of the trace, {last:,.0f} s: it may have run on, and is cut there",
        deleted == last, rows.line,
    )  # fmt: skip
    ended = np.where(endless, last, deleted)
    draft.numbers |= {"submit_s": created, "runtime_s": ended - scheduled, "wait_s": scheduled - created}
    if "pod_phase" in rows:
        status = rows.statuses("pod_phase", _POD_STATUS)
        draft.numbers["status"] = status
        waiting = np.isnan(scheduled) & (status == _POD_STATUS["PENDING"])
        draft.never_ran["still pending when it was deleted"] = waiting
        draft.numbers["cancel_s"] = np.where(waiting, deleted, np.nan)


# -- jobs of the spot-GPU cluster, 2026 ------------------------------------------------------------


def read_spot(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read a job list with one job per row."""
    rows = read_rows(source.take_text(report, "a list of spot jobs"), report)
    return (_published if "job_type" in rows else _derived)(rows, report), {}


def _derived(rows: CsvRows, report: CleaningReport) -> RawColumns:
    rows.need("arrival_time", "runtime", "gpus", "priority")
    gpus = rows.numbers("gpus")
    draft = RawColumns(rows.line, rows.columns_of(submit_s="arrival_time", runtime_s="runtime", priority="priority"))
    report.add_rows(
        "corrected", "gpus is 0, a fractional GPU of unknown size: one whole GPU used",
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
