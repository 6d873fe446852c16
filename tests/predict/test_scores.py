"""Prediction scores on small examples."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.scores import JOB_CLASSES, coverage, job_class_codes, losses, score, scores_by_class


def test_scores():
    scores = score([100, 10, 5], [50, 20, 5])
    assert scores.jobs == 3
    assert scores.accuracy == pytest.approx((0.5 + 0.5 + 1) / 3)
    assert scores.mae == pytest.approx(20)
    assert scores.median_ae == 10
    assert scores.underprediction_rate == pytest.approx(1 / 3)
    assert scores.mape == pytest.approx((1 + 0.5) / 3)
    squares = [np.log(101 / 51) ** 2, np.log(11 / 21) ** 2]
    assert scores.log_rmse == pytest.approx((sum(squares) / 3) ** 0.5)


def test_zeros_and_unknown_truths():
    assert losses(np.zeros(1), np.zeros(1))["accuracy"].tolist() == [1]
    assert score([0, 9], [0, np.nan]).accuracy == 1
    assert score([60, 3], [0, 3]).mape == 0  # jobs with a true value of 0 are left out
    assert np.isnan(score([0], [0]).mape)
    empty = score([1], [np.nan])
    assert empty.jobs == 0 and np.isnan(empty.mae)
    assert coverage(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, np.nan])) == 0.5


def test_by_class():
    jobs = JobTable(
        job_id=[1, 2, 3, 4],
        submit_s=[0, 1, 2, 3],
        runtime_s=[10, 100, 7200, 90000],
        nodes=[1, 4, 5, 300],
        user=[1, 1, 1, 2],
    )
    names = {}
    for kind in JOB_CLASSES:
        code, known = job_class_codes(jobs, kind)
        names[kind] = [known[one] for one in code]
    assert names["size"] == ["1", "2-4", "5-16", "257-1024"]
    assert names["length"] == ["< 1 min", "1-10 min", "1-6 h", ">= 24 h"]
    assert names["user-jobs"] == ["none", "1-9", "1-9", "none"]
    truth = jobs["runtime_s"]
    by_user_jobs = dict(scores_by_class(jobs, "user-jobs", truth * [1, 1, 2, 1], truth))
    assert {name: (one.jobs, one.accuracy) for name, one in by_user_jobs.items()} == {
        "none": (2, 1.0),
        "1-9": (2, 0.75),
    }
    subset = dict(scores_by_class(jobs, "user-jobs", truth, truth, np.array([True, False, False, False])))
    assert list(subset) == ["none"] and subset["none"].jobs == 1


def test_invalid_arguments():
    with pytest.raises(InputError, match=r"shape \(1,\) for truths of \(2,\)"):
        score([1], [1, 2])
    with pytest.raises(InputError, match="1 of 2 predictions are not finite"):
        score([1, np.nan], [1, 2])
    with pytest.raises(UnknownNameError, match="sizes.*did you mean 'size'"):
        job_class_codes(JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1]), "sizes")
