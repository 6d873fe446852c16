"""``kilowait quickstart``: compare policies, train a small agent and write a page with figures; needs no data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console

app = typer.Typer(add_completion=False, **console.PLAIN)


_EPILOG = """\b
Example:
  kilowait quickstart --fast --out runs/quickstart"""


@app.command(epilog=_EPILOG)
def quickstart(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the page, the figures and the agent.")
    ] = Path("runs/quickstart"),
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed of the workload and the training.")] = 0,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Takes seconds instead of minutes; the training is too short for a good agent."),
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
