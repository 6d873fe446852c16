"""Reader of the Standard Workload Format (SWF): 18 fields per line, extended forms of 19 to 21 fields, headers.

The text is parsed in parts of a few megabytes, so that temporary arrays stay small; a column is stored as 32-bit
integers where that is exact. Within a part, lines of plain numbers are parsed together with NumPy; any other line is
parsed separately, so that an invalid line cannot affect other lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import CodedNames, coded
from kilowait.traces.clean import LARGEST_SIZE, Flags, Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.swf_extensions import (
    Extra,
    extended_form,
    read_placements,
    report_extra_fields,
    use_placements,
)
from kilowait.traces.trace_input import TraceInput

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_INTEGER = re.compile(r"-?\d{1,3}(?:,\d{3})+(?!\d)|-?\d+")


def read_swf(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """The columns and the header of a log; times stay relative to the log's own origin."""
    rows = parse_lines(source.take_bytes(), report)
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

    form = extended_form(rows.extras)
    if rows.width > FIELDS:
        report.add("note", f"lines have {rows.width} fields, SWF has {FIELDS}")
        used = {"alea": (20,), "frontier": (19, 20, 21)}.get(form or "", ())
        report_extra_fields(rows.extra_known, rows.comments, used, report)
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
    allocated, requested = rows.take(4), rows.take(7)
    placements = read_placements(rows.extras, rows.line, report) if form == "frontier" else None
    if placements is not None:
        use_placements(draft, placements, allocated, report)
        allocated = np.where((allocated > 0) & (placements.nodes >= 1), placements.nodes, allocated)
        requested = np.where(placements.nodes >= 1, placements.nodes, requested)
        if meta.pop("max_procs", None) is not None:
            report.add("note", "MaxProcs of the header is left out: jobs are counted in nodes, as in field 21")
    _processors(draft, runtime, allocated, requested, status, report)
    draft.numbers["runtime_s"] = _known(runtime)
    if form == "frontier":
        reason = "memory (field 10) left out: field 5 counts nodes or cores, so that its unit is unknown"
        report.add_rows("note", reason, _known(rows.take(9)) >= 0, rows.line)
    elif form == "alea":
        report.add("note", "field 10 is the whole job's memory in bytes in this 21-field form")
        draft.numbers["memory_mb"] = _known(rows.take(9)) / 1e6
    else:
        draft.numbers["memory_mb"] = _known(rows.take(9)) * 1.024e-3 * draft.numbers["nodes"]
    if placements is None:
        _count_nodes(draft, meta, report)
    draft.words = {
        "user": _numbered(rows.take(11), "user (field 12)", rows.line, report),
        "account": _numbered(rows.take(12), "group (field 13)", rows.line, report),
        "name": _numbered(rows.take(13), "executable (field 14)", rows.line, report),
    }
    if form == "alea":
        draft.words["queue"] = coded([queue for _, queue, _ in rows.extras])
    else:
        _queues(draft, rows, header, report)
        if placements is not None and (draft.words["queue"][0] < 0).all():
            draft.words["queue"] = placements.partition
    _status(draft, status, report)
    return draft, meta


def count_jobs(lines: Sequence[str]) -> int:
    """Number of lines that are jobs: 15 to 18 numbers."""
    return sum(map(_is_job, lines))


def _is_job(line: str) -> bool:
    words = line.split()[:FIELDS]
    if len(words) < FIELDS - 3:
        return False
    return sum(len(word) < 40 and _NUMBER.fullmatch(word) is not None for word in words) >= FIELDS - 4


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
    reason = "processors allocated (field 5) unknown: processors requested (field 8) used"
    report.add_rows("corrected" if has_allocated.any() else "note", reason, instead, draft.line)


def _count_nodes(draft: RawColumns, meta: dict[str, Any], report: CleaningReport) -> None:
    """The cores and nodes of jobs from their processors, which SWF counts, and from the sizes in the header."""
    processors, nodes = meta.get("max_procs"), meta.get("max_nodes")
    if nodes is not None and (processors is None or processors == nodes):
        return
    counted = draft.numbers["cores"] = draft.numbers["nodes"]
    draft.unit = "processor"
    if nodes is None or processors is None:
        report.add("note", "the header has no MaxNodes: the log counts processors, and nodes are unknown")
    elif processors < nodes:
        report.add("note", f"MaxProcs {processors:,} is below MaxNodes {nodes:,}: nodes are unknown")
    else:
        draft.unit = "core"
        valid = (counted >= 1) & (counted <= LARGEST_SIZE) & (counted == np.floor(counted))
        draft.numbers["nodes"] = np.where(valid, np.ceil(counted * nodes / processors), counted)


