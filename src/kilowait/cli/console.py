"""Terminal output: tables, notes, progress, JSON. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import logging
import math
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from os import environ
from typing import TYPE_CHECKING, Any, TypedDict

from kilowait.cli.terminal import escaped, escaped_line, json_escaped, unescaped
from kilowait.units import format_duration

if TYPE_CHECKING:
    import typer
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text

    from kilowait.experiments.scenario_inputs import Workload

PIPE_WIDTH = 160
"""Width of tables that are written to a file or a pipe, which has no terminal width."""
MIN_WRAPPED_WIDTH = 30
"""Minimum width of a wrapped column; below it the table grows wider than the terminal."""


Columns = Sequence[tuple[str, str, Callable[[Any], str]]]
"""Columns of a table: header, key of the value in a record, and text of the value."""


class _Plain(TypedDict):
    rich_markup_mode: None
    pretty_exceptions_enable: bool


PLAIN: _Plain = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
"""Settings of every typer.Typer of this package: plain-text help, no handling of exceptions."""


# -- text ----------------------------------------------------------------------------------------


def info(text: str) -> None:
    """One line on stderr; further lines of the text are joined to it, and its indentation is kept."""
    indentation = " " * (len(text) - len(text.lstrip(" ")))
    print(f"{indentation}{escaped_line(text)}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """A note on stderr."""
    info(f"note: {text}")


def number(value: float) -> str:
    """A number as text: thousands separators, three or four significant digits.

    >>> [number(v) for v in (12345.6, 432.1234, 1.5, 0.01234, 3.0, float("nan"))]
    ['12,346', '432.1', '1.5', '0.0123', '3', '-']
    """
    if not math.isfinite(value):
        return "-"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1 else f"{value:.3g}"


def integer(value: float) -> str:
    """A whole number with thousands separators.

    >>> integer(12345.0)
    '12,345'
    """
    return f"{value:,.0f}"


def count(value: int, one: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> count(1, "job"), count(1200, "job")
    ('1 job', '1,200 jobs')
    """
    return f"{value:,} {one if value == 1 else many or f'{one}s'}"


def span(seconds: float) -> str:
    """A time span as text.

    >>> span(4800.0), span(float("nan"))
    ('1 h 20 min', '-')
    """
    return format_duration(seconds)


def percent(share: float) -> str:
    """A share as a percentage.

    >>> percent(0.8431), percent(float("nan"))
    ('84.3 %', '-')
    """
    return f"{100 * share:.1f} %" if math.isfinite(share) else "-"


def command(context: typer.Context) -> list[str]:
    """The command line of this process, or the arguments of `main`."""
    return ["kilowait", *context.find_root().obj["words"]]


