"""Lines of ``sacct --parsable2 --noheader`` in the columns that Open XDMoD's documentation prescribes."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FIRST = "jobid jobidraw cluster partition"
_THEN = "account group gid user uid submit eligible start end elapsed exitcode state nnodes ncpus reqcpus reqmem"
_LAST = "timelimit nodelist jobname"
FIELD_LISTS: dict[str, tuple[str, ...]] = {
    version: tuple(f"{_FIRST} {qos}{_THEN} {tres} {_LAST}".split())
    for version, qos, tres in (
        ("with qos and alloctres", "qos ", "reqtres alloctres"),
        ("with reqgres and alloctres", "", "reqgres reqtres alloctres"),
        ("with alloctres", "", "reqtres alloctres"),
        ("with reqgres", "", "reqgres reqtres"),
    )
}
"""Columns by version of Open XDMoD's shredder for Slurm: the newest, then those of earlier versions."""

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown|None"
_RULES = {
    "jobid": r"\d+(?:_(?:\[[\d,%:.-]+\]?|\d+))?(?:\+\d+)?(?:\.\w+)?",
    **dict.fromkeys(("submit", "eligible", "start", "end"), _TIME),
    **dict.fromkeys(("gid", "uid", "nnodes", "ncpus", "reqcpus"), r"\d*"),
    "state": r"[A-Z_]{1,15}(?: by \S+)?",
    **dict.fromkeys(("reqtres", "alloctres"), r"(?:[\w/:.-]+=\S*)?"),
    "reqgres": r"[^=|]*",
    "timelimit": r"(?:(?:\d+-)?\d+(?::\d+)+|UNLIMITED|Partition_Limit)?",
}
_PATTERNS = {name: re.compile(rule) for name, rule in _RULES.items()}


def fits(line: str, names: Sequence[str]) -> bool:
    """Whether the fields of a line have the types of these columns; delimiters in the job name are allowed.

    >>> fits("7|7|c|batch|acc|g|1|ann|2", FIELD_LISTS["with alloctres"])
    False
    """
    fields = line.rstrip("\r").split("|", len(names) - 1)
    return len(fields) == len(names) and all(
        _PATTERNS[name].fullmatch(text) for name, text in zip(names, fields, strict=True) if name in _PATTERNS
    )


def field_list(lines: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The version and the columns that fit the most lines; None if they fit less than half of them."""
    found = max(FIELD_LISTS, key=lambda version: sum(fits(line, FIELD_LISTS[version]) for line in lines), default=None)
    if found is None or not lines:
        return None
    number = sum(fits(line, FIELD_LISTS[found]) for line in lines)
    return (found, FIELD_LISTS[found]) if number and number * 2 >= len(lines) else None


def count_lines(lines: Sequence[str]) -> int:
    """Number of lines that are records in one of the lists of columns."""
    found = field_list(lines)
    return 0 if found is None else sum(fits(line, found[1]) for line in lines)
