"""Every measure is made, and one job's prediction has its target."""

from kilowait.experiments.bench_predictors import predictor_speeds


def test_measures():
    found = {one.name: one for one in predictor_speeds(600, rows=3, models=("boosting:median",))}
    assert list(found) == [
        "features of 600 jobs",
        "boosting:median, fitted and calibrated",
        "boosting:median, all jobs at once",
        "boosting:median, one job: value and 3 bounds",
    ]
    last = found["boosting:median, one job: value and 3 bounds"]
    assert last.value > 0 and last.target == 1 and last.less_is_better and last.note.startswith("99 %")
