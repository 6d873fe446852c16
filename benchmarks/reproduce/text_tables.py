"""Format tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["of", "percent", "table"]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with columns of minimal width, the first left-aligned, the others right-aligned.

    >>> print(table(["rule", "bsld"], [["FCFS", "7,273.8"], ["SJF", "277.3"]]))
    rule     bsld
    FCFS  7,273.8
    SJF     277.3
    """
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    lines = []
    for row in (heads, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def of(count: int, total: int) -> str:
    """A count of a total; a dash if the total is 0.

    >>> of(2560, 2560), of(0, 0)
    ('2,560 of 2,560', '-')
    """
    return f"{count:,} of {total:,}" if total else "-"


def percent(ours: float, theirs: float) -> str:
    """The signed difference in per cent of the reference.

    >>> percent(99.0, 100.0)
    '-1.0 %'
    """
    return f"{100 * (ours / theirs - 1):+.1f} %"
