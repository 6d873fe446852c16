from __future__ import annotations

import math
import random

import numpy as np
import pytest

from kilowait.synth.lublin_daily_cycle import DailyCycle, gamma_cdf
from tests.synth import reference_lublin


def test_gamma_cdf_of_integer_shapes():
    """For an integer shape n it is one minus the first n terms of a Poisson distribution."""
    for shape in (1, 2, 5, 9):
        for x in (0.1, 1.0, 4.0, 12.0, 58.5):
            expected = 1 - sum(math.exp(-x / 3) * (x / 3) ** k / math.factorial(k) for k in range(shape))
            assert gamma_cdf(x, float(shape), 3.0) == pytest.approx(expected, abs=1e-13)
    assert gamma_cdf(0.0, 2.0, 1.0) == gamma_cdf(-1.0, 2.0, 1.0) == 0.0
    assert gamma_cdf(1e3, 2.0, 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [reference_lublin.COMBINED, reference_lublin.BATCH, reference_lublin.INTERACTIVE])
def test_weights(kind):
    cycle = DailyCycle(kind["anum"], kind["bnum"])
    np.testing.assert_allclose(cycle.weights, reference_lublin.weights(kind), rtol=1e-4)
    assert cycle.weights.mean() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [reference_lublin.COMBINED, reference_lublin.BATCH, reference_lublin.INTERACTIVE])
def test_real_times_agree_with_the_reference(kind):
    cycle = DailyCycle(kind["anum"], kind["bnum"])
    rng = random.Random(3)
    gaps = [reference_lublin.gap(kind, rng) for _ in range(3000)]
    expected = reference_lublin.arrivals(gaps, cycle.weights.tolist())
    np.testing.assert_allclose(cycle.real_s(np.cumsum(gaps)), expected, rtol=1e-9)


def test_real_times_increase():
    times = DailyCycle(6.1271, 5.2740).real_s(np.linspace(0, 10 * 86400, 100_001))
    assert (np.diff(times) > 0).all()


def test_cycle_outside_the_day_is_flat():
    assert (DailyCycle(1e6, 1e3).weights == 1.0).all()
