"""Reader of Google's cluster traces: the event files of 2011 and exports of the BigQuery tables of 2019."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import CodedNames, number
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.gpu.csv import CsvRows, Floats, TraceFile, first_line, read_rows, report_rows
from kilowait.traces.gpu.resource_columns import set_cpus
from kilowait.traces.gpu.task_events import END, SCHEDULE, SUBMIT, UPDATE, TaskIntervals, task_intervals

__all__ = ["JOB_EVENTS", "TASK_EVENTS", "read_google2011", "read_google2019"]

JOB_EVENTS = "time,missing,job,event,user,class,name,logical".split(",")
TASK_EVENTS = "time,missing,job,task,machine,event,user,class,priority,cpus,memory,disk,apart".split(",")
"""Columns of the files of 2011, which have no header."""

LARGEST_MACHINE = {"cores": 1000, "memory_mb": 1_000_000}
"""Assumed size of the largest machine; requests are fractions of it."""
_BEGIN_S = 600.0
"""Begin of the traces; earlier events have time 0."""

# By code: 0 submit, 1 schedule, 2 evict, 3 fail, 4 finish, 5 kill, 6 lost, 7 and 8 updates.
_KINDS_2011 = [SUBMIT, SCHEDULE, END, END, END, END, END, UPDATE, UPDATE]
_STATUS_2011 = {2: 0.0, 3: 0.0, 4: 1.0, 5: 5.0, 6: 0.0}
# By code, as in _NAMES_2019. Queueing and enabling are steps on the way to a start.
_KINDS_2019 = [SUBMIT, UPDATE, UPDATE, SCHEDULE, END, END, END, END, END, UPDATE, UPDATE]
_STATUS_2019 = {4: 0.0, 5: 0.0, 6: 1.0, 7: 5.0, 8: 0.0}
_NAMES_2019 = "SUBMIT QUEUE ENABLE SCHEDULE EVICT FAIL FINISH KILL LOST UPDATE_PENDING UPDATE_RUNNING".split()


def read_google2011(parts: Sequence[TraceFile], report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read one job per task, or per job if only job_events are given."""
    of_tasks, of_jobs = ([p for p in parts if _width(p) == len(names)] for names in (TASK_EVENTS, JOB_EVENTS))
    if not of_tasks and not of_jobs:
        raise TraceError("these are not job events (8 columns) or task events (13 columns)")
    names, chosen = (TASK_EVENTS, of_tasks) if of_tasks else (JOB_EVENTS, of_jobs)
    if len(chosen) < len(parts):
        report.add("note", f"{len(parts) - len(chosen)} files of other events left out: tasks are the jobs here")
    rows = _together([read_rows(part.text, report, names) for part in chosen])
    draft, tasks = _drafted(rows, ["job", "task"] if of_tasks else ["job"], _KINDS_2011, _STATUS_2011, report)
    if of_tasks:
        _requests(draft, rows, tasks, "cpus", "memory", report)
        draft.words["account"] = _first(rows.words("job"), tasks)
    else:
        draft.numbers["job_id"] = rows.numbers("job")[tasks.first]
        draft.words["name"] = _first(rows.words("logical"), tasks)
        report.add("note", "job_events do not say how large a job is: one node each; task_events do")
    draft.words["user"] = _first(rows.words("user"), tasks)
    draft.words["qos"] = _first(rows.words("class"), tasks)
    return draft, {"largest_machine": LARGEST_MACHINE} if of_tasks else {}


