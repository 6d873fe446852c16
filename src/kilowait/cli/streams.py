"""Standard output and standard error of the commands: control characters escaped, write errors handled.

`guarded_streams` replaces `sys.stdout` and `sys.stderr` while a command runs, so that every ``print``, warning, log
message and message of typer goes through one place.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from kilowait.cli.escapes import escaped

__all__ = ["OutputError", "guarded_streams", "open_closed_streams", "unescaped"]


class OutputError(Exception):
    """Standard output cannot be written. Not an OSError: code that handles errors of files must not handle this one."""

    def __init__(self, cause: OSError) -> None:
        self.closed_pipe = isinstance(cause, BrokenPipeError)
        reason = os.strerror(cause.errno) if cause.errno else str(cause)
        remedy = "redirect it to a file on another disk" if cause.errno == errno.ENOSPC else "redirect it to a file"
        super().__init__(f"standard output cannot be written: {reason}; {remedy}")


class _GuardedStream:
    """A text stream that escapes control characters and turns write errors into `OutputError`.

    It has no `buffer`: libraries that look for one would write around it. An error is raised again by every later
    write and flush: libraries that probe a stream suppress the first one.
    """

    def __init__(self, stream: TextIO, *, required: bool) -> None:
        self._stream = stream
        self._required = required  # False: write errors are ignored, as there is no place to report them
        self._failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        return self.write_unescaped(escaped(text))

    def write_unescaped(self, text: str) -> int:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            return self.write_unescaped(text.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            self._redirect_to_nowhere(error)
        self._raise_failure()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._redirect_to_nowhere(error)
        self._raise_failure()

    def _redirect_to_nowhere(self, error: OSError) -> None:
        # The buffer keeps what could not be written, and Python flushes it once more at its end.
        self._failure = error
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def _raise_failure(self) -> None:
        if self._failure is not None and self._required:
            raise OutputError(self._failure) from self._failure


class _Unescaped:
    """The same stream for texts that contain intended terminal escapes."""

    def __init__(self, stream: _GuardedStream) -> None:
        self._guarded = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guarded, name)

    def write(self, text: str) -> int:
        return self._guarded.write_unescaped(text)


def unescaped(stream: TextIO) -> TextIO:
    """The stream for rich, whose colours and cursor movements are meant; its texts must be escaped beforehand."""
    return cast(TextIO, _Unescaped(stream)) if isinstance(stream, _GuardedStream) else stream


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Replace `sys.stdout` and `sys.stderr` by streams that escape control characters; flush them at the end."""
    before = sys.stdout, sys.stderr
    out, err = (
        _GuardedStream(stream if stream is not None else io.StringIO(), required=required)
        for stream, required in ((sys.stdout, True), (sys.stderr, False))
    )
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def open_closed_streams() -> None:
    """Open /dev/null in place of closed standard streams (``kilowait ... >&-``).

    Otherwise the first file that is opened gets the number of standard output, and libraries print into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
