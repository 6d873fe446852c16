"""``kilowait predict``: predict run time, wait, power or energy of jobs at their submission."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kilowait.cli import console, options, predict_report

if TYPE_CHECKING:
    from kilowait.experiments.prediction_task import PredictionData, PredictionTask

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Predict run time, wait, power or energy of jobs from what is known at their submission.",
    **console.PLAIN,
)

app.command("report", epilog=predict_report.EPILOG)(predict_report.report)

Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="What to predict: runtime or wait (s), power (mean of all nodes, W) or energy (J).",
    ),
]
History = Annotated[
    str,
    typer.Option(
        "--history",
        metavar="log|simulated|auto",
        help="Start and end times of earlier jobs, which decide what is known at a submission: those of the log, or of "
        "a simulation (fcfs with EASY backfilling). auto: log if it contains them.",
    ),
]
LabelSource = Annotated[
    str | None,
    typer.Option(
        "--label-source",
        metavar="measured|model|both",
        help="Power and energy values to learn from: measured, those of the power model --power, or both: measured if "
        "available. Default: measured; with --power both.",
        show_default=False,
    ),
]
PowerModel = Annotated[
    str | None,
    typer.Option(
        "--power",
        metavar="MODEL",
        help="Power model for power and energy: a preset or a TOML file.",
        show_default=False,
    ),
]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder written by kilowait predict fit.", show_default=False)
]
Table = Annotated[
    Path, typer.Option("--out", "-o", metavar="FILE", help="Table to write: .parquet or .csv.", show_default=False)
]
Threads = Annotated[
    int, typer.Option("--threads", metavar="N", min=1, help="CPU threads of the models; results do not depend on it.")
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Random seed; the same seed gives the same result.")
]
HISTORY_SOURCES = ("auto", "log", "simulated")

_FEATURES = """\b
Examples:
  kilowait predict features log.swf.gz --out features.parquet
  kilowait predict features lublin:1000:128 --out features.csv --history simulated"""
_SCORE = """\b
Examples:
  kilowait predict score log.swf.gz
  kilowait predict score log.swf.gz --models request,last2,forest --by length
  kilowait predict score sacct.txt --target energy"""
_FIT = """\b
Examples:
  kilowait predict fit log.swf.gz --out runs/predictor
  kilowait predict fit log.swf.gz --out runs/p90 --model boosting:quantile:0.9 --tuning-trials 20
  kilowait predict fit sacct.txt --out runs/energy --target energy"""
_APPLY = """\b
Example:
  kilowait predict apply runs/predictor later.swf.gz --out predicted.csv"""
_EXPLAIN = """\b
Example:
  kilowait predict explain runs/predictor later.swf.gz 4711"""
_DESCRIBE = """\b
Example:
  kilowait predict describe runs/predictor"""


@app.command(epilog=_FEATURES)
def features(
    context: typer.Context,
    trace: options.Trace,
    out: Table,
    target: Target = "runtime",
    history: History = "auto",
    cluster: options.Cluster = "auto",
    label_source: LabelSource = None,
    power: PowerModel = None,
    utilization: options.Utilization = None,
    jobs: options.Jobs = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
) -> None:
    """Write a table of prediction features, one row per job, with the target values.

    Use it to train your own models: no feature uses anything that happened after the job's submission. Times are
    natural logarithms of seconds.
    """
    from kilowait.experiments.prediction_task import check_table_name, table_columns, write_columns

    check_table_name(out)
    loaded = _prepared(_task(context, trace))
    table = table_columns(loaded.dataset)
    write_columns(table, out)
    print(
        f"{console.count(len(loaded.dataset), 'job')}, {console.count(len(loaded.dataset.features.names), 'feature')} "
        f"({loaded.dataset.times.name}) written to {out}"
    )


@app.command(epilog=_SCORE)
def score(
    context: typer.Context,
    trace: options.Trace,
    models: Annotated[
        str | None,
        typer.Option(
            "--models",
            metavar="M,...",
            help="Comma-separated models: request, last2, user-median, class-median, recent, rate; random-forest; "
            "boosting:mean|median|quantile:Q|asymmetric:K; forest:accurate|median|geomean|mean|quantile:Q. By default "
            "a selection that suits the target.",
            show_default=False,
        ),
    ] = None,
    target: Target = "runtime",
    test_fraction: options.TestFraction = 0.3,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="KIND",
            help="Also show the accuracy by class of job: size, length, user-jobs (earlier jobs of the user).",
        ),
    ] = None,
    history: History = "auto",
    cluster: options.Cluster = "auto",
    label_source: LabelSource = None,
    power: PowerModel = None,
    utilization: options.Utilization = None,
    seed: Seed = 0,
    threads: Threads = 1,
    jobs: options.Jobs = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
) -> None:
    """Compare prediction models on a log by walk-forward validation.

    Every job is predicted from what was known at its submission; models are refitted every week on jobs that had ended
    (about a minute for ten thousand jobs). Accuracy is the smaller of prediction and true value divided by the larger;
    log-RMSE is the error of ln(1 + value). 95 % intervals come from a bootstrap over weeks.
    """
    from kilowait.cli.output.predict import show_scores
    from kilowait.experiments.evaluate_predictors import evaluate_predictors
    from kilowait.experiments.prediction_task import models_for
    from kilowait.predict.models import PredictionModel
    from kilowait.predict.scores import JOB_CLASSES

    if by is not None and by not in JOB_CLASSES:
        from kilowait.errors import UnknownNameError

        raise UnknownNameError("class of jobs", by, JOB_CLASSES)
    for name in (models or "").split(",") if models is not None else ():
        PredictionModel.of(name)  # raises for a misspelt name before the log is read
    loaded = _prepared(_task(context, trace))
    chosen, notes = models_for(models, loaded.dataset)
    for note in notes:
        console.note(note)
    with console.status() as update:
        done = evaluate_predictors(
            loaded.dataset,
            chosen,
            test_fraction=test_fraction,
            classes=() if by is None else (by,),
            seed=seed,
            threads=threads,
            progress=lambda model, refit: update(f"{model.text}: fit {refit.number} of {refit.total} ..."),
        )
    if json:
        console.json_document({"trace": trace, **done.to_dict()})
        return
    show_scores(trace, done, by)


@app.command(epilog=_FIT)
def fit(
    context: typer.Context,
    trace: options.Trace,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the predictor.", show_default=False)
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="Prediction model, as in kilowait predict score.")
    ] = "forest",
    target: Target = "runtime",
    tune: Annotated[
        int,
        typer.Option(
            "--tuning-trials",
            metavar="N",
            min=0,
            help="Hyperparameter settings to try on the earlier jobs; 0: the defaults.",
        ),
    ] = 0,
    fit_jobs: Annotated[
        int,
        typer.Option(
            "--fit-jobs",
            metavar="N",
            min=0,
            help="Use at most N jobs, the last ones of a longer log; 0: all jobs (about a minute and 4 GB of memory "
            "for each million).",
        ),
    ] = 500_000,
    history: History = "auto",
    cluster: options.Cluster = "auto",
    label_source: LabelSource = None,
    power: PowerModel = None,
    utilization: options.Utilization = None,
    seed: Seed = 0,
    threads: Threads = 1,
    jobs: options.Jobs = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Fit a predictor on a log and write it to a folder, for later jobs of the same site.

    The last tenth of the jobs is not used for training but for measuring errors and calibrating bounds.
    """
    from kilowait.cli.output.predict import show_card
    from kilowait.evaluation.storage import check_writable
    from kilowait.experiments.prediction_task import fit_predictor, save_predictor
    from kilowait.predict.models import PredictionModel

    prediction_model = PredictionModel.of(model)
    check_writable(out, force=force)
    loaded = _prepared(_task(context, trace))
    with console.status() as update:
        update(f"fitting {prediction_model.text} ...")
        predictor = fit_predictor(
            loaded,
            prediction_model,
            data=Path(trace).name,
            tune=tune,
            seed=seed,
            threads=threads,
            progress=lambda trial: update(f"settings {trial.number} of {tune}: {console.number(trial.metric)} ..."),
        )
    manifest = loaded.workload.provenance(trace, console.command(context), console.today())
    sample = {"jobs": len(loaded.dataset), "of": loaded.log_jobs, "chosen": "the last by submission"}
    manifest["fit_jobs"] = sample
    save_predictor(predictor, out, manifest=manifest, force=force)
    if json:
        console.json_document({"out": out, "fit_jobs": sample, **vars(predictor.card)})
        return
    show_card(predictor.card)
    print(f"\nwritten to {out}; explain a prediction: kilowait predict explain {out} {trace} JOB")


