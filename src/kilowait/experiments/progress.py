"""Where long experiments report what they do; the command line implements it in `kilowait.cli.console`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Console(Protocol):
    """Notes for the user, and the progress of long steps."""

    def note(self, text: str) -> None:
        """Show a note."""

    def info(self, text: str) -> None:
        """Show one line."""

    def today(self) -> str:
        """The current time, for manifests."""

    def busy(self, text: str) -> AbstractContextManager[Any]:
        """Show this text while a block runs."""

    def number(self, value: float) -> str:
        """A number as text."""

    def span(self, seconds: float) -> str:
        """A time span as text."""

    def status(self) -> AbstractContextManager[Callable[[str], None]]:
        """Show a text that can be changed while a block runs."""

    def steps(self, total: int) -> AbstractContextManager[Callable[..., None]]:
        """Show the progress of a block; it calls the function with a text, and whether this step deserves a line."""
