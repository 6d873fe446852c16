"""The command line of kilowait, one module per command. Only this package prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kilowait ARGUMENTS`` (default: those of this process) and return the exit status.

    0: success; 2: a user error, printed as one line; 130: interrupted; 1: a bug, with a traceback.
    """
    from kilowait.cli import app, console
    from kilowait.errors import KilowaitError

    all_arguments = list(sys.argv[1:] if arguments is None else arguments)
    arguments_without_debug, debug = app.without_debug(all_arguments)
    try:
        with console.plain_messages():
            app.command().main(arguments_without_debug, prog_name="kilowait", obj={"words": arguments_without_debug})
        status: int | str | None = 0
    except SystemExit as finished:  # typer exits this way after --help, after a wrong option, and on success
        status = finished.code
    except app.Interrupted:
        console.info("interrupted")
        status = 130
    except KilowaitError as error:
        if debug:
            raise
        from kilowait.cli.option_names import with_option_names

        console.info(
            f"error: {console.one_line(with_option_names(str(error), app.options_of(arguments_without_debug)))}"
        )
        status = 2
    except MemoryError:
        if debug:
            raise
        console.info(f"error: not enough memory; {_less_memory(app.options_of(arguments_without_debug))}")
        status = 2
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # The reader of the pipe has exited; avoid a second complaint of Python at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = status or 1
    return status if isinstance(status, int) else int(status is not None)


def _less_memory(options: Mapping[str, object]) -> str:
    """How to need less memory, with the options that the command has.

    >>> _less_memory({"jobs": None, "seed": None})
    'use a smaller --jobs'
    """
    names = [name for name in ("jobs", "num_envs", "queue_window", "workers") if name in options]
    smaller = " or ".join(f"--{name.replace('_', '-')}" for name in names)
    return f"use a smaller {smaller}" if smaller else "use a shorter log or a smaller cluster"
