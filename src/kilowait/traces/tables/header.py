"""The header of a table of text: which line it is, its delimiter and its names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kilowait.jobs.columns import COLUMNS
from kilowait.traces.cell_parser import split_line
from kilowait.traces.tables.aliases import DELIMITERS, KNOWN, csv_delimiter, normalized_name

__all__ = ["find_header", "header_names", "is_own_table", "known_names", "mapped_header", "own_names", "split_header"]

_PREAMBLE = 100
"""Rows before the header at most, such as the title of a report."""


def find_header(lines: Sequence[str]) -> tuple[int, str] | None:
    """Index and delimiter of the line with known column names, possibly commented out; None if there is none.

    The first line that is no comment comes first; then a comment with as many columns as that line has, the nearest
    first; then a line after a preamble.

    >>> find_header(["# a note", "job_id;submit_s", "1;0"]), find_header(["# job_id,submit_s", "1,0"])
    ((1, ';'), (0, ','))
    """
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), None)
    if first is None:
        return None
    mark = csv_delimiter(lines[first])
    if mark is not None:
        return first, mark
    widths = {mark: len(split_line(lines[first], mark)) for mark in DELIMITERS if mark in lines[first]}
    for at in range(first - 1, -1, -1):
        if any(mark in lines[at] and len(split_line(lines[at], mark)) == width for mark, width in widths.items()):
            mark = csv_delimiter(lines[at].lstrip("# "))
            if mark is not None:
                return at, mark
    for at in range(first + 1, min(first + _PREAMBLE, len(lines))):
        mark = csv_delimiter(lines[at].lstrip("# "))
        if mark is not None:
            return at, mark
    return None


def mapped_header(lines: Sequence[str], wanted: Iterable[str]) -> tuple[int, str] | None:
    """Index and delimiter of the first line with all these column names, possibly commented out."""
    names = set(wanted)
    rows = 0
    for at, line in enumerate(lines):
        if all(name in line for name in names):
            for mark in DELIMITERS:
                if names <= set(split_header(line, mark)):
                    return at, mark
        rows += bool(line.strip()) and not line.startswith("#")
        if rows > _PREAMBLE:
            break
    return None


def split_header(line: str, delimiter: str) -> list[str]:
    """The names in a header line.

    >>> split_header('# job_id, "submit_s"', ",")
    ['job_id', 'submit_s']
    """
    names = [name.strip().lstrip("#").strip() for name in split_line(line.lstrip(), delimiter)]
    return [name.strip('"') for name in names]


def header_names(lines: Sequence[str]) -> list[str]:
    """The names in the header among these lines; empty if there is none.

    >>> header_names(["job_id,submit_s,nodes", "1,0,4"]), header_names(["1,0,4"])
    (['job_id', 'submit_s', 'nodes'], [])
    """
    found = find_header(lines)
    return [] if found is None else split_header(lines[found[0]], found[1])


def own_names(names: Iterable[str]) -> list[str]:
    """Kilowait's names among these; empty if they are not those of a table that kilowait wrote or documents.

    >>> own_names(["job_id", "submit_s", "x"]), own_names(["nodes", "user"])
    (['job_id', 'submit_s'], [])
    """
    own = [name for name in names if name in COLUMNS]
    return own if len(own) > 1 and "submit_s" in own else []


def is_own_table(names: Iterable[str]) -> bool:
    """Whether these are columns of a table that kilowait wrote: the times that every table has, by their exact names.

    >>> is_own_table(["submit_s", "runtime_s", "estimate_s", "nodes"]), is_own_table(["submit_s", "runtime_s"])
    (True, False)
    """
    return {"submit_s", "runtime_s", "estimate_s"} <= set(names)


def known_names(names: Iterable[str]) -> list[str]:
    """The names among these that are known, or aliases of known names."""
    return [name for name in names if normalized_name(name) in KNOWN]
