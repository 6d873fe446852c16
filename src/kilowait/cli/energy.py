"""``kilowait energy``: power of a cluster, and what power controls save on a log."""

from __future__ import annotations

from typing import Annotated

import typer

from kilowait.cli import console
from kilowait.cli.options import LOG_FORMAT, SIGNALS, Force, Json, Out, Workers, verb
from kilowait.experiments.settings import Scenario
from kilowait.settings import Argument, Option

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
_TEMPLATE_EPILOG = """\b
Example:
  kilowait energy template > my.toml"""
_CONTROLS_EPILOG = """\b
Examples:
  kilowait energy controls lumos_mira.csv.gz --cluster mira --power mira --carbon PJM_2022.csv --repeat-signals
  kilowait energy controls lublin:5000:128:0.6 --power taurus
  kilowait energy controls gpu:1000:gpu-mixed:0.9 --gpu-power-cap none,80%,60%"""


@verb(app, epilog=_DESCRIBE_EPILOG)
def describe(
    model: Annotated[str, Argument("PRESET|FILE", "A power model: a preset or a TOML file.")],
    cluster: Annotated[
        str | None, Option("CLUSTER", "Use the node counts of this cluster instead of the model's.", "-c")
    ] = None,
    cooling: Annotated[
        str | None,
        Option(
            "COOLING",
            "Cooling model to use instead of that of the power model: pue:X, supply-air, linear-cop, chiller or "
            "economiser.",
        ),
    ] = None,
    temperature: Annotated[
        float, Option("CELSIUS", "Outdoor temperature in °C, for cooling that depends on it.", "--outdoor-temperature")
    ] = 20.0,
    wet_bulb: Annotated[float, Option("CELSIUS", "Wet-bulb temperature in °C, for cooling that depends on it.")] = 15.0,
    json: Json = False,
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


@verb(app, epilog=_TEMPLATE_EPILOG)
def template() -> None:
    """Print a template of a power model file, with comments, to be filled in with the numbers of a cluster."""
    from kilowait.energy.power.toml import template as text

    print(text(), end="")


@verb(
    app,
    "trace cluster power policy backfill power_controls gpu_power_cap placement gpu_type_order gpu_speeds "
    f"{SIGNALS} weather at_limit on_oversized ignore_dependencies load jobs {LOG_FORMAT} workers json out force",
    epilog=_CONTROLS_EPILOG,
    power=Option("MODEL", "Power model: a preset, a TOML file, or auto: the cluster's own."),
    policy=Option("POLICY", "Policy that orders the wait queue, as in kilowait simulate.", "-p"),
)
def controls(
    context: typer.Context,
    scenario: Scenario,
    backfill: Annotated[
        str | None,
        Option(
            "MODE",
            "Backfilling: none, easy, conservative, or the number of jobs that get a reservation; by default "
            "easy, on GPU clusters none.",
            "-b",
        ),
    ] = None,
    power_controls: Annotated[
        str | None,
        Option(
            "L,...",
            "Comma-separated sets of power controls, each joined by +: none,sleep=break-even,dvfs=1.1,all. By "
            "default each control that the cluster supports alone, and all of them together.",
        ),
    ] = None,
    gpu_power_cap: Annotated[
        str | None,
        Option(
            "SHARE,...",
            "GPU clusters: comma-separated power caps as shares of the GPU's limit (TDP); by default none and 90 "
            "to 50 %.",
        ),
    ] = None,
    workers: Workers = None,
    json: Json = False,
    out: Out = None,
    force: Force = False,
) -> None:
    """Run one policy without power controls, with each power control alone, and with all of them; print the savings.

    On GPU clusters the power controls are GPU power caps. Every run covers the whole log and the same time span. The
    lower bound is the energy of the work alone: every job in its most efficient DVFS state, no idle nodes.
    """
    from kilowait.cli.output.energy import show_controls
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments.comparison.compare import prepare_control_comparison, run_and_save
    from kilowait.experiments.power_controls import power_controls_or_caps
    from kilowait.experiments.scenario_inputs import is_node_level
    from kilowait.experiments.settings import default_backfill

    if out is not None:
        context.with_resource(writable_folder(out, force=force))
    if gpu_power_cap is not None:
        power_controls = power_controls_or_caps(power_controls or "none", gpu_power_cap)
    backfill = backfill or default_backfill(is_node_level(scenario.cluster, scenario.trace))
    with console.busy(f"reading {scenario.trace} ..."):
        ready = prepare_control_comparison(scenario, scenario.policy, backfill, power_controls)
    command = console.command(context)
    _, (result,) = run_and_save(
        ready, console, out=out, force=force, workers=workers, command=command, tables=False, lines=True
    )
    for note in result["notes"]:
        console.note(note)
    if json:
        console.json_document({"scenario": ready.plan.to_dict(), **result, "out": out})
        return
    show_controls(result, ready.cases[0].workload)
    if out is not None:
        print(f"\nwritten to {out}; write a page with figures: kilowait report {out}")
