"""Fields of the results of predictions, synthetic-workload scores and agents that a page shows.

Results come from files that anybody may have written: each kind is described once, and checked before any value is
used. What relates several fields is checked after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from os import PathLike, fspath
from typing import Any

from kilowait.errors import InputError
from kilowait.evaluation.comparison import PairwiseResult
from kilowait.files.fields import Anything, Either, Field, Flag, Items, Null, Number, Record, Text, Values, check_fields

LIMIT = 1e30
"""Largest absolute value that is drawn."""
_NUMBER = Number(-LIMIT, LIMIT)
_POSITIVE = Number(0, LIMIT)
_SHARE = Number(0, 1)
_COUNT = Number(0, 1e15, whole=True)
_TIME_S = Number(0, 1e15)
_POSITIVE_S = Number(1e-9, 1e15)


def _or_null(item: Field) -> Either:
    return Either(Null(), item)


def _each(item: Field, *names: str) -> dict[str, Field]:
    """Several fields with one description."""
    return dict.fromkeys(names, item)


def _texts(*names: str) -> dict[str, Field]:
    return _each(Text(), *names)


def _pair(item: Field) -> Items:
    """A value of the real jobs and one of the synthetic jobs."""
    return Items(item, 2, 2)


_NUMBER_OR_NULL = _or_null(_NUMBER)
_SHARE_OR_NULL = _or_null(_SHARE)


def _check_related(problems: Iterator[str], source: str | PathLike[str], remedy: str) -> None:
    """Raise an InputError that names the first problem of related fields."""
    for problem in problems:
        raise InputError(f"{fspath(source)}: {problem}; {remedy}")


# -- predictions -------------------------------------------------------------------------------------

_LOG_FACTOR = Number(-100, 100)
"""A contribution in log space; its exponential is finite."""
_SCORE = Record(
    _texts("name", "description")
    | {"jobs": _COUNT, "log_rmse": _or_null(_TIME_S), "mae_s": _or_null(_TIME_S)}
    | _each(_SHARE_OR_NULL, "accuracy", "underprediction_rate")
)
_CLASS = Record(
    {"label": Text(), "jobs": _COUNT, "request": _SHARE_OR_NULL} | _each(_SHARE, "accuracy", "underprediction_rate")
)
_DRIFT = Record(
    {"start_s": Number(-1e15, 1e15), "jobs": _COUNT} | _each(_SHARE_OR_NULL, "accuracy", "underprediction_rate"),
    _each(_SHARE_OR_NULL, "last2", "request"),
)
_CELLS = Items(Items(_COUNT, 3, 3))
_BEESWARM = Record(
    {"name": Text(), "rank": Items(_SHARE_OR_NULL, 1), "contributions": Items(_LOG_FACTOR, 1)},
    equally_long=("rank", "contributions"),
)
_CONTRIBUTION = Record(
    _texts("name", "meaning", "value_text", "median_text")
    | {"contribution": _LOG_FACTOR, "predicted_with_median_s": _POSITIVE_S}
)
_JOB = Record(
    {"role": Text(), "job_id": Number(whole=True), "nodes": _COUNT, "request_s": _or_null(_TIME_S), "anchor_s": _TIME_S}
    | _each(_POSITIVE_S, "true_s", "most_accurate_s", "geometric_mean_s")
    | {"quantiles_s": Record(_each(_TIME_S, "0.1", "0.5", "0.9")), "contributions": Items(_CONTRIBUTION, 1)}
    | _each(_LOG_FACTOR, "base", "other_contributions")
)
PREDICTIONS = Record(
    {
        "trace": Text(),
        "jobs": _COUNT,
        "test_jobs": _COUNT,
        "scores": Items(_SCORE, 2),
        "calibration": Items(Record(_each(_SHARE, "level", "plain", "calibrated")), 1),
        "classes": Record(_each(Items(_CLASS), "size", "request", "user")),
        "drift": Record({"every_s": _POSITIVE_S, "rows": Items(_DRIFT, 1)}),
        "histogram": Record(
            {"edges_s": Items(_POSITIVE_S, 2, ascending=True), "cells": Record(_each(_CELLS, "forest", "request"))}
        ),
        "importance": Record(
            {
                "jobs": _COUNT,
                "training_jobs": _COUNT,
                "rows": Items(Record(_texts("name", "meaning") | {"mean": _LOG_FACTOR}), 1),
                "beeswarm": Items(_BEESWARM, 1),
            }
        ),
        "explained": Items(_JOB),
    }
)


def check_prediction_results(results: dict[str, Any], source: str | PathLike[str]) -> None:
    """Raise an InputError that names the field if the report cannot show the predictions."""
    remedy = "run kilowait predict report again"
    check_fields(results, Record({"predictions": PREDICTIONS}), source, remedy=remedy)
    _check_related(_prediction_problems(results), source, remedy)


def _prediction_problems(results: dict[str, Any]) -> Iterator[str]:
    predictions = results["predictions"]
    with_jobs = [row for row in predictions["scores"] if row["jobs"]]
    names = [row["name"] for row in with_jobs]
    unknown = [row["name"] for row in with_jobs if row["accuracy"] is None or row["underprediction_rate"] is None]
    if "forest" not in names or len(names) < 2 or len(set(names)) < len(names) or unknown:
        yield "predictions.scores are not those of the predictor forest and of baselines"
    bins = len(predictions["histogram"]["edges_s"]) - 1
    for name, cells in predictions["histogram"]["cells"].items():
        if isinstance(cells, list) and any(max(x, y) >= bins for x, y, _ in cells):
            yield f"predictions.histogram.cells.{name} has cells outside of the {bins} bins"
    if not predictions["histogram"]["cells"]["forest"]:
        yield "predictions.histogram.cells.forest is empty"


# -- synthetic workloads -----------------------------------------------------------------------------

_CORRELATION = Number(-1.001, 1.001)
_DISTANCE = Record({"column": Text(), "ks": _SHARE, "wasserstein": _POSITIVE, "wasserstein_share": _NUMBER_OR_NULL})
_COLUMN_PAIR = Record(
    {"kind": Text(("pearson", "spearman", "cramer"))}
    | _texts("one", "other")
    | _each(_CORRELATION, "real", "synthetic")
)
_CURVE = Record(
    {"at": Items(_NUMBER, 1, ascending=True), "widest": _NUMBER} | _each(Items(_NUMBER, 1), "real", "synthetic"),
    equally_long=("at", "real", "synthetic"),
)
_MEASURE = Record(
    {"name": Text(("wait_s", "bsld", "backlog_nodes", "utilization")), "ks": _SHARE_OR_NULL, "near": Flag()}
    | _each(_NUMBER_OR_NULL, "real", "synthetic", "wasserstein", "ratio")
)
_FIDELITY = Record(
    {"distances": Items(_DISTANCE, 1), "user_distances": Items(_DISTANCE), "pairs": Items(_COLUMN_PAIR)}
    | _each(_SHARE, "auc", "auc_history")
    | _each(Values(_pair(_NUMBER_OR_NULL)), "arrivals", "users")
    | _each(Values(_SHARE, 1), "feature_importance", "feature_importance_history")
)
_PRIVACY = Record(
    _each(
        _NUMBER_OR_NULL,
        *("nearer_to_seen", "closest_seen", "closest_held_out", "copies", "copies_of_held_out", "copied_pairs"),
        *("copied_pairs_of_held_out", "membership_auc", "membership_advantage"),
    )
)
_SERIES = Record(
    {"step_s": Number(1e-9, LIMIT)} | _each(Items(_POSITIVE), "backlog_nodes", "utilization"),
    equally_long=("backlog_nodes", "utilization"),
)
_OUTCOME_CURVES = Record(
    {"policy": Text(), "shares": Values(_CURVE), "series": Record(_each(_SERIES, "real", "synthetic"))}
)
_CLOSEST = _each(Items(_NUMBER, 1), "at", "synthetic_to_seen", "synthetic_to_held_out", "held_out_to_seen")
_RATES = _each(Items(_SHARE, 1), "true_positive_rate", "false_positive_rate")


def _both(item: Field, *, equally_long: bool = False) -> Record:
    """A value of each workload."""
    sides = ("real", "synthetic")
    return Record(_each(item, *sides), equally_long=sides if equally_long else ())


_CURVES = Record(
    {
        "columns": Values(_CURVE),
        "users": Values(_CURVE),
        "anonymity": _or_null(_both(Values(_SHARE))),
        "autocorrelation": _both(Items(_NUMBER_OR_NULL), equally_long=True),
        "spectrum": Record(
            {"edge_h": Items(Number(1e-9, LIMIT), 2, ascending=True)}
            | _each(Items(_NUMBER_OR_NULL, 1), "real", "synthetic"),
            equally_long=("real", "synthetic"),
        ),
        "day": _both(Items(_POSITIVE, 24, 24)),
        "week": _both(Items(_POSITIVE, 168, 168)),
        "dated": Flag(),
        "outcomes": Items(_OUTCOME_CURVES),
        "closest": _or_null(Record(_CLOSEST, equally_long=tuple(_CLOSEST))),
        "membership": _or_null(Record(_RATES | {"best": _pair(_SHARE)}, equally_long=tuple(_RATES))),
    }
)
_CLASSES = Record({"known": Items(Text(), 1), "k": _COUNT, "jobs_below": _SHARE, "smallest": _COUNT})
SYNTHETIC = Record(
    {
        "real": Text(),
        "synthetic": Text(),
        "jobs": _pair(_COUNT),
        "spans_s": _pair(_POSITIVE),
        "loads": _pair(_POSITIVE),
        "fidelity": _FIDELITY,
        "outcomes": Items(Record({"policy": Text(), "measures": Items(_MEASURE)})),
        "anonymity": _or_null(Items(_CLASSES, 2, 2)),
        "privacy": _or_null(_PRIVACY),
        "calendar": _or_null(_CORRELATION),
        "missing_columns": Values(Text(("both", "real", "synthetic"))),
        "worst_ks": _DISTANCE,
        "worst_pair": _COLUMN_PAIR,
        "curves": _CURVES,
    },
    {"exceeded_limits": Items(Text())},
)


def check_score_results(results: dict[str, Any], source: str | PathLike[str]) -> None:
    """Raise an InputError that names the field if the report cannot show the score."""
    remedy = "run kilowait synth score again"
    check_fields(results, Record({"synthetic": SYNTHETIC}), source, remedy=remedy)
    score = results["synthetic"]
    problems = (f"synthetic: {problem}" for problem in _missing_curves(score, score["curves"]))
    _check_related(problems, source, remedy)


def _missing_curves(score: dict[str, Any], curves: dict[str, Any]) -> Iterator[str]:
    columns = [row["column"] for row in score["fidelity"]["distances"]]
    for name in (*columns, score["worst_ks"]["column"]):
        if name not in curves["columns"]:
            yield f"curves.columns has no {name[:100]!r}"
    for row in score["fidelity"]["user_distances"]:
        if row["column"] not in curves["users"]:
            yield f"curves.users has no {row['column'][:100]!r}"
    if len(columns) > len(set(columns)):
        yield "fidelity.distances has a column twice"
    if [row["policy"] for row in score["outcomes"]] != [row["policy"] for row in curves["outcomes"]]:
        yield "outcomes and curves.outcomes have different policies"
    for row, drawn in zip(score["outcomes"], curves["outcomes"], strict=True):
        for measure in row["measures"]:
            if measure["name"] not in drawn["shares"]:
                yield f"curves.outcomes has no {measure['name']}"
    if score["privacy"] is not None and ("exceeded_limits" not in score or not curves["closest"]):
        yield "exceeded_limits, curves.closest or curves.membership is missing"
    if score["privacy"] is not None and curves["membership"] is None:
        yield "curves.membership is missing"
    if score["anonymity"] is not None and curves["anonymity"] is None:
        yield "curves.anonymity is missing"
    if curves["anonymity"] is not None and set(curves["anonymity"]["real"]) != set(curves["anonymity"]["synthetic"]):
        yield "curves.anonymity has different sizes of groups"
    if len(curves["spectrum"]["edge_h"]) != len(curves["spectrum"]["real"]) + 1:
        yield "curves.spectrum has not one value between two edges"


# -- agents ------------------------------------------------------------------------------------------

_METRICS = Values(_NUMBER_OR_NULL)
_RATIO = Items(_NUMBER_OR_NULL, 3, 3)
_INTERVAL = Items(_NUMBER_OR_NULL, 2, 2)
_WINDOWS = _each(_COUNT, "windows", "window_jobs")
_PAIR_FIELDS = (
    _texts("ours", "theirs", "metric", "unit")
    | {"verdict": Text(("better", "worse", "same", "undecided")), "better": Text(("less", "more"))}
    | _each(_COUNT, "wins", "ties", "losses", "windows")
)
_PAIR = Record({column.name: _PAIR_FIELDS.get(column.name, _NUMBER_OR_NULL) for column in fields(PairwiseResult)})
_HISTORY = Items(
    Record(
        {},
        _each(_COUNT, "number", "steps")
        | {"losses": _or_null(_METRICS)}
        | _each(_NUMBER_OR_NULL, "training", "validation", "mean_return", "metric", "entropy", "kl"),
    )
)
_PART = Record({"name": Text(), "of": Text(("job", "whole"))} | _each(_NUMBER, "value", "usual", "moved"))
_ATTENTION = Record({"jobs": Items(_METRICS, 1, 100), "whole": Flag(), "weights": Items(Items(_SHARE, 1), 1)})
_CASE = Record(
    {"which": Text(), "choices": _COUNT, "chosen": _METRICS, "other": _or_null(_METRICS), "parts": Items(_PART)}
    | _each(_NUMBER, "margin", "usual"),
    {"attention": _or_null(_ATTENTION)},
)
_USUAL = Record(
    {"name": Text(), "of": Text(("job", "whole")), "meaning": Text(), "mean": _POSITIVE, "leaning": _NUMBER}
)
_EXPLAINED = Record(
    {"score": Text(), "usual": Items(_USUAL, 1), "cases": Items(_CASE)} | _each(_COUNT, "choices", "measured")
)
_POLICY = Record(
    {
        "label": Text(),
        "kind": Text(("rule", "agent", "clairvoyant")),
        "metrics": _METRICS,
        "intervals": Values(_METRICS),
    }
)
_BATCH_EVALUATION = Record(
    _texts("trace", "cut", "metric") | {"rows": Items(_POLICY, 1), "judgement": Record({"pairs": Items(_PAIR)})},
    {"sentences": Items(Text()), "gap_closed": _or_null(_METRICS), "notes": _or_null(Items(Text()))},
)
_GPU_EVALUATION = Record(
    _WINDOWS | {"policies": Values(Record({"mean_jct_s": _NUMBER_OR_NULL})), "ratios": Values(_RATIO)}
)
_POWER_EVALUATION = Record(
    _WINDOWS
    | {
        "objective": Text(),
        "policies": Values(_METRICS),
        "front": Items(Text()),
        "margin": Record(_each(_RATIO, "objective_ratio", "delay_ratio"), {"nondominated_share": _NUMBER_OR_NULL}),
    }
)
_POINT = Record(
    {"preference": Values(_NUMBER, 1), "metrics": Values(_NUMBER), "dominated": Flag(), "intervals": Values(_INTERVAL)}
)
_FRONT = Record(
    _WINDOWS
    | {
        "terms": Values(Text(), 1),
        "units": Values(_NUMBER),
        "points": Items(_POINT, 1),
        "reference": Record(
            {"name": Text(), "metrics": Values(_NUMBER)}, {"intervals": _or_null(Values(_or_null(_INTERVAL)))}
        ),
    }
)
_SECTION = _or_null(Values(Anything()))
AGENT_SCENARIO = Record({}, {"training": Values(Anything())})
_RESULTS = Record(
    {},
    _each(_or_null(Text()), "objective", "search_outcome")
    | {"training": _or_null(_HISTORY), "weights": _or_null(Items(Items(Anything(), 3, 3)))}
    | _each(_SECTION, "judged", "explained", "front"),
)


def check_agent_results(results: dict[str, Any], source: str | PathLike[str]) -> None:
    """Raise an InputError that names the field if the report cannot show the results of an agent."""
    remedy = "train the agent again"

    def check_entry(name: str, description: Field) -> None:
        if results.get(name):
            check_fields(results[name], description, f"{fspath(source)}: {name}", remedy=remedy)

    check_fields(results, _RESULTS, source, remedy=remedy)
    check_entry("weights", Items(_Weight()))
    history = results.get("training") or []
    abscissa = "steps" if any("steps" in row for row in history) else "number"
    check_entry("training", Items(Record({abscissa: _COUNT})))
    evaluation = results.get("judged") or {}
    kind = _GPU_EVALUATION if "policies" in evaluation else _BATCH_EVALUATION
    check_entry("judged", _POWER_EVALUATION if "front" in evaluation else kind)
    check_entry("explained", _EXPLAINED)
    check_entry("front", _FRONT)
    _check_related(_agent_problems(results), source, remedy)


def _agent_problems(results: dict[str, Any]) -> Iterator[str]:
    evaluation = results.get("judged") or {}
    for name in ("agent", *evaluation["front"]) if "front" in evaluation else ():
        if name not in evaluation["policies"]:
            yield f"judged.policies has no {name[:100]!r}"
    for place, case in enumerate((results.get("explained") or {"cases": []})["cases"]):
        if case.get("attention"):  # every job, and the state, has one weight for each of them and one for all others
            attention = case["attention"]
            rows = len(attention["jobs"]) + int(attention["whole"])
            if len(attention["weights"]) != rows or {len(line) for line in attention["weights"]} != {rows + 1}:
                yield (f"explained.cases[{place}].attention: weights is no list of {rows} lists of {rows + 1} numbers")
    front: Mapping[str, Any] = results.get("front") or {"terms": ()}
    for name in front["terms"]:
        with_terms = [front["units"], front["reference"]["metrics"]]
        for point in front["points"]:
            with_terms += [point["metrics"], point["preference"], point["intervals"]]
        if any(name not in row for row in with_terms):
            yield f"front has no number of the term {name[:100]!r} for every point"


class _Weight(Field):
    """A feature, its weight and its meaning."""

    expected = "a feature, its weight and its meaning"

    def check(self, value: Any) -> None:
        """Accept a list of text, number and text."""
        if not isinstance(value, list) or len(value) != 3:
            raise self.refuse(value)
        for item, description in zip(value, (Text(), _NUMBER, Text()), strict=True):
            description.check(item)
