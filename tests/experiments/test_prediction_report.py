"""What is told of predicted run times: figures that can be worked out again, and reasons that are the forest's own."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.evaluation.storage import open_folder, plain_json
from kilowait.experiments.predict_runtimes import first_replay
from kilowait.experiments.prediction_explanations import ForestData
from kilowait.experiments.prediction_report import (
    TEST_FRACTION,
    prediction_report,
    save_prediction_report,
    scores,
)
from kilowait.predict.distribution import Distribution
from kilowait.predict.known_times import request_s
from kilowait.predict.runtime import predict_runtimes
from tests.predict.test_runtime import QUICK, habits

MACHINE = kw.Cluster.from_nodes(16)


@pytest.fixture(scope="module")
def told():
    jobs = habits()
    seen = []
    return (
        jobs,
        prediction_report(jobs, MACHINE, trace="made", ids=[700], progress=seen.append, **QUICK),
        seen,
    )


def test_figures_are_of_the_last_jobs(told):
    jobs, found, seen = told
    judged = round(TEST_FRACTION * len(jobs))
    assert (found["jobs"], found["judged"], found["trace"]) == (900, judged, "made")
    fits = [words for words in seen if words.startswith("fitting forest")]
    assert found["model"]["fits"] == len(fits) > 3 and "SHAP values" in seen[-1]
    rows = {row["name"]: row for row in found["scores"]}
    assert rows["forest"]["accuracy"] > max(rows[name]["accuracy"] for name in ("last2", "request")) + 0.02
    truth_s = jobs["runtime_s"][-judged:]
    asked = (np.minimum(truth_s, 3600) / np.maximum(truth_s, 3600)).mean()
    assert rows["request"]["accuracy"] == pytest.approx(asked)
    assert rows["request"]["underprediction_rate"] == pytest.approx((truth_s > 3600).mean())
    assert all(row["jobs"] == judged for row in rows.values())


def test_classes_and_planes_hold_all_jobs_once(told):
    _, found, _ = told
    for rows in found["classes"].values():
        assert sum(row["jobs"] for row in rows) == found["judged"]
    assert [row["label"] for row in found["classes"]["request"]] == ["10-60 min"]
    for cells in found["plane"]["cells"].values():
        assert sum(jobs for _, _, jobs in cells) == found["judged"]
    assert {up for _, up, _ in found["plane"]["cells"]["request"]} == {
        21
    }  # 3,600 s, six cells a factor of ten
    assert found["plane"]["edges_s"][21] <= 3600 < found["plane"]["edges_s"][22]
    assert sum(row["jobs"] for row in found["drift"]["rows"]) == found["jobs"]
    assert [row["start_s"] for row in found["drift"]["rows"]] == [0.0, 7 * 86400.0]


def test_levels_hold_and_rise(told):
    _, found, _ = told
    for kind in ("plain", "calibrated"):
        held = [row[kind] for row in found["calibration"]]
        assert held == sorted(held)
    at = {row["level"]: row["calibrated"] for row in found["calibration"]}
    assert at[0.9] == pytest.approx(0.9, abs=0.08)


def test_importance_and_swarm(told):
    _, found, _ = told
    means = [row["mean"] for row in found["importance"]["rows"]]
    assert means == sorted(means, reverse=True) and means[0] > 0
    swarm = found["importance"]["swarm"]
    assert len(swarm) == 12
    assert all(len(one["rank"]) == len(one["moved"]) <= 300 for one in swarm)
    ranks = np.array([one["rank"] for one in swarm], float)
    assert np.nanmin(ranks) >= 0 and np.nanmax(ranks) <= 1


def test_a_job_is_explained_by_the_forest_that_predicted_it(told):
    jobs, found, _ = told
    times = first_replay(jobs, MACHINE)
    seen = predict_runtimes(jobs, times, 16, seed=0, **QUICK)
    grounds = ForestData(jobs, times, seen, QUICK["online"], QUICK["forest"], 0)
    for dataset in found["explained"]:
        row = int(np.flatnonzero(jobs["job_id"] == dataset["job_id"])[0])
        forest = grounds.grown(grounds.learned_from(row))
        values = seen.features.values[[row]]
        np.testing.assert_array_equal(forest.weights(values)[0], seen.distribution.weights[row])
        whole = dataset["start"] + sum(part["moved"] for part in dataset["parts"]) + dataset["rest"]
        assert whole == pytest.approx(float(forest.booster.predict(values)[0]))
        assert dataset["likely_s"] == seen.distribution.most_accurate()[row]
        assert dataset["centre_s"] == pytest.approx(seen.distribution.geometric_mean()[row])
        for part in dataset["parts"]:
            at = seen.features.names.index(part["name"])
            other = values.copy()
            other[0, at] = np.nanmedian(seen.features.values[grounds.learned_from(row), at])
            weights = forest.weights(other)
            again = Distribution(
                weights, seen.features.anchor[[row]], request_s(jobs)[[row]]
            ).geometric_mean()
            assert part["if_usual_s"] == pytest.approx(float(again[0]))
        assert dataset["request_s"] == request_s(jobs)[row]
        assert len(dataset["parts"]) == 8
    which = {dataset["which"]: dataset for dataset in found["explained"]}
    assert which["a requested job"]["job_id"] == 700
    under, over = (which[f"the most {word}predicted job"] for word in ("under", "over"))
    assert under["likely_s"] < under["true_s"] and over["likely_s"] > over["true_s"]


def test_the_same_seed_tells_the_same(told):
    jobs, found, _ = told
    again = prediction_report(jobs, MACHINE, trace="made", ids=[700], **QUICK)
    assert plain_json(again) == plain_json(found)
    other = prediction_report(jobs, MACHINE, trace="made", ids=[700], seed=1, **QUICK)
    assert plain_json(other) != plain_json(found)


def test_a_log_without_requests(told):
    jobs = habits()
    bare = jobs.with_columns(estimate_s=jobs["runtime_s"])
    found = prediction_report(bare, MACHINE, **QUICK)
    rows = {row["name"]: row for row in found["scores"]}
    assert rows["request"]["jobs"] == 0 and rows["last2"]["jobs"] > 200
    assert found["plane"]["cells"]["request"] == []
    assert [row["label"] for row in found["classes"]["request"]] == ["not said"]
    assert '"request_s": null' in plain_json(found)


def test_the_folder_is_opened_again(told, tmp_path):
    _, found, _ = told
    folder = save_prediction_report(
        tmp_path / "f", found, scenario={"trace": "made"}, manifest={"date": "today"}
    )
    opened = open_folder(folder)
    assert opened.manifest["kind"] == "predictions" and opened.scenario == {"trace": "made"}
    assert opened.results["predictions"]["jobs"] == 900


def test_scores_of_nothing():
    assert scores(np.array([np.nan]), np.array([5.0]))["jobs"] == 0


def test_words():
    jobs = habits()
    with pytest.raises(InputError, match="there is no job 4711 in this log; its jobs are 0 to 899"):
        prediction_report(jobs, MACHINE, ids=[4711], **QUICK)
    with pytest.raises(
        InputError, match="job 3 was submitted before the first forest was fitted.*choose a later"
    ):
        prediction_report(jobs, MACHINE, ids=[3], **QUICK)
    with pytest.raises(
        InputError, match="no forest was fitted on these 60 jobs: it needs 50 that have ended"
    ):
        prediction_report(jobs[:60], MACHINE, **QUICK)
    with pytest.raises(InputError, match="no forest was fitted on these 0 jobs"):
        prediction_report(jobs[:0], MACHINE, **QUICK)
