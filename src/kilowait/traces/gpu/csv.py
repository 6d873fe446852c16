"""Tables of many rows to columns: split and converted by Arrow, with the line of every row and none lost in silence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.traces.cleaning_report import CleaningReport, Kind
from kilowait.traces.parse import (
    Words,
    coded,
    numbers,
    split_line,
    unix_s,
)
from kilowait.traces.tables.aliases import STATUS_WORDS

__all__ = ["Flags", "Floats", "TracePart", "CsvRows", "first_line", "mark", "one_part", "read_rows"]

HUGE = 1e25
"""A number beyond this is broken in any column, and its products would overflow."""

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TracePart:
    """One file of a trace."""

    name: str
    text: str


@dataclass
class CsvRows:
    """Columns of text under their names."""

    line: npt.NDArray[np.int64]
    """Line of each row in its file."""
    columns: dict[str, Any]
    """Arrow arrays of strings."""
    header: dict[str, str] = field(default_factory=dict)
    """What comment lines of the form "# key: value" say."""

    def __len__(self) -> int:
        return len(self.line)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def need(self, *names: str) -> None:
        """Raise a TraceError naming the columns that are not there."""
        absent = [name for name in names if name not in self.columns]
        if absent:
            held = ", ".join(name or "(unnamed)" for name in list(self.columns)[:40])
            raise TraceError(f"it lacks the column(s) {', '.join(absent)}; it has {held}")

    def texts(self, name: str) -> list[str]:
        """The cells without blanks around them."""
        return [text.strip() for text in self.columns[name].to_pylist()]

    def numbers(self, name: str) -> Floats:
        """The numbers in the cells, NaN where there is none or one beyond all measure."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(self.columns[name])
        try:
            found = pc.cast(pc.if_else(pc.equal(texts, ""), None, texts), pa.float64())
            values: Floats = found.to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:  # Some cell is no number: look at each.
            values = numbers(texts.to_pylist())
        with np.errstate(invalid="ignore"):
            return np.where(np.abs(values) < HUGE, values, np.nan)

    def moments(self, name: str) -> Floats:
        """Unix seconds of dates and times, UTC where they name no zone; NaN where a cell is no date."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(self.columns[name])
        try:
            dates = pc.cast(pc.if_else(pc.equal(texts, ""), None, texts), pa.timestamp("us"))
            found = pc.cast(pc.cast(dates, pa.int64()), pa.float64())
        except pa.ArrowInvalid:
            return moments(texts.to_pylist())
        values: Floats = found.to_numpy(zero_copy_only=False)
        return values / 1e6

    def kinds(self, name: str) -> tuple[npt.NDArray[np.int64], list[str]]:
        """The different cells by first appearance, and for every row which of them it has."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(self.columns[name])
        flat = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        entries = flat.dictionary_encode()
        return entries.indices.to_numpy(zero_copy_only=False).astype(np.int64), entries.dictionary.to_pylist()

    def words(self, name: str, unknown: Iterable[str] = ("",)) -> Words:
        """Names as numbers with labels."""
        places, kinds = self.kinds(name)
        # Numbers that went through a float elsewhere are still the numbers they were.
        kinds = [text[:-2] if text.endswith(".0") and text[:-2].isdigit() else text for text in kinds]
        codes, names = coded(kinds, frozenset(unknown))
        return codes[places] if len(codes) else np.full(len(self), -1, np.int32), names

    def statuses(self, name: str, words: dict[str, float] | None = None) -> Floats:
        """Status codes of words such as COMPLETED; -1 for those that are not known."""
        known = STATUS_WORDS if words is None else words
        codes, names = self.words(name)
        if names is None:
            return np.full(len(self), -1.0)
        values = np.array([known.get(word.upper().split(" ")[0], -1.0) for word in names] + [-1.0])
        return values[codes]


def moments(texts: Sequence[str]) -> Floats:
    """Unix seconds of each date and time, NaN for what is none.

    >>> moments(["2017-10-07 01:12:09", "None", "12"]).tolist()
    [1507338729.0, nan, nan]
    """
    dated = (unix_s(text) if len(text) >= 10 and text[4] == "-" else np.nan for text in texts)
    return np.fromiter(dated, np.float64, len(texts))


