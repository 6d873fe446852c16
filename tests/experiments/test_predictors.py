"""Tests of run-time predictions: used by priorities and reservations, not by walltime limits; and removed again."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.comparison.compare import prepare, run
from kilowait.experiments.comparison.plan import ComparisonPlan
from kilowait.experiments.policies import make_policy_configs, resolve_policy
from kilowait.experiments.predictors import with_predicted_runtimes, with_requests
from kilowait.experiments.scenario import prepare_scenario
from kilowait.experiments.settings import Scenario

MACHINE = kw.Cluster.from_nodes(32)


def log(jobs: int = 700) -> kw.JobTable:
    """A synthetic log: half of the users request ten times the run time, the others 1.1 times."""
    workload = kw.lublin(jobs, 32, load=0.9, seed=4)
    user = np.arange(jobs) % 6
    return workload.with_columns(
        user=user, estimate_s=np.maximum(workload["runtime_s"], 1.0) * np.where(user < 3, 10.0, 1.1)
    )


def test_requests_are_restored():
    jobs = log()
    predicted = with_predicted_runtimes(jobs, MACHINE, "forest")
    assert not np.array_equal(predicted["estimate_s"], jobs["estimate_s"])
    restored = with_requests(predicted)
    np.testing.assert_array_equal(restored["estimate_s"], jobs["estimate_s"])
    assert set(restored.columns) == set(jobs.columns)
    assert with_requests(jobs) is jobs


def test_predictions_do_not_depend_on_row_order():
    jobs = log()
    shuffled = jobs[np.random.default_rng(0).permutation(len(jobs))]
    for predictor in ("last2", "forest"):
        predicted, again = (
            with_predicted_runtimes(jobs, MACHINE, predictor),
            with_predicted_runtimes(shuffled, MACHINE, predictor),
        )
        np.testing.assert_array_equal(again.sorted()["estimate_s"], predicted["estimate_s"])


def test_jobs_are_killed_at_the_request_not_at_the_prediction():
    jobs = log()
    predicted = with_predicted_runtimes(jobs, MACHINE, "last2")
    assert (predicted["estimate_s"] < jobs["runtime_s"]).any()
    killed = kw.simulate(predicted, MACHINE, "sjf", "easy", at_limit="kill").jobs()
    np.testing.assert_allclose(killed["run_s"], np.minimum(jobs["runtime_s"], jobs["estimate_s"]))


def test_last_two_needs_requests():
    scenario = Scenario("lublin:300:16:0.9:3", runtime_predictor="last2")
    configs = make_policy_configs("saf,saf_short", "easy", clairvoyant=False, users=True)
    assert [config.label for config in configs] == ["saf", "saf_short", "saf (users)", "saf_short (users)"]
    with pytest.raises(InputError, match="no requests"):
        prepare(ComparisonPlan((scenario,), configs))


def test_policies_with_user_estimates_get_no_predictions(tmp_path):
    jobs = log()
    path = tmp_path / "log.parquet"
    jobs.to_parquet(path)
    configs = make_policy_configs("saf", "easy", clairvoyant=False, users=True)
    prepared = prepare(ComparisonPlan((Scenario(str(path), cluster="nodes:32", runtime_predictor="forest"),), configs))
    comparison = run(prepared, workers=1)[0]
    plain = kw.simulate(jobs, MACHINE, "saf", "easy").jobs()["start_s"]
    np.testing.assert_array_equal(comparison.logs(1, 0).jobs()["start_s"], plain)
    assert not np.array_equal(comparison.logs(0, 0).jobs()["start_s"], plain)
    assert any("predicted (forest)" in note for note in prepared.cases[0].notes)
    assert resolve_policy("users:saf").name == "saf"


def test_scenario_stores_and_checks_the_predictor():
    assert Scenario("x.swf", runtime_predictor="forest").to_dict()["runtime_predictor"] == "forest"
    assert "predict" not in Scenario("x.swf").to_dict()
    with pytest.raises(UnknownNameError, match="'florist'; did you mean 'forest'"):
        Scenario("x.swf", runtime_predictor="florist")


def test_predictions_on_gpu_clusters():
    workload, cluster, _ = prepare_scenario(Scenario("gpu:120:gpu-mixed:0.9:1", cluster="gpu-mixed"))
    jobs = workload.jobs.with_columns(estimate_s=workload.jobs["runtime_s"] * 2 + 60)
    predicted = with_predicted_runtimes(jobs, cluster, "last2")
    kw.simulate(predicted, cluster, "qssf", "skip")
