"""``kilowait energy``: power of a cluster, and what power controls save on a log."""

from __future__ import annotations

from typing import Annotated

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups
from kilowait.cli.console import steps

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Power of a cluster by component, and what power controls save on a log.",
    **console.PLAIN,
)

_DESCRIBE_EPILOG = """\b
Examples:
  kilowait energy describe polaris
  kilowait energy describe my-power.toml --cluster my-cluster.toml"""
_CONTROLS_EPILOG = """\b
Examples:
  kilowait energy controls lumos_mira.csv.gz --cluster mira --power mira --carbon PJM_2022.csv --repeat-signals
  kilowait energy controls lublin:5000:128:0.6 --power taurus
  kilowait energy controls gpu:1000:gpu-mixed:0.9 --gpu-power-cap none,80%,60%"""


@app.command(epilog=_DESCRIBE_EPILOG)
def describe(
    model: Annotated[str, typer.Argument(metavar="PRESET|FILE", help="A power model: a preset or a TOML file.")],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", "-c", metavar="CLUSTER", help="Use the node counts of this cluster instead of the model's."
        ),
    ] = None,
    cooling: Annotated[
        str | None,
        typer.Option(
            "--cooling",
            metavar="COOLING",
            help="Cooling model to use instead of that of the power model: pue:X, supply-air, linear-cop, chiller or "
            "economiser.",
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(
            "--outdoor-temperature",
            metavar="CELSIUS",
            help="Outdoor temperature in °C, for cooling that depends on it.",
        ),
    ] = 20.0,
    wet_bulb: Annotated[
        float,
        typer.Option(
            "--wet-bulb", metavar="CELSIUS", help="Wet-bulb temperature in °C, for cooling that depends on it."
        ),
    ] = 15.0,
    json: options.Json = False,
) -> None:
    """Print the power of a cluster when idle and under full load, for IT and facility, and by component.

    Estimated numbers are marked est.; the others were measured or published.
    """
    from kilowait.experiments.power import describe_power_model

    result = describe_power_model(model, cluster, cooling, temperature, wet_bulb)
    if json:
        console.json_document(result)
        return
    from kilowait.cli.output.energy import show_description

    show_description(result)


@app.command(epilog=_CONTROLS_EPILOG)
@groups.with_groups
def controls(
    context: typer.Context,
    *,
    trace: options.Trace,
    cluster: options.Cluster = "auto",
    power: Annotated[
        str, typer.Option(metavar="MODEL", help="Power model: a preset, a TOML file, or auto: the cluster's own.")
    ] = "auto",
    policy: Annotated[
        str,
        typer.Option(
            "--policy", "-p", metavar="POLICY", help="Policy that orders the wait queue, as in kilowait simulate."
        ),
    ] = "fcfs",
    backfill: Annotated[
        str | None,
        typer.Option(
            "--backfill",
            "-b",
            metavar="MODE",
            help="Backfilling: none, easy, conservative, or the number of jobs that get a reservation; by default "
            "easy, on GPU clusters none.",
            show_default=False,
        ),
    ] = None,
    power_controls: Annotated[
        str | None,
        typer.Option(
            "--power-controls",
            metavar="L,...",
            help="Comma-separated sets of power controls, each joined by +: none,sleep=break-even,dvfs=1.1,all. By "
            "default each control that the cluster supports alone, and all of them together.",
            show_default=False,
        ),
    ] = None,
    gpu_power_cap: Annotated[
        str | None,
        typer.Option(
            "--gpu-power-cap",
            metavar="SHARE,...",
            help="GPU clusters: comma-separated power caps as shares of the GPU's limit (TDP); by default none and 90 "
            "to 50 %.",
            show_default=False,
        ),
    ] = None,
    placement: options.Placement = None,
    gpu_type_order: options.GpuTypeOrder = None,
    gpu_speeds: options.GpuSpeeds = "auto",
    signals: groups.SignalOptions,
    at_limit: options.AtLimit = "extend",
    changes: groups.LogOptions,
    log_format: groups.LogFormatOptions,
    workers: options.Workers = None,
    json: options.Json = False,
    out: options.Out = None,
    force: options.Force = False,
) -> None:
    """Run one policy without power controls, with each power control alone, and with all of them; print the savings.

    On GPU clusters the power controls are GPU power caps. Every run covers the whole log and the same time span. The
    lower bound is the energy of the work alone: every job in its most efficient DVFS state, no idle nodes.
    """
    from kilowait.cli.output.energy import show_controls
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments import comparison_plan as planning
    from kilowait.experiments.comparison_results import summarize_comparison
    from kilowait.experiments.gpu_options import default_backfill
    from kilowait.experiments.scenario_inputs import is_node_level

    context.with_resource(writable_folder(out, force=force))
    if gpu_power_cap is not None:
        power_controls = groups.power_controls_or_caps(power_controls or "none", gpu_power_cap)
    backfill = backfill or default_backfill(is_node_level(cluster, trace))
    scenario = groups.scenario_from_options(context, trace)
    with console.busy(f"reading {trace} ..."):
        ready = planning.prepare_control_comparison(scenario, policy, backfill, power_controls)
    cache = None if out is None else ready.cell_cache(out)
    if cache is not None:
        cache.check_unused(force=force)
    with steps(ready.cell_count) as step:
        comparison = planning.run(
            ready, workers=workers, cache=cache, progress=lambda cell, ran: step(ready.policies[cell[1]].label, True)
        )[0]
    result = summarize_comparison(comparison, ready.plan.metric, seed=0, bounds=False)
    if out is not None and cache is not None:
        command_line = console.command(context)
        planning.save(
            out,
            ready,
            [comparison],
            {"traces": [result]},
            cache,
            command=command_line,
            date=console.today(),
            force=force,
        )
    for note in result["notes"]:
        console.note(note)
    if json:
        console.json_document({"scenario": ready.plan.to_dict(), **result, "out": out})
        return
    show_controls(result, ready.workloads[0])
    if out is not None:
        print(f"\nwritten to {out}; write a page with figures: kilowait report {out}")
