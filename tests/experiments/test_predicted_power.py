"""Tests of predicted job power: from ended jobs only, never from the job itself (data leakage)."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.comparison.compare import prepare, run
from kilowait.experiments.comparison.plan import ComparisonPlan
from kilowait.experiments.policies import make_policy_configs
from kilowait.experiments.predictors import POWER_MODEL_PREDICTOR, first_replay, with_predicted_watts
from kilowait.experiments.scenario import prepare_scenario, run_scenario
from kilowait.experiments.settings import PowerSettings, Scenario
from kilowait.predict.dataset import make_dataset
from kilowait.predict.models import PredictionModel
from kilowait.predict.predictor import fit
from kilowait.predict.targets import power
from kilowait.traces import write_trace
from tests.predict.example_logs import repetitive_log

MACHINE = kw.Cluster.from_nodes(4)
POWER = PowerSettings("taurus")


def measured(jobs: int = 900) -> kw.JobTable:
    """Users whose jobs draw 110, 150 and 190 W; every tenth was not measured."""
    log = repetitive_log(jobs=jobs)
    watts = np.choose(log["user"], [110.0, 150.0, 190.0])
    return log.with_columns(power_w=np.where(log["job_id"] % 10 == 0, np.nan, watts))


def test_predictions_are_close_to_the_power_of_similar_jobs():
    jobs = measured()
    predicted = with_predicted_watts(jobs, MACHINE, "forest", 191.0)
    known = ~np.isnan(jobs["power_w"])
    assert (np.isnan(predicted["predicted_power_w"]) == ~known).all()
    error = np.abs(predicted["predicted_power_w"] / jobs["power_w"] - 1)[known]
    assert np.median(error[300:]) < 0.05
    np.testing.assert_array_equal(predicted["power_w"], jobs["power_w"])
    reversed_jobs = with_predicted_watts(jobs[::-1], MACHINE, "recent", 191.0)["predicted_power_w"][::-1]
    np.testing.assert_array_equal(
        reversed_jobs, with_predicted_watts(jobs, MACHINE, "recent", 191.0)["predicted_power_w"]
    )


@pytest.mark.parametrize("predictor", ["recent", "forest"])
def test_predictions_do_not_use_jobs_that_have_not_ended(predictor):
    jobs = measured()
    changed_w = np.where(jobs["job_id"] >= 800, 1.0, jobs["power_w"])
    other = jobs.with_columns(power_w=np.where(np.isnan(jobs["power_w"]), np.nan, changed_w))
    one, two = (with_predicted_watts(table, MACHINE, predictor, 191.0)["predicted_power_w"] for table in (jobs, other))
    np.testing.assert_array_equal(one[:800], two[:800])


def test_predictions_are_at_most_full_load():
    assert np.nanmax(with_predicted_watts(measured(), MACHINE, "recent", 120.0)["predicted_power_w"]) == 120.0


def test_power_model_as_predictor_gives_no_predictions():
    assert np.isnan(with_predicted_watts(measured(), MACHINE, POWER_MODEL_PREDICTOR, 191.0)["predicted_power_w"]).all()


def test_power_budget_with_measured_modelled_and_predicted_power(tmp_path):
    path = tmp_path / "log.parquet"
    write_trace(measured(), path)
    settings = {"cluster": "nodes:4", "power": POWER, "power_controls": "budget=480W"}
    done = {
        predictor: run_scenario(Scenario(str(path), power_predictor=predictor, **settings))
        for predictor in (None, POWER_MODEL_PREDICTOR, "recent")
    }
    waits = {predictor: float(np.mean(one.log.jobs()["wait_s"])) for predictor, one in done.items()}
    assert waits[None] < waits[POWER_MODEL_PREDICTOR] and waits["recent"] < waits[POWER_MODEL_PREDICTOR]
    assert (
        done[None].budget_violation.max_excess_w == 0 and done[POWER_MODEL_PREDICTOR].budget_violation.max_excess_w == 0
    )
    assert done["recent"].budget_violation.max_excess_w > 0
    assert done["recent"].accounts.peak_it_w == pytest.approx(480 + done["recent"].budget_violation.max_excess_w)
    assert any("predicted watts (recent) of the 810 jobs" in note for note in done["recent"].notes)
    both = prepare_scenario(Scenario(str(path), power_predictor="recent", runtime_predictor="last2", **settings))[
        0
    ].jobs
    alone = prepare_scenario(Scenario(str(path), power_predictor="recent", **settings))[0].jobs
    np.testing.assert_array_equal(both["predicted_power_w"], alone["predicted_power_w"])  # from the same first replay


def test_comparisons_use_the_same_predictions_as_single_runs(tmp_path):
    path = tmp_path / "log.parquet"
    write_trace(measured(300), path)
    scenario = Scenario(str(path), cluster="nodes:4", power=POWER, power_predictor=POWER_MODEL_PREDICTOR)
    configs = make_policy_configs("fcfs", "easy", "none,budget=480W", clairvoyant=False)
    comparison = run(prepare(ComparisonPlan((scenario,), configs)), workers=1)[0]
    done = run_scenario(
        Scenario(
            str(path),
            cluster="nodes:4",
            power=POWER,
            power_predictor=POWER_MODEL_PREDICTOR,
            power_controls="budget=480W",
        )
    )
    np.testing.assert_array_equal(comparison.logs(1, 0).jobs()["start_s"], done.log.jobs()["start_s"])


def test_predictor_of_a_metered_log_plans_the_power_of_an_unmetered_log(tmp_path):
    early, later = measured()[:600], measured()[600:]
    dataset = make_dataset(early, first_replay(early, MACHINE), 4, power(early, first_replay(early, MACHINE)))
    (tmp_path / "watts").mkdir()
    fit(dataset, PredictionModel.of("boosting:median"), nodes=4, data="early").save(tmp_path / "watts")
    columns = {name: later[name] for name in later.columns if name != "power_w"}
    path = tmp_path / "unmetered.parquet"
    write_trace(kw.JobTable(**columns), path)
    settings = {"cluster": "nodes:4", "power": POWER, "power_controls": "budget=480W"}
    done = run_scenario(Scenario(str(path), power_predictor=str(tmp_path / "watts"), **settings))
    predicted = done.log.jobs_table["predicted_power_w"]
    truth = np.choose(later["user"], [110.0, 150.0, 190.0])
    assert np.median(np.abs(predicted / truth - 1)) < 0.25 and np.ptp(predicted) > 30
    note = "accounting uses measured power, and the power model for the 300 jobs without"
    assert any(note in text for text in done.notes)
    full_load = run_scenario(Scenario(str(path), **settings))
    assert np.mean(done.log.jobs()["wait_s"]) < np.mean(full_load.log.jobs()["wait_s"])


def test_saved_predictors_predict_unmeasured_jobs_too(tmp_path):
    jobs = measured(300)
    dataset = make_dataset(jobs, first_replay(jobs, MACHINE), 4, power(jobs, first_replay(jobs, MACHINE)))
    fit(dataset, PredictionModel.of("recent"), nodes=4, data="log").save(tmp_path)
    assert np.isfinite(with_predicted_watts(jobs, MACHINE, str(tmp_path), 191.0)["predicted_power_w"]).all()


def test_invalid_power_predictors_are_rejected():
    with pytest.raises(InputError, match="without a power model; name one with --power"):
        Scenario("x.swf", power_predictor="forest")
    with pytest.raises(UnknownNameError, match="did you mean 'forest'"):
        Scenario("x.swf", power_predictor="forrest", power=POWER)
    with pytest.raises(InputError, match="there is no folder runs/none; .* --target power"):
        Scenario("x.swf", power_predictor="runs/none", power=POWER)
    with pytest.raises(InputError, match="the forest's mean is unsuitable for power"):
        Scenario("x.swf", power_predictor="forest:mean", power=POWER)
    with pytest.raises(InputError, match="none of these 900 jobs has any"):
        with_predicted_watts(repetitive_log(), MACHINE, "forest", 191.0)
