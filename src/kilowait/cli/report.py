"""``kilowait report``: a page from run folders."""

from __future__ import annotations

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
            help="Folders that kilowait simulate, compare, train, predict report or synth score wrote with --out.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The page; else beside the first folder, as NAME.html.",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Every figure also as SVG and PNG, for papers."),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Heading of the page.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the bootstrap behind the intervals.")] = 0,
) -> None:
    """Write one self-contained HTML page from one or many run folders.

    It opens from disk and needs no network: findings in words, tables with intervals, distributions, backlog and
    utilization over time, who waits, a Gantt chart to zoom into, what was dropped in reading the log, and where every
    number comes from. Runs of the same jobs are compared with one another.
    """
    from kilowait.report import write_report

    page = folders[0].with_name(f"{folders[0].resolve().name}.html") if out is None else out
    with console.status() as tell:
        written = write_report(folders, page, figures=figures, title=title, seed=seed, progress=tell)
    print(f"written to {written}")
    if figures is not None:
        print(f"figures in {figures}")
