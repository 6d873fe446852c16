"""Predictions of a log that is replayed: by rule and planner, not by the executioner; and without them again."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.comparison_plan import ComparisonPlan, prepare, run
from kilowait.experiments.policy_configs import make_policy_configs
from kilowait.experiments.predict_runtimes import with_predicted_runtimes, with_requests
from kilowait.experiments.scenario import Scenario, prepare_scenario, resolve_policy

MACHINE = kw.Cluster.from_nodes(32)


def log(jobs: int = 700) -> kw.JobTable:
    """A made log whose users have habits: the first half asks for ten times what it takes."""
    made = kw.lublin(jobs, 32, load=0.9, seed=4)
    user = np.arange(jobs) % 6
    return made.with_columns(
        user=user, estimate_s=np.maximum(made["runtime_s"], 1.0) * np.where(user < 3, 10.0, 1.1)
    )


def test_the_users_words_come_back():
    jobs = log()
    told = with_predicted_runtimes(jobs, MACHINE, "forest")
    assert not np.array_equal(told["estimate_s"], jobs["estimate_s"])
    back = with_requests(told)
    np.testing.assert_array_equal(back["estimate_s"], jobs["estimate_s"])
    assert set(back.columns) == set(jobs.columns)
    assert with_requests(jobs) is jobs


def test_rows_stay_where_they_were():
    jobs = log()
    shuffled = jobs[np.random.default_rng(0).permutation(len(jobs))]
    for predictor in ("last2", "forest"):
        told, again = (
            with_predicted_runtimes(jobs, MACHINE, predictor),
            with_predicted_runtimes(shuffled, MACHINE, predictor),
        )
        np.testing.assert_array_equal(again.sorted()["estimate_s"], told["estimate_s"])


def test_nobody_is_killed_by_a_prediction():
    jobs = log()
    told = with_predicted_runtimes(jobs, MACHINE, "last2")
    assert (told["estimate_s"] < jobs["runtime_s"]).any()
    killed = kw.simulate(told, MACHINE, "sjf", "easy", at_limit="kill").jobs()
    np.testing.assert_allclose(killed["run_s"], np.minimum(jobs["runtime_s"], jobs["estimate_s"]))


def test_a_comparison_with_and_without():
    scenario = Scenario("lublin:300:16:0.9:3", runtime_predictor="last2")
    who = make_policy_configs("saf,saf_short", "easy", clairvoyant=False, users=True)
    assert [one.label for one in who] == ["saf", "saf_short", "saf (users)", "saf_short (users)"]
    with pytest.raises(InputError, match="no requests"):
        prepare(ComparisonPlan((scenario,), who))


def test_those_without_predictions_see_none(tmp_path):
    jobs = log()
    path = tmp_path / "log.parquet"
    jobs.to_parquet(path)
    who = make_policy_configs("saf", "easy", clairvoyant=False, users=True)
    ready = prepare(
        ComparisonPlan((Scenario(str(path), cluster="nodes:32", runtime_predictor="forest"),), who)
    )
    contest = run(ready, workers=1)[0]
    plain = kw.simulate(jobs, MACHINE, "saf", "easy").jobs()["start_s"]
    np.testing.assert_array_equal(contest.logs(1, 0).jobs()["start_s"], plain)
    assert not np.array_equal(contest.logs(0, 0).jobs()["start_s"], plain)
    assert any("predicted (forest)" in note for note in ready.notes[0])
    assert resolve_policy("users:saf").name == "saf"


def test_the_scenario_is_kept_and_checked():
    assert Scenario("x.swf", runtime_predictor="forest").to_dict()["runtime_predictor"] == "forest"
    assert "predict" not in Scenario("x.swf").to_dict()
    with pytest.raises(UnknownNameError, match="'florist'; did you mean 'forest'"):
        Scenario("x.swf", runtime_predictor="florist")


def test_gpu_clusters_too():
    workload, cluster, _ = prepare_scenario(Scenario("gpu:120:gpu-mixed:0.9:1", cluster="gpu-mixed"))
    jobs = workload.jobs.with_columns(estimate_s=workload.jobs["runtime_s"] * 2 + 60)
    told = with_predicted_runtimes(jobs, cluster, "last2")
    kw.simulate(told, cluster, "qssf", "skip")
