"""``kilowait report``: write an HTML page from result folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait simulate log.swf --policy sjf --out runs/sjf; kilowait report runs/sjf
  kilowait compare log.swf --policies fcfs,sjf,saf --windows 30 --out runs/three
  kilowait report runs/three --out three.html --figures figures/"""


@app.command(epilog=_EPILOG)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders written with --out by kilowait simulate, compare, train, predict report or synth score.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="HTML file to write; by default NAME.html next to the first folder NAME.",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="DIR", help="Also write every figure as SVG and PNG, for papers."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the page.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed of the bootstrap intervals.")] = 0,
) -> None:
    """Write one self-contained HTML page from one or more result folders.

    The page needs no network: a summary, tables with confidence intervals, distributions, backlog and utilization over
    time, waits by class of job, a zoomable Gantt chart, the cleaning report of the log, and the origin of every number.
    Runs of the same jobs are compared.
    """
    from kilowait.report import write_report

    page = _page_beside(folders[0]) if out is None else out
    with console.status() as tell:
        written = write_report(folders, page, figures=figures, title=title, seed=seed, progress=tell)
    print(f"written to {written}")
    if figures is not None:
        print(f"figures in {figures}")


def _page_beside(folder: Path) -> Path:
    """The page beside a folder; the folder may be ``.`` or end in ``..``, which have no name of their own.

    >>> _page_beside(Path("runs/first"))
    PosixPath('runs/first.html')
    """
    named = folder if folder.name not in ("", "..") else Path(os.path.realpath(folder))
    return named.parent / f"{os.path.basename(os.path.realpath(folder)) or 'report'}.html"
