"""Reader of the Standard Workload Format (SWF): 18 fields per line, extended forms of 19 to 21 fields, headers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.traces.cell_parser import CodedNames, coded
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.swf_lines import FIELDS, HEADER_KEY, HEADER_KEYS, SwfRows

__all__ = ["FIELDS", "read_swf"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_INTEGER = re.compile(r"-?\d{1,3}(?:,\d{3})+(?!\d)|-?\d+")


def read_swf(rows: SwfRows, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """The columns and the header of a log; times stay relative to the log's own origin. Uses up the rows."""
    header = _header(rows.comments)
    meta: dict[str, Any] = {"header": {k: v for k, v in header.items() if k not in ("Queue", "Partition")}}
    for key, name in (("MaxProcs", "max_procs"), ("MaxNodes", "max_nodes")):
        number = _first_integer(header.get(key, ""))
        if number is not None and number > 0:
            meta[name] = number
    start = _first_integer(header.get("UnixStartTime", ""))
    if start is not None and start >= 0:
        meta["unix_start_s"] = start
    if "TimeZoneString" in header or "TimeZone" in header:
        meta["time_zone"] = header.get("TimeZoneString") or header.get("TimeZone")

    alea = bool(rows.queues) and rows.width == 21
    if rows.width > FIELDS:
        report.add(
            "note", f"lines have {rows.width} fields, SWF has {FIELDS}: the rest left out" + ", except the queue" * alea
        )
    draft = RawColumns(rows.line, {}, correct_submit=True)
    draft.numbers |= {
        "job_id": rows.take(0),
        "submit_s": _with_nan(rows.take(1), np.less, 0),
        "wait_s": _known(rows.take(2)),
        "estimate_s": _with_nan(rows.take(8), np.less_equal, 0),
    }
    after, think = rows.take(16), rows.take(17)
    if (after >= 0).any():
        draft.numbers |= {"after_id": _known(after), "think_s": _known(think)}
    del after, think
    runtime, status = rows.take(3), rows.take(10)
    _processors(draft, runtime, rows.take(4), rows.take(7), status, report)
    draft.numbers["runtime_s"] = _known(runtime)
    if alea:
        report.add("note", "field 10 is the whole job's memory in bytes in this 21-field form")
        draft.numbers["memory_mb"] = _known(rows.take(9)) / 1e6
    else:
        draft.numbers["memory_mb"] = _known(rows.take(9)) * 1.024e-3 * draft.numbers["nodes"]
    draft.words = {
        "user": _numbered(rows.take(11), "user (field 12)", rows.line, report),
        "account": _numbered(rows.take(12), "group (field 13)", rows.line, report),
        "name": _numbered(rows.take(13), "executable (field 14)", rows.line, report),
    }
    _queues(draft, rows, alea, header, report)
    _status(draft, status, report)
    return draft, meta


# -- what the fields mean ------------------------------------------------------------------------


def _known(values: Floats) -> Floats:
    """The values with NaN for -1, SWF's "not known"; changes the array."""
    return _with_nan(values, np.equal, -1)


def _with_nan(values: Floats, is_unknown: np.ufunc, limit: float) -> Floats:
    values[is_unknown(values, limit)] = np.nan
    return values


def _first_integer(text: str) -> int | None:
    match = _INTEGER.search(text)
    return int(match.group().replace(",", "")) if match and len(match.group()) < 19 else None


def _header(comments: list[str]) -> dict[str, str]:
    """Header values by SWF's spelling of the key; repeated keys add a line."""
    spelling = {key.lower(): key for key in HEADER_KEYS}
    header: dict[str, str] = {}
    for text in comments:
        match = HEADER_KEY.match(text)
        if match is not None:
            key, value = spelling[match.group(1).lower()], match.group(2).strip()
            header[key] = f"{header[key]}\n{value}" if key in header else value
    return header


