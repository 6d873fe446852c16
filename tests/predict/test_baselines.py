"""Baseline predictions on small logs with known results, and without data leakage."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.baselines import BASELINES, predict_baseline
from kilowait.predict.job_history import from_log
from kilowait.predict.targets import runtime
from tests.predict.no_lookahead import random_log, with_changed_future


def log(**columns):
    """Four jobs of user 1, one of user 2; the third job still runs when the fourth is submitted."""
    default = {"estimate_s": [600, 600, 600, 30, 600], "user": [1, 1, 1, 1, 2], "wait_s": [0] * 5}
    return JobTable(
        job_id=[1, 2, 3, 4, 5],
        submit_s=[0, 1000, 2000, 2100, 9000],
        runtime_s=[100, 300, 500, 20, 7],
        nodes=[1] * 5,
        **{**default, **columns},
    )


def predicted(name, jobs):
    return predict_baseline(name, jobs, runtime(jobs, from_log(jobs))).tolist()


def test_predictions_of_each_baseline():
    jobs = log()
    assert predicted("request", jobs) == [600, 600, 600, 30, 600]
    # No value known; one; two; the third job still runs, and 200 exceeds the request; no value known.
    assert predicted("last2", jobs) == [600, 100, 200, 30, 600]
    assert predicted("user-median", jobs) == [600, 100, 200, 30, 600]
    assert predicted("class-median", jobs) == [600, 100, 200, 30, 600]
    assert predicted("recent", jobs) == [600, pytest.approx(100), pytest.approx(30000**0.5), 30, 600]


def test_class_median_precedes_the_user_median():
    jobs = log(estimate_s=[600, 90, 600, 600, 600])
    assert predicted("class-median", jobs)[3] == 100
    assert predicted("user-median", jobs)[3] == 200


def test_without_requests():
    jobs = log(estimate_s=[100, 300, 500, 20, 7])
    assert predicted("last2", jobs) == [3600, 100, 200, 200, 200]  # the default; medians of the user and of all users
    with pytest.raises(InputError, match="5 of 5 jobs have no request for runtime.*last2"):
        predicted("request", jobs)


@pytest.mark.parametrize("name", sorted(set(BASELINES) - {"rate"}))
@pytest.mark.parametrize("seed", range(5))
def test_predictions_do_not_depend_on_later_events(name, seed):
    jobs, times = random_log(seed)
    reference = predict_baseline(name, jobs, runtime(jobs, times))
    for last in (0, 17, 118):
        later, other_times = with_changed_future(jobs, times, last, jobs["submit_s"][last], seed)
        for prediction in (
            predict_baseline(name, later, runtime(later, other_times)),
            predict_baseline(name, jobs[: last + 1], runtime(jobs[: last + 1], times[: last + 1])),
        ):
            np.testing.assert_array_equal(prediction[: last + 1], reference[: last + 1])


def test_unknown_baseline():
    with pytest.raises(UnknownNameError, match="last3.*did you mean 'last2'"):
        predicted("last3", log())
