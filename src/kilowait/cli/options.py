"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "WORKLOAD_SYNTAX",
    "AtLimit",
    "BackfillDepth",
    "BackfillOrder",
    "ByClass",
    "Carbon",
    "CarbonScope",
    "CheckpointInterval",
    "CheckpointLoadTime",
    "CheckpointWriteTime",
    "Cluster",
    "Columns",
    "Cooling",
    "CoolingWithoutWeather",
    "Force",
    "Forecast",
    "Format",
    "GpuPowerCap",
    "GpuSpeeds",
    "GpuTypeOrder",
    "IgnoreDependencies",
    "Jobs",
    "Json",
    "Load",
    "LogStart",
    "Migrate",
    "OnOversized",
    "OptionalTrace",
    "Out",
    "Overrun",
    "Placement",
    "Power",
    "PowerPredictor",
    "Preempt",
    "PreemptGrace",
    "PreemptMinRuntime",
    "Price",
    "RepeatSignals",
    "RoundInterval",
    "RuntimePredictor",
    "SchedulePer",
    "Strict",
    "TestFraction",
    "Trace",
    "UnpackLimit",
    "Utilization",
    "Weather",
    "Window",
    "Workers",
]

WORKLOAD_SYNTAX = (
    "lublin:JOBS:NODES[:LOAD[:SEED]], gpu:JOBS:CLUSTER[:LOAD[:SEED]] or gavel:JOBS:JOBS_PER_HOUR[:SEED[:multi]]"
)

# -- jobs and cluster ------------------------------------------------------------------------------

