"""Expected watts of a log that is replayed: learned from jobs that had ended, and never from the job itself."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.comparison_plan import ComparisonPlan, prepare, run
from kilowait.experiments.policy_configs import make_policy_configs
from kilowait.experiments.power import PowerSettings
from kilowait.experiments.predict_power import MODEL, with_predicted_watts
from kilowait.experiments.scenario import Scenario, prepare_scenario, run_scenario
from kilowait.traces import write_trace
from tests.predict.example_logs import habits

MACHINE = kw.Cluster.from_nodes(4)
POWER = PowerSettings("taurus")


def measured(jobs: int = 900) -> kw.JobTable:
    """Users whose jobs draw 110, 150 and 190 W; every tenth was not measured."""
    log = habits(jobs=jobs)
    watts = np.choose(log["user"], [110.0, 150.0, 190.0])
    return log.with_columns(power_w=np.where(log["job_id"] % 10 == 0, np.nan, watts))


def test_what_is_expected_is_what_such_jobs_drew():
    jobs = measured()
    told = with_predicted_watts(jobs, MACHINE, "forest", 191.0)
    known = ~np.isnan(jobs["power_w"])
    assert (np.isnan(told["predicted_power_w"]) == ~known).all()
    off = np.abs(told["predicted_power_w"] / jobs["power_w"] - 1)[known]
    assert np.median(off[300:]) < 0.05
    np.testing.assert_array_equal(told["power_w"], jobs["power_w"])
    turned = with_predicted_watts(jobs[::-1], MACHINE, "recent", 191.0)["predicted_power_w"][::-1]
    np.testing.assert_array_equal(
        turned, with_predicted_watts(jobs, MACHINE, "recent", 191.0)["predicted_power_w"]
    )


@pytest.mark.parametrize("who", ["recent", "forest"])
def test_nobody_knows_a_job_before_it_has_ended(who):
    jobs = measured()
    last = np.where(jobs["job_id"] >= 800, 1.0, jobs["power_w"])
    other = jobs.with_columns(power_w=np.where(np.isnan(jobs["power_w"]), np.nan, last))
    one, two = (
        with_predicted_watts(table, MACHINE, who, 191.0)["predicted_power_w"] for table in (jobs, other)
    )
    np.testing.assert_array_equal(one[:800], two[:800])


def test_nothing_is_expected_beyond_full_load():
    assert np.nanmax(with_predicted_watts(measured(), MACHINE, "recent", 120.0)["predicted_power_w"]) == 120.0


def test_the_model_says_nothing_of_any_job():
    assert np.isnan(with_predicted_watts(measured(), MACHINE, MODEL, 191.0)["predicted_power_w"]).all()


def test_scenarios(tmp_path):
    path = tmp_path / "log.parquet"
    write_trace(measured(), path)
    asked = {"cluster": "nodes:4", "power": POWER, "power_controls": "budget=480W"}
    done = {
        who: run_scenario(Scenario(str(path), power_predictor=who, **asked))
        for who in (None, MODEL, "recent")
    }
    waits = {who: float(np.mean(one.log.jobs()["wait_s"])) for who, one in done.items()}
    assert waits[None] < waits[MODEL] and waits["recent"] < waits[MODEL]
    assert done[None].budget_violation.max_excess_w == 0 and done[MODEL].budget_violation.max_excess_w == 0
    assert done["recent"].budget_violation.max_excess_w > 0
    assert done["recent"].accounts.peak_it_w == pytest.approx(
        480 + done["recent"].budget_violation.max_excess_w
    )
    assert any("predicted watts (recent) of the 810 jobs" in note for note in done["recent"].notes)
    both = prepare_scenario(
        Scenario(str(path), power_predictor="recent", runtime_predictor="last2", **asked)
    )[0].jobs
    alone = prepare_scenario(Scenario(str(path), power_predictor="recent", **asked))[0].jobs
    np.testing.assert_array_equal(
        both["predicted_power_w"], alone["predicted_power_w"]
    )  # learned in the same first replay


def test_comparisons_plan_alike(tmp_path):
    path = tmp_path / "log.parquet"
    write_trace(measured(300), path)
    scenario = Scenario(str(path), cluster="nodes:4", power=POWER, power_predictor=MODEL)
    who = make_policy_configs("fcfs", "easy", "none,budget=480W", clairvoyant=False)
    contest = run(prepare(ComparisonPlan((scenario,), who)), workers=1)[0]
    done = run_scenario(
        Scenario(
            str(path), cluster="nodes:4", power=POWER, power_predictor=MODEL, power_controls="budget=480W"
        )
    )
    np.testing.assert_array_equal(contest.logs(1, 0).jobs()["start_s"], done.log.jobs()["start_s"])


def test_words_for_what_will_not_do():
    with pytest.raises(InputError, match="without a power model; name one with --power"):
        Scenario("x.swf", power_predictor="forest")
    with pytest.raises(UnknownNameError, match="did you mean 'forest'"):
        Scenario("x.swf", power_predictor="forrest", power=POWER)
    with pytest.raises(InputError, match="there is no folder runs/none; .* --target power"):
        Scenario("x.swf", power_predictor="runs/none", power=POWER)
    with pytest.raises(InputError, match="the forest's mean is unsuitable for power"):
        Scenario("x.swf", power_predictor="forest:mean", power=POWER)
    with pytest.raises(InputError, match="none of these 900 jobs has any"):
        with_predicted_watts(habits(), MACHINE, "forest", 191.0)
