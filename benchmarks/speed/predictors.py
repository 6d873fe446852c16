"""Benchmark of predictors: time to fit, throughput for many jobs, and latency for one job."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from benchmarks.speed.measurement import BenchResult
from kilowait.cluster import Cluster
from kilowait.experiments.prediction.evaluation import history_of
from kilowait.predict.dataset import make_dataset
from kilowait.predict.models import PredictionModel
from kilowait.predict.predictor import fit
from kilowait.synth import lublin

__all__ = ["predictor_speeds"]

NODES = 256
ROW_MS = 1.0
"""Target latency of one prediction from a row of features, milliseconds."""
SEED = 7


def predictor_speeds(
    jobs: int = 12_000, *, rows: int = 500, models: tuple[str, ...] = ("forest", "boosting:median")
) -> Iterator[BenchResult]:
    """Yield each measurement on a synthetic workload of `jobs` jobs."""
    log = lublin(jobs, NODES, load=0.9, seed=SEED).sorted()
    log, times, _ = history_of(log, Cluster.from_nodes(NODES), "simulated")
    began = perf_counter()
    dataset = make_dataset(log, times, NODES)
    yield BenchResult(f"features of {jobs:,} jobs", perf_counter() - began, "s")
    for name in models:
        began = perf_counter()
        predictor = fit(dataset, PredictionModel.of(name), nodes=NODES, data="lublin")
        yield BenchResult(f"{name}, fitted and calibrated", perf_counter() - began, "s")
        values, anchor, max_value = predictor.rows(dataset), dataset.features.anchor, dataset.target.max_value
        began = perf_counter()
        predictor.predict_rows(values, anchor, max_value)
        yield BenchResult(f"{name}, all jobs at once", jobs / (perf_counter() - began), "jobs/s")
        seconds = []
        for row in range(rows):
            one = slice(row, row + 1)
            began = perf_counter()
            predictor.predict_rows(values[one], anchor[one], max_value[one])
            seconds.append(perf_counter() - began)
        note = f"99 % within {1e3 * float(np.quantile(seconds, 0.99)):.2f} ms"
        yield BenchResult(
            f"{name}, one job: value and 3 bounds", 1e3 * float(np.median(seconds)), "ms", ROW_MS, True, note
        )
