"""DVFS states, GPU power caps and node sleep: slowdown, energy, break-even."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.power import (
    GPU_CAP_CURVES,
    CapCurve,
    DvfsState,
    PowerModel,
    SleepStates,
    break_even_beta,
    clock_slowdown,
)
from kilowait.errors import InputError

TAURUS = PowerModel.preset("taurus").group()
SPEEDS = np.array([level.speed for level in TAURUS.levels])
WATTS = np.array([95 + 95.7 * level.cpu_dynamic for level in TAURUS.levels])


def test_slowdown_at_beta_0_and_1():
    assert clock_slowdown(1.0, 0.5) == 2
    assert clock_slowdown(0.0, 0.5) == 1
    assert clock_slowdown([0.3], 1.0).tolist() == [1]


@given(st.floats(0, 1), st.floats(0.05, 1), st.floats(0.05, 1))
def test_a_lower_clock_never_shortens_a_job(beta, one, other):
    slow, fast = clock_slowdown(beta, sorted((one, other)))
    assert slow >= fast >= 1


def test_taurus_states_are_as_measured():
    assert len(TAURUS.levels) == 13
    assert SPEEDS[[0, 1, -1]].tolist() == [1, 0.89, 0.45]
    assert WATTS[[0, 1, -1]].tolist() == pytest.approx([190.7, 171.0, 125.9])
    # Energy of work bound by the processor: 1.00 to 1.47 with one small dip.
    energy = WATTS * clock_slowdown(1.0, SPEEDS) / 190.7
    assert energy[-1] == pytest.approx(1.467, abs=5e-4)
    assert (energy[1:] > 1).all()
    assert (np.diff(energy) < 0).sum() == 1


def test_taurus_power_above_idle_goes_as_the_speed_to_1_5():
    logs = np.log(SPEEDS[1:])
    exponent = logs @ np.log((WATTS[1:] - 95) / 95.7) / (logs @ logs)
    assert exponent == pytest.approx(1.5, abs=0.01)


def test_break_even_of_beta_on_taurus():
    betas = break_even_beta(WATTS[1:], SPEEDS[1:], 190.7)
    assert betas[[0, 3, -1]].round(2).tolist() == [0.93, 0.72, 0.42]
    # At break-even the energy is equal; a larger beta costs energy, a smaller one saves it.
    for sign in (-1, 0, 1):
        energy = WATTS[1:] * clock_slowdown(betas + sign * 0.01, SPEEDS[1:]) - 190.7
        assert (np.sign(energy.round(9)) == sign).all()


@pytest.mark.parametrize("curve", GPU_CAP_CURVES.values(), ids=lambda curve: curve.gpu)
@given(st.floats(0.2, 3), st.floats(0.2, 3))
def test_tighter_caps_are_slower(curve, one, other):
    tight, loose = sorted((one, other))
    assert curve.slowdown(tight) >= curve.slowdown(loose) >= 1
    assert (
        curve.slowdown(1 + one) == curve.relative_energy(1 + one) == 1
    )  # a cap above the power of the job has no effect


def test_cap_energy_falls_and_rises_again():
    energy = GPU_CAP_CURVES["V100"].relative_energy([1.0, 0.8, 0.7, 0.6, 0.4])
    assert energy[0] == 1
    assert energy[2] == pytest.approx(0.7 * (1 + 0.58 * (3 / 7) ** 1.51))
    assert energy.argmin() not in (0, 4)


def test_taurus_sleeps_from_212_seconds():
    sleep = TAURUS.sleep
    assert round(sleep.break_even_s(TAURUS.idle_w)) == 212
    gap = sleep.break_even_s(95.0)
    asleep = sleep.to_sleep_j + sleep.wake_j + sleep.sleep_w * (gap - sleep.transition_s)
    assert asleep == pytest.approx(95 * gap)


def test_break_even_of_extreme_sleep_states():
    assert SleepStates(50, 1, 60, 1, 60).break_even_s(50) == math.inf
    assert SleepStates(5, 10, 20, 10, 20).break_even_s(100) == 20  # at least as long as the transitions


@given(st.floats(20, 500), st.floats(20, 500))
def test_break_even_decreases_with_idle_power(one, other):
    low, high = sorted((one, other))
    assert TAURUS.sleep.break_even_s(high) <= TAURUS.sleep.break_even_s(low)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DvfsState("x", speed=0), "speed of the DVFS state 'x' is 0"),
        (lambda: DvfsState("x", speed=1.1), "speed of the DVFS state 'x' is 1.1"),
        (lambda: DvfsState("x", gpu_cap=0), "gpu_cap of the DVFS state 'x' is 0"),
        (lambda: DvfsState("x", cpu_dynamic=-0.1), "cpu_dynamic of the DVFS state 'x' is -0.1"),
        (lambda: clock_slowdown(1.5, 0.5), "beta is 1.5; it must be a number from 0 to 1"),
        (lambda: CapCurve("x", -1, 1), "a of the cap curve 'x' is -1"),
        (lambda: GPU_CAP_CURVES["V100"].slowdown(0.0), "r is 0.0"),
        (lambda: break_even_beta(100, 1.0, 200), "is below full speed"),
        (lambda: SleepStates(-1, 1, 1, 1, 1), "sleep_w is -1"),
        (lambda: SleepStates(1, 1, 1, math.inf, 1), "wake_s is inf"),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()
