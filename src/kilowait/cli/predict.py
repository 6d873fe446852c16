"""``kilowait predict``: what jobs will take, from what is known when they are submitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kilowait.cli import console, options, predict_report

if TYPE_CHECKING:
    from kilowait.experiments.predictors import PredictionData, PredictionTask

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="What jobs will take, wait or draw, from what is known when they are submitted: score, fit, explain.",
    **console.PLAIN,
)

app.command("report", epilog=predict_report.EPILOG)(predict_report.report)

Target = Annotated[
    str,
    typer.Option(
        "--target", "-t", metavar="T", help="runtime, wait (s), power (mean W of all nodes) or energy (J)."
    ),
]
World = Annotated[
    str,
    typer.Option(
        metavar="recorded|simulated",
        help="When jobs started and ended, which decides what was known when: as the log has it, or in a simulation "
        "(first come, first served, EASY). auto: recorded where the log says it.",
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        metavar="measured|model|both",
        help="Watts and joules to learn from: measured ones, those of --power, or both: measured where possible. "
        "Default: measured, with --power both.",
        show_default=False,
    ),
]
PowerModel = Annotated[
    str | None,
    typer.Option(
        metavar="P", help="A power model for watts and joules: a preset or a TOML file.", show_default=False
    ),
]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder that kilowait predict fit wrote.", show_default=False)
]
Table = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FILE", help="Table to write: .parquet or .csv.", show_default=False),
]
Threads = Annotated[int, typer.Option(metavar="N", min=1, help="Of the models; they change no figure.")]

_FEATURES = """\b
Examples:
  kilowait predict features log.swf.gz --out features.parquet
  kilowait predict features lublin:1000:128 --out features.csv --world simulated"""
_SCORE = """\b
Examples:
  kilowait predict score log.swf.gz
  kilowait predict score log.swf.gz --models request,last2,forest --by length
  kilowait predict score sacct.txt --target energy"""
_FIT = """\b
Examples:
  kilowait predict fit log.swf.gz --out runs/predictor
  kilowait predict fit log.swf.gz --out runs/p90 --model boosting:quantile:0.9 --tune 20
  kilowait predict fit sacct.txt --out runs/energy --target energy"""
_JOBS = """\b
Example:
  kilowait predict jobs runs/predictor later.swf.gz --out predicted.csv"""
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
    world: World = "auto",
    cluster: options.Cluster = "auto",
    labels: Labels = None,
    power: PowerModel = None,
    profile: options.Profile = None,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
) -> None:
    """Write what was known of each job at its submission, a row a job, with what came out beside it.

    For models of one's own: no column looks at anything that happened later. Times are natural logarithms of seconds.
    """
    from kilowait.experiments.predictors import check_table_name, table_columns, write_columns

    check_table_name(out)
    found = _prepared(_asked(context, trace))
    table = table_columns(found.case)
    write_columns(table, out)
    print(
        f"{console.count(len(found.case), 'job')}, {console.count(len(found.case.features.names), 'feature')} "
        f"({found.case.world.name}) written to {out}"
    )


@app.command(epilog=_SCORE)
def score(
    context: typer.Context,
    trace: options.Trace,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="M,...",
            help="Models, with commas between: request, last2, user-median, class-median, recent, rate; random-forest; "
            "boosting:mean|median|quantile:Q|asymmetric:K; forest:accurate|middle|centre|mean|quantile:Q. Default: the "
            "usual ones.",
            show_default=False,
        ),
    ] = None,
    target: Target = "runtime",
    part: Annotated[
        float, typer.Option(metavar="X", help="Part of the jobs, the last ones, that models are judged on.")
    ] = 0.3,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="Also by class of job: size, length, volume (jobs of the user before)."
        ),
    ] = None,
    world: World = "auto",
    cluster: options.Cluster = "auto",
    labels: Labels = None,
    power: PowerModel = None,
    profile: options.Profile = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same figures.")] = 0,
    threads: Threads = 1,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
) -> None:
    """Compare models on a log: every job predicted from what was known at its submission.

    Models that learn are fitted anew every week on jobs that had ended: a minute for some ten thousand jobs. Accuracy
    is the smaller of prediction and truth over the larger, log-RMSE the error of ln(1 + value). Intervals are 95 %,
    from weeks drawn again.
    """
    from kilowait.cli.output.predict import show_scores
    from kilowait.experiments.evaluate_predictors import foresight
    from kilowait.experiments.predictors import models_for
    from kilowait.predict.models import PredictionModel
    from kilowait.predict.scores import CLASSES

    if by is not None and by not in CLASSES:
        from kilowait.errors import UnknownNameError

        raise UnknownNameError("class of jobs", by, CLASSES)
    for name in (models or "").split(",") if models is not None else ():
        PredictionModel.of(name)  # misspelt names are told before a long read
    found = _prepared(_asked(context, trace))
    chosen, notes = models_for(models, found.case)
    for text in notes:
        console.note(text)
    with console.status() as tell:
        done = foresight(
            found.case,
            chosen,
            part=part,
            classes=() if by is None else (by,),
            seed=seed,
            threads=threads,
            progress=lambda model, refit: tell(f"{model.text}: fit {refit.number} of {refit.of} ..."),
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
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the predictor.", show_default=False)
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="M", help="As in kilowait predict score.")
    ] = "forest",
    target: Target = "runtime",
    tune: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Settings to try first, on the earlier jobs; 0: the usual."),
    ] = 0,
    world: World = "auto",
    cluster: options.Cluster = "auto",
    labels: Labels = None,
    power: PowerModel = None,
    profile: options.Profile = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same predictor.")] = 0,
    threads: Threads = 1,
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Fit a predictor on a log and keep it in a folder, for later jobs of the same site.

    The last tenth of the jobs is not learned from: there its errors are found and its bounds calibrated.
    """
    from kilowait.cli.output.predict import show_card
    from kilowait.evaluation.storage import check_writable
    from kilowait.experiments.predictors import fit_predictor, save_predictor
    from kilowait.predict.models import PredictionModel

    wanted = PredictionModel.of(model)
    check_writable(out, force=force)
    found = _prepared(_asked(context, trace))
    with console.status() as tell:
        tell(f"fitting {wanted.text} ...")
        made = fit_predictor(
            found,
            wanted,
            data=Path(trace).name,
            tune=tune,
            seed=seed,
            threads=threads,
            progress=lambda trial: tell(
                f"settings {trial.number} of {tune}: {console.number(trial.figure)} ..."
            ),
        )
    told = found.workload.provenance(trace, console.command(context), console.today())
    save_predictor(made, out, manifest=told, force=force)
    if json:
        console.json_document({"out": out, **vars(made.card)})
        return
    show_card(made.card)
    print(f"\nwritten to {out}; ask it: kilowait predict explain {out} {trace} JOB")


