from __future__ import annotations

import math

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.synth import user_estimates
from kilowait.synth.estimates import LIMITS_S


def test_round_numbers_never_too_short():
    runtime = np.exp(np.linspace(0, 12, 20_000))
    asked = user_estimates(runtime, seed=1)
    assert (asked >= runtime).all()
    assert set(asked.tolist()) <= set(LIMITS_S)
    assert asked.max() == LIMITS_S[-1] == 48 * 3600


def test_jobs_use_about_half_of_what_they_ask_for():
    asked = user_estimates(np.full(50_000, 1500.0), seed=2)
    assert (1500 / asked).mean() == pytest.approx(0.4, abs=0.1)
    assert len(np.unique(asked)) > 8  # same job, many opinions


def test_beyond_the_longest_limit_whole_days():
    np.testing.assert_array_equal(
        user_estimates([172_800.0, 172_801.0, 1e6]), [172_800, 259_200, 12 * 86_400]
    )


def test_zero_and_none():
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
