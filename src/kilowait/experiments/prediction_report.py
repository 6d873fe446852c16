"""Report data on the accuracy of run-time predictions for a log, as plain data for a web page.

Every job is predicted from what was known at its submission (`predict_runtimes`). Metrics are of the last part of the
log, drift is over all of it. The data contain counts, means and a few single jobs, not the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.storage import plain_json, save_folder
from kilowait.evaluation.storage.toml import to_toml
from kilowait.experiments.predict_runtimes import PREDICTORS, first_replay, last_two
from kilowait.experiments.prediction_explanations import ForestData, explained_jobs, importance
from kilowait.jobs import JobTable
from kilowait.predict.forest import ForestSettings
from kilowait.predict.known_times import request_s
from kilowait.predict.runtime import RuntimePredictions, predict_runtimes
from kilowait.predict.walk_forward import RefitSchedule

__all__ = ["TEST_FRACTION", "prediction_report", "save_prediction_report", "scores"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TEST_FRACTION = 0.3
"""Fraction of the jobs, taken from the end, that is evaluated."""
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
HALF_BIN = float(np.exp(0.01))
"""A quantile is the center of a bin of 2 %: values within the bin count as covered."""
WEEK_S, MONTH_S = 7 * 86400.0, 30 * 86400.0
MANY_WEEKS = 60
"""Longer logs are reported by months of 30 days instead of weeks."""
PER_DECADE = 6
"""Cells per decade of the 2-D histogram of predicted and true run times."""
WORDS = {
    "forest": "the forest's most accurate value",
    "last2": "the mean of the user's last two jobs",
    "anchor": "the median of earlier similar jobs (the anchor)",
    "request": "the user's request",
}


def prediction_report(
    jobs: JobTable,
    cluster: Cluster,
    *,
    trace: str = "log",
    ids: Sequence[int] = (),
    seed: int = 0,
    online: RefitSchedule | None = None,
    forest: ForestSettings | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Compute the report data of a log's predicted run times: for ``foresight`` in results.json.

    Args:
        jobs: the log.
        cluster: the machine of the replay that gives the end times of jobs.
        trace: its name.
        ids: additional jobs to explain.
        seed: of the forests and of samples.
        online: refit schedule.
        forest: hyperparameters.
        progress: called with a text of the current activity.
    """
    say = progress if progress is not None else _silent
    ordered, how = jobs.sorted(), online or RefitSchedule()
    rows_of_ids = _rows_of(ordered, ids)  # fails before the long computation
    say("replaying the log for the end times of jobs ...")
    times = first_replay(ordered, cluster)
    threads = min(2, os.cpu_count() or 1)
    found = predict_runtimes(
        ordered,
        times,
        cluster.nodes,
        seed=seed,
        online=how,
        forest=forest,
        threads=threads,
        progress=lambda fit: say(f"fitting forest {fit.number} of {fit.total} ..."),
    )
    judged = np.arange(round(len(ordered) * (1 - TEST_FRACTION)), len(ordered))
    asked = judged[found.walk_forward.fit[judged] >= 0]
    if len(asked) == 0:
        raise InputError(
            f"no forest was fitted on these {len(ordered):,} jobs: it needs {how.min_jobs:,} that have ended, and "
            f"{how.every_s / 86400:g} days; take more jobs, or a longer log"
        )
    truth_s = np.maximum(ordered["runtime_s"], 1.0)
    told_s = {
        "forest": found.distribution.most_accurate(),
        "last2": last_two(ordered, times)["estimate_s"],
        "anchor": np.exp(found.features.anchor),
        "request": request_s(ordered),
    }
    say("computing SHAP values ...")
    grounds = ForestData(ordered, times, found, how, forest, seed)
    submit_s = ordered["submit_s"]
    return {
        "trace": trace,
        "model": {
            "name": "forest",
            "words": PREDICTORS["forest"],
            "forest": asdict(forest or ForestSettings()),
            "online": asdict(how),
            "fits": int(found.walk_forward.fit.max()) + 1,
        },
        "history": times.name,
        "jobs": len(ordered),
        "span_s": float(submit_s[-1] - submit_s[0]),
        "judged": len(judged),
        "scores": [
            {"name": name, "words": words, **scores(told_s[name][judged], truth_s[judged])}
            for name, words in WORDS.items()
        ],
        "calibration": _calibration(found, truth_s, judged),
        "classes": {
            kind: _by(labels, judged, told_s, truth_s)
            for kind, labels in _classes(ordered, found, told_s["request"]).items()
        },
        "drift": _drift(ordered, told_s, truth_s),
        "plane": _plane(judged, told_s, truth_s),
        "importance": importance(grounds, asked),
        "explained": explained_jobs(grounds, asked, told_s["forest"], truth_s, rows_of_ids),
    }


def save_prediction_report(
    path: str | PathLike[str],
    found: Mapping[str, Any],
    *,
    scenario: Mapping[str, Any],
    manifest: Mapping[str, Any],
    force: bool = False,
) -> Path:
    """Write scenario.toml and results.json into a new folder, of kind foresight."""

    def fill(folder: Path) -> None:
        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        (folder / "results.json").write_text(plain_json({"predictions": found}) + "\n", encoding="utf-8")

    return save_folder(path, fill, kind="predictions", manifest=manifest, force=force)


