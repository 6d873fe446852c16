"""Reader of the Standard Workload Format (SWF): 18 fields per line, extended forms of 19 to 21 fields, headers.

Lines of plain numbers are parsed together with NumPy; any other line is parsed separately, so that an invalid line
cannot affect other lines.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import CodedNames, coded
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport

__all__ = ["FIELDS", "read_swf"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

FIELDS = 18
_USED = [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
"""All fields except used CPU time and used memory, which have no column in a JobTable."""
HEADER_KEYS = (
    "Version Computer Installation Acknowledge Information Conversion MaxJobs MaxRecords Preemption UnixStartTime "
    "TimeZone TimeZoneString StartTime EndTime MaxNodes MaxProcs MaxRuntime MaxMemory AllowOveruse MaxQueues "
    "Queues Queue MaxPartitions Partitions Partition Note Copyright"
).split()
_KEY = re.compile(rf"\s*[;#]*\s*({'|'.join(HEADER_KEYS)})\s*:(.*)", re.IGNORECASE)
_INTEGER = re.compile(r"-?\d{1,3}(?:,\d{3})+(?!\d)|-?\d+")
_SPACE, _DIGIT, _MINUS, _DOT, _NEWLINE, _OTHER = range(6)
_CLASS = np.full(256, _OTHER, np.uint8)
_CLASS[[9, 11, 12, 13, 32]] = _SPACE
_CLASS[48:58] = _DIGIT
_CLASS[[45, 46, 10]] = _MINUS, _DOT, _NEWLINE


def read_swf(data: bytes, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the rows and the header; times stay relative to the log's own origin."""
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    if not data.endswith(b"\n"):
        data += b"\n"
    fields, line, width, extra, comments = _rows(data, report)
    header = _header(comments)
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

    alea = bool(extra) and width == 21
    if width > FIELDS:
        report.add(
            "note", f"lines have {width} fields, SWF has {FIELDS}: the rest left out" + ", except the queue" * alea
        )
    draft = RawColumns(line, {}, correct_submit=True)
    known = np.where(fields == -1, np.nan, fields)  # -1 is SWF's "not known".
    draft.numbers |= {
        "job_id": fields[:, 0],
        "submit_s": np.where(fields[:, 1] < 0, np.nan, fields[:, 1]),
        "wait_s": known[:, 2],
        "runtime_s": known[:, 3],
        "estimate_s": np.where(fields[:, 8] <= 0, np.nan, fields[:, 8]),
        "after_id": known[:, 16],
        "think_s": known[:, 17],
    }
    _processors(draft, fields, report)
    draft.numbers["memory_mb"] = known[:, 9] * 1.024e-3 * draft.numbers["nodes"]
    if alea:
        report.add("note", "field 10 is the whole job's memory in bytes in this 21-field form")
        draft.numbers["memory_mb"] = known[:, 9] / 1e6
    draft.words = {
        "user": _numbered(fields[:, 11], "user (field 12)", line, report),
        "account": _numbered(fields[:, 12], "group (field 13)", line, report),
        "name": _numbered(fields[:, 13], "executable (field 14)", line, report),
    }
    _queues(draft, fields, extra if alea else [], header, report)
    _status(draft, fields[:, 10], report)
    return draft, meta


# -- lines to numbers ----------------------------------------------------------------------------


