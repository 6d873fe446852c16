from __future__ import annotations

import math

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.synth import user_estimates
from kilowait.synth.estimates import LIMITS_S


def test_requests_are_common_limits_above_the_run_time():
    runtime = np.exp(np.linspace(0, 12, 20_000))
    request = user_estimates(runtime, seed=1)
    assert (request >= runtime).all()
    assert set(request.tolist()) <= set(LIMITS_S)
    assert request.max() == LIMITS_S[-1] == 48 * 3600


def test_jobs_use_about_half_of_their_request():
    request = user_estimates(np.full(50_000, 1500.0), seed=2)
    assert (1500 / request).mean() == pytest.approx(0.4, abs=0.1)
    assert len(np.unique(request)) > 8  # different requests for the same run time


def test_requests_above_the_longest_limit_are_whole_days():
    np.testing.assert_array_equal(user_estimates([172_800.0, 172_801.0, 1e6]), [172_800, 259_200, 12 * 86_400])


def test_zero_run_time_and_no_jobs():
    assert user_estimates([0.0])[0] == 300
    assert len(user_estimates([])) == 0


def test_seed():
    runtime = np.full(100, 1000.0)
    np.testing.assert_array_equal(user_estimates(runtime, seed=0), user_estimates(runtime))
    assert (user_estimates(runtime, seed=0) != user_estimates(runtime, seed=1)).any()


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_bad_run_times(bad):
    with pytest.raises(InputError, match="row 1: the run time is"):
        user_estimates([5.0, bad])