@app.command(epilog=_APPLY)
def apply(
    context: typer.Context,
    folder: Folder,
    trace: options.Trace,
    out: Table,
    history: History = "auto",
    cluster: options.Cluster = "auto",
    jobs: options.Jobs = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
) -> None:
    """Predict every job of a log with a fitted predictor; write prediction, 10, 50 and 90 % quantiles, truth."""
    from kilowait.experiments.prediction_task import (
        check_table_name,
        predicted_columns,
        task_for_predictor,
        write_columns,
    )
    from kilowait.predict.predictor import load

    check_table_name(out)
    predictor = load(folder)
    loaded = _prepared(task_for_predictor(predictor.card, _task(context, trace)))
    write_columns(predicted_columns(predictor, loaded.dataset), out)
    print(f"{console.count(len(loaded.dataset), 'job')} predicted by {predictor.card.model}: {out}")


@app.command(epilog=_EXPLAIN)
def explain(
    context: typer.Context,
    folder: Folder,
    trace: options.Trace,
    job: Annotated[str, typer.Argument(metavar="JOB", help="ID of the job in the log.")],
    history: History = "auto",
    cluster: options.Cluster = "auto",
    features: Annotated[
        int, typer.Option("--features-shown", metavar="N", min=1, help="Number of features to show.")
    ] = 8,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
) -> None:
    """Explain the prediction for one job: value, quantiles, and the most important features."""
    from kilowait.cli.output.predict import explanation_document, show_explanation
    from kilowait.experiments.prediction_task import explain_job, task_for_predictor
    from kilowait.predict.predictor import load

    predictor = load(folder)
    loaded = _prepared(task_for_predictor(predictor.card, _task(context, trace)))
    explanation = explain_job(predictor, loaded.dataset, job)
    if json:
        console.json_document(explanation_document(explanation, predictor.card, features))
        return
    show_explanation(explanation, predictor.card, features)


