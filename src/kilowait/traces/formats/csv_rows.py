"""Rows of large CSV files as columns (Arrow), with the line number of every row; resources of jobs from such columns.

Dropped rows are reported. Resources are node and CPU columns from numbers of GPUs, nodes and workers in a trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.traces.cell_parser import CodedNames, coded, numbers, split_line, unix_s
from kilowait.traces.clean import Flags, Floats, RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.table_columns import STATUS_WORDS

HUGE = 1e25
"""A larger number is invalid in any column, and products of such numbers could overflow."""


@dataclass
class CsvRows:
    """Text columns of a CSV file by name."""

    line: npt.NDArray[np.int64]
    """Line of each row in its file."""
    columns: dict[str, Any]
    """Arrow arrays of strings."""
    header: dict[str, str] = field(default_factory=dict)
    """Values of comment lines of the form "# key: value"."""

    def __len__(self) -> int:
        return len(self.line)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def need(self, *names: str) -> None:
        """Raise a TraceError that names the missing columns, if any."""
        absent = [name for name in names if name not in self.columns]
        if absent:
            present = ", ".join(name or "(unnamed)" for name in list(self.columns)[:40])
            raise TraceError(f"it lacks the column(s) {', '.join(absent)}; it has {present}")

    def texts(self, name: str) -> list[str]:
        """The cells without surrounding blanks."""
        return [text.strip() for text in self.columns[name].to_pylist()]

    def numbers(self, name: str) -> Floats:
        """The numbers in the cells, NaN for other text and for values above `HUGE`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(self.columns[name])
        try:
            found = pc.cast(pc.if_else(pc.equal(texts, ""), None, texts), pa.float64())
            values: Floats = found.to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:  # Some cell is no number: look at each.
            values = numbers(texts.to_pylist())
        return np.where(np.abs(values) < HUGE, values, np.nan)

    def moments(self, name: str) -> Floats:
        """Unix seconds of dates and times, UTC if they have no zone; NaN if a cell is not a date."""
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
        """For every row the index of its cell among the distinct cells, and the distinct cells."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(self.columns[name])
        flat = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        entries = flat.dictionary_encode()
        return entries.indices.to_numpy(zero_copy_only=False).astype(np.int64), entries.dictionary.to_pylist()

    def words(self, name: str, unknown: Iterable[str] = ("",)) -> CodedNames:
        """A column of names as codes and labels."""
        places, kinds = self.kinds(name)
        # Whole numbers that were written as floats.
        kinds = [text[:-2] if text.endswith(".0") and text[:-2].isdigit() else text for text in kinds]
        codes, names = coded(kinds, frozenset(unknown))
        return codes[places] if len(codes) else np.full(len(self), -1, np.int32), names

    def columns_of(self, **names: str) -> dict[str, Floats]:
        """Columns of numbers by kilowait's names, from the file's names."""
        return {column: self.numbers(name) for column, name in names.items()}

    def labels(self, unknown: Iterable[str] = ("",), **names: str) -> dict[str, CodedNames]:
        """Columns of names by kilowait's names, from the file's names; those that the file lacks are left out."""
        return {column: self.words(name, unknown) for column, name in names.items() if name in self}

    def statuses(self, name: str, words: dict[str, float] | None = None) -> Floats:
        """Status codes of words such as COMPLETED; -1 for unknown words."""
        known = STATUS_WORDS if words is None else words
        codes, names = self.words(name)
        if names is None:
            return np.full(len(self), -1.0)
        values = np.array([known.get(word.upper().split(" ")[0], -1.0) for word in names] + [-1.0])
        return values[codes]


def moments(texts: Sequence[str]) -> Floats:
    """Unix seconds of each date and time, NaN for other text.

    >>> moments(["2017-10-07 01:12:09", "None", "12"]).tolist()
    [1507338729.0, nan, nan]
    """
    dated = (unix_s(text) if len(text) >= 10 and text[4] == "-" else np.nan for text in texts)
    return np.fromiter(dated, np.float64, len(texts))


def first_line(text: str) -> str:
    """The first line that is neither blank nor a comment, "" if there is none.

    >>> first_line("# a note\\n\\n1,2\\r\\n3,4\\r\\n")
    '1,2'
    """
    lines = (match.group() for match in re.finditer(r"[^\r\n]+", text))
    return next((line for line in lines if line.strip() and line[:1] != "#"), "")


def read_rows(text: str, report: CleaningReport, names: Sequence[str] | None = None) -> CsvRows:
    """Read the rows of a comma-separated table with a header, or with the column names `names` if it has none.

    Blank lines, comments (#) and repeated headers are skipped; a row with a different number of fields than
    columns is dropped.

    >>> rows = read_rows("a,b\\n1,x\\n2\\n3,y\\n", CleaningReport())
    >>> rows.numbers("a").tolist(), rows.texts("b"), rows.line.tolist()
    ([1.0, 3.0], ['x', 'y'], [2, 4])
    """
    lines = text.replace("\r\n", "\n").split("\n") if "\n" in text else text.split("\r")
    top = None
    if names is None:
        top = next((i for i, line in enumerate(lines) if line.strip() and line[:1] != "#"), None)
        if top is None:
            raise TraceError("there are no lines of jobs, only comments or blank lines")
        names = [name.strip() for name in split_line(lines[top], ",")]
        title = lines[top]
    else:
        title = ",".join(names)
    ends = len(names) - 1
    kept: list[str] = []
    at: list[int] = []
    header: dict[str, str] = {}
    for number, line in enumerate(lines[0 if top is None else top + 1 :], start=1 if top is None else top + 2):
        if line.count(",") == ends and '"' not in line and "\r" not in line and line[:1] != "#" and line != title:
            kept.append(line)
        elif not line.strip() or line[:1] == "#" or line == title:
            continue
        else:
            fields = split_line(line.replace("\r", " "), ",")
            if len(fields) != ends + 1:
                report.rows_read += 1
                report.add("dropped", f"number of fields differs from the {ends + 1} columns", 1, number)
                continue
            kept.append(",".join('"' + cell.replace('"', '""') + '"' for cell in fields))
        at.append(number)
    for line in lines[: top or 0]:
        match = re.match(r"#\s*([^:]{1,60}?)\s*:\s*(.*\S)", line)
        if match:
            header.setdefault(match.group(1), match.group(2))
    report.rows_read += len(kept)
    if not kept:
        raise TraceError("there are no valid rows")
    return CsvRows(np.array(at, np.int64), _columns(kept, names), header)


def _columns(lines: list[str], names: Sequence[str]) -> dict[str, Any]:
    """Columns of lines with equal numbers of fields; of columns with the same name the first is used."""
    import pyarrow as pa
    import pyarrow.csv as pc

    places = [f"c{index}" for index in range(len(names))]
    data = pa.py_buffer(("\n".join(lines) + "\n").encode("utf-8", "replace"))
    try:
        table = pc.read_csv(
            pa.BufferReader(data),
            pc.ReadOptions(column_names=places, block_size=1 << 24),
            pc.ParseOptions(ignore_empty_lines=False),
            pc.ConvertOptions(column_types={place: pa.string() for place in places}, strings_can_be_null=False),
        )
    except pa.ArrowException as problem:
        raise TraceError(f"it is not a comma-separated table: {str(problem).splitlines()[0]}") from None
    if table.num_rows != len(lines):
        raise TraceError(f"it has {len(lines):,} lines, but {table.num_rows:,} rows; its quotes are broken")
    found: dict[str, Any] = {}
    for name, place in zip(names, places, strict=True):
        found.setdefault(name, table[place])
    return found


# -- resources of jobs -----------------------------------------------------------------------------


MB_PER_MIB = 1.048576
"""MB (10^6 bytes) per MiB."""


def set_gpus_on_any_nodes(draft: RawColumns, gpus: Floats, where: Flags | None = None) -> None:
    """GPUs that may lie anywhere: `spread` where there are several; `nodes` counts GPUs then, 1 for none.

    >>> draft = RawColumns(np.arange(3), {})
    >>> set_gpus_on_any_nodes(draft, np.array([0.0, 1.0, 8.0]))
    >>> draft.numbers["nodes"].tolist(), draft.numbers["gpus_may_span_nodes"].tolist()
    ([1.0, 1.0, 8.0], [nan, nan, 1.0])
    """
    rows = np.ones(len(draft), np.bool_) if where is None else where
    nodes = np.where(gpus >= 0, np.maximum(gpus, 1), np.nan)
    apart = np.where(gpus > 1, 1.0, np.nan)
    draft.numbers["gpus"] = np.where(rows, gpus, draft.get("gpus"))
    draft.numbers["nodes"] = np.where(rows, nodes, draft.get("nodes"))
    draft.numbers["gpus_may_span_nodes"] = np.where(rows, apart, draft.get("gpus_may_span_nodes"))


def set_gpus_per_node(draft: RawColumns, gpus: Floats, nodes: Floats, report: CleaningReport) -> None:
    """Set GPUs on a known number of nodes, equal on each; if not divisible, the GPUs may be on any nodes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        even = (nodes >= 1) & (gpus >= 0) & (np.mod(gpus, nodes) == 0)
        odd = (nodes >= 1) & (gpus >= 1) & ~even
    draft.numbers |= {"gpus": gpus, "nodes": nodes}
    report.add_rows("note", "GPUs not equal on each node: they may be on any nodes", odd, draft.line)
    set_gpus_on_any_nodes(draft, gpus, odd)


def set_workers(draft: RawColumns, each: Floats, workers: Floats, report: CleaningReport) -> None:
    """Set the GPUs and nodes of jobs with `workers` equal workers that request `each` GPUs, possibly fractional.

    One worker runs on one node, with a fractional GPU if it requests less than one. Several workers with one GPU each
    may run on any nodes, several with more GPUs on one node each. Fractions of several GPUs are rounded up.
    """
    with np.errstate(invalid="ignore"):
        single, many = workers == 1, workers > 1
        part = (each > 0) & (each < 1)
        uneven = (each > 1) & (each != np.floor(each))
        whole = np.where(uneven, np.ceil(each), each)
        total = np.where(part & many, np.ceil(np.round(each * workers, 6)), whole * workers)
        gpus = np.where(part & single, 1.0, total)
        milli = np.where(part & single, np.maximum(np.round(each * 1000), 1), np.nan)
        loose = many & (part | (whole == 1))
    draft.numbers |= {"gpus": gpus, "nodes": workers, "gpu_milli": milli}
    report.add_rows(
        "corrected", "several workers with a fractional GPU each: the sum rounded up to whole GPUs",
        part & many, draft.line,
    )  # fmt: skip
    report.add_rows("corrected", "a worker with several GPUs and a fraction: rounded up", uneven, draft.line)
    set_gpus_on_any_nodes(draft, gpus, loose)


def set_cpus(draft: RawColumns, milli: Floats) -> None:
    """Set the CPU request in thousandths of cores, and the cores rounded up."""
    sound = milli >= 0
    draft.numbers["cpu_milli"] = np.where(sound, np.ceil(np.round(milli, 6)), milli)
    draft.numbers["cores"] = np.where(sound, np.ceil(np.round(milli, 6) / 1000), np.nan)
