"""``kilowait compare``: compare several policies on the same jobs, with significance tests."""

from __future__ import annotations

from typing import Annotated

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups
from kilowait.cli.console import steps

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait compare lublin:5000:128:0.9:7
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies fcfs,sjf,saf,wfp3 --windows 20 --window 1024
  kilowait compare a.swf b.swf --windows 30 --window 7d --warmup 1d --out runs/both
  kilowait compare gpu:2000:gpu-mixed --policies fcfs,sjf,las,srtf,gavel --windows 10 --window 200
  kilowait compare gpu:2000:gpu-mixed --policies fcfs,las --placement first,best,fgd
  kilowait compare lublin:5000:128:0.6 --policies fcfs --power taurus --power-controls none,sleep=break-even,all
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies saf,saf_short --runtime-predictor forest --windows 20
  kilowait compare log.swf --policies saf,multifactor:age=500:size=0,agent:runs/x/agent.json --windows 20 --json"""


@app.command(epilog=_EPILOG)
@groups.with_groups
def compare(
    context: typer.Context,
    *,
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...",
            help="Job logs (SWF, sacct -P, CSV, Parquet, ...; may be compressed), or synthetic workloads: "
            f"{options.WORKLOAD_SYNTAX}.",
            show_default=False,
        ),
    ],
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            "-p",
            metavar="P,...",
            help="Comma-separated policies: names of kilowait policies, agent:PATH for a trained agent, or "
            "rule:FILE.py:NAME for your own function.",
        ),
    ] = "fcfs,sjf,saf,wfp3",
    backfill: Annotated[
        str | None,
        typer.Option(
            "--backfill",
            "-b",
            metavar="B,...",
            help="Comma-separated kinds of backfilling: none, easy (the default), conservative, or the number of jobs "
            "that get a reservation; on GPU clusters none (the default) or skip.",
            show_default=False,
        ),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(
            "--windows",
            "-w",
            metavar="N",
            help="Compare on N windows of the log instead of the whole log; gives more reliable confidence intervals "
            "and significance tests.",
        ),
    ] = None,
    window: Annotated[
        str,
        typer.Option("--window", metavar="N|SPAN", help="Length of a window: a number of jobs, or a span such as 7d."),
    ] = "1024",
    warmup: Annotated[
        str,
        typer.Option(
            "--warmup",
            metavar="N|SPAN",
            help="Jobs before a window (a number or a span) that fill the cluster and are not counted; 0: the cluster "
            "starts empty.",
        ),
    ] = "0",
    split: Annotated[
        str,
        typer.Option(
            "--split",
            metavar="train|validation|test|all|auto",
            help="Part of the log to use: train is the first 60 % of the jobs, validation the next 20 %, test the last "
            "20 %; auto: test if an agent is compared, else all.",
        ),
    ] = "auto",
    seed: Annotated[
        int, typer.Option(metavar="N", help="Random seed of the windows and the confidence intervals.")
    ] = 0,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="METRIC",
            help="Metric to test and sort by; by default mean_bsld, on GPU clusters mean_turnaround_s.",
            show_default=False,
        ),
    ] = None,
    clairvoyant: Annotated[
        bool,
        typer.Option(
            "--clairvoyant/--no-clairvoyant",
            help="Also run each policy with perfect run-time estimates, to show what they would gain.",
        ),
    ] = True,
    cluster: options.Cluster = "auto",
    scheduling: groups.SchedulingOptions,
    placement: Annotated[
        str | None,
        typer.Option(
            "--placement",
            metavar="P,...",
            help="Comma-separated placements, as in kilowait simulate; each policy is run with each placement. By "
            "default first, or what the policy prefers.",
            show_default=False,
        ),
    ] = None,
    gpu: groups.GpuSchedulingOptions,
    changes: groups.LogOptions,
    log_format: groups.LogFormatOptions,
    runtime_predictor: options.RuntimePredictor = None,
    power_predictor: options.PowerPredictor = None,
    with_user_estimates: Annotated[
        bool,
        typer.Option(
            "--with-user-estimates/--without-user-estimates",
            help="With --runtime-predictor: also run each policy with the users' own estimates.",
        ),
    ] = True,
    power: options.Power = None,
    power_controls: Annotated[
        str,
        typer.Option(
            "--power-controls",
            metavar="L,...",
            help="With --power: comma-separated sets of power controls, each joined by +: "
            "none,sleep=break-even,dvfs=1.1,all. Savings are relative to the first.",
        ),
    ] = "none",
    gpu_power_cap: Annotated[
        str | None,
        typer.Option(
            "--gpu-power-cap",
            metavar="SHARE,...",
            help="GPU clusters: comma-separated power caps as shares of the GPU's limit (TDP): none,80%,60%. Needs "
            "--power.",
            show_default=False,
        ),
    ] = None,
    signals: groups.SignalOptions,
    workers: options.Workers = None,
    json: options.Json = False,
    out: options.Out = None,
    force: options.Force = False,
) -> None:
    """Compare policies and agents on the same jobs and test which differences are significant.

    Every policy is run on the same jobs and the same cluster, with --windows on many windows of the log. Means have
    95 % confidence intervals, and pairs are tested with a correction for multiple comparisons. With --out the results
    are written to a folder for kilowait report; an interrupted comparison resumes from it.
    """
    from kilowait.cli.output.compare import show_comparisons
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments import comparison_plan as planning
    from kilowait.experiments.comparison_results import summarize_comparison
    from kilowait.experiments.gpu_options import default_backfill
    from kilowait.experiments.policy_configs import make_policy_configs, parse_names
    from kilowait.experiments.scenario_inputs import all_node_level
    from kilowait.experiments.window_options import parse_window_options

    context.with_resource(writable_folder(out, force=force))
    traces = list(dict.fromkeys(traces))
    node_level = all_node_level(cluster, traces)
    metric = metric or planning.default_metric(node_level)
    backfill = backfill or default_backfill(node_level)
    placements = [] if placement is None else parse_names("placements", placement)
    single_placement = (
        placements.pop() if len(placements) == 1 else None
    )  # a single placement belongs to the scenario, not to the policies
    control_sets = groups.power_controls_or_caps(power_controls, gpu_power_cap)
    policy_configs = make_policy_configs(
        policies,
        backfill,
        control_sets,
        placements,
        clairvoyant=clairvoyant,
        users=with_user_estimates and runtime_predictor is not None,
    )
    protocol = parse_window_options(windows, window, warmup, split, seed, policy_configs)
    scenarios = tuple(groups.scenario_from_options(context, trace, placement=single_placement) for trace in traces)
    plan = planning.ComparisonPlan(scenarios, policy_configs, protocol, metric)
    with console.status() as update:
        update(f"reading {', '.join(traces)} ...")
        ready = planning.prepare(plan, lambda fit: update(f"predicting: fit {fit.number} of {fit.of} ..."))
    cache = None if out is None else ready.cell_cache(out)
    if cache is not None:
        cache.check_unused(force=force)
    with steps(ready.cell_count) as step:
        try:
            comparisons = planning.run(
                ready,
                workers=workers,
                cache=cache,
                progress=lambda cell, ran: step(ready.policies[cell[1]].label, False),
            )
        except KeyboardInterrupt:
            if cache is not None and cache.folder.exists():
                console.info(f"finished runs are stored in {cache.folder}; repeat the command to resume")
            raise
    if cache is not None and cache.hits:
        console.note(f"{cache.hits:,} of {ready.cell_count:,} runs were read from the folder and not repeated")
    results = [summarize_comparison(contest, metric, seed=seed) for contest in comparisons]
    if node_level:
        for entry, gpus in zip(results, planning.gpu_tables(ready, comparisons), strict=True):
            entry["gpus"] = gpus
    if out is not None and cache is not None:
        command_line = console.command(context)
        planning.save(
            out, ready, comparisons, {"traces": results}, cache, command=command_line, date=console.today(), force=force
        )
    for entry in results:
        for note in entry["notes"]:
            console.note(f"{entry['trace']}: {note}" if len(results) > 1 else note)
    if json:
        console.json_document({"scenario": plan.to_dict(), "traces": results, "out": out})
        return
    show_comparisons(results, ready.workloads)
    if out is not None:
        print(f"\nwritten to {out}; write a page with figures: kilowait report {out}")
