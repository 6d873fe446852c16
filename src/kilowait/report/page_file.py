"""Writing a report to a file: an earlier report is overwritten, any other file is not."""

from __future__ import annotations

import os
from pathlib import Path

from kilowait.errors import InputError
from kilowait.files import write_text

__all__ = ["REPORT_TAG", "check_page", "write_page"]

REPORT_TAG = '<meta name="generator" content="kilowait">'
"""The tag by which a file is recognised as a report."""


def check_page(target: Path) -> None:
    """Raise an `InputError` unless the page can be written to `target`; called before any work is done."""
    try:
        if target.is_dir():
            raise InputError(f"{target} is a folder; name the file of the page, for instance {target}/report.html")
        if target.exists():
            with target.open(encoding="utf-8", errors="replace") as file:
                if REPORT_TAG not in file.read(2000):
                    raise InputError(f"{target} exists and is not a kilowait report; name another file, or remove it")
        parent = next(folder for folder in target.absolute().parents if folder.exists())
    except OSError as error:
        raise InputError(f"cannot write the page {target}: {error.strerror or error}") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write the page {target}: {parent} is not a writable folder")


def write_page(target: Path, text: str) -> None:
    """Write the page atomically."""
    try:
        write_text(target, text, parents=True)
    except OSError as error:
        raise InputError(f"cannot write the page {target}: {error.strerror or error}") from None
