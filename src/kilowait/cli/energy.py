"""``kilowait energy``: what a machine draws, and what each lever saves on a log."""

from __future__ import annotations

from typing import Annotated

import typer

from kilowait.cli import console, options
from kilowait.cli.console import steps

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="What a machine draws and where each watt comes from; what levers save on a log.",
    **console.PLAIN,
)

_DESCRIBE_EPILOG = """\b
Examples:
  kilowait energy describe polaris
  kilowait energy describe my-power.toml --cluster my-cluster.toml"""
_LEVERS_EPILOG = """\b
Examples:
  kilowait energy levers lumos_mira.csv.gz --cluster mira --power mira --carbon PJM_2022.csv --wrap
  kilowait energy levers lublin:5000:128:0.6 --power taurus
  kilowait energy levers gpu:1000:gpu-mixed:0.9 --gpu-cap none,80%,60%"""


@app.command(epilog=_DESCRIBE_EPILOG)
def describe(
    model: Annotated[
        str, typer.Argument(metavar="PRESET|FILE", help="A power model: a preset or a TOML file.")
    ],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", "-c", metavar="C", help="For this machine instead of the model's own sizes."
        ),
    ] = None,
    cooling: options.Cooling = None,
    temperature: Annotated[
        float, typer.Option(metavar="C", help="Outdoors, °C, for cooling that asks.")
    ] = 20.0,
    wet_bulb: Annotated[float, typer.Option(metavar="C", help="Wet bulb, °C, for cooling that asks.")] = 15.0,
    json: options.Json = False,
) -> None:
    """Print idle and full power of the IT and of the facility, and where each watt comes from.

    Numbers that are estimates are marked est.; the others were measured or published.
    """
    from kilowait.experiments.power import described_power

    found = described_power(model, cluster, cooling, temperature, wet_bulb)
    if json:
        console.json_document(found)
        return
    from kilowait.cli.output.energy import show_description

    show_description(found)


@app.command(epilog=_LEVERS_EPILOG)
def levers(
    context: typer.Context,
    trace: options.Trace,
    cluster: options.Cluster = "auto",
    power: Annotated[
        str,
        typer.Option(metavar="P", help="Power model: a preset, a TOML file, or auto: the cluster's own."),
    ] = "auto",
    policy: Annotated[str, typer.Option("--policy", "-p", metavar="P", help="Who goes first.")] = "fcfs",
    backfill: Annotated[
        str | None,
        typer.Option(
            "--backfill",
            "-b",
            metavar="B",
            help="Who may overtake; by default easy, on GPU clusters none.",
            show_default=False,
        ),
    ] = None,
    levers: Annotated[
        str | None,
        typer.Option(metavar="L,...", help="Sets of levers; by default each that the machine has, and all."),
    ] = None,
    gpu_cap: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE,...",
            help="GPU clusters: shares of their limit that GPUs are held to; by default none and 90 to 50 %.",
            show_default=False,
        ),
    ] = None,
    placement: options.Placement = None,
    types: options.Types = None,
    speeds: options.Speeds = "auto",
    carbon: options.Carbon = None,
    price: options.Price = None,
    weather: options.Weather = None,
    scope: options.Scope = "life-cycle",
    cooling: options.Cooling = None,
    profile: options.Profile = None,
    forecast: options.Forecast = "perfect",
    start: options.Start = None,
    wrap: options.Wrap = False,
    at_limit: options.Walltime = "extend",
    on_oversized: options.Oversized = "error",
    ignore_dependencies: options.Dependencies = False,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes; by default as many as pay off.")
    ] = None,
    json: options.Json = False,
    out: options.Out = None,
    force: options.Force = False,
) -> None:
    """Compare one rule with all nodes always on, with each lever alone, and with all of them.

    On GPU clusters the levers are caps of the GPUs' power. Over the whole log, all counted over the same time. The
    lower bound is the work alone: every job at its level of least energy, nothing idle.
    """
    from kilowait.cli.output.energy import show_levers
    from kilowait.evaluation.storage import check_writable
    from kilowait.experiments import comparison_plan as planning
    from kilowait.experiments.comparison_results import results_of
    from kilowait.experiments.gpu_settings import usual_backfill
    from kilowait.experiments.inputs import is_placed

    if out is not None:
        check_writable(out, force=force)
    if gpu_cap is not None:
        levers = options.levers_asked(levers or "none", gpu_cap)
    backfill = backfill or usual_backfill(is_placed(cluster, trace))
    scenario = options.scenario_from_options(context, trace)
    with console.busy(f"reading {trace} ..."):
        ready = planning.prepare_levers(scenario, policy, backfill, levers)
    store = None if out is None else ready.store(out)
    with steps(ready.cells) as step:
        contest = planning.run(
            ready,
            workers=workers,
            store=store,
            progress=lambda cell, ran: step(ready.contenders[cell[1]].label, True),
        )[0]
    found = results_of(contest, ready.plan.metric, seed=0, bounds=False)
    if out is not None and store is not None:
        words = console.command(context)
        planning.save(
            out,
            ready,
            [contest],
            {"traces": [found]},
            store,
            command=words,
            date=console.today(),
            force=force,
        )
    for said in found["notes"]:
        console.note(said)
    if json:
        console.json_document({"scenario": ready.plan.to_dict(), **found, "out": out})
        return
    show_levers(found, ready.workloads[0])
    if out is not None:
        print(f"\nwritten to {out}; a page with pictures: kilowait report {out}")
