"""``kilowait report``: write an HTML page from result folders; ``kilowait quickstart``: make some first."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console
from kilowait.cli.options import verb
from kilowait.settings import Argument, Option

app = typer.Typer(add_completion=False, **console.PLAIN)

_REPORT = """\b
Examples:
  kilowait simulate log.swf --policy sjf --out runs/sjf; kilowait report runs/sjf
  kilowait compare log.swf --policies fcfs,sjf,saf --windows 30 --out runs/three
  kilowait report runs/three --out three.html --figures figures/"""
_QUICKSTART = """\b
Example:
  kilowait quickstart --fast --out runs/quickstart"""


@verb(app, epilog=_REPORT)
def report(
    folders: Annotated[
        list[Path],
        Argument(
            "RUN...",
            "Folders written with --out by kilowait simulate, compare, train, predict report or synth score.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, Option("FILE", "HTML file to write; by default NAME.html next to the first folder NAME.", "-o")
    ] = None,
    figures: Annotated[Path | None, Option("DIR", "Also write every figure as SVG and PNG, for papers.")] = None,
    title: Annotated[str | None, Option("TEXT", "Title of the page.")] = None,
    seed: Annotated[
        int | None,
        Option("N", "Random seed of the bootstrap intervals; by default that of each comparison.", show_default=False),
    ] = None,
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


@verb(app, epilog=_QUICKSTART)
def quickstart(
    context: typer.Context,
    out: Annotated[Path, Option("DIR", "Folder for the page, the figures and the agent.", "-o")] = Path(
        "runs/quickstart"
    ),
    seed: Annotated[int, Option("N", "Random seed of the workload and the training.")] = 0,
    fast: Annotated[
        bool, Option(None, "Takes seconds instead of minutes; the training is too short for a good agent.")
    ] = False,
) -> None:
    """Compare policies, train an agent and write a page with figures, on a synthetic workload.

    Takes one to three minutes. The agent is trained on the first 80 % of the jobs; all printed results are for the
    last 20 %, which were not used for training. The same seed gives the same results.
    """
    from kilowait.cli.output.compare import show_fairness, show_sentences, show_table
    from kilowait.experiments.quickstart import FAST_SIZE, FULL_SIZE
    from kilowait.experiments.quickstart import quickstart as run

    began = time.perf_counter()
    result = run(
        out,
        FAST_SIZE if fast else FULL_SIZE,
        seed=seed,
        command=console.command(context),
        date=console.today(),
        say=console.info,
        steps=console.steps,
    )
    print()
    print(f"on {result.results['cut']}, all later than the training jobs")
    print()
    show_table(result.results)
    show_sentences(result.results)
    show_fairness(result.results)
    print(f"\ndone in {time.perf_counter() - began:.0f} s; the page with figures: {result.report}")
    print(f"use the agent on another log: kilowait compare TRACE --policies saf,agent:{result.agent / 'agent.json'}")
