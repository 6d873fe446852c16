"""Options that several verbs have, written once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kilowait.experiments.scenario import Scenario

__all__ = [
    "WORKLOAD_SYNTAX",
    "BackfillOrder",
    "ByOption",
    "Carbon",
    "Checkpoint",
    "Cluster",
    "Columns",
    "Cooling",
    "Dependencies",
    "Force",
    "Forecast",
    "Format",
    "GpuCap",
    "Grace",
    "Json",
    "Keep",
    "Load",
    "Migrate",
    "Out",
    "Oversized",
    "Passes",
    "Placement",
    "Power",
    "Predict",
    "PredictPower",
    "Preempt",
    "Price",
    "Profile",
    "Restore",
    "Round",
    "Rows",
    "Save",
    "Scope",
    "Speeds",
    "Start",
    "Strict",
    "Trace",
    "Types",
    "Walltime",
    "Weather",
    "Wrap",
    "levers_asked",
    "scenario_from_options",
]

WORKLOAD_SYNTAX = (
    "lublin:JOBS:NODES[:LOAD[:SEED]], gpu:JOBS:CLUSTER[:LOAD[:SEED]] or "
    "gavel:JOBS:JOBS_PER_HOUR[:SEED[:multi]]"
)
Trace = Annotated[
    str,
    typer.Argument(
        help="A job log (SWF, sacct -P, CSV, Parquet, ...; packed or not), the folder of one in several files, or "
        f"a workload made on the spot: {WORKLOAD_SYNTAX}.",
        show_default=False,
    ),
]
OptionalTrace = Annotated[
    str | None,
    typer.Argument(
        help="A job log, as in kilowait simulate; may be left out where --cluster is a GPU cluster, for which jobs are "
        "made then.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        "-c",
        metavar="C",
        help="The machine: a preset (see kilowait clusters), nodes:N, a TOML file, a list of nodes (CSV), or auto: as "
        "large as the log says.",
    ),
]
BackfillOrder = Annotated[
    str | None, typer.Option(metavar="P", help="An own order for those who overtake, e.g. sjf.")
]
Walltime = Annotated[
    str,
    typer.Option(
        metavar="extend|kill",
        help="Jobs that run past their limit or estimate: run on (extend) or end there (kill).",
    ),
]
Outlived = Annotated[
    str | None,
    typer.Option(
        metavar="double|steps|later",
        help="What planners believe of a job that runs on past what was planned: twice as long, again and again; a "
        "minute more, then 5, 15, ...; or its overrun_planned_s. By default double, or the policy's own.",
        show_default=False,
    ),
]
Passes = Annotated[
    str,
    typer.Option(
        metavar="instant|event", help="One scheduling pass per instant, or after every single event."
    ),
]
Placement = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        help="Of several node groups: first that fits, or balance: the emptiest. Of placed nodes (GPU clusters): "
        "first, best, worst, consolidate, random, dot-product, gpu-packing, "
        "gpu-clustering, fgd, capacity; see kilowait clusters --gpus. By "
        "default first, or the policy's own.",
        show_default=False,
    ),
]
Types = Annotated[
    str | None,
    typer.Option(
        metavar="any|fastest|least-energy",
        help="GPU clusters: which types of GPU a job tries first.",
        show_default=False,
    ),
]
Preempt = Annotated[
    bool | None,
    typer.Option(
        "--preempt/--no-preempt",
        help="GPU clusters: whether running jobs make room for those before them. By default as the policy is meant.",
        show_default=False,
    ),
]
Migrate = Annotated[
    bool | None,
    typer.Option(
        "--migrate/--no-migrate",
        help="GPU clusters: whether running jobs move to where they end sooner.",
        show_default=False,
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN",
        help="GPU clusters: work between checkpoints, e.g. 30m; 0: one is written when a job is preempted; never.",
        show_default=False,
    ),
]
Restore = Annotated[
    str | None,
    typer.Option(metavar="SPAN", help="GPU clusters: time to load a checkpoint.", show_default=False),
]
Save = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN", help="GPU clusters: time to write one when a job is preempted.", show_default=False
    ),
]
Grace = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN", help="GPU clusters: a preempted job works on for so long.", show_default=False
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN",
        help="GPU clusters: a job that has just started is left alone for so long.",
        show_default=False,
    ),
]
Round = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN",
        help="GPU clusters: decide at these intervals only, e.g. 6m; 0: at every event.",
        show_default=False,
    ),
]
Speeds = Annotated[
    str,
    typer.Option(
        metavar="S",
        help="GPU clusters: speeds of jobs on each type: auto (measured where known, else roofline, else 1), roofline, "
        "none (all 1), or a file of throughputs in Gavel's form.",
    ),
]
Oversized = Annotated[
    str,
    typer.Option(
        metavar="error|reject", help="Jobs larger than the machine: an error, or left out and counted."
    ),
]
Dependencies = Annotated[
    bool, typer.Option("--ignore-dependencies", help="Submit jobs that follow another one when the log says.")
]
Load = Annotated[
    float | None,
    typer.Option(
        metavar="X", help="Stretch or shrink the times between submissions to this offered load, e.g. 0.9."
    ),
]
Rows = Annotated[
    str | None,
    typer.Option("--jobs", metavar="N|A:B", help="Only the first N jobs, or those from A on and before B."),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="MAP", help="Columns of a CSV or Parquet file: submit_s=submitted,estimate_s=limit_min*60."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="F",
        help="swf, sacct, events, csv, parquet; of GPU clusters openb, pai, spot, philly, helios, supercloud, "
        "google2011, google2019; found by content if not given.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="A row that must be dropped or mended is an error.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write a folder with all there is to know.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the folder if an earlier run wrote it.")]
ByOption = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="Also by class of job: size, runtime, user, account, queue, qos."),
]
Predict = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        help="Predict run times before replaying: forest (fitted weekly on jobs that have ended; kilowait[predict]), "
        "last2, or a folder that kilowait predict fit wrote. Rules order by predictions, reservations are made with "
        "safe ones; jobs are killed by the user's limit alone.",
        show_default=False,
    ),
]
PredictPower = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        help="With --power: what levers take jobs to draw before they have run: a model of kilowait predict score "
        "(forest, recent, boosting:mean, forest:quantile:0.9, ...), a folder that kilowait predict fit --target power "
        "wrote, or model: the power model's own watts. Accounts keep to what was measured. By default levers do too.",
        show_default=False,
    ),
]
Power = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        help="Account energy with this power model: a preset (polaris, mira, theta, ...), a TOML file, or auto: the "
        "cluster's own.",
    ),
]
Carbon = Annotated[
    str | None, typer.Option(metavar="FILE", help="Carbon intensity over time: CSV or JSON; gives CO2.")
]
Price = Annotated[str | None, typer.Option(metavar="FILE", help="Price of power over time: CSV; gives cost.")]
Weather = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Weather, for cooling that needs it: Open-Meteo JSON or EPW."),
]
Scope = Annotated[
    str, typer.Option(metavar="life-cycle|direct", help="Which carbon intensity, where the file has both.")
]
Cooling = Annotated[
    str | None,
    typer.Option(
        metavar="C",
        help="Instead of the model's own: pue:1.2, supply-air, linear-cop, chiller, economiser (the last three need "
        "--weather).",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="U",
        help="Utilization of jobs that say nothing of it: cpu=0.8,gpu=0.5; or columns. Default: full load.",
    ),
]
GpuCap = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="GPU clusters: hold GPUs to this share of their limit (TDP), e.g. 60%; jobs run longer and draw less. "
        "Needs --power.",
        show_default=False,
    ),
]
Forecast = Annotated[
    str,
    typer.Option(
        metavar="F", help="What holds look at: perfect, persistence, or noisy:GRID with its measured errors."
    ),
]
Start = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="When the first job was submitted (UTC), for logs without dates."),
]
Wrap = Annotated[
    bool,
    typer.Option("--wrap", help="Repeat carbon, price and weather by whole weeks where they are too short."),
]


# -- from options to a scenario --------------------------------------------------------------------

_POWER = ("carbon", "price", "weather", "scope", "cooling", "profile", "forecast", "start", "wrap")
_PLACED = ("types", "preempt", "migrate", "checkpoint", "restore", "save", "grace", "keep", "round", "speeds")
_PLAIN = (
    "cluster",
    "backfill_order",
    "at_limit",
    "overrun",
    "schedule_per",
    "placement",
    "on_oversized",
    "load",
    "jobs",
    "format",
    "columns",
    "strict",
    "predict",
    "predict_power",
)


def levers_asked(levers: str, gpu_cap: str | None) -> str:
    """Sets of levers, with commas between: those given, or the caps of GPUs, which is what placed nodes have."""
    from kilowait.errors import InputError
    from kilowait.experiments.gpu_power_cap import caps_asked

    if gpu_cap is None:
        return levers
    if levers != "none":
        raise InputError(
            f"levers are {levers!r} and --gpu-cap is {gpu_cap}; no machine has both: leave one out"
        )
    return ",".join(caps_asked(gpu_cap))


def scenario_from_options(context: typer.Context, trace: str, **own: Any) -> Scenario:
    """The scenario of a verb that has some of these options, under their own names; `own` has what it says besides."""
    from kilowait.experiments.gpu_settings import GpuOptions
    from kilowait.experiments.power import PowerSettings
    from kilowait.experiments.scenario import Scenario

    asked = context.params
    found = {name: asked[name] for name in _PLAIN if name in asked}
    found["dependencies"] = not asked.get("ignore_dependencies", False)
    found["gpu"] = GpuOptions(**{name: asked[name] for name in _PLACED if name in asked})
    outside = {name: asked[name] for name in _POWER if name in asked}
    found["power"] = PowerSettings.asked(asked["power"], **outside) if "power" in asked else None
    return Scenario(trace=trace, **{**found, **own})
