from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.synth import lublin, offered_load, rescale_load


def table(**columns):
    given = {"job_id": [7, 8, 9], "submit_s": [1000, 1050, 1200], "runtime_s": [50, 10, 100], "nodes": [2, 10, 1]}
    return JobTable(**{**given, **columns})


def test_offered_load():
    assert offered_load(table(), 10) == pytest.approx((100 + 100 + 100) / (10 * 200))


def test_rescaled_submission_times():
    rescaled = rescale_load(table(), 10, 0.3)
    np.testing.assert_allclose(rescaled["submit_s"], [1000, 1025, 1100])
    assert offered_load(rescaled, 10) == pytest.approx(0.3, rel=1e-12)
    assert rescaled.meta["rescaled_load"] == 0.3


def test_rows_need_not_be_in_order():
    rescaled = rescale_load(table(submit_s=[1200, 1000, 1050]), 10, 0.3)
    np.testing.assert_allclose(rescaled["submit_s"], [1100, 1000, 1025])


def test_other_columns_after_rescaling():
    jobs = table(
        wait_s=[1, 2, 3],
        begin_s=[-math.inf, 1060, 1200],
        cancel_s=[1500, math.inf, 1201],
        user=[0, 1, 0],
        think_s=[0, 5, 0],
        labels={"user": ("ann", "bob")},
        meta={"max_procs": 10},
    )
    rescaled = rescale_load(jobs, 10, 0.3)
    assert "wait_s" not in rescaled
    np.testing.assert_allclose(rescaled["begin_s"], [-math.inf, 1035, 1100])
    np.testing.assert_allclose(rescaled["cancel_s"], [1500, math.inf, 1101])
    assert rescaled.labels == jobs.labels
    assert rescaled.meta["max_procs"] == 10
    for name in ("job_id", "runtime_s", "estimate_s", "nodes", "user", "think_s"):
        np.testing.assert_array_equal(rescaled[name], jobs[name])
    assert "wait_s" in jobs


@given(load=st.floats(0.01, 10), seed=st.integers(0, 50), jobs=st.integers(2, 60))
def test_any_load_is_reached(load, seed, jobs):
    rescaled = rescale_load(lublin(jobs, 64, seed=seed), 64, load)
    assert offered_load(rescaled, 64) == pytest.approx(load, rel=1e-9)


@pytest.mark.parametrize("load", [0.0, -0.5, math.nan, math.inf])
def test_bad_load(load):
    with pytest.raises(InputError, match="the load is"):
        rescale_load(table(), 10, load)


@pytest.mark.parametrize("nodes", [0, -1, math.nan])
def test_bad_nodes(nodes):
    with pytest.raises(InputError, match="it needs at least 1"):
        offered_load(table(), nodes)


def test_too_few_submissions():
    with pytest.raises(InputError, match=r"1 job\(s\) have no offered load"):
        offered_load(table()[:1], 10)
    with pytest.raises(InputError, match=r"0 job\(s\)"):
        rescale_load(table()[:0], 10, 0.5)
    with pytest.raises(InputError, match="all 3 jobs are submitted at 5 s"):
        offered_load(table(submit_s=[5, 5, 5]), 10)


def test_jobs_without_work():
    jobs = table(runtime_s=[0, 0, 0])
    assert offered_load(jobs, 10) == 0
    with pytest.raises(InputError, match="all run times are 0"):
        rescale_load(jobs, 10, 0.5)


def test_load_out_of_range():
    with pytest.raises(InputError, match="use a higher load"):
        rescale_load(table(), 10, 1e-13)
    with pytest.raises(InputError, match="use a lower load"):
        rescale_load(table(), 10, 1e9)