@app.command("jobs", epilog=_JOBS)
def jobs_(
    context: typer.Context,
    folder: Folder,
    trace: options.Trace,
    out: Table,
    world: World = "auto",
    cluster: options.Cluster = "auto",
    jobs: options.Rows = None,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
) -> None:
    """Predict every job of a log with a kept predictor, a row a job: prediction, 10, 50 and 90 % bounds, truth."""
    from kilowait.experiments.predictors import (
        asked_again,
        check_table_name,
        predicted_columns,
        write_columns,
    )
    from kilowait.predict.predictor import load

    check_table_name(out)
    predictor = load(folder)
    found = _prepared(asked_again(predictor.card, _asked(context, trace)))
    write_columns(predicted_columns(predictor, found.case), out)
    print(f"{console.count(len(found.case), 'job')} predicted by {predictor.card.model}: {out}")


@app.command(epilog=_EXPLAIN)
def explain(
    context: typer.Context,
    folder: Folder,
    trace: options.Trace,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Number of the job in the log.")],
    world: World = "auto",
    cluster: options.Cluster = "auto",
    features: Annotated[int, typer.Option(metavar="N", min=1, help="The weightiest features to show.")] = 8,
    columns: options.Columns = None,
    format: options.Format = None,
    strict: options.Strict = False,
    json: options.Json = False,
) -> None:
    """Say what a kept predictor expects of one job, how sure it is, and what weighs most in that."""
    from kilowait.cli.output.predict import explanation_document, show_explanation
    from kilowait.experiments.predictors import asked_again, explained
    from kilowait.predict.predictor import load

    predictor = load(folder)
    found = _prepared(asked_again(predictor.card, _asked(context, trace)))
    told = explained(predictor, found.case, job)
    if json:
        console.json_document(explanation_document(told, predictor.card, features))
        return
    show_explanation(told, predictor.card, features)


@app.command(epilog=_DESCRIBE)
def describe(folder: Folder, json: options.Json = False) -> None:
    """Say what a kept predictor is: what it learned from, its errors, what it looks at, how it ages."""
    from kilowait.cli.output.predict import show_card
    from kilowait.predict.predictor import load

    card = load(folder).card
    if json:
        console.json_document(vars(card))
        return
    show_card(card)


def _asked(context: typer.Context, trace: str) -> PredictionTask:
    """The question, from the options that the verb has."""
    from kilowait.experiments.predictors import PredictionTask

    names = (
        "target",
        "cluster",
        "world",
        "labels",
        "power",
        "profile",
        "format",
        "columns",
        "strict",
        "jobs",
    )
    given = {name: context.params[name] for name in names if name in context.params}
    return PredictionTask(trace=trace, **given)


def _prepared(asked: PredictionTask) -> PredictionData:
    """The case, with notes told."""
    from kilowait.experiments.predictors import prepared_case

    with console.busy(f"reading {asked.trace} ..."):
        found = prepared_case(asked)
    for text in found.notes:
        console.note(text)
    return found
