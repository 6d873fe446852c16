"""Ctrl-C: a KeyboardInterrupt that is raised only where Python code can handle it."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["deferred_interrupts"]

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
