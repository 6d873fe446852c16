"""Detection of the format of a job log by its content: the first rule of an ordered list that applies decides.

A header decides before the form of the rows does: whole numbers in 8 columns may be anything. Formats without a header
are detected only if most rows fit their form, and rows that fit several forms are an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kilowait.errors import TraceError
from kilowait.traces.cleaning_report import Detected
from kilowait.traces.formats import FORMATS
from kilowait.traces.formats.sacct import sacct_delimiter
from kilowait.traces.formats.swf import count_jobs
from kilowait.traces.formats.table import header_names, known_names, own_names
from kilowait.traces.formats.table_columns import csv_delimiter, is_table
from kilowait.traces.formats.table_rows import parquet_names
from kilowait.traces.node_lists import node_list
from kilowait.traces.trace_input import refuse_binary

_SWF_COMMENT = re.compile(r"\s*;\s*(Version|MaxJobs|MaxNodes|MaxProcs|UnixStartTime)\s*:")
_LINE = re.compile(rb"[^\r\n]+")
_ROWS = 200
"""Rows that are looked at; comments are not counted, however many there are."""
_CHARACTERS = 1 << 18
"""Characters of rows that are looked at."""
_COMMENTS = 1000
"""Comments that are kept from the top, and from just before the first row."""


@dataclass(frozen=True, slots=True)
class FileHead:
    """The first lines of a file that are not blank."""

    comments: Sequence[str]
    """Lines before the first row that start with ; or #, without the middle ones if there are very many."""
    rows: Sequence[str]
    """Lines that are no comments, a header among them."""

    @property
    def lines(self) -> list[str]:
        """Comments with # and rows: the lines among which a header is looked for."""
        return [line for line in self.comments if line.lstrip()[0] == "#"] + list(self.rows)


def file_head(data: bytes) -> FileHead:
    """The comments and the first rows of a file.

    >>> file_head(b"# note\\n\\njob_id,submit_s\\n1,0\\n")
    FileHead(comments=['# note'], rows=['job_id,submit_s', '1,0'])
    """
    first: list[str] = []
    last: list[str] = []
    rows: list[str] = []
    characters = 0
    for match in _LINE.finditer(data):
        line = data[match.start() : min(match.end(), match.start() + _CHARACTERS)].decode("utf-8", "replace")
        start = line.lstrip()[:1]
        if not start:
            continue
        if start not in ";#":
            rows.append(line)
            characters += len(line)
            if len(rows) == _ROWS or characters >= _CHARACTERS:
                break
        elif not rows:
            if len(first) < _COMMENTS:
                first.append(line)
            else:
                last.append(line)
                if len(last) == 2 * _COMMENTS:
                    del last[:_COMMENTS]
    return FileHead(first + last, rows)


def detect_format(data: bytes) -> Detected:
    """Detect the format of these bytes.

    >>> detect_format(b"; Version: 2\\n1 0 -1 60 4 -1 -1 4 60 -1 1 1 1 1 1 -1 -1 -1\\n")
    Detected(format='swf', reason='1 of the first 1 rows are 15 to 18 numbers')
    """
    if data.startswith(b"PAR1"):
        found = _with_columns(parquet_names(data), [(name, each.tables) for name, each in FORMATS.items()])
        return found or Detected("parquet", "it starts with PAR1")
    refuse_binary(data)
    head = file_head(data)
    if not head.rows:
        raise TraceError(
            "there are no lines of jobs, only comments" if head.comments else "it contains only blank lines"
        )
    for rule in RULES:
        found = rule(head)
        if found is not None:
            return found
    raise TraceError(
        f"this is none of the formats that kilowait reads ({', '.join(FORMATS)}); it starts with "
        f"{[*head.comments, *head.rows][0][:60]!r}. Name the format with --format, or the columns of "
        "a table with --columns (in Python: format=, columns=)"
    )


# -- rules ---------------------------------------------------------------------------------------


def _own_header(head: FileHead) -> Detected | None:
    names = header_names(head.lines)
    own = own_names(names)
    return Detected("csv", f"its header has kilowait's columns {_listed(own)}") if own else None


def _json(head: FileHead) -> Detected | None:
    start, text = head.rows[0].lstrip()[0], "".join(head.rows[:100])
    for each in FORMATS.values():
        form = each.json
        if form is not None and start in form.first and all(f'"{key}"' in text for key in form.keys):
            return Detected(each.name, form.description)
    return None


def _header_of_a_trace(head: FileHead) -> Detected | None:
    line = head.rows[0].strip()
    exact = next((name for name, each in FORMATS.items() if line in each.headers), None)
    if exact is not None:
        return Detected(exact, f"its header is {line}")
    names = [name.strip().strip('"') for name in line.split(",")]
    return _with_columns(names, [(name, (*each.columns, *each.tables)) for name, each in FORMATS.items()])


def _with_columns(names: Sequence[str], formats: Sequence[tuple[str, Sequence[str]]]) -> Detected | None:
    """The one format of which the table has all names of one of its sets."""
    return _only(
        {
            format: f"its header has {', '.join(wanted.split())}"
            for format, sets in formats
            for wanted in sets
            if set(names) >= set(wanted.split())
        }
    )


def _header_of_nodes(head: FileHead) -> Detected | None:
    if node_list(head.rows) is not None:
        raise TraceError("this is a list of nodes, not of jobs; read it with kilowait.traces.read_nodes")
    return None


def _header_of_sacct(head: FileHead) -> Detected | None:
    lines = [*head.rows[:50], *head.comments[:20]]
    header = next((line for line in lines if sacct_delimiter(line) is not None), None)
    return None if header is None else Detected("sacct", f"it has a header of sacct: {header[:60]}")


def _header_of_a_table(head: FileHead) -> Detected | None:
    names = header_names(head.lines)
    return Detected("csv", f"its header has the known columns {_listed(known_names(names))}") if names else None


def _rows_without_header(head: FileHead) -> Detected | None:
    found: dict[str, str] = {}
    for each in FORMATS.values():
        for form in each.rows:
            fit = form.count(head.rows)
            if fit and fit >= form.least_share * len(head.rows):
                found.setdefault(each.name, f"{fit} of the first {len(head.rows)} rows are {form.description}")
    return _only(found)


def _comments_of_swf(head: FileHead) -> Detected | None:
    if count_jobs(head.rows):
        return Detected("swf", "some of its rows are 15 to 18 numbers")
    comment = next((line for line in head.comments if _SWF_COMMENT.match(line)), None)
    return None if comment is None else Detected("swf", f"it has a header of SWF: {comment.strip()[:60]}")


def _table(head: FileHead) -> Detected | None:
    if any(csv_delimiter(line) is not None for line in head.comments[:20]) or is_table(list(head.rows[:10])):
        return Detected("csv", "its first rows have the same number of columns")
    return None


RULES: tuple[Callable[[FileHead], Detected | None], ...] = (
    _own_header,
    _json,
    _header_of_a_trace,
    _header_of_nodes,
    _header_of_sacct,
    _header_of_a_table,
    _rows_without_header,
    _comments_of_swf,
    _table,
)
"""The rules in their order: headers first, kilowait's own before all others, then the form of the rows."""


def _only(found: dict[str, str]) -> Detected | None:
    """The one format that was found; several are an error."""
    if len(found) > 1:
        texts = "; ".join(f"{format}: {reason}" for format, reason in found.items())
        raise TraceError(
            f"it may be in {len(found)} formats ({texts}); name the right one with format={next(iter(found))!r}"
        )
    return next((Detected(format, reason) for format, reason in found.items()), None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
