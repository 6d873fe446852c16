"""Options that several verbs have, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "BackfillOrder", "ByOption", "Carbon", "Cluster", "Columns", "Cooling", "Dependencies", "Force", "Forecast",
    "Format", "Json", "Load", "Out", "Oversized", "Passes", "Placement", "Power", "Price", "Profile", "Rows", "Scope",
    "Start", "Strict", "Trace", "Walltime", "Weather", "Wrap",
]  # fmt: skip

Trace = Annotated[
    str,
    typer.Argument(
        help="A job log (SWF, sacct -P, CSV, Parquet, ...; packed or not), or lublin:JOBS:NODES[:LOAD[:SEED]] "
        "for a workload made on the spot.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        "-c",
        metavar="C",
        help="The machine: a preset (see kilowait clusters), nodes:N, a TOML file, or auto: as large as the log says.",
    ),
]
BackfillOrder = Annotated[
    str | None, typer.Option(metavar="P", help="An own order for those who overtake, e.g. sjf.")
]
Walltime = Annotated[
    str,
    typer.Option(
        metavar="extend|kill", help="Jobs that run past their estimate: run on (extend) or end there (kill)."
    ),
]
Passes = Annotated[
    str,
    typer.Option(
        metavar="instant|event", help="One scheduling pass per instant, or after every single event."
    ),
]
Placement = Annotated[
    str,
    typer.Option(
        metavar="first|balance", help="Of several node groups: the first that fits, or the emptiest."
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
    typer.Option(metavar="F", help="swf, sacct, events, csv or parquet; found by content if not given."),
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
