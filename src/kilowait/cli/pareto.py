"""``kilowait front``: what an agent that weighs terms as it is told reaches, preference by preference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kilowait.cli import console, options

__all__ = ["app", "front", "show_front"]

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait train lublin:20000:128:0.95:7 --algo ppo --preferences slowdown,fairness --out runs/both
  kilowait front runs/both lublin:20000:128:0.95:7
  kilowait compare lublin:20000:128:0.95:7 --windows 20 --policies \\
    saf,agent:runs/both/agent.pt:prefer=slowdown=1,agent:runs/both/agent.pt:prefer=slowdown=0.5+fairness=0.5"""


@app.command(epilog=_EPILOG)
def front(
    context: typer.Context,
    agent: Annotated[
        Path,
        typer.Argument(
            help="What kilowait train --preferences wrote: its folder, or agent.pt.", show_default=False
        ),
    ],
    trace: options.Trace,
    cluster: options.Cluster = "auto",
    part: Annotated[
        float,
        typer.Option(
            metavar="P", min=0.01, max=1.0, help="The last part of the log, of which it is tried; 0.2: 20 %."
        ),
    ] = 0.2,
    windows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Windows, evenly spread; else as many as lie side by side.",
            show_default=False,
        ),
    ] = None,
    window_jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Jobs in a window.")] = 1024,
    parts: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Weights go in steps of 1/N; for two terms 10.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the intervals.")] = 0,
    power: options.Power = None,
    levers: Annotated[
        str | None,
        typer.Option(
            metavar="L",
            help="With --power: the levers of an agent that pulls some; else those it was trained with.",
            show_default=False,
        ),
    ] = None,
    carbon: options.Carbon = None,
    price: options.Price = None,
    scope: options.Scope = "life-cycle",
    cooling: options.Cooling = None,
    profile: options.Profile = None,
    forecast: options.Forecast = "perfect",
    start: options.Start = None,
    wrap: options.Wrap = False,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
) -> None:
    """Play the last part of a log with one agent under one preference after another; what each term comes to.

    It must be judged on jobs later than those it was trained on: train leaves the last 20 % alone.
    """
    from kilowait.agents import load_agent
    from kilowait.experiments import pareto
    from kilowait.experiments.scenario import prepare_scenario
    from kilowait.experiments.train_power import PowerAgent, PowerTraining, bind_agent_power

    player = load_agent(agent)
    pulled = "none" if levers is None else levers
    if isinstance(player, PowerAgent):
        pulled = player.levers if levers is None else levers
        if power is None:
            bind_agent_power(player, None, pulled)  # says what it needs
    scenario = options.scenario_from_options(context, trace, levers=pulled)
    with console.busy(f"reading {trace} ..."):
        workload, machine, notes = prepare_scenario(scenario)
    for text in notes:
        console.note(text)
    later = workload.jobs[int(len(workload.jobs) * (1 - part)) :]
    powering = None
    if scenario.power is not None:
        powering = PowerTraining.of(scenario.power, pulled, workload.jobs, machine)
    with console.busy("trying it under every preference ..."):
        found = pareto.front(
            player,
            later,
            machine,
            windows=windows,
            window_jobs=window_jobs,
            parts=parts,
            seed=seed,
            power=powering,
        )
    if json:
        console.json_document({"agent": dict(player.provenance), "front": found})
        return
    show_front(found)


def show_front(found: Mapping[str, Any]) -> None:
    """The table of a front."""
    terms = list(found["terms"])
    print(
        f"later jobs: {found['windows']} windows of {found['window_jobs']:,} jobs; means and 95 % intervals\n"
    )
    print("".join(f"{'prefers ' + name:>20}" for name in terms) + "".join(f"{name:>30}" for name in terms))
    for point in found["points"]:
        weights = "".join(f"{point['preference'][name]:>20.2f}" for name in terms)
        print(weights + "".join(f"{_cell(point, name):>30}" for name in terms) + _remark(point))
    rule = "".join(f"{_cell(found['reference'], name):>30}" for name in terms)
    print(f"{found['reference']['name']:<{20 * len(terms)}}{rule}\n")
    for name, meaning in found["terms"].items():
        print(f"{name}: {meaning}; unit {found['units'][name]:.4g}")


def _cell(row: Mapping[str, Any], name: str) -> str:
    low, high = row.get("intervals", {}).get(name, (float("nan"),) * 2)
    spread = "" if math.isnan(low) else f" ({low:.4g} to {high:.4g})"
    return f"{row['figures'][name]:.4g}{spread}"


def _remark(point: Mapping[str, Any]) -> str:
    return "  another is better in all" if point["dominated"] else ""
