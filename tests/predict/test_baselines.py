"""Predictions without learning, on logs small enough to be done by hand; and none of them looks ahead."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.baselines import BASELINES, predict_baseline
from kilowait.predict.known_times import from_log
from kilowait.predict.targets import runtime
from tests.predict.no_lookahead import another_future, random_log


def log(**columns):
    """User 1 four times, user 2 once; the third job is still running when the fourth comes."""
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


def test_what_they_say():
    jobs = log()
    assert predicted("request", jobs) == [600, 600, 600, 30, 600]
    # Nothing known; one ended; two ended; the third not yet, and 200 is more than was asked for; nothing known.
    assert predicted("last2", jobs) == [600, 100, 200, 30, 600]
    assert predicted("user-median", jobs) == [600, 100, 200, 30, 600]
    assert predicted("class-median", jobs) == [600, 100, 200, 30, 600]
    assert predicted("recent", jobs) == [600, pytest.approx(100), pytest.approx(30000**0.5), 30, 600]


def test_a_median_of_its_class_comes_before_that_of_the_user():
    jobs = log(estimate_s=[600, 90, 600, 600, 600])
    assert predicted("class-median", jobs)[3] == 100
    assert predicted("user-median", jobs)[3] == 200


def test_without_requests():
    jobs = log(estimate_s=[100, 300, 500, 20, 7])
    assert predicted("last2", jobs) == [3600, 100, 200, 200, 200]  # a guess; its own; everybody's middle
    with pytest.raises(InputError, match="5 of 5 jobs have no request for runtime.*last2"):
        predicted("request", jobs)


@pytest.mark.parametrize("name", sorted(set(BASELINES) - {"rate"}))
@pytest.mark.parametrize("seed", range(5))
def test_the_future_changes_nothing(name, seed):
    jobs, times = random_log(seed)
    whole = predict_baseline(name, jobs, runtime(jobs, times))
    for last in (0, 17, 118):
        later, other = another_future(jobs, times, last, jobs["submit_s"][last], seed)
        for found in (
            predict_baseline(name, later, runtime(later, other)),
            predict_baseline(name, jobs[: last + 1], runtime(jobs[: last + 1], times[: last + 1])),
        ):
            np.testing.assert_array_equal(found[: last + 1], whole[: last + 1])


def test_words():
    with pytest.raises(UnknownNameError, match="last3.*did you mean 'last2'"):
        predicted("last3", log())