def today() -> str:
    """The current time in UTC, for manifests."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def plain_messages() -> Iterator[None]:
    """Print warnings and log messages of kilowait as single lines on stderr."""
    logger = logging.getLogger("kilowait")
    handler = _ToStderr()
    before, propagated = warnings.showwarning, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    warnings.showwarning = _show_warning
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
        warnings.showwarning = before


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        info(record.getMessage())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    info(f"warning: {message}")


# -- tables --------------------------------------------------------------------------------------


def heading(name: str, width: int = 16) -> str:
    """A name as the heading of a column, in lines of at most `width` characters.

    >>> heading("99th percentile of waits")
    '99th percentile\\nof waits'
    """
    return "\n".join(textwrap.wrap(name, width, break_long_words=False, break_on_hyphens=False))


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in environ else PIPE_WIDTH
    return Console(file=unescaped(stream), width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def _text(text: str, style: str = "") -> Text:
    """A text for rich: no markup, no control characters, no line breaks."""
    from rich.text import Text

    return Text(escaped(text).replace("\n", r"\n"), style=style)


def title(text: str) -> None:
    """Print a heading on stdout."""
    _console().print(_text(text, "bold"), soft_wrap=True)


def log_title(comparison: Mapping[str, Any], workload: Workload) -> None:
    """Print the log and the cluster of a comparison, and what was cleaned while reading."""
    title(
        f"{comparison['trace']}: {count(len(workload.jobs), 'job')} on {count(comparison['size'], comparison['unit'])}"
    )
    cleaning = cleaning_line(workload)
    if cleaning is not None:
        print(cleaning)


def cleaning_line(workload: Workload) -> str | None:
    """One line about the rows dropped and corrected while reading; None if there were none."""
    report = workload.cleaning_report
    if report is None or not (report.dropped or report.corrected):
        return None
    return f"{report.lines()[0]}; see kilowait traces describe"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: int = 1,
    wrapped: int | None = None,
    marked: set[tuple[int, int]] | None = None,
) -> None:
    """Print a table on stdout; the first `left` columns are left-aligned, the others right-aligned.

    Cells are never truncated; only the column `wrapped` may take several lines. `marked` cells get a star.
    """
    cells = [
        [
            _text(text + _star(marked, row, place, left), "bold green" if (row, place) in (marked or ()) else "")
            for place, text in enumerate(line)
        ]
        for row, line in enumerate(rows)
    ]
    names = [escaped(name) for name in header]
    widths = [max(map(len, name.split("\n"))) for name in names]
    for line in cells:
        widths = [max(width, cell.cell_len) for width, cell in zip(widths, line, strict=True)]
    grid = _new_table(show_header=True)
    for place, name in enumerate(names):
        free = place == wrapped
        grid.add_column(
            name,
            justify="left" if place < left else "right",
            vertical="top",
            no_wrap=not free,
            min_width=min(widths[place], MIN_WRAPPED_WIDTH) if free else widths[place],
        )
    for line in cells:
        grid.add_row(*line)
    _print_table(grid)


def records(columns: Columns, rows: Sequence[Any], **layout: Any) -> None:
    """Print a table with one row per record, a mapping or an object."""
    cells = [
        [text(row[key] if isinstance(row, Mapping) else getattr(row, key)) for _, key, text in columns] for row in rows
    ]
    table([header for header, _, _ in columns], cells, **layout)


def _star(marked: set[tuple[int, int]] | None, row: int, place: int, left: int) -> str:
    """The star of a marked cell, or the blanks that align the other cells."""
    if marked is None or place < left:
        return ""
    return " *" if (row, place) in marked else "  "


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    grid = _new_table(show_header=False)
    cells = [(_text(name, "dim"), _text(value)) for name, value in rows]
    grid.add_column(no_wrap=True, min_width=max(name.cell_len for name, _ in cells))
    grid.add_column(min_width=MIN_WRAPPED_WIDTH, overflow="fold")
    for name, value in cells:
        grid.add_row(name, value)
    _print_table(grid)


def _new_table(*, show_header: bool) -> Table:
    from rich.table import Table

    return Table(box=None, show_header=show_header, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))


def _print_table(grid: Table) -> None:
    """Print a table without trailing blanks; on a narrow terminal lines wrap, but nothing is truncated."""
    console = _console()
    console.width = max(console.width, sum((column.min_width or 0) + 2 for column in grid.columns))
    with console.capture() as captured:
        console.print(grid)
    lines = captured.get().splitlines()
    unescaped(sys.stdout).write("".join(f"{line.rstrip()}\n" for line in lines))


def json_document(data: Any) -> None:
    """Print one JSON document on stdout; NaN becomes null."""
    from kilowait.evaluation.storage import plain_json

    print(json_escaped(plain_json(data), sys.stdout.encoding or "utf-8"))


# -- progress ------------------------------------------------------------------------------------


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Show a spinner with this text on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    with _console(stderr=True).status(_text(text)):
        yield


@contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Show a status line that can be updated on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with _console(stderr=True).status(_text("...")) as status:
        yield lambda text: status.update(_text(text))


@contextmanager
def progress(steps: int) -> Iterator[Progress | None]:
    """A progress bar of `steps` steps on a terminal, removed when done; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        bar.add_task("", total=steps)
        yield bar


@contextmanager
def steps(total: int) -> Iterator[Callable[..., None]]:
    """Progress: a bar on a terminal, elsewhere a line for each step that asks for one.

    A step may give its number; a part of a step gives a number that is not whole.
    """
    done: float = 0
    with progress(total) as bar:

        def step(text: str, line: bool, number: float | None = None) -> None:
            nonlocal done
            done = done + 1 if number is None else number
            if bar is not None:
                bar.update(bar.task_ids[0], description=_text(text).plain, completed=done)
            elif line:
                info(f"     {done} of {total}: {text}")

        yield step


def share_text(done: int, total: int, elapsed_s: float) -> str:
    """Share of the work that is done, and the time left if it continues at this speed.

    >>> share_text(250, 1000, 20.0)
    '25 %, about 1 min left'
    """
    if not done:
        return "0 %"
    return f"{done / total:.0%}".replace("%", " %") + f", about {span(elapsed_s * (total - done) / done)} left"
