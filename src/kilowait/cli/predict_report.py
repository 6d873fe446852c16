"""``kilowait predict report``: how well the run times of a log can be foretold, and why, as a folder for a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kilowait.cli import console, options

__all__ = ["EPILOG", "report"]

EPILOG = """\b
Examples:
  kilowait predict report log.swf.gz --out runs/foretold; kilowait report runs/foretold
  kilowait predict report log.swf.gz --jobs 8000 --job 4711 --job 4712 --out runs/why"""


def report(
    context: typer.Context,
    trace: options.Trace,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="DIR", help="Folder for kilowait report.", show_default=False),
    ],
    job: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Explain this job too; may be given often.", show_default=False),
    ] = None,
    cluster: options.Cluster = "auto",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the forests and of samples.")] = 0,
    load: options.Load = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Predict every run time of a log from what was known at its submission; what came of it, for a page.

    The forest is grown anew every week from jobs that have ended in a replay, first come, first served. Figures are of
    the last 30 % of the jobs: how near predictions are beside requests and simpler guesses, whether bounds hold, where
    and when they fail, what they are made from, and single jobs explained. kilowait report draws the folder.
    """
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.storage import check_writable
    from kilowait.experiments.prediction_report import prediction_report, save_foretold
    from kilowait.experiments.scenario import prepare_scenario

    check_writable(out, force=force)
    scenario = options.scenario_from_options(context, trace)
    with console.status() as tell:
        tell(f"reading {trace} ...")
        workload, machine, notes = prepare_scenario(scenario)
        found = prediction_report(
            workload.jobs,
            machine,
            trace=Path(trace).name,
            ids=job or (),
            seed=seed,
            progress=tell,
        )
    for text in notes:
        console.note(text)
    manifest = workload.provenance(trace, console.command(context), console.today())
    manifest["seeds"] = {**manifest["seeds"], "forest": seed}
    written = {**scenario.to_dict(), "cluster": to_dict(machine)}
    save_foretold(out, found, scenario=written, manifest=manifest, force=force)
    if json:
        console.json_document({"scenario": written, "notes": notes, "foresight": found, "out": out})
        return
    print(f"the last {found['judged']:,} of {found['jobs']:,} jobs, each predicted when it was submitted\n")
    console.table(
        ["prediction", "accuracy", "log-RMSE", "mean error", "too short"],
        [
            [
                row["words"],
                console.percent(row["accuracy"]),
                console.number(row["log_rmse"]),
                console.span(row["mae_s"]),
                console.percent(row["underprediction_rate"]),
            ]
            for row in found["scores"]
        ],
    )
    held = next(row for row in found["calibration"] if row["level"] == 0.9)
    print(f"\na bound that is to hold for 90 % of the jobs held for {console.percent(held['calibrated'])}")
    print(f"written to {out}; kilowait report {out} makes a page of it")
