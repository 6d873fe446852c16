"""``kilowait bench``: measure the speed of simulations on this machine."""

from __future__ import annotations

import os
import platform
from typing import Annotated

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait bench
  kilowait bench KTH-SP2-1996-2.1-cln.swf.gz --policies fcfs,wfp3 --json
  kilowait bench gpu:2000:gpu-mixed --policies fcfs,srtf"""


@app.command(epilog=_EPILOG)
@groups.with_groups
def bench(
    *,
    trace: Annotated[
        str, typer.Argument(help="Job log or synthetic workload, as in kilowait simulate.")
    ] = "lublin:10000:256:1.06:1",
    cluster: options.Cluster = "auto",
    policies: Annotated[
        str, typer.Option("--policies", "-p", metavar="P,...", help="Comma-separated policies.")
    ] = "fcfs,sjf,saf,wfp3",
    on_oversized: options.OnOversized = "error",
    jobs: options.Jobs = None,
    log_format: groups.LogFormatOptions,
    json: options.Json = False,
) -> None:
    """Measure simulated jobs per second on one core, on a job log or on a synthetic workload.

    Without a log the workload has 10,000 jobs on 256 nodes (Lublin-Feitelson model). Every policy runs with the
    default settings of kilowait simulate. The machine should be idle otherwise.
    """
    from kilowait.experiments.bench import simulation_speeds
    from kilowait.experiments.scenario_inputs import read_workload, resolve_cluster

    with console.busy(f"reading {trace} ..."):
        workload = read_workload(trace, **vars(log_format), rows=jobs)
        machine, note = resolve_cluster(cluster, workload.jobs)
    if note is not None:
        console.note(note)
    if not json:
        load = os.getloadavg()[0]
        print(f"Python {platform.python_version()}, load {load:.2f} at the start; {len(workload.jobs):,} jobs")
        print(f"\n{'policy':<24}{'jobs/s':>14}{'one run':>14}{'first run':>14}")
    names = [text.strip() for text in policies.split(",")]
    remaining = simulation_speeds(workload.jobs, machine, names, on_oversized=on_oversized)
    speeds = []
    while True:
        with console.busy("measuring ..."):
            speed = next(remaining, None)
        if speed is None:
            break
        speeds.append(speed)
        if not json:
            print(
                f"{speed.policy:<24}{speed.jobs_per_s:>14,.0f}{speed.seconds:>12.4f} s{speed.first_s:>12.4f} s",
                flush=True,
            )
    if json:
        console.json_document({"trace": trace, "speeds": [speed.to_dict() for speed in speeds]})