def mark(ledger: CleaningReport, kind: Kind, reason: str, rows: Flags, line: npt.NDArray[np.int64]) -> None:
    """A line in the ledger about these rows, if there are any."""
    if rows.any():
        ledger.add(kind, reason, int(rows.sum()), int(line[int(np.argmax(rows))]))


def first_line(text: str) -> str:
    """The first line that is neither blank nor a comment, "" where there is none near the top.

    >>> first_line("# a note\\n\\n1,2\\r\\n3,4\\r\\n")
    '1,2'
    """
    return next((line for line in re.split(r"[\r\n]+", text[:65536]) if line.strip() and line[:1] != "#"), "")


def one_part(parts: Sequence[TracePart], what: str) -> TracePart:
    """The only file of a trace that is one file."""
    if len(parts) != 1:
        named = ", ".join(part.name for part in parts[:5])
        raise TraceError(f"{what} is one file, and there are {len(parts)} ({named}); name one of them")
    return parts[0]


def read_rows(text: str, ledger: CleaningReport, names: Sequence[str] | None = None) -> CsvRows:
    """Rows of a comma-separated table under its header, or under `names` where it has none.

    Blank lines, comments (#) and repeated headers are no rows; a row with another number of fields than there
    are columns is dropped.

    >>> rows = read_rows("a,b\\n1,x\\n2\\n3,y\\n", CleaningReport())
    >>> rows.numbers("a").tolist(), rows.texts("b"), rows.line.tolist()
    ([1.0, 3.0], ['x', 'y'], [2, 4])
    """
    lines = text.replace("\r\n", "\n").split("\n") if "\n" in text else text.split("\r")
    top = None
    if names is None:
        top = next((i for i, line in enumerate(lines) if line.strip() and line[:1] != "#"), None)
        if top is None:
            raise TraceError("there is not one line of jobs, only comments or blank lines")
        names = [name.strip() for name in split_line(lines[top], ",")]
        title = lines[top]
    else:
        title = ",".join(names)
    ends = len(names) - 1
    kept: list[str] = []
    at: list[int] = []
    header: dict[str, str] = {}
    for number, line in enumerate(
        lines[0 if top is None else top + 1 :], start=1 if top is None else top + 2
    ):
        if (
            line.count(",") == ends
            and '"' not in line
            and "\r" not in line
            and line[:1] != "#"
            and line != title
        ):
            kept.append(line)
        elif not line.strip() or line[:1] == "#" or line == title:
            continue
        else:
            fields = split_line(line.replace("\r", " "), ",")
            if len(fields) != ends + 1:
                ledger.rows_read += 1
                ledger.add("dropped", f"fields not as many as the {ends + 1} columns", 1, number)
                continue
            kept.append(",".join('"' + cell.replace('"', '""') + '"' for cell in fields))
        at.append(number)
    for line in lines[: top or 0]:
        said = re.match(r"#\s*([^:]{1,60}?)\s*:\s*(.*\S)", line)
        if said:
            header.setdefault(said.group(1), said.group(2))
    ledger.rows_read += len(kept)
    if not kept:
        raise TraceError("there is not one row that can be read")
    return CsvRows(np.array(at, np.int64), _columns(kept, names), header)


def _columns(lines: list[str], names: Sequence[str]) -> dict[str, Any]:
    """Columns of lines that all have the same number of fields; of columns with one name the first counts."""
    import pyarrow as pa
    import pyarrow.csv as pc

    places = [f"c{index}" for index in range(len(names))]
    data = pa.py_buffer(("\n".join(lines) + "\n").encode("utf-8", "replace"))
    try:
        table = pc.read_csv(
            pa.BufferReader(data),
            pc.ReadOptions(column_names=places, block_size=1 << 24),
            pc.ParseOptions(ignore_empty_lines=False),
            pc.ConvertOptions(
                column_types={place: pa.string() for place in places}, strings_can_be_null=False
            ),
        )
    except pa.ArrowException as problem:
        raise TraceError(f"it is no table of comma-separated cells: {str(problem).splitlines()[0]}") from None
    if table.num_rows != len(lines):
        raise TraceError(
            f"it has {len(lines):,} lines that make {table.num_rows:,} rows; its quotes are broken"
        )
    found: dict[str, Any] = {}
    for name, place in zip(names, places, strict=True):
        found.setdefault(name, table[place])
    return found
