"""Texts in CSV files: a text that a spreadsheet would run as a formula is preceded by an apostrophe.

Spreadsheets evaluate a cell that begins with one of ``= + - @``, a tab or a carriage return, and names of users, queues
and jobs come from users. Texts with blanks at their ends get the apostrophe too, so that readers that strip cells keep
them.
"""

from __future__ import annotations

import re

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_QUOTED = re.compile(r'[",;\t\r\n]')


def guarded(text: str) -> str:
    """The text, preceded by an apostrophe if a spreadsheet would run it or a reader would strip it.

    >>> guarded("=1+1"), guarded("'=1+1"), guarded("alice"), guarded("'alice"), guarded(" bob")
    ("'=1+1", "''=1+1", 'alice', "'alice", "' bob")
    """
    return f"'{text}" if _needs_guard(text) else text


def unguarded(cell: str) -> str:
    """The inverse of `guarded`: the text of a cell, without blanks at its ends unless they are guarded.

    >>> [unguarded(guarded(text)) for text in ("=1+1", "'=1+1", "''", "'alice", " bob ")]
    ['=1+1', "'=1+1", "''", "'alice", ' bob ']
    >>> unguarded(" carol ")
    'carol'
    """
    return cell[1:] if cell.startswith("'") and _needs_guard(cell[1:]) else cell.strip()


def csv_cell(text: str) -> str:
    """A text as a cell of a CSV file: guarded, and quoted if it has delimiters, quotes or line breaks.

    >>> csv_cell("a,b"), csv_cell("=A1"), csv_cell('a"b')
    ('"a,b"', "'=A1", '"a""b"')
    """
    cell = guarded(text)
    return '"' + cell.replace('"', '""') + '"' if _QUOTED.search(cell) else cell


def _needs_guard(text: str) -> bool:
    bare = text.lstrip("'")
    return bare.startswith(_FORMULA) or bare != bare.strip()