def read_google2019(parts: Sequence[TraceFile], report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read one job per instance, or per collection if only collection events are given; alloc sets are not jobs."""
    read = [_json_rows(p.text, report) if p.text.lstrip()[:1] == "{" else _csv_rows(p.text, report) for p in parts]
    of_tasks = [rows for rows in read if "instance_index" in rows]
    chosen = of_tasks or read
    if len(chosen) < len(read):
        left = sum(len(rows) for rows in read) - sum(len(rows) for rows in chosen)
        report.rows_read -= left
        report.add("note", f"{left:,} events of collections left out: instances are the jobs here")
    rows = _together(chosen)
    rows.need("time", "type", "collection_id")
    keys = ["collection_id", "instance_index"] if of_tasks else ["collection_id"]
    draft, tasks = _drafted(rows, keys, _KINDS_2019, _STATUS_2019, report)
    if of_tasks:
        _requests(draft, rows, tasks, "resource_request.cpus", "resource_request.memory", report)
        draft.words["account"] = _first(rows.words("collection_id"), tasks)
    else:
        draft.numbers["job_id"] = rows.numbers("collection_id")[tasks.first]
        report.add("note", "collection_events do not say how large a job is: one node each; instance_events do")
    for column, name in (("user", "user"), ("name", "collection_logical_name"), ("qos", "scheduling_class")):
        if name in rows:
            draft.words[column] = _first(rows.words(name), tasks)
    if "collection_type" in rows:
        places, kinds = rows.kinds("collection_type")
        alloc = np.array([kind.upper() in ("1", "1.0", "ALLOC_SET") for kind in kinds], np.bool_)
        draft.invalid["an alloc set, which is a reservation and no job"] = alloc[places][tasks.first]
    return draft, {"largest_machine": LARGEST_MACHINE} if of_tasks else {}


# -- events to jobs ------------------------------------------------------------------------------


def _drafted(
    rows: CsvRows, keys: list[str], kinds: list[int], status: dict[int, float], report: CleaningReport
) -> tuple[RawColumns, TaskIntervals]:
    micro, event = rows.numbers("time"), _events(rows)
    key_columns = [rows.numbers(key) for key in keys]
    with np.errstate(invalid="ignore"):
        broken = np.isnan(micro) | (micro < 0) | ~((event >= 0) & (event < len(kinds)) & (event % 1 == 0))
        broken |= np.logical_or.reduce([np.isnan(key) for key in key_columns])
    report_rows(report, "dropped", "an event without time, kind or number of its job", broken, rows.line)
    sound = np.flatnonzero(~broken)
    if not len(sound):
        raise TraceError("it contains no valid events")
    codes = event[sound].astype(np.int64)
    tasks = task_intervals(
        np.stack([key[sound] for key in key_columns]), micro[sound] / 1e6, np.array(kinds)[codes], codes, _BEGIN_S
    )
    tasks.first = sound[tasks.first]
    line = rows.line[tasks.first]
    report.folded += len(sound) - len(line)
    draft = RawColumns(line, {"submit_s": tasks.submit_s, "runtime_s": tasks.runtime_s, "wait_s": tasks.wait_s})
    draft.numbers["nodes"] = np.ones(len(line))
    draft.numbers["status"] = np.array([status.get(code, -1.0) for code in tasks.last.tolist()], np.float64)
    draft.numbers["cancel_s"] = np.where(tasks.never & ~tasks.waiting, tasks.ended_s, np.nan)
    draft.never_ran["waiting when the files end"] = tasks.never & tasks.waiting
    draft.never_ran["ended while it waited"] = tasks.never & ~tasks.waiting
    ran = ~tasks.never
    begin, end = tasks.begin_s, tasks.end_s
    report_rows(
        report, "corrected", f"submitted before the files begin: cut at {begin:,.0f} s", tasks.early & ran, line
    )
    report_rows(report, "corrected", f"running when the files end: cut at {end:,.0f} s", tasks.late & ran, line)
    report_rows(
        report,
        "note",
        "ran several times (evicted, failed or submitted again): run time is the sum",
        tasks.runs > 1,
        line,
    )
    report.add("note", "times are in seconds here, microseconds in the files; lines are those of its first event")
    return draft, tasks


def _events(rows: CsvRows) -> Floats:
    if "event" in rows:
        return rows.numbers("event")
    codes = {name: float(code) for code, name in enumerate(_NAMES_2019)}
    places, kinds = rows.kinds("type")
    return np.array([codes.get(kind.upper(), number(kind)) for kind in kinds], np.float64)[places]


def _requests(
    draft: RawColumns, rows: CsvRows, tasks: TaskIntervals, cpus: str, memory: str, report: CleaningReport
) -> None:
    """Set the requests at the first event, given as fractions of the largest machine."""
    if cpus in rows:
        set_cpus(draft, np.round(rows.numbers(cpus)[tasks.first] * LARGEST_MACHINE["cores"] * 1000))
    if memory in rows:
        draft.numbers["memory_mb"] = rows.numbers(memory)[tasks.first] * LARGEST_MACHINE["memory_mb"]
    if "priority" in rows:
        draft.numbers["priority"] = rows.numbers("priority")[tasks.first]
    report.add("note", "requests are fractions of the largest machine, which is given 1,000 cores and 1,000,000 MB")


def _first(words: CodedNames, tasks: TaskIntervals) -> CodedNames:
    return words[0][tasks.first], words[1]


# -- files to events -----------------------------------------------------------------------------


def _width(part: TraceFile) -> int:
    return first_line(part.text).count(",") + 1


def _together(read: list[CsvRows]) -> CsvRows:
    """Concatenate the rows of several files; columns that are not in all of them are left out."""
    import pyarrow as pa

    if len(read) == 1:
        return read[0]
    shared = [name for name in read[0].columns if all(name in rows for rows in read)]
    chunks = {
        name: pa.chunked_array([chunk for rows in read for chunk in rows.columns[name].chunks], pa.string())
        for name in shared
    }
    return CsvRows(np.concatenate([rows.line for rows in read]), chunks)


def _csv_rows(text: str, report: CleaningReport) -> CsvRows:
    rows = read_rows(text, report)
    for whole in ("cpus", "memory"):  # Exports flatten the record of requests in one way or another.
        for name in (f"resource_request_{whole}", f"{whole}_request", whole):
            if name in rows:
                rows.columns.setdefault(f"resource_request.{whole}", rows.columns[name])
    return rows


def _json_rows(text: str, report: CleaningReport) -> CsvRows:
    """Read JSON lines with one event each, as exported by BigQuery."""
    import pyarrow as pa

    events: list[dict[str, str]] = []
    at: list[int] = []
    for place, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        report.rows_read += 1
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            report.add("dropped", "a line that is no JSON record", 1, place)
            continue
        request = event.pop("resource_request", None)
        if isinstance(request, dict):
            event |= {f"resource_request.{name}": value for name, value in request.items()}
        events.append({name: _cell(value) for name, value in event.items()})
        at.append(place)
    names = dict.fromkeys(name for event in events for name in event)
    columns = {name: pa.chunked_array([[event.get(name, "") for event in events]], pa.string()) for name in names}
    return CsvRows(np.array(at, np.int64), columns)


def _cell(value: Any) -> str:
    return "" if value is None or isinstance(value, (list, dict)) else str(value)