Trace = Annotated[
    str,
    typer.Argument(
        help="Job log: a file (SWF, sacct -P, CSV, Parquet, ...; may be compressed), the folder of a log in several "
        f"files, or a synthetic workload: {WORKLOAD_SYNTAX}.",
        show_default=False,
    ),
]
OptionalTrace = Annotated[
    str | None,
    typer.Argument(
        help="Job log, as in kilowait simulate. Optional if --cluster is a GPU cluster: a synthetic workload is "
        "generated for it.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        "-c",
        metavar="CLUSTER",
        help="Cluster: a preset (see kilowait clusters), nodes:N, a TOML file, a CSV list of nodes, or auto: the size "
        "that the log states.",
    ),
]
Jobs = Annotated[
    str | None, typer.Option("--jobs", metavar="N|A:B", help="Use only the first N jobs, or jobs A to B - 1.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="MAP", help="Columns of a CSV or Parquet file: submit_s=submitted,estimate_s=limit_min*60."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Format of the log: swf, sacct, events, csv, parquet; for GPU clusters openb, pai, spot, philly, helios, "
        "supercloud, google2011, google2019. Detected from the content by default.",
    ),
]
UnpackLimit = Annotated[
    str | None,
    typer.Option(
        "--unpack-limit",
        metavar="SIZE",
        help="Largest size of the decompressed log, e.g. 64G. By default a quarter of the machine's memory.",
        show_default=False,
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Fail if a row of the log must be dropped or corrected.")]
Load = Annotated[
    float | None,
    typer.Option("--load", metavar="TARGET", help="Scale the times between arrivals to this offered load, e.g. 0.9."),
]
IgnoreDependencies = Annotated[
    bool,
    typer.Option("--ignore-dependencies", help="Submit every job at its logged time, even if it depends on another."),
]
OnOversized = Annotated[
    str,
    typer.Option(
        "--on-oversized",
        metavar="error|drop",
        help="Jobs larger than the cluster: fail (error), or leave them out and count them (drop).",
    ),
]

# -- scheduling ------------------------------------------------------------------------------------

BackfillDepth = Annotated[
    str,
    typer.Option(
        "--backfill",
        "-b",
        metavar="MODE",
        help="Backfilling: none, easy, conservative, or the number of jobs that get a reservation.",
    ),
]
BackfillOrder = Annotated[
    str | None,
    typer.Option(
        "--backfill-order",
        metavar="POLICY",
        help="Policy that orders backfill candidates, e.g. sjf. By default the policy of the queue.",
    ),
]
AtLimit = Annotated[
    str,
    typer.Option(
        "--at-limit",
        metavar="extend|kill",
        help="Jobs that run longer than their walltime limit: let them finish (extend) or end them there (kill).",
    ),
]
Overrun = Annotated[
    str | None,
    typer.Option(
        "--overrun",
        metavar="double|steps|quantile",
        help="Expected run time of a job that runs longer than its estimate: double the estimate, again and again; add "
        "steps of 1, 5, 15, ... minutes; or the predicted upper quantile (column overrun_planned_s). By default "
        "double, or what the policy prefers.",
        show_default=False,
    ),
]
SchedulePer = Annotated[
    str,
    typer.Option(
        "--schedule-per",
        metavar="instant|event",
        help="Run one scheduling pass per instant, or one after every single event.",
    ),
]
Placement = Annotated[
    str | None,
    typer.Option(
        "--placement",
        metavar="RULE",
        help="Where a job is placed. Clusters of whole nodes: first (first node group that fits) or balance (the "
        "emptiest group). GPU clusters: first, best, worst, consolidate, random, dot-product, gpu-packing, "
        "gpu-clustering, fgd, capacity; see kilowait clusters --gpus. By default first, or what the policy prefers.",
        show_default=False,
    ),
]
GpuTypeOrder = Annotated[
    str | None,
    typer.Option(
        "--gpu-type-order",
        metavar="any|fastest|least-energy",
        help="GPU clusters: GPU types that a job tries first.",
        show_default=False,
    ),
]
Preempt = Annotated[
    bool | None,
    typer.Option(
        "--preempt/--no-preempt",
        help="GPU clusters: whether jobs of higher priority preempt running jobs. By default the policy decides.",
        show_default=False,
    ),
]
Migrate = Annotated[
    bool | None,
    typer.Option(
        "--migrate/--no-migrate",
        help="GPU clusters: whether running jobs migrate to GPUs where they finish sooner.",
        show_default=False,
    ),
]
CheckpointInterval = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-interval",
        metavar="SPAN",
        help="GPU clusters: work between checkpoints, e.g. 30m; 0: a checkpoint is written at each preemption; never: "
        "no checkpoints.",
        show_default=False,
    ),
]
CheckpointLoadTime = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-load-time", metavar="SPAN", help="GPU clusters: time to load a checkpoint.", show_default=False
    ),
]
CheckpointWriteTime = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-write-time",
        metavar="SPAN",
        help="GPU clusters: time to write a checkpoint at a preemption.",
        show_default=False,
    ),
]
PreemptGrace = Annotated[
    str | None,
    typer.Option(
        "--preempt-grace",
        metavar="SPAN",
        help="GPU clusters: grace period in which a preempted job continues to run.",
        show_default=False,
    ),
]
PreemptMinRuntime = Annotated[
    str | None,
    typer.Option(
        "--preempt-min-runtime",
        metavar="SPAN",
        help="GPU clusters: minimum run time of a job before it can be preempted.",
        show_default=False,
    ),
]
RoundInterval = Annotated[
    str | None,
    typer.Option(
        "--round-interval",
        metavar="SPAN",
        help="GPU clusters: schedule only at these intervals, e.g. 6m; 0: at every event.",
        show_default=False,
    ),
]
GpuSpeeds = Annotated[
    str,
    typer.Option(
        "--gpu-speeds",
        metavar="SPEEDS",
        help="GPU clusters: speed of a job on each GPU type: auto (measured if known, else roofline, else 1), "
        "roofline, none (all 1), or a file of throughputs in Gavel's format.",
    ),
]
RuntimePredictor = Annotated[
    str | None,
    typer.Option(
        "--runtime-predictor",
        metavar="MODEL",
        help="Predict run times: forest (refitted weekly on completed jobs; needs kilowait[predict]), last2, or a "
        "folder written by kilowait predict fit. Policies order jobs by the prediction and reservations use a safe "
        "upper bound; jobs are still killed only at the user's limit.",
        show_default=False,
    ),
]

