"""Checks of arguments before a command runs: names that its results cannot contain, and pipes that nobody writes to."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence

from kilowait.errors import InputError

__all__ = ["check_arguments", "undecodable_name"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_PARTS = re.compile(r"[,=:+]")


def check_arguments(arguments: Sequence[str]) -> None:
    """InputError if an argument names a pipe, or one with bytes that are no UTF-8 would be written to a result folder.

    Result folders store the command and the names of its inputs as UTF-8, and training would fail only at its end.
    Pipes of the shell (``<(zcat log.gz)``) are below /dev or /proc and stay allowed; opening any other waits for a
    writer, perhaps for ever.

    >>> check_arguments(["simulate", "log.swf", "--out", "runs/a"])
    """
    name = undecodable_name(arguments)
    if name is not None and any(re.match(r"--out\b|-o", argument) for argument in arguments):
        raise InputError(f"the name {name} has bytes that are no UTF-8, and result files are UTF-8; rename it")
    for argument in arguments:
        for part in {argument, *_PARTS.split(argument)}:
            if _is_named_pipe(part):
                raise InputError(f"{part} is a named pipe; write its content to a file first, and name that")


def undecodable_name(arguments: Sequence[str]) -> str | None:
    """The first argument with bytes that are no UTF-8, if any."""
    return next((argument for argument in arguments if _SURROGATE.search(argument)), None)


def _is_named_pipe(name: str) -> bool:
    if not name or "\0" in name or name.startswith(("/dev/", "/proc/")):
        return False
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False
