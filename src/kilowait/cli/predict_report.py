"""``kilowait predict report``: how well the run times of a log can be predicted, written to a folder for a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console, options
from kilowait.cli import option_groups as groups

__all__ = ["EPILOG", "report"]

EPILOG = """\b
Examples:
  kilowait predict report log.swf.gz --out runs/predictions; kilowait report runs/predictions
  kilowait predict report log.swf.gz --jobs 8000 --job 4711 --job 4712 --out runs/why"""


@groups.with_groups
def report(
    context: typer.Context,
    *,
    trace: options.Trace,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for kilowait report.", show_default=False)
    ],
    job: Annotated[
        list[int] | None,
        typer.Option("--job", metavar="ID", help="Explain the prediction of this job; repeatable.", show_default=False),
    ] = None,
    cluster: options.Cluster = "auto",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Random seed of the forests and samples.")
    ] = 0,
    load: options.Load = None,
    jobs: options.Jobs = None,
    log_format: groups.LogFormatOptions,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Predict the run time of every job at its submission and write the results to a folder for kilowait report.

    The forest is refitted every week on the jobs that have ended in a simulation (fcfs). Results are for the last 30 %
    of the jobs: errors compared with walltime limits and simpler predictors, coverage of the bounds, errors by class
    of job and over time, important features, and explanations of single jobs.
    """
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments.prediction_report import prediction_report, save_prediction_report
    from kilowait.experiments.scenario import prepare_scenario

    context.with_resource(writable_folder(out, force=force))
    scenario = groups.scenario_from_options(context, trace)
    with console.status() as update:
        update(f"reading {trace} ...")
        workload, machine, notes = prepare_scenario(scenario)
        report = prediction_report(
            workload.jobs, machine, trace=Path(trace).name, ids=job or (), seed=seed, progress=update
        )
    for note in notes:
        console.note(note)
    manifest = workload.provenance(trace, console.command(context), console.today())
    manifest["seeds"] = {**manifest["seeds"], "forest": seed}
    settings = {**scenario.to_dict(), "cluster": to_dict(machine)}
    save_prediction_report(out, report, scenario=settings, manifest=manifest, force=force)
    if json:
        console.json_document({"scenario": settings, "notes": notes, "predictions": report, "out": out})
        return
    print(f"the last {report['test_jobs']:,} of {report['jobs']:,} jobs, each predicted when it was submitted\n")
    console.table(
        ["prediction", "accuracy", "log-RMSE", "mean error", "too short"],
        [
            [
                row["description"],
                console.percent(row["accuracy"]),
                console.number(row["log_rmse"]),
                console.span(row["mae_s"]),
                console.percent(row["underprediction_rate"]),
            ]
            for row in report["scores"]
        ],
    )
    upper_bound = next(row for row in report["calibration"] if row["level"] == 0.9)
    print(f"\nthe 90 % upper bound held for {console.percent(upper_bound['calibrated'])} of the jobs")
    print(f"written to {out}; write a page: kilowait report {out}")