def _processors(
    draft: RawColumns, runtime: Floats, allocated: Floats, requested: Floats, status: Floats, report: CleaningReport
) -> None:
    """Processors allocated (field 5), else requested (8), and the jobs that never ran."""
    has_allocated, has_requested = allocated > 0, requested > 0
    draft.numbers["nodes"] = np.where(has_allocated, allocated, np.where(has_requested, requested, np.nan))
    never = runtime == -1
    unstarted = (
        (runtime == 0) & ~has_allocated & (status == 5) if has_allocated.any() else np.zeros(len(draft), np.bool_)
    )
    draft.never_ran = {
        "cancelled before it started (run time -1, status 5)": never & (status == 5),
        "failed before it started (run time -1, status 0)": never & (status == 0),
        "run time -1": never & (status != 5) & (status != 0),
        "cancelled before it started (run time 0, no processors allocated, status 5)": unstarted & has_requested,
        "no processors allocated or requested": ~has_allocated & ~has_requested & ~never,
    }
    instead = ~has_allocated & has_requested & ~never & ~unstarted
    if instead.any():
        reason = "processors allocated (field 5) unknown: processors requested (field 8) used"
        where = (int(instead.sum()), int(draft.line[int(instead.argmax())]))
        report.add("corrected" if has_allocated.any() else "note", reason, *where)


def _status(draft: RawColumns, status: Floats, report: CleaningReport) -> None:
    outside = ~np.isnan(status) & ((status < -1) | (status > 5) | (status != np.floor(status)))
    if outside.mean() >= 0.01:
        report.add("note", "field 11 holds exit codes: 0 read as ok, any other as failed")
        draft.numbers["status"] = np.where(np.isnan(status) | (status == -1), -1.0, (status == 0).astype(np.float64))
        return
    if outside.any():
        count, first = int(outside.sum()), int(draft.line[int(outside.argmax())])
        report.add("corrected", "status (field 11) is none of SWF's codes: treated as unknown", count, first)
    draft.numbers["status"] = np.where(outside | np.isnan(status), -1.0, status)
    # Codes 2 to 4 are partial executions of a job that also has a line for the whole job.
    part = (status >= 2) & (status <= 4) & ~outside
    ids = draft.numbers["job_id"]
    if part.any():
        part &= np.isin(ids, ids[~part])
    if part.any():
        reason = "a partial execution (status 2 to 4) of a job with a line for the whole job"
        report.add("dropped", reason, int(part.sum()), int(draft.line[int(part.argmax())]))
        _keep_rows(draft, ~part)


def _keep_rows(draft: RawColumns, rows: Flags) -> None:
    draft.line = draft.line[rows]
    tables: tuple[dict[str, Any], ...] = (draft.numbers, draft.never_ran)
    for columns in tables:
        for name, values in columns.items():  # one by one, so that a large log does not exist twice
            columns[name] = values[rows]
    for name, (codes, names) in draft.words.items():
        draft.words[name] = (codes[rows], names)


def _numbered(values: Floats, label: str, line: npt.NDArray[np.int64], report: CleaningReport) -> CodedNames:
    """A column of ids: whole numbers are kept; too large ones become names; invalid ones become unknown."""
    broken = ~np.isnan(values) & (((values < 0) & (values != -1)) | (values != np.floor(values)) | (values >= 2**53))
    if broken.any():
        report.add(
            "corrected", f"{label} broken: treated as unknown", int(broken.sum()), int(line[int(broken.argmax())])
        )
    whole = np.where(broken | np.isnan(values), -1, values).astype(np.int64)
    if len(whole) and int(whole.max()) >= 2**31 - 1:
        return coded(["" if number < 0 else f"id{number}" for number in whole.tolist()])
    return whole.astype(np.int32), None


def _queues(draft: RawColumns, rows: SwfRows, alea: bool, header: dict[str, str], report: CleaningReport) -> None:
    """The queue: field 15 if any job has one, else the partition (16); names from the header."""
    if alea:
        draft.words["queue"] = coded(rows.queues)
        return
    key, place = ("Queue", 14) if (rows.columns[14] >= 0).any() else ("Partition", 15)
    codes, names = _numbered(rows.take(place), f"{key.lower()} (field {place + 1})", draft.line, report)
    if place == 15 and (codes >= 0).any():
        report.add("note", "no queues (field 15): partitions (field 16) used as queues")
    listed: dict[int, str] = {}
    for text in header.get(key, "").splitlines():
        match = re.match(r"(\d{1,6})[\s:-]*(.*)", text)
        if match is not None:
            listed[int(match.group(1))] = match.group(2).split(" - ")[0].strip()
    top = int(codes.max(initial=-1))
    if names is None and any(listed.values()) and 0 <= top <= 100_000:
        used_names: set[str] = set()
        named: list[str] = []
        for number in range(top + 1):
            name = listed.get(number) or str(number)
            named.append(name if name not in used_names else f"{name} ({number})")
            used_names.add(named[-1])
        names = tuple(named)
    draft.words["queue"] = codes, names
