"""Report of predicted run times: metrics and explanations are recomputed and compared."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.evaluation.storage import open_folder, plain_json
from kilowait.experiments.prediction.report import (
    TEST_FRACTION,
    ForestData,
    prediction_errors,
    prediction_report,
    save_prediction_report,
)
from kilowait.experiments.predictors import first_replay
from kilowait.predict.forest import Distribution
from kilowait.predict.job_history import request_s
from kilowait.predict.walk_forward import predict_runtimes
from tests.predict.test_walk_forward import QUICK, repetitive_log

MACHINE = kw.Cluster.from_nodes(16)


@pytest.fixture(scope="module")
def report():
    jobs = repetitive_log()
    messages = []
    return (
        jobs,
        prediction_report(jobs, MACHINE, trace="synthetic", ids=[700], progress=messages.append, **QUICK),
        messages,
    )


def test_metrics_are_of_the_test_jobs(report):
    jobs, data, messages = report
    test_jobs = round(TEST_FRACTION * len(jobs))
    assert (data["jobs"], data["test_jobs"], data["trace"]) == (900, test_jobs, "synthetic")
    fits = [text for text in messages if text.startswith("fitting forest")]
    assert data["model"]["fits"] == len(fits) > 3 and "SHAP values" in messages[-1]
    rows = {row["name"]: row for row in data["scores"]}
    assert rows["forest"]["accuracy"] > max(rows[name]["accuracy"] for name in ("last2", "request")) + 0.02
    truth_s = jobs["runtime_s"][-test_jobs:]
    accuracy = (np.minimum(truth_s, 3600) / np.maximum(truth_s, 3600)).mean()
    assert rows["request"]["accuracy"] == pytest.approx(accuracy)
    assert rows["request"]["underprediction_rate"] == pytest.approx((truth_s > 3600).mean())
    assert all(row["jobs"] == test_jobs for row in rows.values())


def test_classes_and_histograms_contain_every_job_once(report):
    _, data, _ = report
    for rows in data["classes"].values():
        assert sum(row["jobs"] for row in rows) == data["test_jobs"]
    assert [row["label"] for row in data["classes"]["request"]] == ["10-60 min"]
    for cells in data["histogram"]["cells"].values():
        assert sum(jobs for _, _, jobs in cells) == data["test_jobs"]
    assert {predicted for _, predicted, _ in data["histogram"]["cells"]["request"]} == {
        21
    }  # 3,600 s, six cells per decade
    assert data["histogram"]["edges_s"][21] <= 3600 < data["histogram"]["edges_s"][22]
    assert sum(row["jobs"] for row in data["drift"]["rows"]) == data["jobs"]
    assert [row["start_s"] for row in data["drift"]["rows"]] == [0.0, 7 * 86400.0]


def test_coverage_increases_with_level(report):
    _, data, _ = report
    for kind in ("plain", "calibrated"):
        covered = [row[kind] for row in data["calibration"]]
        assert covered == sorted(covered)
    calibrated = {row["level"]: row["calibrated"] for row in data["calibration"]}
    assert calibrated[0.9] == pytest.approx(0.9, abs=0.08)


def test_importance_and_beeswarm(report):
    _, data, _ = report
    means = [row["mean"] for row in data["importance"]["rows"]]
    assert means == sorted(means, reverse=True) and means[0] > 0
    beeswarm = data["importance"]["beeswarm"]
    assert len(beeswarm) == 12
    assert all(len(row["rank"]) == len(row["contributions"]) <= 300 for row in beeswarm)
    ranks = np.array([row["rank"] for row in beeswarm], float)
    assert np.nanmin(ranks) >= 0 and np.nanmax(ranks) <= 1


def test_job_is_explained_by_the_forest_that_predicted_it(report):
    jobs, data, _ = report
    times = first_replay(jobs, MACHINE)
    predictions = predict_runtimes(jobs, times, 16, seed=0, **QUICK)
    forests = ForestData(jobs, times, predictions, QUICK["online"], QUICK["forest"], 0)
    for case in data["explained"]:
        row = int(np.flatnonzero(jobs["job_id"] == case["job_id"])[0])
        forest = forests.fit_forest_on(forests.training_rows(row))
        values = predictions.features.values[[row]]
        np.testing.assert_array_equal(forest.weights(values)[0], predictions.distribution.weights[row])
        parts = case["contributions"]
        total = case["base"] + sum(part["contribution"] for part in parts) + case["other_contributions"]
        assert total == pytest.approx(float(forest.booster.predict(values)[0]))
        assert case["most_accurate_s"] == predictions.distribution.most_accurate()[row]
        assert case["geometric_mean_s"] == pytest.approx(predictions.distribution.geometric_mean()[row])
        for part in parts:
            column = predictions.features.names.index(part["name"])
            with_median = values.copy()
            with_median[0, column] = np.nanmedian(predictions.features.values[forests.training_rows(row), column])
            weights = forest.weights(with_median)
            predicted_s = Distribution(
                weights, predictions.features.anchor[[row]], request_s(jobs)[[row]]
            ).geometric_mean()
            assert part["predicted_with_median_s"] == pytest.approx(float(predicted_s[0]))
        assert case["request_s"] == request_s(jobs)[row]
        assert len(parts) == 8
    cases = {case["role"]: case for case in data["explained"]}
    assert cases["a requested job"]["job_id"] == 700
    under, over = (cases[f"the most {prefix}predicted job"] for prefix in ("under", "over"))
    assert under["most_accurate_s"] < under["true_s"] and over["most_accurate_s"] > over["true_s"]


def test_same_seed_gives_same_report(report):
    jobs, data, _ = report
    again = prediction_report(jobs, MACHINE, trace="synthetic", ids=[700], **QUICK)
    assert plain_json(again) == plain_json(data)
    other = prediction_report(jobs, MACHINE, trace="synthetic", ids=[700], seed=1, **QUICK)
    assert plain_json(other) != plain_json(data)


def test_log_without_requests(report):
    jobs = repetitive_log()
    without_requests = jobs.with_columns(estimate_s=jobs["runtime_s"])
    data = prediction_report(without_requests, MACHINE, **QUICK)
    rows = {row["name"]: row for row in data["scores"]}
    assert rows["request"]["jobs"] == 0 and rows["last2"]["jobs"] > 200
    assert data["histogram"]["cells"]["request"] == []
    assert [row["label"] for row in data["classes"]["request"]] == ["no request"]
    assert '"request_s": null' in plain_json(data)


def test_saved_report_is_opened(report, tmp_path):
    _, data, _ = report
    folder = save_prediction_report(tmp_path / "f", data, scenario={"trace": "synthetic"}, manifest={"date": "today"})
    opened = open_folder(folder)
    assert opened.manifest["kind"] == "predictions" and opened.scenario == {"trace": "synthetic"}
    assert opened.results["predictions"]["jobs"] == 900


def test_scores_without_predictions():
    assert prediction_errors(np.array([np.nan]), np.array([5.0]))["jobs"] == 0


def test_errors():
    jobs = repetitive_log()
    with pytest.raises(InputError, match="there is no job 4711 in this log; its jobs are 0 to 899"):
        prediction_report(jobs, MACHINE, ids=[4711], **QUICK)
    with pytest.raises(InputError, match="job 3 was submitted before the first forest was fitted.*choose a later"):
        prediction_report(jobs, MACHINE, ids=[3], **QUICK)
    with pytest.raises(InputError, match="no forest was fitted on these 60 jobs: it needs 50 that have ended"):
        prediction_report(jobs[:60], MACHINE, **QUICK)
    with pytest.raises(InputError, match="no forest was fitted on these 0 jobs"):
        prediction_report(jobs[:0], MACHINE, **QUICK)