def _status(draft: RawColumns, status: Floats, report: CleaningReport) -> None:
    outside = ~np.isnan(status) & ((status < -1) | (status > 5) | (status != np.floor(status)))
    if outside.mean() >= 0.01:
        report.add("note", "field 11 holds exit codes: 0 read as ok, any other as failed")
        draft.numbers["status"] = np.where(np.isnan(status) | (status == -1), -1.0, (status == 0).astype(np.float64))
        return
    reason = "status (field 11) is none of SWF's codes: treated as unknown"
    report.add_rows("corrected", reason, outside, draft.line)
    draft.numbers["status"] = np.where(outside | np.isnan(status), -1.0, status)
    # Codes 2 to 4 are partial executions of a job that also has a line for the whole job.
    part = (status >= 2) & (status <= 4) & ~outside
    ids = draft.numbers["job_id"]
    if part.any():
        part &= np.isin(ids, ids[~part])
    if part.any():
        reason = "a partial execution (status 2 to 4) of a job with a line for the whole job"
        report.add_rows("dropped", reason, part, draft.line)
        draft.keep(~part)


def _numbered(values: Floats, label: str, line: npt.NDArray[np.int64], report: CleaningReport) -> CodedNames:
    """A column of ids: whole numbers are kept; too large ones become names; invalid ones become unknown."""
    broken = ~np.isnan(values) & (((values < 0) & (values != -1)) | (values != np.floor(values)) | (values >= 2**53))
    report.add_rows("corrected", f"{label} broken: treated as unknown", broken, line)
    whole = np.where(broken | np.isnan(values), -1, values).astype(np.int64)
    if len(whole) and int(whole.max()) >= 2**31 - 1:
        return coded(["" if number < 0 else f"id{number}" for number in whole.tolist()])
    return whole.astype(np.int32), None


def _queues(draft: RawColumns, rows: SwfRows, header: dict[str, str], report: CleaningReport) -> None:
    """The queue: field 15 if any job has one, else the partition (16); names from the header."""
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


# -- lines to columns ----------------------------------------------------------------------------


Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

