"""Tests of the predictor benchmark."""

from benchmarks.speed.predictors import predictor_speeds


def test_all_measurements_are_made_and_single_predictions_have_a_target():
    results = {result.name: result for result in predictor_speeds(600, rows=3, models=("boosting:median",))}
    assert list(results) == [
        "features of 600 jobs",
        "boosting:median, fitted and calibrated",
        "boosting:median, all jobs at once",
        "boosting:median, one job: value and 3 bounds",
    ]
    last = results["boosting:median, one job: value and 3 bounds"]
    assert last.value > 0 and last.target == 1 and last.less_is_better and last.note.startswith("99 %")
