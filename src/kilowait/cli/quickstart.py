"""``kilowait quickstart``: rules compared, a small agent trained, and a page with pictures; no data needed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console

app = typer.Typer(add_completion=False, **console.PLAIN)


@app.command()
def quickstart(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the page, figures and the agent go.")
    ] = Path("runs/quickstart"),
    seed: Annotated[int, typer.Option(metavar="N", help="Of the workload and of the training.")] = 0,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Seconds instead of minutes; too little training to expect much of."),
    ] = False,
) -> None:
    """A first simulation, on a workload made on the spot: compare rules, train an agent, write a page with pictures.

    Takes one to three minutes. The agent learns from the first 80 % of the jobs; all numbers printed are of the last
    20 %, which neither it nor anyone has seen. Same seed, same numbers.
    """
    from kilowait.cli.output.compare import show_fairness, show_sentences, show_table
    from kilowait.experiments.quickstart import FAST, FULL
    from kilowait.experiments.quickstart import quickstart as run

    began = time.perf_counter()
    made = run(
        out,
        FAST if fast else FULL,
        seed=seed,
        command=console.command(context),
        date=console.today(),
        say=console.info,
        steps=console.steps,
    )
    print()
    print(f"on {made.results['cut']}, all later than what the agent was trained on")
    print()
    show_table(made.results)
    show_sentences(made.results)
    show_fairness(made.results)
    print(f"\ndone in {time.perf_counter() - began:.0f} s; the page with pictures: {made.report}")
    print(f"try the agent elsewhere: kilowait compare TRACE --policies saf,agent:{made.agent / 'agent.json'}")
