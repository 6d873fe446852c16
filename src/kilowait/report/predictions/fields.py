"""Fields of a prediction report's results that the page shows."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from kilowait.errors import InputError
from kilowait.files.fields import Either, Items, Null, Number, Record, Text, check_fields

__all__ = ["check_prediction_results"]

_COUNT = Number(0, 1e15, whole=True)
_SHARE = Number(0, 1)
_SHARE_OR_NULL = Either(Null(), _SHARE)
_POSITIVE_S = Number(1e-9, 1e15)
_TIME_S = Number(0, 1e15)
_LOG_FACTOR = Number(-100, 100)
"""A contribution in log space; its exponential is finite."""
_SCORE = Record(
    {
        "name": Text(),
        "description": Text(),
        "jobs": _COUNT,
        "accuracy": _SHARE_OR_NULL,
        "log_rmse": Either(Null(), Number(0, 1e15)),
        "mae_s": Either(Null(), _TIME_S),
        "underprediction_rate": _SHARE_OR_NULL,
    }
)
_CLASS = Record(
    {"label": Text(), "jobs": _COUNT, "accuracy": _SHARE, "underprediction_rate": _SHARE, "request": _SHARE_OR_NULL}
)
_DRIFT = Record(
    {
        "start_s": Number(-1e15, 1e15),
        "jobs": _COUNT,
        "accuracy": _SHARE_OR_NULL,
        "underprediction_rate": _SHARE_OR_NULL,
    },
    {"last2": _SHARE_OR_NULL, "request": _SHARE_OR_NULL},
)
_CELLS = Items(Items(_COUNT, 3, 3))
_BEESWARM = Record(
    {"name": Text(), "rank": Items(_SHARE_OR_NULL, 1), "contributions": Items(_LOG_FACTOR, 1)},
    equally_long=("rank", "contributions"),
)
_CONTRIBUTION = Record(
    {
        "name": Text(),
        "meaning": Text(),
        "value_text": Text(),
        "contribution": _LOG_FACTOR,
        "median_text": Text(),
        "predicted_with_median_s": _POSITIVE_S,
    }
)
_JOB = Record(
    {
        "role": Text(),
        "job_id": Number(whole=True),
        "nodes": _COUNT,
        "true_s": _POSITIVE_S,
        "request_s": Either(Null(), _TIME_S),
        "anchor_s": _TIME_S,
        "most_accurate_s": _POSITIVE_S,
        "geometric_mean_s": _POSITIVE_S,
        "quantiles_s": Record(dict.fromkeys(("0.1", "0.5", "0.9"), _TIME_S)),
        "base": _LOG_FACTOR,
        "contributions": Items(_CONTRIBUTION, 1),
        "other_contributions": _LOG_FACTOR,
    }
)
PREDICTIONS = Record(
    {
        "trace": Text(),
        "jobs": _COUNT,
        "test_jobs": _COUNT,
        "scores": Items(_SCORE, 2),
        "calibration": Items(Record({"level": _SHARE, "plain": _SHARE, "calibrated": _SHARE}), 1),
        "classes": Record(dict.fromkeys(("size", "request", "user"), Items(_CLASS))),
        "drift": Record({"every_s": _POSITIVE_S, "rows": Items(_DRIFT, 1)}),
        "histogram": Record(
            {
                "edges_s": Items(Number(1e-9, 1e15), 2, ascending=True),
                "cells": Record(dict.fromkeys(("forest", "request"), _CELLS)),
            }
        ),
        "importance": Record(
            {
                "jobs": _COUNT,
                "training_jobs": _COUNT,
                "rows": Items(Record({"name": Text(), "meaning": Text(), "mean": _LOG_FACTOR}), 1),
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
    predictions, where = results["predictions"], f"{fspath(source)}: predictions"
    with_jobs = [row for row in predictions["scores"] if row["jobs"]]
    names = [row["name"] for row in with_jobs]
    unknown = [row["name"] for row in with_jobs if row["accuracy"] is None or row["underprediction_rate"] is None]
    if "forest" not in names or len(names) < 2 or len(set(names)) < len(names) or unknown:
        raise InputError(f"{where}.scores are not those of the predictor forest and of baselines; {remedy}")
    bins = len(predictions["histogram"]["edges_s"]) - 1
    for name, cells in predictions["histogram"]["cells"].items():
        if isinstance(cells, list) and any(max(x, y) >= bins for x, y, _ in cells):
            raise InputError(f"{where}.histogram.cells.{name} has cells outside of the {bins} bins; {remedy}")
    if not predictions["histogram"]["cells"]["forest"]:
        raise InputError(f"{where}.histogram.cells.forest is empty; {remedy}")