@app.command(epilog=_DESCRIBE)
def describe(folder: Folder, json: options.Json = False) -> None:
    """Print the model card of a fitted predictor: training data, errors, important features, drift over time."""
    from kilowait.cli.output.predict import show_card
    from kilowait.predict.predictor import load

    card = load(folder).card
    if json:
        console.json_document(vars(card))
        return
    show_card(card)


def _task(context: typer.Context, trace: str) -> PredictionTask:
    """The prediction task that the options of the running command describe."""
    from kilowait.errors import UnknownNameError
    from kilowait.experiments.evaluate_predictors import HISTORY_SOURCES
    from kilowait.experiments.prediction_task import PredictionTask

    names = {field.name for field in dataclasses.fields(PredictionTask)} - {"trace"}
    values = {name: value for name, value in context.params.items() if name in names}
    if values["history"] not in HISTORY_SOURCES:
        raise UnknownNameError("history", values["history"], HISTORY_SOURCES)
    return PredictionTask(trace=trace, **values)


def _prepared(task: PredictionTask) -> PredictionData:
    """Read the log and build the dataset; prints its notes."""
    from kilowait.experiments.prediction_task import load_dataset

    with console.busy(f"reading {task.trace} ..."):
        loaded = load_dataset(task)
    for note in loaded.notes:
        console.note(note)
    return loaded
