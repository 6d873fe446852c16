"""Split and windows of a log: chronological, disjoint, evaluated once, equal for all policies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kilowait as kw
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import cut_windows, single_window, split


@pytest.fixture(scope="module")
def jobs():
    return kw.lublin(2000, 64, load=1.0, seed=5, estimates="rounded")


def test_splits_are_chronological_and_disjoint(jobs):
    reversed_jobs = jobs[np.arange(len(jobs))[::-1]]
    parts = split(reversed_jobs)
    assert parts.train["submit_s"].max() <= parts.validation["submit_s"].min()
    assert parts.validation["submit_s"].max() <= parts.test["submit_s"].min()
    ids = np.concatenate([part["job_id"] for part in (parts.train, parts.validation, parts.test)])
    assert sorted(ids) == sorted(jobs["job_id"])
    assert [parts.row_range(name) for name in ("train", "validation", "test", "all")] == [
        (0, 1200),
        (1200, 1600),
        (1600, 2000),
        (0, 2000),
    ]
    with pytest.raises(UnknownNameError, match="did you mean 'test'"):
        parts.row_range("tets")
    with pytest.raises(InputError, match="their sum below 1"):
        split(jobs, train=0.8, validation=0.2)
    with pytest.raises(InputError, match="too few"):
        split(jobs[:2])


@given(
    count=st.integers(1, 12),
    size=st.integers(1, 200),
    warmup=st.integers(0, 200),
    seed=st.integers(0, 5),
    low=st.integers(0, 500),
)
def test_windows_by_count(count, size, warmup, seed, low):
    jobs = kw.JobTable(job_id=range(1000), submit_s=np.arange(1000) * 7.0, runtime_s=[1] * 1000, nodes=[1] * 1000)
    cut = cut_windows(jobs, count, window_jobs=size, warmup_jobs=warmup, seed=seed, within=(low, 1000))
    repeated = cut_windows(jobs, count, window_jobs=size, warmup_jobs=warmup, seed=seed, within=(low, 1000))
    assert len(cut) == count
    evaluations = np.zeros(1000, int)
    for window, same in zip(cut, repeated, strict=True):
        assert window.size == size and window.warmup == warmup
        ids = window.jobs["job_id"]
        np.testing.assert_array_equal(ids, same.jobs["job_id"])
        np.testing.assert_array_equal(ids, np.arange(window.first - warmup, window.first + size))
        assert ids[window.evaluated].min() >= low
        evaluations[ids[window.evaluated]] += 1
    if count * size <= 1000 - max(low, warmup):
        assert evaluations.max() == 1 and cut.overlap == 1.0
    assert cut.overlap == pytest.approx(evaluations.sum() / np.count_nonzero(evaluations))


def test_windows_depend_on_the_seed(jobs):
    starts = {tuple(cut_windows(jobs, 5, window_jobs=50, seed=seed).first.tolist()) for seed in range(10)}
    assert len(starts) == 10


def test_windows_by_time():
    """Exactly the jobs submitted in the time span count; spans without jobs are omitted."""
    submit = np.concatenate((np.arange(0, 500, 5), np.arange(5000, 5500, 10))).astype(float)
    n = len(submit)
    jobs = kw.JobTable(job_id=range(n), submit_s=submit, runtime_s=[1] * n, nodes=[1] * n)
    cut = cut_windows(jobs, 20, window_s=250.0, warmup_s=100.0, seed=3)
    assert 0 < len(cut) < 20
    for window in cut:
        counted = window.jobs["submit_s"][window.evaluated]
        assert np.ptp(counted) < 250
        before = window.jobs["submit_s"][~window.evaluated]
        assert not len(before) or (before.min() >= counted[0] - 100 and before.max() <= counted[0])
        expected = np.count_nonzero((submit >= counted[0] - 100) & (submit < counted[0]))
        assert len(before) == expected
    assert "250" in cut.description or "4 min" in cut.description


def test_horizon_is_that_of_the_window(jobs):
    window = cut_windows(jobs, 1, window_jobs=100, warmup_jobs=50, seed=0)[0]
    submit = window.jobs["submit_s"]
    assert window.horizon == (submit[50], submit[-1])
    assert single_window(jobs[:1])[0].horizon is None
    assert single_window(jobs, within=(10, 20))[0].jobs["job_id"].tolist() == jobs["job_id"][10:20].tolist()


@pytest.mark.parametrize(
    ("count", "settings", "message"),
    [
        (0, {"window_jobs": 10}, "0 windows; give at least 1"),
        (2, {}, "either in jobs or in seconds"),
        (2, {"window_jobs": 10, "window_s": 5.0}, "either in jobs or in seconds"),
        (2, {"window_jobs": 0}, "windows of 0 jobs"),
        (2, {"window_jobs": 3000}, "does not fit into the 2,000 available jobs"),
        (2, {"window_jobs": 1500, "warmup_jobs": 600}, "does not fit into the 1,400 available jobs"),
        (2, {"window_s": 1e12}, "does not fit into the"),
        (2, {"window_s": -1.0}, "length above 0"),
        (2, {"window_jobs": 10, "warmup_jobs": -1}, "a warm-up of -1 jobs"),
        (2, {"window_jobs": 10, "warmup_jobs": 1, "warmup_s": 5.0}, "give only one of them"),
    ],
)
def test_impossible_windows_are_refused(jobs, count, settings, message):
    with pytest.raises(InputError, match=message):
        cut_windows(jobs, count, seed=0, **settings)


def test_windows_need_jobs(jobs):
    with pytest.raises(InputError, match="no jobs"):
        single_window(jobs[:0])
    with pytest.raises(InputError, match="does not fit"):
        cut_windows(jobs[:0], 1, window_jobs=1, seed=0)