def _rows(data: bytes, report: CleaningReport) -> tuple[Floats, npt.NDArray[np.int64], int, list[str], list[str]]:
    """Numbers (rows x 18), their line numbers, fields per line, the queue names of the 21-field form, comments."""
    buffer = np.frombuffer(data, np.uint8)
    kind = _CLASS[buffer]
    ends = np.flatnonzero(kind == _NEWLINE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    blank = (kind == _SPACE) | (kind == _NEWLINE)
    before = np.concatenate(([True], blank[:-1]))
    token = np.flatnonzero(before > blank)
    length = np.flatnonzero(blank > before) - token
    first = np.searchsorted(token, starts)
    count = np.diff(np.append(first, len(token)))
    irregular = np.zeros(len(ends), np.bool_)
    irregular[np.searchsorted(ends, _irregular_positions(kind, before, token, length))] = True

    comments: list[str] = []
    rows = count > 0
    for number in np.flatnonzero(irregular & rows).tolist():
        start = int(token[first[number]])
        mark = data[start : start + 1]
        if mark in (b";", b"#") or mark.isalpha():
            text = data[start : int(ends[number])].decode("utf-8", "replace")
            headed = _KEY.match(text) is not None
            if mark.isalpha() and headed:
                report.add("note", "header line without its leading ';'", 1, number + 1)
            if headed or not mark.isalpha():
                comments.append(text)
                rows[number] = False
    report.rows_read = int(rows.sum())
    if not report.rows_read:
        raise TraceError("there are no lines of jobs, only comments or blank lines")
    width = int(np.bincount(count[rows]).argmax())
    if not FIELDS <= width <= 21:
        raise TraceError(f"most lines have {width} fields; SWF has {FIELDS} (extended forms 19 to 21)")
    for wrong in np.unique(np.minimum(count, 100)[rows & (count != width)]).tolist():
        places = np.flatnonzero(rows & (np.minimum(count, 100) == wrong))
        reason = f"{wrong} fields where the log has {width}" if wrong < 100 else "a hundred fields or more"
        report.add("dropped", reason, len(places), int(places[0]) + 1)
    rows &= count == width
    complete_rows = np.flatnonzero(rows)
    values = np.full((len(complete_rows), FIELDS), np.nan, order="F")
    plain = ~irregular[complete_rows]
    begin = first[complete_rows[plain]]
    for field in _USED:  # Column by column, so that unused fields are not parsed.
        values[plain, field] = _digits(buffer, token[begin + field], length[begin + field])
    queue: list[str] = []
    for row in np.flatnonzero(~plain).tolist():
        words = data[int(starts[complete_rows[row]]) : int(ends[complete_rows[row]])].split()
        values[row, _USED] = [_number(words[field]) for field in _USED]
        if width == 21 and words[18].startswith(b"{"):
            queue.append(words[19].decode("utf-8", "replace"))
    unread = ~np.isfinite(values)
    unread[:, [f for f in range(FIELDS) if f not in _USED]] = False
    if unread.any():
        hit = unread.any(axis=1)
        report.add(
            "corrected", "not a number: treated as unknown", int(hit.sum()), int(complete_rows[int(hit.argmax())]) + 1
        )
        values[unread] = np.nan
    return values, complete_rows + 1, width, queue if len(queue) == len(complete_rows) else [], comments


def _irregular_positions(
    kind: npt.NDArray[np.uint8], before: Flags, token: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Positions that `_digits` cannot parse: anything but [-]digits[.digits] of at most 15 characters."""
    other = np.flatnonzero(kind == _OTHER)
    minus = np.flatnonzero(kind == _MINUS)
    minus = minus[~before[minus] | (kind[minus + 1] != _DIGIT)]
    dot = np.flatnonzero(kind == _DOT)
    alone = dot[(kind[np.maximum(dot - 1, 0)] != _DIGIT) | (kind[dot + 1] != _DIGIT)]
    twice = dot[1:][np.diff(np.searchsorted(token, dot, side="right")) == 0]
    return np.concatenate((other, minus, alone, twice, token[length > 15]))


def _digits(buffer: npt.NDArray[np.uint8], start: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> Floats:
    """Parse the numbers at these positions, vectorized over all; exact, because a float holds 15 digits."""
    value = np.zeros(len(start))
    decimals = np.zeros(len(start), np.int64)
    behind = np.zeros(len(start), np.bool_)
    rows = np.arange(len(start))
    for place in range(int(length.max(initial=0))):
        rows = rows[length[rows] > place]
        sign = buffer[start[rows] + place]
        digit = sign >= 48
        if digit.all():
            value[rows] = value[rows] * 10.0 + (sign - 48)
        else:
            value[rows] = np.where(digit, value[rows] * 10.0 + (sign.astype(np.int64) - 48), value[rows])
            behind[rows[sign == 46]] = True
        if behind.any():
            decimals[rows] += behind[rows] & digit
    value /= 10.0**decimals
    return np.where(buffer[start] == 45, -value, value)


def _number(word: bytes) -> float:
    try:
        return float(word) if b"_" not in word else np.nan
    except ValueError:
        return np.nan


# -- what the fields mean ------------------------------------------------------------------------


def _first_integer(text: str) -> int | None:
    match = _INTEGER.search(text)
    return int(match.group().replace(",", "")) if match and len(match.group()) < 19 else None


def _header(comments: list[str]) -> dict[str, str]:
    """Header values by SWF's spelling of the key; repeated keys add a line."""
    spelling = {key.lower(): key for key in HEADER_KEYS}
    header: dict[str, str] = {}
    for text in comments:
        match = _KEY.match(text)
        if match is not None:
            key, value = spelling[match.group(1).lower()], match.group(2).strip()
            header[key] = f"{header[key]}\n{value}" if key in header else value
    return header


def _processors(draft: RawColumns, fields: Floats, report: CleaningReport) -> None:
    """Processors allocated (field 5), else requested (8), and the jobs that never ran."""
    runtime, allocated, requested, status = fields[:, 3], fields[:, 4], fields[:, 7], fields[:, 10]
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
    part &= np.isin(ids, ids[~part])
    if part.any():
        reason = "a partial execution (status 2 to 4) of a job with a line for the whole job"
        report.add("dropped", reason, int(part.sum()), int(draft.line[int(part.argmax())]))
        _keep_rows(draft, ~part)


def _keep_rows(draft: RawColumns, rows: Flags) -> None:
    draft.line = draft.line[rows]
    draft.numbers = {name: values[rows] for name, values in draft.numbers.items()}
    draft.never_ran = {name: values[rows] for name, values in draft.never_ran.items()}
    draft.words = {name: (codes[rows], names) for name, (codes, names) in draft.words.items()}


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


def _queues(
    draft: RawColumns, fields: Floats, words: list[str], header: dict[str, str], report: CleaningReport
) -> None:
    """The queue: field 15 if any job has one, else the partition (16); names from the header."""
    if words:
        draft.words["queue"] = coded(words)
        return
    key, place = ("Queue", 14) if (fields[:, 14] >= 0).any() else ("Partition", 15)
    codes, names = _numbered(fields[:, place], f"{key.lower()} (field {place + 1})", draft.line, report)
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
