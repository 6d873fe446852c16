"""``kilowait simulate``: replay one job log under one scheduling policy; ``kilowait bench``: the speed of this."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from typing import Annotated

import typer

from kilowait.cli import console
from kilowait.cli.options import LOG_FORMAT, SIGNALS, Csv, Force, Json, Out, check_csv, verb
from kilowait.engine.settings import Settings
from kilowait.experiments.settings import Cluster, Jobs, LogFormat, OnOversized, Scenario
from kilowait.settings import Argument, Option

app = typer.Typer(add_completion=False, **console.PLAIN)

_SIMULATE = """\b
Examples:
  kilowait simulate lublin:1000:128:0.9:7 --policy sjf
  kilowait simulate KTH-SP2-1996-2.1-cln.swf.gz --policy fcfs --backfill easy --by size
  kilowait simulate lublin:1000:128:0.7 --power taurus --power-controls sleep=break-even+dvfs=1.1
  kilowait simulate gpu:1000:gpu-mixed --policy las --placement consolidate \\
    --checkpoint-interval 30m --checkpoint-load-time 1m
  kilowait simulate jobs.csv --columns submit_s=submitted,runtime_s=ran --cluster nodes:64 --out runs/first"""
_BENCH = """\b
Examples:
  kilowait bench
  kilowait bench KTH-SP2-1996-2.1-cln.swf.gz --policies fcfs,wfp3 --json
  kilowait bench gpu:2000:gpu-mixed --policies fcfs,srtf"""
_ORDER = f"""
    trace cluster cores_per_node exclusive_nodes policy backfill backfill_order at_limit overrun schedule_per max_wait
    placement gpu on_oversized ignore_dependencies load jobs {LOG_FORMAT} runtime_predictor power_predictor power
    power_controls gpu_power_cap {SIGNALS} weather by json out csv force"""


@verb(app, _ORDER, epilog=_SIMULATE)
def simulate(
    context: typer.Context,
    scenario: Scenario,
    gpu_power_cap: Annotated[
        str | None,
        Option(
            "SHARE",
            "GPU clusters: power cap as a share of the GPU's limit (TDP), e.g. 60%; jobs run longer and draw less "
            "power. Needs --power.",
        ),
    ] = None,
    by: Annotated[
        str | None, Option("KIND", "Also show results by class of job: size, runtime, user, account, queue, qos.")
    ] = None,
    json: Json = False,
    out: Out = None,
    csv: Csv = False,
    force: Force = False,
) -> None:
    """Replay a job log under one scheduling policy and print waits, slowdowns and utilization.

    Every job arrives at its logged time and has its logged run time; the policy and backfilling decide when it
    starts. On GPU clusters jobs are placed on individual nodes and GPUs and can be preempted and migrated. With --out
    the run is written to a folder, which kilowait report turns into a page. Given the scenario.toml of such a folder
    instead of a log, the run is repeated.
    """
    from kilowait.cli.output.run import show_results
    from kilowait.engine.run_monitor import monitored_runs
    from kilowait.errors import InputError
    from kilowait.evaluation.storage import save_run, writable_folder
    from kilowait.experiments.comparison.results import summarize_run
    from kilowait.experiments.power_controls import power_controls_or_caps
    from kilowait.experiments.scenario import run_scenario
    from kilowait.experiments.scenario_file import is_scenario_file, scenario_of_file

    check_csv(csv, out)
    if out is not None:
        context.with_resource(writable_folder(out, force=force))
    if gpu_power_cap is not None and "," in gpu_power_cap:
        raise InputError(f"--gpu-power-cap is {gpu_power_cap!r}; a run has one cap: kilowait compare takes several")
    if is_scenario_file(scenario.trace):
        if gpu_power_cap is not None:
            raise InputError(f"--gpu-power-cap is given beside {scenario.trace}, which states all settings")
        scenario = scenario_of_file(scenario)
    scenario = replace(scenario, power_controls=power_controls_or_caps(scenario.power_controls, gpu_power_cap))
    with console.status() as update:
        update(f"reading {scenario.trace} ...")

        def report(ended: int, jobs: int, seconds: float) -> None:
            update(f"simulating {scenario.trace}: {console.share_text(ended, jobs, seconds)}")

        with monitored_runs(report):
            done = run_scenario(
                scenario, lambda fit: update(f"predicting: fit {fit.number} of {fit.total} ..."), announce=console.note
            )
        update("computing metrics ...")
        results = summarize_run(done, by)
    if out is not None:
        manifest = done.workload.provenance(scenario.trace, console.command(context), console.today())
        save_run(out, done.log, scenario=done.resolved(), results=results, manifest=manifest, csv=csv, force=force)
    if json:
        console.json_document({"scenario": done.resolved(), "notes": done.notes, **results, "out": out})
        return
    show_results(done, results)
    if out is not None:
        print(f"\nwritten to {out}")


@verb(app, epilog=_BENCH)
def bench(
    *,
    trace: Annotated[
        str, Argument(None, "Job log or synthetic workload, as in kilowait simulate.")
    ] = "lublin:10000:256:1.06:1",
    cluster: Cluster = "auto",
    policies: Annotated[str, Option("P,...", "Comma-separated policies.", "-p")] = "fcfs,sjf,saf,wfp3",
    on_oversized: OnOversized = Settings.on_oversized,
    jobs: Jobs = None,
    log_format: LogFormat,
    json: Json = False,
) -> None:
    """Measure simulated jobs per second on one core, on a job log or on a synthetic workload.

    Without a log the workload has 10,000 jobs on 256 nodes (Lublin-Feitelson model). Every policy runs with the
    default settings of kilowait simulate. The machine should be idle otherwise.
    """
    from kilowait.experiments.scenario import simulation_speeds
    from kilowait.experiments.scenario_inputs import read_workload, resolve_machine

    with console.busy(f"reading {trace} ..."):
        workload = read_workload(trace, **vars(log_format), rows=jobs)
        found = resolve_machine(cluster, workload.jobs)
        machine, note = found.cluster, found.note
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
