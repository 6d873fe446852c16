"""Slurm host lists, such as ``node[01-04],gpu7``."""

from __future__ import annotations

import re
from itertools import product

from kilowait.errors import InputError

__all__ = ["expand_hosts"]

MAX_HOSTS = 1_000_000
"""Maximum number of nodes in one list; a longer list counts as invalid."""

_LIST = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PARTS = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")


def expand_hosts(text: str) -> tuple[str, ...]:
    """The unique names in a host list, in order; leading zeros are kept.

    >>> expand_hosts("node[08-10,12],gpu7")
    ('node08', 'node09', 'node10', 'node12', 'gpu7')
    >>> expand_hosts("r[1-2]n[0-1]")
    ('r1n0', 'r1n1', 'r2n0', 'r2n1')
    """
    names: dict[str, None] = {}
    entries = _LIST.findall(text)
    if ",".join(entries) != text.strip():
        raise InputError(f"{text!r:.60} is not a list of nodes; write it as Slurm does: node[01-04],gpu7")
    for entry in entries:
        parts = [
            _numbers(bracketed, text) if literal == "" else [literal] for bracketed, literal in _PARTS.findall(entry)
        ]
        size = len(names)
        for part in parts:
            size = max(size, 1) * len(part)
        if size > MAX_HOSTS:
            raise InputError(f"{text!r:.60} stands for more than {MAX_HOSTS:,} nodes; correct the list")
        names |= dict.fromkeys("".join(pieces).strip() for pieces in product(*parts))
    return tuple(names)


def _numbers(bracketed: str, text: str) -> list[str]:
    names: list[str] = []
    for span in bracketed.split(","):
        first, dash, last = span.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise InputError(f"{text!r:.60} is not a list of nodes: [{bracketed:.40}] is no range such as [01-04]")
        if dash and int(last) - int(first) >= MAX_HOSTS:
            raise InputError(f"{text!r:.60} stands for more than {MAX_HOSTS:,} nodes; correct the list")
        names += [f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)]
    return names
