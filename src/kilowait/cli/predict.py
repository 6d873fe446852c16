"""``kilowait predict``: predict run time, wait, power or energy of jobs at their submission."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kilowait.cli import console
from kilowait.cli.options import LOG_FORMAT, Force, Json, verb
from kilowait.experiments.settings import Scenario, TestFraction
from kilowait.experiments.workload_settings import PredictionTask, PredictorFit
from kilowait.settings import Argument, Option

if TYPE_CHECKING:
    from kilowait.experiments.prediction.task import PredictionData

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Predict run time, wait, power or energy of jobs from what is known at their submission.",
    **console.PLAIN,
)


Folder = Annotated[Path, Argument("DIR", "Folder written by kilowait predict fit.", show_default=False)]
Table = Annotated[Path, Option("FILE", "Table to write: .parquet or .csv.", "--out -o")]
Threads = Annotated[int, Option("N", "CPU threads of the models; results do not depend on it.", "--threads", min=1)]
Seed = Annotated[int, Option("N", "Random seed; the same seed gives the same result.", "--seed", min=0)]

_REPORT = """\b
Examples:
  kilowait predict report log.swf.gz --out runs/predictions; kilowait report runs/predictions
  kilowait predict report log.swf.gz --jobs 8000 --job 4711 --job 4712 --out runs/why"""
_FEATURES = """\b
Examples:
  kilowait predict features log.swf.gz --out features.parquet
  kilowait predict features lublin:1000:128 --out features.csv --history-source simulated"""
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


@verb(app, f"trace out job cluster seed load jobs {LOG_FORMAT} json force", epilog=_REPORT)
def report(
    context: typer.Context,
    scenario: Scenario,
    out: Annotated[Path, Option("DIR", "Folder for kilowait report.", "-o")],
    job: Annotated[list[int] | None, Option("ID", "Explain the prediction of this job; repeatable.")] = None,
    seed: Annotated[int, Option("N", "Random seed of the forests and samples.", min=0)] = 0,
    json: Json = False,
    force: Force = False,
) -> None:
    """Predict the run time of every job at its submission and write the results to a folder for kilowait report.

    The forest is refitted every week on the jobs that have ended in a simulation (fcfs). Results are for the last 30 %
    of the jobs: errors compared with walltime limits and simpler predictors, coverage of the bounds, errors by class
    of job and over time, important features, and explanations of single jobs.
    """
    from kilowait.cli.output.predict import show_prediction_report
    from kilowait.cluster.toml import to_dict
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments.prediction.report import prediction_report, save_prediction_report
    from kilowait.experiments.scenario import prepare_scenario

    context.with_resource(writable_folder(out, force=force))
    with console.status() as update:
        update(f"reading {scenario.trace} ...")
        workload, machine, notes = prepare_scenario(scenario)
        report = prediction_report(
            workload.jobs, machine, trace=Path(scenario.trace).name, ids=job or (), seed=seed, progress=update
        )
    for note in notes:
        console.note(note)
    manifest = workload.provenance(scenario.trace, console.command(context), console.today())
    manifest["seeds"] = {**manifest["seeds"], "forest": seed}
    settings = {**scenario.to_dict(), "cluster": to_dict(machine)}
    save_prediction_report(out, report, scenario=settings, manifest=manifest, force=force)
    if json:
        console.json_document({"scenario": settings, "notes": notes, "predictions": report, "out": out})
        return
    show_prediction_report(report, out)


@verb(
    app, f"trace out target history_source cluster label_source power utilization jobs {LOG_FORMAT}", epilog=_FEATURES
)
def features(context: typer.Context, task: PredictionTask, out: Table) -> None:
    """Write a table of prediction features, one row per job, with the target values.

    Use it to train your own models: no feature uses anything that happened after the job's submission. Times are
    natural logarithms of seconds.
    """
    from kilowait.experiments.prediction.task import check_table_name, table_columns, write_columns

    check_table_name(out)
    loaded = _prepared(task)
    table = table_columns(loaded.dataset)
    write_columns(table, out)
    target = loaded.dataset.target
    if target.name in ("power", "energy"):
        print(f"{target.name} ({target.unit}) is {target.labels}")
    print(
        f"{console.count(len(loaded.dataset), 'job')}, {console.count(len(loaded.dataset.features.names), 'feature')} "
        f"({loaded.dataset.times.name}) written to {out}"
    )


@verb(
    app,
    "trace models target test_fraction by history_source cluster label_source power utilization seed threads jobs "
    f"{LOG_FORMAT} json",
    epilog=_SCORE,
)
def score(
    context: typer.Context,
    task: PredictionTask,
    models: Annotated[
        str | None,
        Option(
            "M,...",
            "Comma-separated models: request, last2, user-median, class-median, recent, rate; random-forest; "
            "boosting:mean|median|quantile:Q|asymmetric:K; forest:accurate|median|geomean|mean|quantile:Q. By default "
            "a selection that suits the target.",
        ),
    ] = None,
    test_fraction: TestFraction = 0.3,
    by: Annotated[
        str | None,
        Option("KIND", "Also show the accuracy by class of job: size, length, user-jobs (earlier jobs of the user)."),
    ] = None,
    seed: Seed = 0,
    threads: Threads = 1,
    json: Json = False,
) -> None:
    """Compare prediction models on a log by walk-forward validation.

    Every job is predicted from what was known at its submission; models are refitted every week on jobs that had ended
    (about a minute for ten thousand jobs). Accuracy is the smaller of prediction and true value divided by the larger;
    log-RMSE is the error of ln(1 + value). 95 % intervals come from a bootstrap over weeks.
    """
    from kilowait.cli.output.predict import show_scores
    from kilowait.experiments.prediction.evaluation import evaluate_predictors
    from kilowait.experiments.prediction.task import models_for
    from kilowait.predict.models import PredictionModel
    from kilowait.predict.scores import JOB_CLASSES

    if by is not None and by not in JOB_CLASSES:
        from kilowait.errors import UnknownNameError

        raise UnknownNameError("class of jobs", by, JOB_CLASSES)
    for name in (models or "").split(",") if models is not None else ():
        PredictionModel.of(name)  # raises for a misspelt name before the log is read
    loaded = _prepared(task)
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
        console.json_document({"trace": task.trace, **done.to_dict()})
        return
    show_scores(task.trace, done, by)


@verb(
    app,
    "trace out model target tune fit_jobs history_source cluster label_source power utilization seed threads jobs "
    f"{LOG_FORMAT} json force",
    epilog=_FIT,
)
def fit(
    context: typer.Context,
    task: PredictionTask,
    settings: PredictorFit,
    out: Annotated[Path, Option("DIR", "Folder of the predictor.", "-o", show_default=False)],
    json: Json = False,
    force: Force = False,
) -> None:
    """Fit a predictor on a log and write it to a folder, for later jobs of the same site.

    The last tenth of the jobs is not used for training but for measuring errors and calibrating bounds.
    """
    from kilowait.cli.output.predict import card_document, show_card
    from kilowait.evaluation.storage import writable_folder
    from kilowait.experiments.prediction.task import fit_predictor, save_predictor
    from kilowait.predict.models import PredictionModel

    prediction_model = PredictionModel.of(settings.model)
    context.with_resource(writable_folder(out, force=force))
    loaded = _prepared(replace(task, fit_jobs=settings.fit_jobs))
    with console.status() as update:
        update(f"fitting {prediction_model.text} ...")
        predictor = fit_predictor(
            loaded,
            prediction_model,
            data=Path(task.trace).name,
            tune=settings.tune,
            seed=settings.seed,
            threads=settings.threads,
            progress=lambda trial: update(
                f"settings {trial.number} of {settings.tune}: {console.number(trial.metric)} ..."
            ),
        )
    manifest = loaded.workload.provenance(task.trace, console.command(context), console.today())
    sample = {"jobs": len(loaded.dataset), "of": loaded.log_jobs, "chosen": "the last by submission"}
    manifest["fit_jobs"] = sample
    save_predictor(predictor, out, manifest=manifest, force=force)
    if json:
        console.json_document({"out": out, "fit_jobs": sample, **card_document(predictor)})
        return
    show_card(predictor)
    print(f"\nwritten to {out}; explain a prediction: kilowait predict explain {out} {task.trace} JOB")


@verb(app, f"folder trace out history_source cluster jobs {LOG_FORMAT}", epilog=_APPLY)
def apply(context: typer.Context, folder: Folder, task: PredictionTask, out: Table) -> None:
    """Predict every job of a log with a fitted predictor; write prediction, 10, 50 and 90 % quantiles, truth."""
    from kilowait.experiments.prediction.task import (
        check_table_name,
        predicted_columns,
        task_for_predictor,
        write_columns,
    )
    from kilowait.predict.predictor import load

    check_table_name(out)
    predictor = load(folder)
    loaded = _prepared(task_for_predictor(predictor.card, task), require_measured=False)
    write_columns(predicted_columns(predictor, loaded.dataset), out)
    print(f"{console.count(len(loaded.dataset), 'job')} predicted by {predictor.card.model}: {out}")


@verb(app, f"folder trace job history_source cluster features {LOG_FORMAT} json", epilog=_EXPLAIN)
def explain(
    context: typer.Context,
    folder: Folder,
    task: PredictionTask,
    job: Annotated[str, Argument("JOB", "ID of the job in the log.")],
    features: Annotated[int, Option("N", "Number of features to show.", "--features-shown", min=1)] = 8,
    json: Json = False,
) -> None:
    """Explain the prediction for one job: value, quantiles, and the most important features."""
    from kilowait.cli.output.predict import explanation_document, show_explanation
    from kilowait.experiments.prediction.task import explain_job, task_for_predictor
    from kilowait.predict.predictor import load

    predictor = load(folder)
    loaded = _prepared(task_for_predictor(predictor.card, task), require_measured=False)
    explanation = explain_job(predictor, loaded.dataset, job)
    if json:
        console.json_document(explanation_document(explanation, predictor.card, features))
        return
    show_explanation(explanation, predictor.card, features)


@verb(app, epilog=_DESCRIBE)
def describe(folder: Folder, json: Json = False) -> None:
    """Print the model card of a fitted predictor: training data, errors, important features, drift over time."""
    from kilowait.cli.output.predict import card_document, show_card
    from kilowait.predict.predictor import load

    predictor = load(folder)
    if json:
        console.json_document(card_document(predictor))
        return
    show_card(predictor)


def _prepared(task: PredictionTask, *, require_measured: bool = True) -> PredictionData:
    """Read the log and build the dataset, as `load_dataset`; prints its notes."""
    from kilowait.experiments.prediction.task import load_dataset

    with console.busy(f"reading {task.trace} ..."):
        loaded = load_dataset(task, require_measured=require_measured)
    for note in loaded.notes:
        console.note(note)
    return loaded