FIELDS = 18
PARSED_BYTES = 1 << 22
"""Minimum size of a part; it ends at the end of a line."""
_USED = [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
"""All fields except used CPU time and used memory, which have no column in a JobTable."""
_MANY = 100
"""Lines with this many fields or more are reported together."""
HEADER_KEYS = (
    "Version Computer Installation Acknowledge Information Conversion MaxJobs MaxRecords Preemption UnixStartTime "
    "TimeZone TimeZoneString StartTime EndTime MaxNodes MaxProcs MaxRuntime MaxMemory AllowOveruse MaxQueues "
    "Queues Queue MaxPartitions Partitions Partition Note Copyright"
).split()
HEADER_KEY = re.compile(rf"\s*[;#]*\s*({'|'.join(HEADER_KEYS)})\s*:(.*)", re.IGNORECASE)
_NO_EXTRA: Extra = ("", "", "")
_SPACE, _DIGIT, _MINUS, _DOT, _NEWLINE, _OTHER = range(6)
_CLASS = np.full(256, _OTHER, np.uint8)
_CLASS[[9, 11, 12, 13, 32]] = _SPACE
_CLASS[48:58] = _DIGIT
_CLASS[[45, 46, 10]] = _MINUS, _DOT, _NEWLINE


@dataclass(eq=False)
class SwfRows:
    """The lines of jobs of a log as columns, and its comments."""

    line: Ints
    """Line of each row in the file, from 1."""
    columns: dict[int, npt.NDArray[Any]]
    """Values by field, counted from 0; NaN where a value is not a number."""
    width: int
    """Fields per line."""
    extras: list[Extra]
    """Fields 19 to 21 of each row; empty unless the rows have 21 fields and some are not plain numbers."""
    extra_known: list[tuple[int, int]]
    """For each field after the 18th the number of values other than -1, and the line of the first."""
    comments: list[str]

    def __len__(self) -> int:
        return len(self.line)

    def take(self, number: int) -> Floats:
        """The values of a field, which are removed: a large log does not fit in memory twice."""
        return self.columns.pop(number).astype(np.float64)


@dataclass
class _Tally:
    """What all parts together contain."""

    lines: int = 0
    rows: int = 0
    by_width: dict[int, list[int]] = field(default_factory=dict)
    """For each number of fields: the number of rows, and the line of the first."""
    parsed_width: int | None = None
    """Fields of the rows that are parsed; None until a part has rows."""
    unread: int = 0
    unread_line: int = 0
    bare_headers: list[int] = field(default_factory=list)
    """Lines of header entries without the semicolon."""
    comments: list[str] = field(default_factory=list)
    extras: list[Extra] = field(default_factory=list)
    extra_texts: dict[Extra, Extra] = field(default_factory=dict)
    """One object for equal extra fields."""
    extra_known: list[list[int]] = field(default_factory=list)
    """For each field after the 18th: the number of values other than -1, and the line of the first."""
    line_parts: list[Ints] = field(default_factory=list)
    column_parts: dict[int, list[npt.NDArray[np.int32] | Floats]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """The most frequent number of fields; the smaller of two equally frequent ones."""
        return max(sorted(self.by_width), key=lambda width: self.by_width[width][0])


def parse_lines(data: bytes, report: CleaningReport) -> SwfRows:
    """Parse the text of a log; lines with another number of fields than most are dropped.

    >>> report = CleaningReport()
    >>> rows = parse_lines(b"; Version: 2\\n1 0 5 60.5 4 -1 -1 4 90 -1 1 3 2 7 1 -1 -1 -1\\n", report)
    >>> rows.take(3).tolist(), rows.comments, report.rows_read
    ([60.5], ['; Version: 2'], 1)
    """
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    tally = _parse_parts(data, _Tally())
    for number in tally.bare_headers:
        report.add("note", "header line without its leading ';'", 1, number)
    report.rows_read = tally.rows
    if not tally.rows:
        raise TraceError("there are no lines of jobs, only comments or blank lines")
    width = tally.width
    if not FIELDS <= width <= 21:
        raise TraceError(f"most lines have {width} fields; SWF has {FIELDS} (extended forms 19 to 21)")
    if tally.parsed_width != width:  # most lines of the first part have another width than most lines of the log
        tally = _parse_parts(data, _Tally(parsed_width=width))
    wrong = sorted((found, count, line) for found, (count, line) in tally.by_width.items() if found != width)
    for found, count, place in wrong:
        if found < _MANY:
            report.add("dropped", f"{found} fields where the log has {width}", count, place)
    long = [(place, count) for found, count, place in wrong if found >= _MANY]
    if long:
        report.add("dropped", "a hundred fields or more", sum(count for _, count in long), min(long)[0])
    if tally.unread:
        report.add("corrected", "not a number: treated as unknown", tally.unread, tally.unread_line)
    line = np.concatenate(tally.line_parts)
    columns: dict[int, Any] = {number: np.concatenate(tally.column_parts.pop(number)) for number in _USED}
    extras = tally.extras if any(extra is not _NO_EXTRA for extra in tally.extras) else []
    known = [(count, first) for count, first in tally.extra_known]
    return SwfRows(line, columns, width, extras, known, tally.comments)


def _parse_parts(data: bytes, tally: _Tally) -> _Tally:
    tally.column_parts = {number: [] for number in _USED}
    for part in _parts(data):
        _parse_part(part, tally)
    return tally


def _parts(data: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin + PARSED_BYTES) + 1 or len(data)
        part = data[begin:end]
        yield part if part.endswith(b"\n") else part + b"\n"
        begin = end


def _parse_part(data: bytes, tally: _Tally) -> None:
    """Add the lines of a part to the tally; if no width is chosen, the most frequent one of this part is."""
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

    rows = count > 0
    for number in np.flatnonzero(irregular & rows).tolist():
        start = int(token[first[number]])
        mark = data[start : start + 1]
        if mark in (b";", b"#") or mark.isalpha():
            text = data[start : int(ends[number])].decode("utf-8", "replace")
            headed = HEADER_KEY.match(text) is not None
            if mark.isalpha() and headed:
                tally.bare_headers.append(tally.lines + number + 1)
            if headed or not mark.isalpha():
                tally.comments.append(text)
                rows[number] = False
    for found in np.unique(count[rows]).tolist():
        places = np.flatnonzero(rows & (count == found))
        tally.by_width.setdefault(found, [0, tally.lines + int(places[0]) + 1])[0] += len(places)
    tally.rows += int(rows.sum())
    if tally.parsed_width is None and rows.any():
        tally.parsed_width = tally.width
    kept = np.flatnonzero(rows & (count == tally.parsed_width)) if tally.parsed_width is not None else ends[:0]
    if len(kept) and count[kept[0]] >= FIELDS:
        plain = ~irregular[kept]
        words = [data[int(starts[number]) : int(ends[number])].split() for number in kept[~plain].tolist()]
        _parse_values(buffer, token, length, first[kept], plain, words, tally, kept)
    tally.lines += len(ends)


def _parse_values(
    buffer: Bytes,
    token: Ints,
    length: Ints,
    first: Ints,
    plain: Flags,
    words: list[list[bytes]],
    tally: _Tally,
    kept: Ints,
) -> None:
    """Parse the used fields of the kept rows, column by column, so that unused fields are not parsed.

    `first` is the first token of each row, `words` the fields of the rows that are not plain.
    """
    begin, unread = first[plain], np.zeros(len(kept), np.bool_)
    for number in _USED:
        values = np.empty(len(kept))
        values[plain] = _digits(buffer, token[begin + number], length[begin + number])
        values[~plain] = [_number_in(row[number]) for row in words]
        broken = ~np.isfinite(values)
        values[broken] = np.nan
        unread |= broken
        tally.column_parts[number].append(_compact(values))
    if unread.any():
        tally.unread_line = tally.unread_line or tally.lines + int(kept[int(unread.argmax())]) + 1
        tally.unread += int(unread.sum())
    tally.line_parts.append(tally.lines + kept + 1)
    width = tally.parsed_width or FIELDS
    _count_extra_fields(buffer, token, length, begin, plain, words, tally, kept)
    if width == 21:
        extras = [_NO_EXTRA] * len(kept)
        for index, row in zip(np.flatnonzero(~plain).tolist(), words, strict=True):
            extra = _extra_of(row)
            extras[index] = tally.extra_texts.setdefault(extra, extra)
        tally.extras += extras


def _count_extra_fields(
    buffer: Bytes,
    token: Ints,
    length: Ints,
    begin: Ints,
    plain: Flags,
    words: list[list[bytes]],
    tally: _Tally,
    kept: Ints,
) -> None:
    """Count the values other than -1 of each field after the 18th."""
    for place in range(FIELDS, tally.parsed_width or FIELDS):
        at = token[begin + place]
        known = np.empty(len(kept), np.bool_)
        known[plain] = (length[begin + place] != 2) | (buffer[at] != 45) | (buffer[at + 1] != 49)
        known[~plain] = [row[place] != b"-1" for row in words]
        if len(tally.extra_known) <= place - FIELDS:
            tally.extra_known.append([0, 0])
        entry = tally.extra_known[place - FIELDS]
        if known.any() and not entry[0]:
            entry[1] = tally.lines + int(kept[int(known.argmax())]) + 1
        entry[0] += int(known.sum())


def _extra_of(row: list[bytes]) -> Extra:
    """Fields 19 to 21; of Alea's list of nodes only its beginning, since it is long and has no column."""
    if row[18].startswith(b"{"):
        return "{", row[19].decode("utf-8", "replace"), ""
    first, second, third = (word.decode("utf-8", "replace") for word in row[18:21])
    return first, second, third


def _compact(values: Floats) -> npt.NDArray[np.int32] | Floats:
    """The values as 32-bit integers where these hold all of them; most fields are small whole numbers."""
    values += 0.0  # -0.0 becomes 0.0, which integers have too
    if not (values.min() >= -(2.0**31) and values.max() < 2.0**31):  # False for NaN
        return values
    whole = values.astype(np.int32)
    return whole if (whole == values).all() else values


def _irregular_positions(kind: Bytes, before: Flags, token: Ints, length: Ints) -> Ints:
    """Positions that `_digits` cannot parse: anything but [-]digits[.digits] of at most 15 characters."""
    other = np.flatnonzero(kind == _OTHER)
    minus = np.flatnonzero(kind == _MINUS)
    minus = minus[~before[minus] | (kind[minus + 1] != _DIGIT)]
    dot = np.flatnonzero(kind == _DOT)
    alone = dot[(kind[np.maximum(dot - 1, 0)] != _DIGIT) | (kind[dot + 1] != _DIGIT)]
    twice = dot[1:][np.diff(np.searchsorted(token, dot, side="right")) == 0]
    return np.concatenate((other, minus, alone, twice, token[length > 15]))


def _digits(buffer: Bytes, start: Ints, length: Ints) -> Floats:
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


def _number_in(word: bytes) -> float:
    try:
        return float(word) if b"_" not in word else np.nan
    except ValueError:
        return np.nan
