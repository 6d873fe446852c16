"""The command line of kilowait, one module per command. Only this package prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kilowait ARGUMENTS`` (default: those of this process) and return the exit status.

    0: success; 2: a user error, printed as one line; 130: interrupted; 1: a bug, with a traceback, or a reader of the
    output that has exited.
    """
    try:  # Ctrl-C may come before the first import is complete.
        from kilowait.cli import terminal

        with terminal.deferred_interrupts():
            if arguments is not None:
                return _run(list(arguments))
            return _run_process(sys.argv[1:])
    except KeyboardInterrupt:
        return _interrupted()


def _run_process(arguments: list[str]) -> int:
    """Run the command of this process, which ends afterwards."""
    import signal

    from kilowait.cli import terminal

    terminal.open_closed_streams()
    try:
        status = _run(arguments)
    except Exception:
        import traceback

        with terminal.guarded_streams():
            sys.stderr.write(traceback.format_exc())
        status = 1
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Nothing is left to do: end at once, without a traceback.
    return status


def _run(arguments: list[str]) -> int:
    from kilowait.cli import terminal

    with terminal.guarded_streams():
        try:
            status = _status_of_command(arguments)
            sys.stdout.flush()
        except terminal.OutputError as error:
            if not error.closed_pipe:
                sys.stderr.write(f"error: {error}\n")
            status = 1 if error.closed_pipe else 2
        sys.stderr.flush()
    return status


def _status_of_command(all_arguments: list[str]) -> int:
    from kilowait.cli import app, console
    from kilowait.errors import KilowaitError

    arguments, debug = app.without_debug(all_arguments)
    try:
        app.check_arguments(arguments)
        with console.plain_messages():
            app.command().main(arguments, prog_name="kilowait", obj={"words": arguments})
    except SystemExit as finished:  # typer exits this way after --help, after a wrong option, and on success
        return finished.code if isinstance(finished.code, int) else int(finished.code is not None)
    except app.Interrupted:
        return _interrupted()
    except KilowaitError as error:
        if debug:
            raise
        console.info(f"error: {app.with_option_names(str(error), app.options_of(arguments))}")
        return 2
    except OSError as error:  # a path too long for the system, a full disk, ...
        if debug:
            raise
        place = "" if error.filename is None else f": {os.fsdecode(error.filename)}"
        console.info(f"error: {error.strerror or error}{place}; check the path and the space on its disk")
        return 2
    except UnicodeEncodeError:
        name = app.undecodable_name(arguments)
        if debug or name is None:
            raise
        console.info(f"error: the name {name} has bytes that are no UTF-8; rename the file or folder")
        return 2
    except MemoryError:
        if debug:
            raise
        console.info(f"error: not enough memory; {_less_memory(app.options_of(arguments))}")
        return 2
    return 0


def _interrupted() -> int:
    if sys.stderr is not None:
        with suppress(OSError):
            print("interrupted", file=sys.stderr, flush=True)
    return 130


def _less_memory(options: Mapping[str, object]) -> str:
    """How to need less memory, with the options that the command has.

    >>> _less_memory({"jobs": None, "seed": None})
    'use a smaller --jobs'
    """
    names = [name for name in ("jobs", "num_envs", "queue_window", "workers") if name in options]
    smaller = " or ".join(f"--{name.replace('_', '-')}" for name in names)
    return f"use a smaller {smaller}" if smaller else "use a shorter log or a smaller cluster"
