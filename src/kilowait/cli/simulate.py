"""``kilowait simulate``: replay one job log under one scheduling policy."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait simulate lublin:1000:128:0.9:7 --policy sjf
  kilowait simulate KTH-SP2-1996-2.1-cln.swf.gz --policy fcfs --backfill easy --by size
  kilowait simulate lublin:1000:128:0.7 --power taurus --power-controls sleep=break-even+dvfs=1.1
  kilowait simulate gpu:1000:gpu-mixed --policy las --placement consolidate \\
    --checkpoint-interval 30m --checkpoint-load-time 1m
  kilowait simulate jobs.csv --columns submit_s=submitted,runtime_s=ran --cluster nodes:64 --out runs/first"""


@app.command(epilog=_EPILOG)
@groups.with_groups
def simulate(
    context: typer.Context,
    *,
    trace: options.Trace,
    cluster: options.Cluster = "auto",
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            "-p",
            metavar="POLICY",
            help="Policy that orders the wait queue: a name of kilowait policies, agent:PATH for a trained agent, or "
            "rule:FILE.py:NAME for your own function.",
        ),
    ] = "fcfs",
    backfill: Annotated[
        str | None,
        typer.Option(
            "--backfill",
            "-b",
            metavar="MODE",
            help="Backfilling: none, easy (the default), conservative, or the number of jobs that get a reservation; "
            "on GPU clusters none (the default) or skip.",
            show_default=False,
        ),
    ] = None,
    scheduling: groups.SchedulingOptions,
    placement: options.Placement = None,
    gpu: groups.GpuSchedulingOptions,
    changes: groups.LogOptions,
    log_format: groups.LogFormatOptions,
    runtime_predictor: options.RuntimePredictor = None,
    power_predictor: options.PowerPredictor = None,
    power: options.Power = None,
    power_controls: Annotated[
        str,
        typer.Option(
            "--power-controls",
            metavar="CONTROLS",
            help="With --power: power controls, joined by +: sleep=break-even (node sleep), dvfs=1.1 (DVFS with at "
            "most 10 % longer run times), shift=carbon_time:6h (load shifting), budget=80% (power budget); or none; or "
            "all.",
        ),
    ] = "none",
    gpu_power_cap: options.GpuPowerCap = None,
    signals: groups.SignalOptions,
    by: options.ByClass = None,
    json: options.Json = False,
    out: options.Out = None,
    force: options.Force = False,
) -> None:
    """Replay a job log under one scheduling policy and print waits, slowdowns and utilization.

    Every job arrives at its logged time and has its logged run time; the policy and backfilling decide when it
    starts. On GPU clusters jobs are placed on individual nodes and GPUs and can be preempted and migrated. With --out
    the run is written to a folder, which kilowait report turns into a page.
    """
    from kilowait.errors import InputError
    from kilowait.evaluation import by_class, metrics
    from kilowait.evaluation.storage import save_run, writable_folder
    from kilowait.experiments.energy_results import accounts_to_dict
    from kilowait.experiments.gpu_results import summarize_gpu_run
    from kilowait.experiments.scenario import run_scenario
    from kilowait.experiments.scenario_inputs import parse_backfill

    context.with_resource(writable_folder(out, force=force))
    if gpu_power_cap is not None and "," in gpu_power_cap:
        raise InputError(f"--gpu-power-cap is {gpu_power_cap!r}; a run has one cap: kilowait compare takes several")
    scenario = groups.scenario_from_options(
        context,
        trace,
        policy=policy,
        backfill=None if backfill is None else parse_backfill(backfill),
        power_controls=groups.power_controls_or_caps(power_controls, gpu_power_cap),
    )
    with console.status() as update:
        update(f"simulating {trace} ...")
        done = run_scenario(scenario, lambda fit: update(f"predicting: fit {fit.number} of {fit.of} ..."))
        node_level = done.cluster.node_level
        measures = metrics(done.log, cluster=done.cluster if node_level else None)
        gpus = summarize_gpu_run(done) if node_level else None
        classes = None if by is None else by_class(done.log, by)
    for note in done.notes:
        console.note(note)
    results: dict[str, Any] = {"metrics": measures}
    if gpus is not None:
        results["gpus"] = gpus
    if classes is not None:
        results["by"] = {"kind": by, "rows": [asdict(row) for row in classes]}
    if done.accounts is not None:
        results["energy"] = accounts_to_dict(done.accounts, done.controls_description)
        if done.budget_violation is not None:
            results["energy"]["budget"] = asdict(done.budget_violation)
    if done.workload.cleaning_report is not None:
        results["ledger"] = done.workload.cleaning_report.to_dict()
    if out is not None:
        manifest = done.workload.provenance(trace, console.command(context), console.today())
        save_run(out, done.log, scenario=done.resolved(), results=results, manifest=manifest, force=force)
    if json:
        console.json_document({"scenario": done.resolved(), "notes": done.notes, **results, "out": out})
        return
    from kilowait.cli.output.run import show_classes, show_metrics, show_run

    if gpus is not None:
        from kilowait.cli.output.gpu import show_gpu_run

        show_gpu_run(done, measures, gpus)
    else:
        show_run(done)
        print()
        show_metrics(measures, done.cluster.nodes)
    if done.accounts is not None:
        from kilowait.cli.output.energy import show_accounts

        print()
        show_accounts(
            done.accounts,
            done.controls_description,
            None if done.budget_violation is None else done.budget_violation.description,
        )
    if classes is not None and by is not None:
        print()
        show_classes(by, classes)
    if out is not None:
        print(f"\nwritten to {out}")
