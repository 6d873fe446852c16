"""Reader of Microsoft's Philly trace, 2017: the published cluster_job_log and derived tables (Sia, Lumos)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import coded, unix_s
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import CsvRows, read_rows, set_gpus_on_any_nodes, set_gpus_per_node
from kilowait.traces.formats.table_columns import STATUS_WORDS
from kilowait.traces.trace_input import TraceInput

_ZONE = {"unix_start_s": 0, "time_zone": "UTC (assumed)"}


def read_philly(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the jobs of the JSON log, or the rows of Sia's or Lumos' table."""
    text = source.take_text(report, "Philly's job log")
    if text.lstrip()[:1] == "[":
        return _log(text, report), dict(_ZONE)
    rows = read_rows(text, report)
    if "timestamp" in rows:
        return _sia(rows, report), dict(_ZONE)
    return _lumos(rows, report), {"unix_start_s": 0}


def _sia(rows: CsvRows, report: CleaningReport) -> RawColumns:
    rows.need("timestamp", "duration", "num_gpus")
    draft = RawColumns(rows.line, {"submit_s": rows.moments("timestamp"), "runtime_s": rows.numbers("duration")})
    set_gpus_on_any_nodes(draft, rows.numbers("num_gpus"))
    draft.words |= rows.labels(queue="cluster")
    report.add("note", "times without a zone are read as UTC")
    return draft


def _lumos(rows: CsvRows, report: CleaningReport) -> RawColumns:
    rows.need("run_time", "wait_time", "submit_time", "gpu_num")
    draft = RawColumns(rows.line, rows.columns_of(submit_s="submit_time", runtime_s="run_time", wait_s="wait_time"))
    set_gpus_on_any_nodes(draft, rows.numbers("gpu_num"))
    report.add("note", "more rows than Philly has jobs (117,325) are attempts or the like; each is a job here")
    return draft


@dataclass(slots=True)
class _Attempts:
    """Totals over the attempts of one job."""

    counted: int = 0
    runtime_s: float = 0.0
    first_start_s: float = np.nan
    untimed: int = 0
    """Attempts with an unknown start or end."""
    running: bool = False
    """Whether the last attempt has not ended."""
    gpus: float = np.nan
    nodes: float = np.nan
    differ: bool = False


def _log(text: str, report: CleaningReport) -> RawColumns:
    try:
        jobs = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise TraceError(f"this JSON cannot be read: {problem}; get the file again") from None
    report.rows_read = len(jobs)
    sound = [job for job in jobs if isinstance(job, dict)]
    if len(sound) < len(jobs):
        report.add("dropped", "not a job but another value in the list", len(jobs) - len(sound))
    attempts_of_jobs = [_attempts(job.get("attempts")) for job in sound]
    place = np.array([row for row, job in enumerate(jobs, start=1) if isinstance(job, dict)], np.int64)
    submit = np.array([unix_s(_text(job.get("submitted_time"))) for job in sound], np.float64)
    start = np.array([found.first_start_s for found in attempts_of_jobs], np.float64)
    draft = RawColumns(place, {"submit_s": submit, "wait_s": start - submit})
    draft.numbers["runtime_s"] = np.array(
        [np.nan if found.untimed == found.counted else found.runtime_s for found in attempts_of_jobs], np.float64
    )
    draft.numbers["status"] = np.array(
        [STATUS_WORDS.get(_text(job.get("status")).upper(), -1.0) for job in sound], np.float64
    )
    for column, name in (("user", "user"), ("queue", "vc"), ("name", "jobid")):
        draft.words[column] = coded([_text(job.get(name)) for job in sound], frozenset({"", "None"}))
    draft.never_ran["it has no attempt"] = np.array([not found.counted for found in attempts_of_jobs], np.bool_)
    running = np.array([found.running for found in attempts_of_jobs], np.bool_)
    draft.invalid["its last attempt has no end: it was running when the log was made"] = running
    set_gpus_per_node(
        draft,
        np.array([found.gpus for found in attempts_of_jobs], np.float64),
        np.array([found.nodes for found in attempts_of_jobs], np.float64),
        report,
    )
    part = np.array([0 < found.untimed < found.counted for found in attempts_of_jobs], np.bool_) & ~running
    report.add_rows("corrected", "an attempt without start or end: ignored", part, place)
    again = np.array([found.counted > 1 for found in attempts_of_jobs], np.bool_)
    report.add_rows("note", "several attempts: run time is their sum, the wait is that for the first", again, place)
    other = np.array([found.differ for found in attempts_of_jobs], np.bool_)
    report.add_rows("note", "attempts on different numbers of GPUs: those of the last used", other, place)
    report.add("note", "lines are places in the list; times without a zone are read as UTC")
    return draft


def _attempts(attempts: Any) -> _Attempts:
    found = _Attempts()
    if not isinstance(attempts, list):
        return found
    sizes: set[float] = set()
    for attempt in attempts:
        if not isinstance(attempt, dict):
            continue
        found.counted += 1
        start, end = (unix_s(_text(attempt.get(name))) for name in ("start_time", "end_time"))
        found.running = np.isnan(end)
        if np.isnan(start) or np.isnan(end) or end < start:
            found.untimed += 1
        else:
            found.runtime_s += end - start
            found.first_start_s = start if np.isnan(found.first_start_s) else found.first_start_s
        gpus = [len(entry["gpus"]) for entry in _entries(attempt.get("detail"))]
        if sum(gpus):
            # If the GPUs differ between nodes, an infinite number of nodes marks that they may be on any nodes.
            found.gpus, found.nodes = sum(gpus), len(gpus) if len(set(gpus)) == 1 else np.inf
            sizes.add(found.gpus)
    found.differ = len(sizes) > 1
    return found


def _entries(detail: Any) -> Iterable[dict[str, Any]]:
    listed = detail if isinstance(detail, list) else ()
    return (x for x in listed if isinstance(x, dict) and isinstance(x.get("gpus"), list) and x["gpus"])


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
