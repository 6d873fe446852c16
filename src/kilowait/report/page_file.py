"""A page becomes a file; an earlier report is replaced, nothing else is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kilowait.errors import InputError

__all__ = ["MARK", "check_page", "write_page"]

MARK = '<meta name="generator" content="kilowait">'
"""By which a report is known."""


def check_page(target: Path) -> None:
    """Raise unless the page may be written there: asked before the work, not after it."""
    try:
        if target.is_dir():
            raise InputError(
                f"{target} is a folder; name the file of the page, for instance {target}/report.html"
            )
        if target.exists():
            with target.open(encoding="utf-8", errors="replace") as file:
                if MARK not in file.read(2000):
                    raise InputError(
                        f"{target} is there already and is no report of kilowait; name another file, or remove it"
                    )
        above = next(folder for folder in target.absolute().parents if folder.exists())
    except OSError as problem:
        raise InputError(f"cannot write the page {target}: {problem.strerror or problem}") from None
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"cannot write the page {target}: {above} is not a folder one may write in")


def write_page(target: Path, text: str) -> None:
    """Write the page, whole or not at all."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as problem:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise InputError(f"cannot write the page {target}: {problem.strerror or problem}") from None
