"""Text output of ``kilowait predict``: scores of models, model cards, explanations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilowait.cli import console

if TYPE_CHECKING:
    from kilowait.experiments.prediction.evaluation import PredictorComparison
    from kilowait.predict.explanation import Explanation
    from kilowait.predict.model_card import ModelCard
    from kilowait.predict.predictor import Predictor

SHOWN = 12
"""Number of features of a model card that are shown."""


def _rounded(value: float) -> str:
    return console.number(round(value))


_ACCURACY: console.Columns = [("accuracy", "accuracy", "{:.3f}".format), ("log-RMSE", "log_rmse", "{:.2f}".format)]
_LOW: tuple[str, str, Callable[[Any], str]] = ("too low", "underprediction_rate", console.percent)


def show_scores(trace: str, done: PredictorComparison, by: str | None) -> None:
    """Print one row per model, then the coverage of the quantiles, then classes of jobs."""
    console.title(
        f"{trace}: {done.target} of the last {done.evaluated_jobs:,} of {done.jobs:,} jobs "
        f"({console.count(done.weeks, 'week')}); {done.labels}; {done.history}"
    )
    rows = []
    best = {"accuracy": max, "log_rmse": min, "mae": min}
    marked = set()
    for place, (name, best_of) in enumerate(best.items()):
        values = [getattr(row.scores, name) for row in done.rows]
        marked.add((values.index(best_of(values)), 1 + 2 * place))
    for row in done.rows:
        scores, ends = row.scores, row.intervals
        rows.append(
            [
                row.model,
                f"{scores.accuracy:.3f}",
                _ends(ends["accuracy"], 3),
                f"{scores.log_rmse:.2f}",
                _ends(ends["log_rmse"], 2),
                console.number(round(scores.mae)),
                _ends(ends["mae"], 0),
                console.number(round(scores.median_ae)),
                console.percent(scores.underprediction_rate),
                f"{row.seconds:.1f}",
            ]
        )
    unit = done.unit
    heads = ["model", "accuracy", "95 %", "log-RMSE", "95 %", f"MAE {unit}", "95 %", f"median {unit}", "too low", "s"]
    console.table(heads, rows, marked=marked)
    if done.coverage:
        print()
        has_requests = done.target == "runtime"
        for place, suffix in enumerate(("", ", none counted beyond its request") if has_requests else ("",)):
            shares = (f"{console.percent(share[place])} of {100 * level:g} %" for level, share in done.coverage.items())
            print(f"within the forest's quantiles{suffix}: {', '.join(shares)}")
    if by is not None:
        print()
        _show_classes(done, by)


def _show_classes(done: PredictorComparison, by: str) -> None:
    names = list(done.rows[0].classes[by])
    rows = [
        [
            name,
            f"{done.rows[0].classes[by][name].jobs:,}",
            *(f"{row.classes[by][name].accuracy:.3f}" for row in done.rows),
        ]
        for name in names
    ]
    print(f"accuracy by {by}")
    console.table([by, "jobs", *(row.model for row in done.rows)], rows)


def card_document(predictor: Predictor) -> dict[str, Any]:
    """The model card of a predictor as plain data; `unmetered` is that of its model for logs without measurements."""
    unmetered = predictor.unmetered
    return {**vars(predictor.card), **({} if unmetered is None else {"unmetered": vars(unmetered.card)})}


def show_card(predictor: Predictor) -> None:
    """Print the model card of a predictor."""
    card = predictor.card
    console.title(f"{card.target} by {card.model}, fitted on {card.data}")
    console.facts(
        [
            ("trained on", f"{console.count(card.jobs, 'job')}, {card.labels}; {card.history}; {_span(card)}"),
            ("calibrated on", f"the {console.count(card.calibration_jobs, 'job')} after them"),
            ("cluster", f"{card.nodes:,} nodes"),
            ("hyperparameters", ", ".join(f"{name} {value}" for name, value in card.settings.items()) or "none"),
            ("personal data", card.personal),
            ("kilowait", card.version),
        ]
    )
    print(f"\nerrors on those later jobs, {card.unit}")
    errors = [{"name": name, **scores} for name, scores in card.errors.items()]
    if predictor.unmetered is not None:
        without = predictor.unmetered.card
        errors.insert(1, {"name": f"{card.model}, no job measured", **without.errors[card.model]})
    console.records(
        [("", "name", str), *_ACCURACY, ("MAE", "mae", _rounded), ("median", "median_ae", _rounded), _LOW], errors
    )
    if card.importance:
        print("\nmost important features, by share of the gain of all splits")
        from kilowait.predict.features import feature_meaning

        top = list(card.importance.items())[:SHOWN]
        console.table(
            ["feature", "meaning", "share"],
            [[name, feature_meaning(name), console.percent(share)] for name, share in top],
            left=2,
            wrapped=1,
        )
    if card.drift:
        print("\ndrift: fitted on the first half of the log, tested on each later month")
        months: console.Columns = [("month", "month", "{:.0f}".format), ("jobs", "jobs", console.integer)]
        console.records([*months, *_ACCURACY, (f"MAE {card.unit}", "mae", _rounded), _LOW], card.drift)


def show_explanation(explanation: Explanation, card: ModelCard, count: int) -> None:
    """Print the prediction for a job, then its explanation."""
    forecast = explanation.prediction
    console.title(f"job {explanation.job_id}: {card.target} by {card.model}, fitted on {card.data}")
    facts = [
        ("prediction", _amount(float(forecast.value[0]), card.unit)),
        ("10 % quantile", _amount(float(forecast.low[0]), card.unit)),
        ("median", _amount(float(forecast.median[0]), card.unit)),
        ("90 % quantile", _amount(float(forecast.high[0]), card.unit)),
        ("true value", _amount(explanation.truth, card.unit)),
        ("starts from", f"{_amount(explanation.anchor, card.unit)}: {explanation.anchor_text}"),
    ]
    console.facts(facts)
    if not explanation.parts:
        print(f"\n{card.model} uses no other features")
        return
    from kilowait.predict.explanation import feature_value_text

    print(f"\nfactors of the prediction (x {explanation.start:.3f} for every job; the product is the geometric mean)")
    rows = [
        [part.name, part.meaning, feature_value_text(part.name, part.value), f"x {part.factor:.3f}"]
        for part in explanation.parts[:count]
    ]
    other_factors = 1.0
    for part in explanation.parts[count:]:
        other_factors *= part.factor
    if explanation.parts[count:]:
        rows.append([f"{len(explanation.parts) - count} others", "", "", f"x {other_factors:.3f}"])
    console.table(["feature", "meaning", "value", "factor"], rows, left=2, wrapped=1)


def explanation_document(explanation: Explanation, card: ModelCard, count: int) -> dict[str, Any]:
    """The explanation as plain data."""
    forecast = explanation.prediction
    return {
        "job_id": explanation.job_id,
        "target": card.target,
        "unit": card.unit,
        "model": card.model,
        "expected": float(forecast.value[0]),
        "p10": float(forecast.low[0]),
        "p50": float(forecast.median[0]),
        "p90": float(forecast.high[0]),
        "truth": explanation.truth,
        "anchor": explanation.anchor,
        "anchored": explanation.anchor_text,
        "start": explanation.start,
        "features": [vars(part) for part in explanation.parts[:count]],
    }


def _amount(value: float, unit: str) -> str:
    """A value with its unit; times also as a span."""
    if unit == "s":
        return f"{console.span(value)} ({console.number(value)} s)"
    return f"{console.number(value)} {unit}"


def _span(card: ModelCard) -> str:
    days = (card.last_s - card.first_s) / 86400
    if card.unix_zero_s is None:
        return f"{days:,.0f} days"
    first, last = (
        datetime.fromtimestamp(card.unix_zero_s + at_s, UTC).date().isoformat() for at_s in (card.first_s, card.last_s)
    )
    return f"{first} to {last}"


def _ends(ends: Iterable[float], digits: int) -> str:
    """A confidence interval; '-' if the test jobs cover only one week."""
    low, high = ends
    return f"{low:,.{digits}f} to {high:,.{digits}f}" if math.isfinite(low) else "-"


def show_prediction_report(report: Mapping[str, Any], out: Path) -> None:
    """Print the errors of the predictions and the coverage of the upper bound."""
    print(f"the last {report['test_jobs']:,} of {report['jobs']:,} jobs, each predicted when it was submitted\n")
    columns: console.Columns = [
        ("prediction", "description", str),
        ("accuracy", "accuracy", console.percent),
        ("log-RMSE", "log_rmse", console.number),
        ("mean error", "mae_s", console.span),
        ("too short", "underprediction_rate", console.percent),
    ]
    console.records(columns, report["scores"])
    upper_bound = next(row for row in report["calibration"] if row["level"] == 0.9)
    print(f"\nthe 90 % upper bound held for {console.percent(upper_bound['calibrated'])} of the jobs")
    print(f"written to {out}; write a page: kilowait report {out}")
