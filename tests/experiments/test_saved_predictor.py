"""Saved predictors: predictions for a replayed log, and detection of data leakage."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.experiments.comparison.compare import prepare
from kilowait.experiments.comparison.plan import ComparisonPlan, WindowOptions
from kilowait.experiments.policies import make_policy_configs
from kilowait.experiments.predictors import first_replay, saved_predictor, with_predicted_runtimes
from kilowait.experiments.scenario import prepare_scenario, run_scenario
from kilowait.experiments.settings import Scenario
from kilowait.predict.dataset import make_dataset
from kilowait.predict.models import PredictionModel
from kilowait.predict.predictor import fit, load
from kilowait.traces import write_trace
from tests.predict.example_logs import DAY, repetitive_log

MACHINE = kw.Cluster.from_nodes(4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def predictor(folder):
    """Fitted on the first 500 of the 900 jobs of habits.parquet."""
    jobs = repetitive_log()
    write_trace(jobs, folder / "habits.parquet")
    early = jobs[:500]
    dataset = make_dataset(early, first_replay(early, MACHINE), 4)
    path = folder / "predictor"
    path.mkdir()
    fit(dataset, PredictionModel.of("boosting:median"), nodes=4, data="habits.parquet").save(path)
    return str(path)


def test_predictions_are_columns_of_the_log(predictor):
    jobs = repetitive_log()
    predicted = with_predicted_runtimes(jobs, MACHINE, predictor)
    dataset = make_dataset(jobs, first_replay(jobs, MACHINE), 4)
    for name, values in load(predictor).columns(dataset).items():
        np.testing.assert_array_equal(predicted[name], values)
    assert not np.array_equal(predicted["estimate_s"], jobs["estimate_s"])
    reversed_jobs = jobs[::-1]
    np.testing.assert_array_equal(
        with_predicted_runtimes(reversed_jobs, MACHINE, predictor)["planned_s"], predicted["planned_s"][::-1]
    )


def test_leaked_test_jobs_are_counted(predictor, folder):
    jobs, trace = repetitive_log(), str(folder / "habits.parquet")
    saved = saved_predictor(predictor, "runtime", jobs, trace)
    assert (saved.training_jobs, saved.first_evaluated, saved.data) == (500, 0, "habits.parquet")
    assert saved.card_sha256 == hashlib.sha256((folder / "predictor" / "card.json").read_bytes()).hexdigest()
    assert "500 of the evaluated jobs" in saved.note
    assert saved.evaluated_from(499).to_dict()["leaked_test_jobs"] == 1
    assert saved.evaluated_from(500).note is None and saved.evaluated_from(500).to_dict()["leaked_test_jobs"] == 0
    assert saved_predictor(predictor, "runtime", jobs[500:], trace).note is None
    elsewhere = saved_predictor(predictor, "runtime", jobs[500:], "another.parquet")
    assert elsewhere.training_jobs is None and "is unknown" in elsewhere.note


def test_dates_are_compared_if_both_logs_have_them(folder):
    jobs = repetitive_log()
    columns = {name: jobs[name] for name in jobs.columns}
    dated = kw.JobTable(meta={"unix_start_s": 1_000_000}, **columns)
    dataset = make_dataset(dated[:500], first_replay(dated[:500], MACHINE), 4)
    path = folder / "dated"
    path.mkdir()
    fit(dataset, PredictionModel.of("last2"), nodes=4, data="first.swf").save(path)
    later = kw.JobTable(meta={"unix_start_s": 1_000_000 + 9 * DAY}, **columns)
    assert saved_predictor(str(path), "runtime", later, "second.swf").training_jobs == 0
    same = kw.JobTable(meta={"unix_start_s": 0}, **{**columns, "submit_s": columns["submit_s"] + 1_000_000})
    assert saved_predictor(str(path), "runtime", same, "second.swf").training_jobs == 500


def test_scaled_load_does_not_change_leakage(predictor, folder):
    scenario = Scenario(str(folder / "habits.parquet"), cluster="nodes:4", runtime_predictor=predictor, load=0.2)
    workload, _, _ = prepare_scenario(scenario)
    assert workload.jobs["submit_s"][500] > 1.5 * repetitive_log()["submit_s"][500]
    assert workload.predictors[0].training_jobs == 500


def test_runs_and_comparisons_report_leakage(predictor, folder):
    trace = str(folder / "habits.parquet")
    run = run_scenario(Scenario(trace, cluster="nodes:4", runtime_predictor=predictor))
    assert any("500 of the evaluated jobs" in note for note in run.notes)
    assert run.workload.provenance(trace, [], "")["predictors"][0]["leaked_test_jobs"] == 500
    assert run.log.run["overrun"] == "quantile"
    later = run_scenario(Scenario(trace, cluster="nodes:4", runtime_predictor=predictor, jobs="500:"))
    assert not any("evaluated jobs" in note for note in later.notes)
    configs = make_policy_configs("saf", "easy", clairvoyant=False, users=True)
    scenario = Scenario(trace, cluster="nodes:4", runtime_predictor=predictor)
    test_split = prepare(ComparisonPlan((scenario,), configs, WindowOptions(windows=2, window_jobs=150, split="test")))
    assert not any("evaluated jobs" in note for note in test_split.cases[0].notes)
    full_log = prepare(ComparisonPlan((scenario,), configs))
    assert any("500 of the evaluated jobs" in note for note in full_log.cases[0].notes)


def test_invalid_folders_are_errors(predictor, folder):
    with pytest.raises(InputError, match="there is no folder .*none; create a predictor with kilowait predict"):
        Scenario("x.swf", runtime_predictor=str(folder / "none"))
    with pytest.raises(InputError, match="contains no predictor"):
        Scenario("x.swf", runtime_predictor=str(folder))
    assert Scenario("x.swf", runtime_predictor=predictor).to_dict()["runtime_predictor"] == predictor
    jobs = repetitive_log()
    without_requests = jobs.with_columns(estimate_s=jobs["runtime_s"])
    with pytest.raises(InputError, match="these jobs have no walltime requests"):
        with_predicted_runtimes(without_requests, MACHINE, predictor)
