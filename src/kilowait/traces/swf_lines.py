"""Lines of the Standard Workload Format (SWF) as columns of numbers.

The text is parsed in parts of a few megabytes, so that temporary arrays stay small; a column is stored as 32-bit
integers where that is exact. Within a part, lines of plain numbers are parsed together with NumPy; any other line is
parsed separately, so that an invalid line cannot affect other lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.traces.cleaning_report import CleaningReport

__all__ = ["FIELDS", "HEADER_KEY", "HEADER_KEYS", "SwfRows", "parse_lines"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
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
    queues: list[str]
    """Queue names of the 21-field form; empty unless every row has one."""
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
    queues: list[str] = field(default_factory=list)
    queue_names: dict[str, str] = field(default_factory=dict)
    """One object for each queue name."""
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
    queues = tally.queues if len(tally.queues) == len(line) else []
    return SwfRows(line, columns, width, queues, tally.comments)


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
        values[~plain] = [_number(row[number]) for row in words]
        broken = ~np.isfinite(values)
        values[broken] = np.nan
        unread |= broken
        tally.column_parts[number].append(_compact(values))
    if unread.any():
        tally.unread_line = tally.unread_line or tally.lines + int(kept[int(unread.argmax())]) + 1
        tally.unread += int(unread.sum())
    tally.line_parts.append(tally.lines + kept + 1)
    if tally.parsed_width == 21:
        for row in words:
            if row[18].startswith(b"{"):
                name = row[19].decode("utf-8", "replace")
                tally.queues.append(tally.queue_names.setdefault(name, name))


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


def _number(word: bytes) -> float:
    try:
        return float(word) if b"_" not in word else np.nan
    except ValueError:
        return np.nan
