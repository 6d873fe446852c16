"""Reader of Google's cluster traces: the event files of 2011 and exports of the BigQuery tables of 2019.

Task events (submit, schedule, end) are aggregated into one record per task: submission, run time, end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import CodedNames, number
from kilowait.traces.clean import Flags, Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import CsvRows, first_line, read_rows, set_cpus
from kilowait.traces.trace_input import TraceFile, TraceInput

SUBMIT, SCHEDULE, END, UPDATE = 0, 1, 2, 3
NEVER_S = 2.0**62 / 1e6
"""Times from here on mean "after the trace"."""

JOB_EVENTS = "time,missing,job,event,user,class,name,logical".split(",")
TASK_EVENTS = "time,missing,job,task,machine,event,user,class,priority,cpus,memory,disk,apart".split(",")
"""Columns of the files of 2011, which have no header."""

LARGEST_MACHINE = {"cores": 1000, "memory_mb": 1_000_000}
"""Assumed size of the largest machine; requests are fractions of it."""
_FEWEST_EVENTS = 3
"""Fewer rows are not enough to take them for events of 2011."""
_BEGIN_S = 600.0
"""Begin of the traces; earlier events have time 0."""

# By code: 0 submit, 1 schedule, 2 evict, 3 fail, 4 finish, 5 kill, 6 lost, 7 and 8 updates.
_KINDS_2011 = [SUBMIT, SCHEDULE, END, END, END, END, END, UPDATE, UPDATE]
_STATUS_2011 = {2: 0.0, 3: 0.0, 4: 1.0, 5: 5.0, 6: 0.0}
# By code, as in _NAMES_2019. Queueing and enabling are steps on the way to a start.
_KINDS_2019 = [SUBMIT, UPDATE, UPDATE, SCHEDULE, END, END, END, END, END, UPDATE, UPDATE]
_STATUS_2019 = {4: 0.0, 5: 0.0, 6: 1.0, 7: 5.0, 8: 0.0}
_NAMES_2019 = "SUBMIT QUEUE ENABLE SCHEDULE EVICT FAIL FINISH KILL LOST UPDATE_PENDING UPDATE_RUNNING".split()


def read_google2011(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read one job per task, or per job if only job_events are given."""
    parts = source.take_files(report)
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