def scores(told_s: Floats, truth_s: Floats) -> dict[str, float | int]:
    """Accuracy of predictions, over the jobs that have one.

    ``accuracy`` is the mean of the shorter of both over the longer, ``log_rmse`` the root of the mean squared
    difference of ln(1 + s), ``mae_s`` the mean absolute difference in seconds, ``underprediction_rate`` the share that
    is too short.

    >>> scores(np.array([50.0, 200.0, np.nan]), np.array([100.0, 100.0, 1.0]))["accuracy"]
    0.5
    """
    there = np.isfinite(told_s)
    if not there.any():
        return {
            "jobs": 0,
            **dict.fromkeys(("accuracy", "log_rmse", "mae_s", "underprediction_rate"), float("nan")),
        }
    told, truth = told_s[there], truth_s[there]
    return {
        "jobs": len(told),
        "accuracy": float((np.minimum(told, truth) / np.maximum(told, truth)).mean()),
        "log_rmse": float(np.sqrt(((np.log1p(told) - np.log1p(truth)) ** 2).mean())),
        "mae_s": float(np.abs(told - truth).mean()),
        "underprediction_rate": float((told < truth).mean()),
    }


def _rows_of(jobs: JobTable, ids: Sequence[int]) -> list[int]:
    known = jobs["job_id"]
    rows = []
    for wanted in dict.fromkeys(ids):
        at = np.flatnonzero(known == wanted)
        if len(at) == 0:
            between = f"; its jobs are {known.min()} to {known.max()}" if len(known) else ""
            raise InputError(f"there is no job {wanted} in this log{between}: use one of these")
        rows.append(int(at[0]))
    return rows


def _calibration(found: RuntimePredictions, truth_s: Floats, rows: Ints) -> list[dict[str, float]]:
    return [
        {
            "level": level,
            "plain": _coverage(found.distribution.quantile(level), truth_s, rows),
            "calibrated": _coverage(found.quantile(level), truth_s, rows),
        }
        for level in LEVELS
    ]


def _coverage(bound_s: Floats, truth_s: Floats, rows: Ints) -> float:
    return float((truth_s[rows] <= bound_s[rows] * HALF_BIN).mean())


Labelled = tuple[Ints, Sequence[str]]


def _classes(jobs: JobTable, found: RuntimePredictions, asked_s: Floats) -> dict[str, Labelled]:
    """Class of every job, by size, request, and number of the user's ended jobs."""
    powers = np.ceil(np.log2(np.maximum(jobs["nodes"], 1)) / 2).astype(np.int64)  # 1, 2-4, 5-16, 17-64, ...
    sizes = ["1", *(f"{4**power // 4 + 1:,}-{4**power:,}" for power in range(1, int(powers.max()) + 1))]
    lengths = ("at most 10 min", "10-60 min", "1-6 h", "6-24 h", "over 24 h", "not said")
    length = np.searchsorted([600.0, 3600.0, 21600.0, 86400.0], asked_s)
    ended = np.expm1(found.features.values[:, found.features.names.index("user_count")])
    volume = np.searchsorted([0.5, 9.5, 99.5, 999.5], ended)
    volumes = ("none yet", "1-9", "10-99", "100-999", "1,000 and more")
    return {
        "size": (powers, sizes),
        "request": (np.where(np.isnan(asked_s), len(lengths) - 1, length), lengths),
        "user": (volume, volumes),
    }


def _by(
    labels: Labelled, rows: Ints, told_s: Mapping[str, Floats], truth_s: Floats
) -> list[dict[str, float | str]]:
    found = []
    for number, label in enumerate(labels[1]):
        own = rows[labels[0][rows] == number]
        if len(own):
            told = scores(told_s["forest"][own], truth_s[own])
            asked = scores(told_s["request"][own], truth_s[own])["accuracy"]
            kept = {name: told[name] for name in ("jobs", "accuracy", "underprediction_rate")}
            found.append({"label": label, **kept, "request": asked})
    return found


def _drift(jobs: JobTable, told_s: Mapping[str, Floats], truth_s: Floats) -> dict[str, Any]:
    """Prediction errors by week or month over the full log."""
    submit_s = jobs["submit_s"]
    weeks = (submit_s[-1] - submit_s[0]) / WEEK_S
    every_s = WEEK_S if weeks <= MANY_WEEKS else MONTH_S
    place = ((submit_s - submit_s[0]) // every_s).astype(np.int64)
    rows = []
    for number in np.unique(place).tolist():
        own = place == number
        told = {name: scores(values[own], truth_s[own]) for name, values in told_s.items()}
        others = {name: told[name]["accuracy"] for name in ("last2", "request")}
        rows.append({"start_s": number * every_s, **told["forest"], **others})
    return {"every_s": every_s, "rows": rows}


def _plane(rows: Ints, told_s: Mapping[str, Floats], truth_s: Floats) -> dict[str, Any]:
    """2-D histogram of true (first) and predicted (second) run times."""
    largest = max(float(np.nanmax(told_s[name][rows], initial=1.0)) for name in ("forest", "request"))
    largest = max(largest, float(truth_s[rows].max()))
    cells = int(np.floor(np.log10(largest) * PER_DECADE)) + 1
    edges_s = 10.0 ** (np.arange(cells + 1) / PER_DECADE)
    found: dict[str, Any] = {"edges_s": edges_s.tolist(), "cells": {}}
    for name in ("forest", "request"):
        own = rows[np.isfinite(told_s[name][rows])]
        across, up = (
            np.clip(np.searchsorted(edges_s, values[own], side="right") - 1, 0, cells - 1)
            for values in (truth_s, told_s[name])
        )
        place, count = np.unique(across * cells + up, return_counts=True)
        found["cells"][name] = [
            [at // cells, at % cells, jobs] for at, jobs in zip(place.tolist(), count.tolist(), strict=True)
        ]
    return found


def _silent(_: str) -> None:
    pass
