"""Two runs compared: the numbers are the metrics', distances are SciPy's, and 15 % is 15 %."""

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


def test_means_are_those_of_the_metrics(logs):
    numbers = [run_distributions(log) for log in logs]
    found = {one.name: one for one in compare_runs(*numbers)}
    real, made = (kw.metrics(log) for log in logs)
    assert found["wait_s"].real == pytest.approx(real["mean_wait_s"])
    assert found["wait_s"].synthetic == pytest.approx(made["mean_wait_s"])
    assert found["bsld"].ratio == pytest.approx(made["mean_bsld"] / real["mean_bsld"])
    assert found["utilization"].real == pytest.approx(real["utilization"], rel=1e-6)
    assert found["backlog_nodes"].synthetic == pytest.approx(made["mean_backlog_nodes"], rel=1e-6)


def test_distances_are_scipys(logs):
    numbers = [run_distributions(log) for log in logs]
    for one in compare_runs(*numbers):
        both = [values[one.name] for values in numbers]
        assert one.ks == pytest.approx(stats.ks_2samp(*both, method="asymp").statistic, abs=1e-12)
        assert one.wasserstein == pytest.approx(stats.wasserstein_distance(*both))
    curve = share_curves(*numbers)["wait_s"]
    found = next(one for one in compare_runs(*numbers) if one.name == "wait_s")
    assert np.abs(np.subtract(curve.real, curve.synthetic)).max() == pytest.approx(found.ks)


def test_a_run_is_like_itself(logs):
    numbers = run_distributions(logs[0])
    assert all(one.near and one.ks == 0 and one.ratio == 1 for one in compare_runs(numbers, numbers))


def test_near_without_waits():
    assert RunSimilarity("wait_s", 0, 0, 0, 0, 0).near
    assert not RunSimilarity("wait_s", 0, 5, 1, 5, 1).near and np.isnan(
        RunSimilarity("wait_s", 0, 5, 1, 5, 1).ratio
    )


def test_a_series_has_the_mean_of_the_run(logs):
    found = series_of_run(logs[0], 50)
    assert len(found.utilization) == len(found.backlog_nodes) == 50
    assert found.utilization.mean() == pytest.approx(kw.metrics(logs[0])["utilization"], rel=1e-6)
    assert 50 * found.step_s == pytest.approx(kw.metrics(logs[0])["makespan_s"])


def test_nothing_started():
    jobs = kw.lublin(100, 32, seed=1).with_columns(nodes=np.full(100, 64))
    nothing = run_distributions(kw.simulate(jobs, MACHINE, "fcfs", "easy", on_oversized="drop"))
    assert compare_runs(nothing, nothing) == () and share_curves(nothing, nothing) == {}
