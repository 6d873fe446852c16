"""Similarity of two runs: means equal the metrics, distances equal SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import kilowait as kw
from kilowait.evaluation.run_similarity import (
    RunSimilarity,
    compare_runs,
    run_distributions,
    series_of_run,
    share_curves,
)

MACHINE = kw.Cluster.from_nodes(32)


@pytest.fixture(scope="module")
def logs():
    """Two workloads of the same kind under one policy."""
    return [kw.simulate(kw.lublin(500, 32, load=0.9, seed=seed), MACHINE, "fcfs", "easy") for seed in (1, 2)]


def test_means_equal_the_metrics(logs):
    distributions = [run_distributions(log) for log in logs]
    results = {similarity.name: similarity for similarity in compare_runs(*distributions)}
    real, synthetic = (kw.metrics(log) for log in logs)
    assert results["wait_s"].real == pytest.approx(real["mean_wait_s"])
    assert results["wait_s"].synthetic == pytest.approx(synthetic["mean_wait_s"])
    assert results["bsld"].ratio == pytest.approx(synthetic["mean_bsld"] / real["mean_bsld"])
    assert results["utilization"].real == pytest.approx(real["utilization"], rel=1e-6)
    assert results["backlog_nodes"].synthetic == pytest.approx(synthetic["mean_backlog_nodes"], rel=1e-6)


def test_distances_equal_scipys(logs):
    distributions = [run_distributions(log) for log in logs]
    for similarity in compare_runs(*distributions):
        samples = [values[similarity.name] for values in distributions]
        assert similarity.ks == pytest.approx(stats.ks_2samp(*samples, method="asymp").statistic, abs=1e-12)
        assert similarity.wasserstein == pytest.approx(stats.wasserstein_distance(*samples))
    curve = share_curves(*distributions)["wait_s"]
    results = next(similarity for similarity in compare_runs(*distributions) if similarity.name == "wait_s")
    assert np.abs(np.subtract(curve.real, curve.synthetic)).max() == pytest.approx(results.ks)


def test_run_equals_itself(logs):
    distributions = run_distributions(logs[0])
    assert all(
        similarity.near and similarity.ks == 0 and similarity.ratio == 1
        for similarity in compare_runs(distributions, distributions)
    )


def test_near_without_waits():
    assert RunSimilarity("wait_s", 0, 0, 0, 0, 0).near
    assert not RunSimilarity("wait_s", 0, 5, 1, 5, 1).near and np.isnan(RunSimilarity("wait_s", 0, 5, 1, 5, 1).ratio)


def test_series_has_the_mean_of_the_run(logs):
    series = series_of_run(logs[0], 50)
    assert len(series.utilization) == len(series.backlog_nodes) == 50
    assert series.utilization.mean() == pytest.approx(kw.metrics(logs[0])["utilization"], rel=1e-6)
    assert 50 * series.step_s == pytest.approx(kw.metrics(logs[0])["makespan_s"])


def test_nothing_started():
    jobs = kw.lublin(100, 32, seed=1).with_columns(nodes=np.full(100, 64))
    empty = run_distributions(kw.simulate(jobs, MACHINE, "fcfs", "easy", on_oversized="drop"))
    assert compare_runs(empty, empty) == () and share_curves(empty, empty) == {}