def read_google2019(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read one job per instance, or per collection if only collection events are given; alloc sets are not jobs."""
    parts = source.take_files(report)
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
    labels = rows.labels(user="user", name="collection_logical_name", qos="scheduling_class")
    draft.words |= {column: _first(words, tasks) for column, words in labels.items()}
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
    report.add_rows("dropped", "an event without time, kind or number of its job", broken, rows.line)
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
    report.add_rows("corrected", f"submitted before the files begin: cut at {begin:,.0f} s", tasks.early & ran, line)
    report.add_rows("corrected", f"running when the files end: cut at {end:,.0f} s", tasks.late & ran, line)
    report.add_rows(
        "note", "ran several times (evicted, failed or submitted again): run time is the sum", tasks.runs > 1, line
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


# -- detection -----------------------------------------------------------------------------------


def count_job_events(rows: Sequence[str]) -> int:
    """Number of rows that are job events of Google's trace of 2011 and not earlier than the event before.

    >>> (
    ...     count_job_events([f"{n},,7,0,u=,3,name=,logical=" for n in range(9)]),
    ...     count_job_events(["1,0,7,5,1,0,-1,0"] * 9),
    ... )
    (9, 0)
    """
    return _in_order(rows, _is_job_event)


def count_task_events(rows: Sequence[str]) -> int:
    """Number of rows that are task events of Google's trace of 2011 and not earlier than the event before."""
    return _in_order(rows, _is_task_event)


def _in_order(rows: Sequence[str], fits: Callable[[list[str]], bool]) -> int:
    count, latest = 0, 0
    for row in rows:
        fields = row.strip().split(",")
        if fits(fields) and int(fields[0]) >= latest:
            count, latest = count + 1, int(fields[0])
    return count if count >= _FEWEST_EVENTS else 0


def _is_job_event(fields: list[str]) -> bool:
    """Time, missing information, job, type, user, class, name, logical name: names are texts, never numbers."""
    if len(fields) != len(JOB_EVENTS):
        return False
    time, missing, job, event, user, scheduling_class, name, logical = fields
    return (
        _is_google_event(time, missing, job, event, user, scheduling_class)
        and math.isnan(number(name))
        and math.isnan(number(logical))
    )


def _is_task_event(fields: list[str]) -> bool:
    """As a job event, with the task and its machine, a priority, requests between 0 and 1, and a flag."""
    if len(fields) != len(TASK_EVENTS):
        return False
    time, missing, job, task, machine, event, user, scheduling_class, priority, *requests, apart = fields
    return (
        _is_google_event(time, missing, job, event, user, scheduling_class)
        and _is_code(task, 10**9)
        and (not machine or machine.isdecimal())
        and _is_code(priority, 11)
        and all(not text or 0 <= number(text) <= 1 for text in requests)
        and apart in ("", "0", "1")
    )


def _is_google_event(time: str, missing: str, job: str, event: str, user: str, scheduling_class: str) -> bool:
    return (
        _is_code(time, 2**64)
        and (not missing or _is_code(missing, 2))
        and _is_code(job, 2**64)
        and _is_code(event, 8)
        and bool(user)
        and math.isnan(number(user))
        and _is_code(scheduling_class, 3)
    )


def _is_code(text: str, largest: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 21 and int(text) <= largest


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


# -- events of one task ----------------------------------------------------------------------------


@dataclass(slots=True)
class TaskIntervals:
    """Columns with one value per task, in the order of the tasks' first events."""

    first: npt.NDArray[np.int64]
    """Row of the first event."""
    submit_s: Floats
    wait_s: Floats
    """Wait until the first start; NaN if the task was submitted before the files begin."""
    runtime_s: Floats
    """Total run time over all starts."""
    runs: npt.NDArray[np.int64]
    """Number of starts."""
    ended_s: Floats
    """Time of the last event."""
    last: npt.NDArray[np.int64]
    """Code of the last end event, -1 for none."""
    never: Flags
    """Whether the task never ran."""
    waiting: Flags
    """Whether the last event is a submission."""
    early: Flags
    """Whether the task was submitted before the files begin."""
    late: Flags
    """Whether the task was running when the files end."""
    begin_s: float
    end_s: float


def task_intervals(
    keys: Floats, time_s: Floats, kind: npt.NDArray[np.int64], code: npt.NDArray[np.int64], begin_s: float
) -> TaskIntervals:
    """Aggregate events by task; the columns of `keys` identify the task of each event.

    Time 0 means "before the files", which begin at `begin_s` in that case. A run lasts from a start to the next event
    that is not an update, or to the end of the files. An end without an earlier start belongs to a run since the
    beginning of the files.

    >>> kinds = np.array([SUBMIT, SCHEDULE, SUBMIT, END, SCHEDULE])
    >>> found = task_intervals(np.array([[1, 1, 2, 1, 2.0]]), np.array([1, 5, 6, 9, 20.0]), kinds, kinds, 600.0)
    >>> found.submit_s.tolist(), found.runtime_s.tolist(), found.wait_s.tolist(), found.late.tolist()
    ([1.0, 6.0], [4.0, 0.0], [4.0, 14.0], [False, True])
    """
    # Events "after the trace" did not happen.
    kind = np.where(time_s >= NEVER_S, UPDATE, kind)
    real = time_s < NEVER_S
    before = time_s == 0
    begin = float(time_s[real & ~before].min(initial=np.inf))
    if before.any() and begin >= begin_s:
        begin = begin_s
    end = float(time_s[real].max(initial=begin))
    first, owners = _owners(keys)
    count = len(first)

    time = np.clip(time_s, begin, end)
    ordered = np.flatnonzero(kind != UPDATE)
    ordered = ordered[np.lexsort((ordered, time_s[ordered], owners[ordered]))]
    owner, moment, event_kind = owners[ordered], time[ordered], kind[ordered]
    opens = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    closes = np.append(owner[1:] != owner[:-1], True)[-len(owner) :] if len(owner) else opens

    starts = event_kind == SCHEDULE
    until = np.where(closes, end, np.append(moment[1:], end)[: len(moment)])
    ran = np.where(starts, until - moment, 0.0)
    orphan = opens & (event_kind == END)
    ran = ran + np.where(orphan, moment - begin, 0.0)
    runtime = np.bincount(owner, ran, count).astype(np.float64)
    runs = np.bincount(owner, starts | orphan, count).astype(np.int64)

    submit = np.full(count, begin)
    submit[owner[opens]] = moment[opens]
    early = np.ones(count, np.bool_)
    early[owner[opens]] = before[ordered][opens] | (event_kind[opens] != SUBMIT)
    submit[early] = begin
    started = np.full(count, np.nan)
    started[owner[starts][::-1]] = moment[starts][::-1]  # Reversed, so that the first start wins.
    last = np.full(count, -1, np.int64)
    ended = np.full(count, np.nan)
    last[owner[event_kind == END]] = code[ordered][event_kind == END]
    ended[owner[closes]] = moment[closes]
    waiting = np.ones(count, np.bool_)
    waiting[owner[closes]] = event_kind[closes] == SUBMIT
    late = np.zeros(count, np.bool_)
    late[owner[closes]] = starts[closes]
    last[late | waiting] = -1
    return TaskIntervals(
        first, submit, np.where(early, np.nan, started - submit), runtime, runs, ended, last, runs == 0,
        waiting, early, late, begin, end,
    )  # fmt: skip


def _owners(keys: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row of each task's first event, and the task of every event."""
    whole = np.zeros(keys.shape[1], np.int64)
    for key in keys:
        found, place = np.unique(key, return_inverse=True)
        _, whole = np.unique(whole * len(found) + place, return_inverse=True)
    _, first = np.unique(whole, return_index=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.sort(first), rank[whole]
