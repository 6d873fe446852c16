"""Cooling and facility power: published values and monotonicity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.power import (
    Chiller,
    ConstantPue,
    Economiser,
    EfficiencyCurve,
    Facility,
    LinearCop,
    SupplyAirCop,
    cooling_model,
)
from kilowait.errors import InputError, UnknownNameError

PLANT = Economiser(Chiller(1.2e6))
MODELS = [ConstantPue(1.3), SupplyAirCop(22), LinearCop(), Chiller(1.2e6), PLANT]
HEAT, TEMPERATURE = st.floats(0, 2e6), st.floats(-40, 50)


def test_supply_air_cop_as_published():
    cops = [f"{SupplyAirCop(supply).cop:.2f}" for supply in (15, 18, 20, 22, 25, 27)]
    assert cops == "2.00 2.68 3.19 3.77 4.73 5.44".split()
    assert SupplyAirCop(20).power_w(3194.0) == pytest.approx(1000, rel=1e-3)


def test_chiller_cop_at_half_load_as_published():
    cops = Chiller(1e6).cop(5e5, [10, 15, 20, 25, 30, 35, 40])
    assert [f"{cop:.2f}" for cop in cops] == "4.61 4.52 4.28 3.96 3.62 3.30 3.01".split()


def test_chiller_outside_its_curves():
    chiller = Chiller(1e6)
    # Below 10 °C outside nothing changes; below 5 % load and above capacity the COP stays.
    assert chiller.cop(5e5, -20) == chiller.cop(5e5, 10)
    assert chiller.cop(1e3, 30) == chiller.cop(2e4, 30)
    assert chiller.cop(3e6, 30) == chiller.cop(2e6, 30)
    assert chiller.power_w(0.0, 30.0) == 0


def test_warmer_chilled_water_raises_the_cop():
    assert Chiller(1e6, evaporator_c=12).cop(5e5, 30) > Chiller(1e6).cop(5e5, 30)


def test_economiser_hands_over_to_the_chiller():
    assert PLANT.power_w(1e6, 12.0, 14.0) == pytest.approx(3e4)  # towers alone
    chiller_w = Chiller(1.2e6).power_w(1e6, 30.0)
    assert PLANT.power_w(1e6, 30.0, 19.0) == pytest.approx(3e4 + chiller_w)  # 5 K warmer: chiller only
    half_w = Chiller(1.2e6).power_w(5e5, 30.0)
    assert PLANT.power_w(1e6, 30.0, 16.5) == pytest.approx(3e4 + half_w)


@given(st.floats(1e3, 2e6), st.floats(16, 50), st.floats(16, 50))
def test_chiller_cop_does_not_rise_with_temperature(heat, one, other):
    # 16 °C: from there on at every load; at loads of 50 % and more already from 10 °C.
    cool, hot = Chiller(1.2e6).cop(heat, sorted((one, other)))
    assert hot <= cool * (1 + 1e-12)


@given(st.floats(6e5, 2e6), st.floats(10, 50), st.floats(10, 50))
def test_chiller_cop_does_not_rise_from_ten_degrees_at_half_load(heat, one, other):
    cool, hot = Chiller(1.2e6).cop(heat, sorted((one, other)))
    assert hot <= cool * (1 + 1e-4)


@given(TEMPERATURE, TEMPERATURE)
def test_linear_cop_does_not_rise_with_temperature(one, other):
    cool, hot = LinearCop().cop(sorted((one, other)))
    assert 1 <= hot <= cool


@given(st.floats(1e3, 2e6), st.floats(19, 32), st.floats(19, 32), st.floats(0, 15))
def test_economiser_power_does_not_fall_with_temperature(heat, one, other, dryness):
    wet = np.sort([one, other])
    cool, hot = PLANT.power_w(heat, wet + dryness, wet)
    assert hot >= cool * (1 - 1e-12)


@given(HEAT, st.floats(16, 45), st.floats(-30, 30), st.floats(-30, 30))
def test_cooling_power_does_not_fall_with_wet_bulb(heat, temperature, one, other):
    dry, wet = PLANT.power_w(heat, temperature, sorted((one, other)))
    assert wet >= dry * (1 - 1e-12)


@pytest.mark.parametrize("cooling", MODELS, ids=lambda model: type(model).__name__)
@given(HEAT, TEMPERATURE, st.floats(0, 15))
def test_facility_power_is_at_least_it_power(cooling, it_w, temperature, dryness):
    supply = EfficiencyCurve((0.1, 0.5, 1.0), (0.80, 0.95, 0.94), 1.5e6)
    for facility in (Facility(0, cooling), Facility(4e4, cooling, supply)):
        assert facility.facility_w(it_w, temperature, temperature - dryness) >= it_w


@pytest.mark.parametrize("cooling", MODELS, ids=lambda model: type(model).__name__)
@given(HEAT, HEAT, TEMPERATURE)
def test_cooling_power_increases_with_heat(cooling, one, other, temperature):
    low, high = cooling.power_w(sorted((one, other)), temperature, temperature - 3)
    assert low <= high * (1 + 1e-12)


def test_arrays_equal_single_values():
    facility = Facility(1e4, PLANT)
    it, out, wet = np.array([1e5, 1e6, 5e5]), np.array([5.0, 25, 35]), np.array([3.0, 18, 25])
    together = facility.facility_w(it, out, wet)
    assert together.tolist() == [float(facility.facility_w(*row)) for row in zip(it, out, wet, strict=True)]
    assert facility.facility_w(1e5, out, wet).shape == (3,)


def test_supply_losses_are_cooled():
    facility = Facility(0, ConstantPue(1.5), EfficiencyCurve((1.0,), (0.8,), 1e3))
    assert facility.facility_w(800.0) == pytest.approx(1500)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConstantPue(0.9), "pue is 0.9; it must be a number of at least 1"),
        (lambda: Chiller(0), "nominal_w of the chiller is 0"),
        (lambda: Facility(-1, ConstantPue(1)), "fixed_w of the facility is -1"),
        (lambda: Chiller(1e6).power_w(1e5), "cooling 'chiller' needs the outdoor temperature"),
        (lambda: PLANT.power_w(1e5, 20.0), "cooling 'economiser' needs the outdoor wet bulb"),
        (lambda: LinearCop().power_w(1e5, 290.0), "temperature in °C is 290.0"),
        (lambda: LinearCop().power_w(1e5, [20, np.nan]), r"temperature in °C \[1\] is nan"),
        (lambda: Facility(0, ConstantPue(1)).facility_w(-5.0), "IT power is -5.0"),
        (lambda: cooling_model("pue", 1e6), "has no number; write pue:1.2"),
        (lambda: cooling_model("chiller:3", 1e6), "only pue takes a number"),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_cooling_models_by_name():
    assert cooling_model("economiser", 1e6) == PLANT
    with pytest.raises(UnknownNameError, match="did you mean 'economiser'"):
        cooling_model("economizer", 1e6)
