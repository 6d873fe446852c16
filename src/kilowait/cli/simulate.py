"""``kilowait simulate``: one log, one rule."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from kilowait.cli import console, options

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait simulate lublin:1000:128:0.9:7 --policy sjf
  kilowait simulate KTH-SP2-1996-2.1-cln.swf.gz --policy fcfs --backfill easy --by size
  kilowait simulate lublin:1000:128:0.7 --power taurus --levers sleep=break-even+dvfs=1.1
  kilowait simulate gpu:1000:gpu-mixed --policy las --placement consolidate --checkpoint 30m --restore 1m
  kilowait simulate jobs.csv --columns submit_s=submitted,runtime_s=ran --cluster nodes:64 --out runs/first"""


@app.command(epilog=_EPILOG)
def simulate(
    context: typer.Context,
    trace: options.Trace,
    cluster: options.Cluster = "auto",
    policy: Annotated[
        str,
        typer.Option(
            "--policy", "-p", metavar="P", help="Who goes first: see kilowait policies; or agent:PATH."
        ),
    ] = "fcfs",
    backfill: Annotated[
        str | None,
        typer.Option(
            "--backfill",
            "-b",
            metavar="B",
            help="Who may overtake: none, easy (the default), conservative, or the number of jobs with a reservation; "
            "on GPU clusters none (the default) or skip.",
            show_default=False,
        ),
    ] = None,
    backfill_order: options.BackfillOrder = None,
    at_limit: options.Walltime = "extend",
    overrun: options.Outlived = None,
    schedule_per: options.Passes = "instant",
    placement: options.Placement = None,
    types: options.Types = None,
    preempt: options.Preempt = None,
    migrate: options.Migrate = None,
    checkpoint: options.Checkpoint = None,
    restore: options.Restore = None,
    save: options.Save = None,
    grace: options.Grace = None,
    keep: options.Keep = None,
    round: options.Round = None,
    speeds: options.Speeds = "auto",
    on_oversized: options.Oversized = "error",
    ignore_dependencies: options.Dependencies = False,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    predict: options.Predict = None,
    predict_power: options.PredictPower = None,
    power: options.Power = None,
    levers: Annotated[
        str,
        typer.Option(
            metavar="L",
            help="What else is pulled, joined by +: sleep=break-even, dvfs=1.1, shift=carbon_time:6h, budget=80%; "
            "none; or all.",
        ),
    ] = "none",
    gpu_cap: options.GpuCap = None,
    carbon: options.Carbon = None,
    price: options.Price = None,
    weather: options.Weather = None,
    scope: options.Scope = "life-cycle",
    cooling: options.Cooling = None,
    profile: options.Profile = None,
    forecast: options.Forecast = "perfect",
    start: options.Start = None,
    wrap: options.Wrap = False,
    by: options.ByOption = None,
    json: options.Json = False,
    out: options.Out = None,
    force: options.Force = False,
) -> None:
    """Replay a job log under one rule and print what users would wait.

    Every job is submitted when the log says and runs as long as it did; the rule and backfilling decide when it
    starts. On GPU clusters jobs are placed on single nodes and GPUs, and may be preempted and moved. With --out
    everything is kept in a folder that can be opened again.
    """
    from kilowait.errors import InputError
    from kilowait.evaluation import by_class, metrics
    from kilowait.evaluation.storage import check_writable, save_run
    from kilowait.experiments.energy_results import accounts_as_data
    from kilowait.experiments.gpu_results import placed_results
    from kilowait.experiments.inputs import parse_backfill
    from kilowait.experiments.scenario import run_scenario

    if out is not None:
        check_writable(out, force=force)
    if gpu_cap is not None and "," in gpu_cap:
        raise InputError(f"--gpu-cap is {gpu_cap!r}; a run has one cap: kilowait compare takes several")
    scenario = options.scenario_from_options(
        context,
        trace,
        policy=policy,
        backfill=None if backfill is None else parse_backfill(backfill),
        levers=options.levers_asked(levers, gpu_cap),
    )
    with console.status() as tell:
        tell(f"simulating {trace} ...")
        done = run_scenario(scenario, lambda fit: tell(f"predicting: fit {fit.number} of {fit.of} ..."))
        placed = done.cluster.node_level
        found = metrics(done.log, cluster=done.cluster if placed else None)
        gpus = placed_results(done) if placed else None
        classes = None if by is None else by_class(done.log, by)
    for text in done.notes:
        console.note(text)
    results: dict[str, Any] = {"metrics": found}
    if gpus is not None:
        results["gpus"] = gpus
    if classes is not None:
        results["by"] = {"kind": by, "rows": [asdict(row) for row in classes]}
    if done.accounts is not None:
        results["energy"] = accounts_as_data(done.accounts, done.pulled)
        if done.exceeded is not None:
            results["energy"]["budget"] = asdict(done.exceeded)
    if done.workload.ledger is not None:
        results["ledger"] = done.workload.ledger.to_dict()
    if out is not None:
        manifest = done.workload.provenance(trace, console.command(context), console.today())
        save_run(out, done.log, scenario=done.resolved(), results=results, manifest=manifest, force=force)
    if json:
        console.json_document({"scenario": done.resolved(), "notes": done.notes, **results, "out": out})
        return
    from kilowait.cli.output.run import show_classes, show_metrics, show_run

    if gpus is not None:
        from kilowait.cli.output.gpu import show_placed

        show_placed(done, found, gpus)
    else:
        show_run(done)
        print()
        show_metrics(found, done.cluster.nodes)
    if done.accounts is not None:
        from kilowait.cli.output.energy import show_accounts

        print()
        show_accounts(done.accounts, done.pulled, None if done.exceeded is None else done.exceeded.words)
    if classes is not None and by is not None:
        print()
        show_classes(by, classes)
    if out is not None:
        print(f"\nwritten to {out}")
