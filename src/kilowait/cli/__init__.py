"""The command line: one file a verb, each of them parse, one call, print. The only room that prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kilowait ARGUMENTS`` (default: of this process) and return the exit status.

    0: done; 2: an error of the user's, told in one line; 130: interrupted; 1: a bug, with a traceback.
    """
    from kilowait.cli import app, console
    from kilowait.errors import KilowaitError

    given = list(sys.argv[1:] if arguments is None else arguments)
    words, debug = app.without_debug(given)
    try:
        with console.plain_messages():
            app.command().main(words, prog_name="kilowait", obj={"words": words})
        status: int | str | None = 0
    except (
        SystemExit
    ) as leaving:  # typer's way out: after --help, after a wrong option, and when all went well
        status = leaving.code
    except app.Interrupted:
        console.info("interrupted")
        status = 130
    except KilowaitError as problem:
        if debug:
            raise
        console.info(f"error: {console.one_line(_as_options(str(problem)))}")
        status = 2
    except MemoryError:
        if debug:
            raise
        console.info(
            "error: not enough memory; try less at once: fewer --jobs, or in training fewer --envs or --slots"
        )
        status = 2
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # Whoever read our output has left; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = status or 1
    return status if isinstance(status, int) else int(status is not None)


def _as_options(text: str) -> str:
    """Errors that name Python's arguments, in the words of this command line."""
    for quote in ("'", '"'):
        text = text.replace(f"oversized={quote}reject{quote}", "--oversized reject")
    return text