# -- power -----------------------------------------------------------------------------------------

Power = Annotated[
    str | None,
    typer.Option(
        "--power",
        metavar="MODEL",
        help="Account for energy with this power model: a preset (polaris, mira, theta, ...), a TOML file, or auto: "
        "the model of the cluster.",
    ),
]
PowerPredictor = Annotated[
    str | None,
    typer.Option(
        "--power-predictor",
        metavar="MODEL",
        help="With --power: predicted power of jobs, used by power controls before a job has run: a model of kilowait "
        "predict score (forest, recent, boosting:mean, forest:quantile:0.9, ...), a folder written by kilowait "
        "predict fit --target power, or model: the power model's own value. Energy accounting always uses measured "
        "power. By default power controls do too.",
        show_default=False,
    ),
]
GpuPowerCap = Annotated[
    str | None,
    typer.Option(
        "--gpu-power-cap",
        metavar="SHARE",
        help="GPU clusters: power cap as a share of the GPU's limit (TDP), e.g. 60%; jobs run longer and draw less "
        "power. Needs --power.",
        show_default=False,
    ),
]
Carbon = Annotated[
    str | None,
    typer.Option("--carbon", metavar="FILE", help="Carbon intensity over time, CSV or JSON; adds CO2 emissions."),
]
CarbonScope = Annotated[
    str,
    typer.Option(
        "--carbon-scope", metavar="life-cycle|direct", help="Which emissions to count, if the data contain both."
    ),
]
Price = Annotated[
    str | None, typer.Option("--price", metavar="FILE", help="Electricity price over time, CSV; adds the cost.")
]
Weather = Annotated[
    str | None,
    typer.Option(
        "--weather",
        metavar="FILE",
        help="Weather over time, Open-Meteo JSON or EPW; required by the cooling models linear-cop, chiller and "
        "economiser.",
    ),
]
Cooling = Annotated[
    str | None,
    typer.Option(
        "--cooling",
        metavar="COOLING",
        help="Cooling model to use instead of that of the power model: pue:X (constant PUE, e.g. pue:1.2), "
        "supply-air, linear-cop, chiller or economiser.",
    ),
]
CoolingWithoutWeather = Annotated[
    str | None,
    typer.Option(
        "--cooling",
        metavar="COOLING",
        help="Cooling model to use instead of that of the power model: pue:X or supply-air (models that need weather "
        "data are available in kilowait simulate and compare).",
    ),
]
Utilization = Annotated[
    str | None,
    typer.Option(
        "--utilization",
        metavar="FRACTION",
        help="Utilization of jobs whose log has none: cpu=0.8,gpu=0.5; or names of columns. Default: full load.",
    ),
]
Forecast = Annotated[
    str,
    typer.Option(
        "--forecast",
        metavar="FORECAST",
        help="Forecast used by load shifting: perfect, persistence, or noisy:GRID with the errors measured for a grid.",
    ),
]
LogStart = Annotated[
    str | None,
    typer.Option("--log-start", metavar="DATE", help="Date of the first submission (UTC), for logs without dates."),
]
RepeatSignals = Annotated[
    bool,
    typer.Option(
        "--repeat-signals",
        help="Repeat carbon intensity and other signals by whole weeks if they are shorter than the log.",
    ),
]

# -- evaluation and output -------------------------------------------------------------------------

TestFraction = Annotated[
    float,
    typer.Option(
        "--test-fraction",
        metavar="FRACTION",
        min=0.01,
        max=1.0,
        help="Share of the jobs, taken from the end of the log, used for testing; 0.3: 30 %.",
    ),
]
Window = Annotated[int, typer.Option("--window", metavar="N", min=1, help="Length of a window: a number of jobs.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        max=4096,
        help="Number of worker processes. By default it depends on the amount of work.",
    ),
]
ByClass = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="KIND", help="Also show results by class of job: size, runtime, user, account, queue, qos."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write a folder with the complete results.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the folder if an earlier run wrote it.")]
