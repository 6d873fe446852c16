"""``kilowait compare``: compare several policies on the same jobs, with significance tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from kilowait.cli import console
from kilowait.cli.options import LOG_FORMAT, SIGNALS, Csv, Force, Json, Out, Workers, check_csv, verb
from kilowait.experiments.comparison.plan import ComparisonOptions, plan_from_options
from kilowait.experiments.settings import WORKLOAD_SYNTAX, Scenario
from kilowait.settings import Argument

app = typer.Typer(add_completion=False, **console.PLAIN)

_EPILOG = """\b
Examples:
  kilowait compare lublin:5000:128:0.9:7
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies fcfs,sjf,saf,wfp3 --windows 20 --window 1024
  kilowait compare a.swf b.swf --windows 30 --window 7d --warmup 1d --out runs/both
  kilowait compare gpu:2000:gpu-mixed --policies fcfs,sjf,las,srtf,gavel --windows 10 --window 200
  kilowait compare gpu:2000:gpu-mixed --policies fcfs,las --placement first,best,fgd
  kilowait compare log.swf --policies fcfs,saf --clusters auto,+20%
  kilowait compare lublin:5000:128:0.6 --policies fcfs --power taurus --power-controls none,sleep=break-even,all
  kilowait compare KTH-SP2-1996-2.1-cln.swf.gz --policies saf,saf_short --runtime-predictor forest --windows 20
  kilowait compare log.swf --policies saf,multifactor:age=500:size=0,agent:runs/x/agent.json --windows 20 --json"""


_ORDER = f"""
    traces policies backfill windows window warmup split seed metric clairvoyant cluster clusters cores_per_node
    exclusive_nodes backfill_order at_limit overrun schedule_per max_wait placement gpu on_oversized ignore_dependencies
    load jobs {LOG_FORMAT} runtime_predictor power_predictor with_user_estimates power power_controls gpu_power_cap
    {SIGNALS} weather workers json out csv force"""


@verb(app, _ORDER, epilog=_EPILOG)
def compare(
    context: typer.Context,
    options: ComparisonOptions,
    scenario: Callable[..., Scenario],
    traces: Annotated[
        list[str],
        Argument(
            "TRACE...",
            "Job logs (SWF, sacct -P, CSV, Parquet, ...; may be compressed), or synthetic workloads: "
            f"{WORKLOAD_SYNTAX}.",
            show_default=False,
        ),
    ],
    workers: Workers = None,
    json: Json = False,
    out: Out = None,
    csv: Csv = False,
    force: Force = False,
) -> None:
    """Compare policies and agents on the same jobs and test which differences are significant.

    Every policy is run on the same jobs and the same cluster, with --windows on many windows of the log. Means have
    95 % confidence intervals, and pairs are tested with a correction for multiple comparisons. With --out the results
    are written to a folder for kilowait report; an interrupted comparison resumes from it.
    """
    from kilowait.cli.app import with_option_names
    from kilowait.cli.output.compare import show_comparisons
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments.comparison.compare import prepare, run_and_save

    check_csv(csv, out)
    if out is not None:
        context.with_resource(writable_folder(out, force=force))
    plan = plan_from_options(options, traces, scenario)
    with console.status() as update:
        update(f"reading {', '.join(one.trace for one in plan.scenarios)} ...")
        ready = prepare(plan, lambda fit: update(f"predicting: fit {fit.number} of {fit.total} ..."))
    options_by_name = {option.name: option for option in context.command.params if option.param_type_name == "option"}
    several, known = len(ready.cases) > 1, set()

    def say(trace: str, text: str) -> None:
        note = with_option_names(text, options_by_name)
        console.note(f"{trace}: {note}" if several else note)
        known.add((trace, text))

    for case in ready.cases:  # before the runs, which may take long
        for text in case.notes:
            say(case.trace, text)
    command = console.command(context)
    _, results = run_and_save(ready, console, out=out, csv=csv, force=force, workers=workers, command=command)
    for entry in results:
        for text in entry["notes"]:
            if (entry["trace"], text) not in known:
                say(entry["trace"], text)
    if json:
        console.json_document({"scenario": plan.to_dict(), "traces": results, "out": out})
        return
    show_comparisons(results, [case.workload for case in ready.cases])
    if out is not None:
        print(f"\nwritten to {out}; write a page with figures: kilowait report {out}")
