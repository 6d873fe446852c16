"""Predictors from folders: what they say of a log that is replayed, and whether they have seen it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.experiments.comparison_plan import ComparisonPlan, prepare
from kilowait.experiments.policy_configs import make_policy_configs
from kilowait.experiments.predict_runtimes import first_replay, with_predicted_runtimes
from kilowait.experiments.saved_predictor import saved_predictor
from kilowait.experiments.scenario import Scenario, prepare_scenario, run_scenario
from kilowait.experiments.window_options import WindowOptions
from kilowait.predict.conformal import fit
from kilowait.predict.dataset import make_dataset
from kilowait.predict.models import PredictionModel
from kilowait.predict.predictor import load
from kilowait.traces import write_trace
from tests.predict.example_logs import DAY, habits

MACHINE = kw.Cluster.from_nodes(4)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def kept(place):
    """Fitted on the first 500 of the 900 jobs of habits.parquet."""
    jobs = habits()
    write_trace(jobs, place / "habits.parquet")
    early = jobs[:500]
    asked = make_dataset(early, first_replay(early, MACHINE), 4)
    folder = place / "predictor"
    folder.mkdir()
    fit(asked, PredictionModel.of("boosting:median"), nodes=4, data="habits.parquet").save(folder)
    return str(folder)


def test_the_log_is_told_what_the_predictor_says(kept):
    jobs = habits()
    told = with_predicted_runtimes(jobs, MACHINE, kept)
    asked = make_dataset(jobs, first_replay(jobs, MACHINE), 4)
    for name, values in load(kept).columns(asked).items():
        np.testing.assert_array_equal(told[name], values)
    assert not np.array_equal(told["estimate_s"], jobs["estimate_s"])
    turned = jobs[::-1]
    np.testing.assert_array_equal(
        with_predicted_runtimes(turned, MACHINE, kept)["planned_s"], told["planned_s"][::-1]
    )


def test_it_knows_what_it_was_fitted_on(kept, place):
    jobs, trace = habits(), str(place / "habits.parquet")
    found = saved_predictor(kept, "runtime", jobs, trace)
    assert (found.training_jobs, found.first_evaluated, found.data) == (500, 0, "habits.parquet")
    assert found.card_sha256 == hashlib.sha256((place / "predictor" / "card.json").read_bytes()).hexdigest()
    assert "500 of the judged jobs" in found.note
    assert found.evaluated_from(499).to_dict()["judged_jobs_seen"] == 1
    assert (
        found.evaluated_from(500).note is None
        and found.evaluated_from(500).to_dict()["judged_jobs_seen"] == 0
    )
    assert saved_predictor(kept, "runtime", jobs[500:], trace).note is None
    elsewhere = saved_predictor(kept, "runtime", jobs[500:], "another.parquet")
    assert elsewhere.training_jobs is None and "dates do not tell" in elsewhere.note


def test_dates_are_compared_where_both_logs_have_them(kept, place):
    jobs = habits()
    columns = {name: jobs[name] for name in jobs.columns}
    dated = kw.JobTable(meta={"unix_start_s": 1_000_000}, **columns)
    asked = make_dataset(dated[:500], first_replay(dated[:500], MACHINE), 4)
    folder = place / "dated"
    folder.mkdir()
    fit(asked, PredictionModel.of("last2"), nodes=4, data="first.swf").save(folder)
    later = kw.JobTable(meta={"unix_start_s": 1_000_000 + 9 * DAY}, **columns)
    assert saved_predictor(str(folder), "runtime", later, "second.swf").training_jobs == 0
    same = kw.JobTable(meta={"unix_start_s": 0}, **{**columns, "submit_s": columns["submit_s"] + 1_000_000})
    assert saved_predictor(str(folder), "runtime", same, "second.swf").training_jobs == 500


def test_another_load_is_not_another_date(kept, place):
    scenario = Scenario(str(place / "habits.parquet"), cluster="nodes:4", runtime_predictor=kept, load=0.2)
    workload, _, _ = prepare_scenario(scenario)
    assert workload.jobs["submit_s"][500] > 1.5 * habits()["submit_s"][500]
    assert workload.predictors[0].training_jobs == 500


def test_runs_and_comparisons_say_so(kept, place):
    trace = str(place / "habits.parquet")
    done = run_scenario(Scenario(trace, cluster="nodes:4", runtime_predictor=kept))
    assert any("500 of the judged jobs" in note for note in done.notes)
    assert done.workload.provenance(trace, [], "")["predictors"][0]["judged_jobs_seen"] == 500
    assert done.log.run["overrun"] == "quantile"
    later = run_scenario(Scenario(trace, cluster="nodes:4", runtime_predictor=kept, jobs="500:"))
    assert not any("judged jobs" in note for note in later.notes)
    who = make_policy_configs("saf", "easy", clairvoyant=False, users=True)
    scenario = Scenario(trace, cluster="nodes:4", runtime_predictor=kept)
    cut = prepare(ComparisonPlan((scenario,), who, WindowOptions(windows=2, window_jobs=150, split="test")))
    assert not any("judged jobs" in note for note in cut.notes[0])
    whole = prepare(ComparisonPlan((scenario,), who))
    assert any("500 of the judged jobs" in note for note in whole.notes[0])


def test_words_for_folders_that_will_not_do(kept, place):
    with pytest.raises(
        InputError, match="there is no folder .*none; create a predictor with kilowait predict"
    ):
        Scenario("x.swf", runtime_predictor=str(place / "none"))
    with pytest.raises(InputError, match="contains no predictor"):
        Scenario("x.swf", runtime_predictor=str(place))
    assert Scenario("x.swf", runtime_predictor=kept).to_dict()["runtime_predictor"] == kept
    jobs = habits()
    unasked = jobs.with_columns(estimate_s=jobs["runtime_s"])
    with pytest.raises(InputError, match="these jobs have no walltime requests"):
        with_predicted_runtimes(unasked, MACHINE, kept)
