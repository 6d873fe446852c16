"""``kilowait compare``: several rules, the same jobs, and a verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from kilowait.cli import console, options
from kilowait.cli.console import steps

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait compare lublin:5000:128:0.9:7
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies fcfs,sjf,saf,wfp3 --windows 20 --window 1024
  kilowait compare a.swf b.swf --windows 30 --window 7d --warmup 1d --out runs/both
  kilowait compare gpu:2000:gpu-mixed --policies fcfs,sjf,las,srtf,gavel --windows 10 --window 200
  kilowait compare gpu:2000:gpu-mixed --policies fcfs,las --placement first,best,fgd
  kilowait compare lublin:5000:128:0.6 --policies fcfs --power taurus --levers none,sleep=break-even,all
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies saf,saf_short --predict forest --windows 20
  kilowait compare log.swf --policies saf,multifactor:age=500:size=0,agent:runs/x/agent.json --windows 20 --json"""


@app.command(epilog=_EPILOG)
def compare(
    context: typer.Context,
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...",
            help="Job logs (SWF, sacct -P, CSV, Parquet, ...; packed or not), or workloads made on the spot: "
            f"{options.WORKLOAD_SYNTAX}.",
            show_default=False,
        ),
    ],
    policies: Annotated[
        str,
        typer.Option("--policies", "-p", metavar="P,...", help="Rules, with commas between; or agent:PATH."),
    ] = "fcfs,sjf,saf,wfp3",
    backfill: Annotated[
        str | None,
        typer.Option(
            "--backfill",
            "-b",
            metavar="B,...",
            help="none, easy (the default), conservative or numbers of reservations; on GPU clusters none (the "
            "default) or skip.",
            show_default=False,
        ),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(
            "--windows",
            "-w",
            metavar="N",
            help="Compare on N windows of the log instead of the whole of it: this is what says how sure it is.",
        ),
    ] = None,
    window: Annotated[
        str,
        typer.Option(
            "--window", "--window-jobs", metavar="N|SPAN", help="Length of a window: 1024 jobs, or 7d."
        ),
    ] = "1024",
    warmup: Annotated[
        str,
        typer.Option(
            metavar="N|SPAN",
            help="Earlier jobs (or those of a span before) that fill the machine and are not counted; 0: empty.",
        ),
    ] = "0",
    part: Annotated[
        str,
        typer.Option(
            metavar="all|train|validation|test|auto",
            help="Which part of the log, by time 60, 20, 20 %; auto: test where an agent takes part, else all.",
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(metavar="N", help="Of the windows and of the intervals.")] = 0,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            "--sort",
            metavar="METRIC",
            help="Judge and sort by this; by default mean_bsld, on GPU clusters mean_turnaround_s.",
            show_default=False,
        ),
    ] = None,
    clairvoyant: Annotated[
        bool,
        typer.Option(help="Run each rule with perfect estimates too, to see what they would gain."),
    ] = True,
    cluster: options.Cluster = "auto",
    backfill_order: options.BackfillOrder = None,
    at_limit: options.Walltime = "extend",
    overrun: options.Outlived = None,
    schedule_per: options.Passes = "instant",
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="P,...",
            help="Where jobs go: those of simulate; of several each policy is tried with each. By default first, or "
            "the policy's own.",
            show_default=False,
        ),
    ] = None,
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
    users: Annotated[
        bool, typer.Option(help="With --predict: run each policy with the users' own estimates too.")
    ] = True,
    power: options.Power = None,
    levers: Annotated[
        str,
        typer.Option(
            metavar="L,...",
            help="Sets of levers with commas between, each joined by +: none,sleep=break-even,dvfs=1.1,all. The "
            "first contender is what savings are counted from.",
        ),
    ] = "none",
    gpu_cap: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE,...",
            help="GPU clusters: shares of their limit that GPUs are held to, with commas between: none,80%,60%. Needs "
            "--power.",
            show_default=False,
        ),
    ] = None,
    carbon: options.Carbon = None,
    price: options.Price = None,
    weather: options.Weather = None,
    scope: options.Scope = "life-cycle",
    cooling: options.Cooling = None,
    profile: options.Profile = None,
    forecast: options.Forecast = "perfect",
    start: options.Start = None,
    wrap: options.Wrap = False,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes; by default as many as pay off.")
    ] = None,
    json: options.Json = False,
    out: options.Out = None,
    force: options.Force = False,
) -> None:
    """Compare rules and agents on the same jobs, and say who is better and how sure that is.

    Every contender meets the same jobs on the same machine. With --windows each is tried on many windows of the log,
    and means come with 95 % intervals, pairs with a test corrected for their number. With --out everything is kept
    in a folder for kilowait report; a comparison that was interrupted goes on where it stopped.
    """
    from kilowait.cli.output.compare import show_contests
    from kilowait.evaluation.storage import check_writable
    from kilowait.experiments import comparison_plan as planning
    from kilowait.experiments.comparison_results import results_of
    from kilowait.experiments.gpu_settings import usual_backfill
    from kilowait.experiments.inputs import all_placed
    from kilowait.experiments.policy_configs import contenders_of, listed
    from kilowait.experiments.window_options import protocol_of

    if out is not None:
        check_writable(out, force=force)
    traces = list(dict.fromkeys(traces))
    placed = all_placed(cluster, traces)
    metric = metric or planning.usual_metric(placed)
    backfill = backfill or usual_backfill(placed)
    placements = [] if placement is None else listed("placements", placement)
    alone = (
        placements.pop() if len(placements) == 1 else None
    )  # then it is no contender's, but the scenario's
    pulls = options.levers_asked(levers, gpu_cap)
    contenders = contenders_of(
        policies, backfill, pulls, placements, clairvoyant=clairvoyant, users=users and predict is not None
    )
    protocol = protocol_of(windows, window, warmup, part, seed, contenders)
    scenarios = tuple(options.scenario_from_options(context, trace, placement=alone) for trace in traces)
    plan = planning.ComparisonPlan(scenarios, contenders, protocol, metric)
    with console.status() as tell:
        tell(f"reading {', '.join(traces)} ...")
        ready = planning.prepare(plan, lambda fit: tell(f"predicting: fit {fit.number} of {fit.of} ..."))
    store = None if out is None else ready.store(out)
    with steps(ready.cells) as step:
        try:
            contests = planning.run(
                ready,
                workers=workers,
                store=store,
                progress=lambda cell, ran: step(ready.contenders[cell[1]].label, False),
            )
        except KeyboardInterrupt:
            if store is not None and store.folder.exists():
                console.info(
                    f"finished cells are kept in {store.folder}; the same command goes on from there"
                )
            raise
    if store is not None and store.found:
        console.note(f"{store.found:,} of {ready.cells:,} cells were there already and were not run again")
    found = [results_of(contest, metric, seed=seed) for contest in contests]
    if placed:
        for entry, gpus in zip(found, planning.gpu_means(ready, contests), strict=True):
            entry["gpus"] = gpus
    if out is not None and store is not None:
        words = console.command(context)
        planning.save(
            out, ready, contests, {"traces": found}, store, command=words, date=console.today(), force=force
        )
    for entry in found:
        for said in entry["notes"]:
            console.note(f"{entry['trace']}: {said}" if len(found) > 1 else said)
    if json:
        console.json_document({"scenario": plan.to_dict(), "traces": found, "out": out})
        return
    show_contests(found, ready.workloads)
    if out is not None:
        print(f"\nwritten to {out}; a page with pictures: kilowait report {out}")
