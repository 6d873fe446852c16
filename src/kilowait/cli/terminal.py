"""The terminal: control characters in output, write errors of standard streams, and Ctrl-C.

Job logs, folders and policies name users, queues and files. Such a name may contain terminal escapes (``\\x1b[2J``
clears the screen), bidirectional overrides that reorder a line, or line separators that imitate another line. They are
shown as escapes, so that a name from a file cannot steer the terminal: `guarded_streams` replaces `sys.stdout` and
`sys.stderr` while a command runs, so that every ``print``, warning, log message and message of typer goes through one
place.

`deferred_interrupts` raises Ctrl-C as a KeyboardInterrupt only where Python code can handle it.
"""

from __future__ import annotations

import _thread
import errno
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO, cast

_STEERING = (
    r"\x00-\x09\x0b-\x1f\x7f-\x9f"  # C0 without line feed, DEL, C1
    r"\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidi, separators
    r"\U000e0000-\U000e0fff"  # tags
    r"\ud800-\udfff"  # surrogates: bytes of a file name that are no UTF-8
)
_CONTROL = re.compile(f"[{_STEERING}]")
_LINE_BREAKS = re.compile(r"[ \t\r\n]+")
_SHORT = {"\t": r"\t", "\r": r"\r"}


def escaped(text: str) -> str:
    """The text with every control character except the line feed as an escape; idempotent.

    >>> print(escaped("user\\x1b[31m \\u202e"))
    user\\x1b[31m \\u202e
    >>> print(escaped("a\\udcff"))  # the byte 0xff of a file name
    a\\xff
    """
    return _CONTROL.sub(_escape, text)


def escaped_line(text: str) -> str:
    """The text as one line: runs of blanks and line breaks become one blank, other control characters escapes.

    >>> print(escaped_line("first\\n  second\\x07"))
    first second\\x07
    """
    return escaped(_LINE_BREAKS.sub(" ", text).strip(" "))


def json_escaped(document: str, encoding: str = "utf-8") -> str:
    """A JSON document with JSON's own escapes for control characters and for what the encoding lacks.

    >>> json_escaped('{"a": "\\x7fé"}', "ascii")
    '{"a": "\\\\u007f\\\\u00e9"}'
    """
    document = _CONTROL.sub(_json_escape, document)
    try:
        document.encode(encoding)
    except UnicodeEncodeError:
        return re.sub(r"[^\x00-\x7f]", _json_escape, document)
    return document


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # Python's form of an undecodable byte
        return f"\\x{code - 0xDC00:02x}"
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


# -- standard streams ---------------------------------------------------------------------------------


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


# -- Ctrl-C -------------------------------------------------------------------------------------------

_RETRY_S = 0.02
"""Time until a deferred interrupt is raised again, seconds."""


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Raise Ctrl-C during an import when the import is complete, and raise one again that Python could not raise.

    Extension modules turn an exception within their import into another one, and the import system prints and
    suppresses those within its callbacks: an interrupt would appear as a traceback, and be lost.
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    hook = sys.unraisablehook
    signal.signal(signal.SIGINT, _raise)
    sys.unraisablehook = _raise_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _interrupt_soon()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _raise_again(unraisable: Any) -> None:
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _interrupt_soon()
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt_soon() -> None:
    timer = threading.Timer(_RETRY_S, _thread.interrupt_main)
    timer.daemon = True
    timer.start()


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second Ctrl-C interrupts."""
    stop = threading.Event()

    def stopped(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, stopped) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
