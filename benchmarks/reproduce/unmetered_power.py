"""Predicted power and energy of a log without measurements, from a predictor of an earlier metered log: Kabré.

The first 70 % of the jobs are the metered log, on which a predictor is fitted. The last 30 % are predicted twice: with
their measured energy removed, and with the measured energy of the jobs of these 30 % that had ended at each submission.
Start and end times come from a first replay of each part on 32 nodes.

    python -m benchmarks.reproduce.unmetered_power --data DIR
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import kilowait as kw
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.power_budget import NODES
from benchmarks.reproduce.prediction_accuracy import LOGS, MIN_W
from benchmarks.reproduce.text_tables import table
from kilowait.experiments.predictors import first_replay
from kilowait.jobs import JobTable
from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.models import PredictionModel
from kilowait.predict.predictor import fit
from kilowait.predict.scores import score
from kilowait.predict.targets import target_of

__all__ = ["MODELS", "main", "results", "text", "without_measurements"]

MODELS = ("boosting:median", "forest:accurate")
HEADS = ("", "accuracy", "log-RMSE", "at most the 90 % bound")


def results(jobs: JobTable, models: Sequence[str] = MODELS) -> list[dict[str, Any]]:
    """One row per target, model and way to predict the last 30 % of the jobs.

    Args:
        jobs: by submission, with measured energy.
        models: names of prediction models.
    """
    first = round(0.7 * len(jobs))
    rows = []
    for name in ("power", "energy"):
        early, late = _dataset(jobs[:first], name), _dataset(jobs[first:], name)
        hidden = _dataset(without_measurements(jobs[first:]), name)
        truth = late.target.values
        known = np.isfinite(truth)
        for model in models:
            predictor = fit(early, PredictionModel.of(model), nodes=NODES, data="Kabre")
            predictions = {
                f"{name}, {model}, not measured": predictor.predict(hidden),
                f"{name}, {model}, measured": predictor.predict(late),
            }
            for way, predicted in predictions.items():
                scores = score(predicted.value[known], truth[known])
                covered = float(np.mean(truth[known] <= predicted.high[known]))
                rows.append({"name": way, **vars(scores), "covered": covered})
        anchor = np.exp(hidden.without_earlier_values(early.typical_node_w(len(early))).features.anchor)
        rows.append({"name": f"{name}, median of the metered log", **vars(score(anchor[known], truth[known]))})
    return rows


def without_measurements(jobs: JobTable) -> JobTable:
    """The jobs without their measured energy and power."""
    columns = {name: jobs[name] for name in jobs.columns if name not in ("energy_j", "power_w")}
    return JobTable(labels=jobs.labels, meta=jobs.meta, **columns)


def _dataset(jobs: JobTable, name: str) -> Dataset:
    times = first_replay(jobs, kw.Cluster.from_nodes(NODES))
    limits: dict[str, Any] = {"min_w": MIN_W} if name == "power" else {}
    return make_dataset(jobs, times, NODES, target_of(name, jobs, times, require_measured=False, **limits))


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table."""
    cells = [
        [
            row["name"],
            f"{row['accuracy']:.3f}",
            f"{row['log_rmse']:.2f}",
            f"{100 * row['covered']:.1f} %" if "covered" in row else "-",
        ]
        for row in rows
    ]
    return f"Kabre, last 30 %: {rows[0]['jobs']:,} jobs with power\n\n{table(HEADS, cells)}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.unmetered_power", description=__doc__)
    parser.add_argument("--data", metavar="DIR", help="folder of real logs; else what KILOWAIT_DATA names")
    path = Sources.find(parser.parse_args().data).file(
        LOGS["Kabre"].file, "it is Kabré's sacct of 2024 (DylanBC09/kabre)"
    )
    sys.stdout.write(text(results(kw.read_trace(path).sorted())) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
