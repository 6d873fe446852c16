"""Power-conversion losses and fixed loads; Frontier's published totals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.power import AffineLoss, Conversion, EfficiencyCurve, FixedLoad, PowerModel
from kilowait.energy.power.conversion_losses import NO_LOSS
from kilowait.errors import InputError, UnknownNameError

CHAIN = Conversion((AffineLoss("SIVOC", 13, 0.98), AffineLoss("rectifier", 17, 0.96, 4)))


def test_frontier_idle_and_full():
    model = PowerModel.preset("frontier")
    assert f"{model.idle_it_w() / 1e6:.3f} {model.full_it_w() / 1e6:.3f}" == "7.307 28.228"


@pytest.mark.parametrize(("node_w", "share"), [(626.26, "8.0"), (2704.26, "6.5")])
def test_frontier_losses_as_a_share_of_chassis_input(node_w, share):
    switches = FixedLoad("switch", 250, 4, ("rectifier",))
    input_w = 16 * float(CHAIN.node_w(node_w)) + CHAIN.fixed_w(switches, 16)
    # The same chassis step by step: four rectifiers share its load.
    assert input_w == pytest.approx(4 * ((16 * (node_w + 13) / 0.98 + 4 * 250) / 4 + 17) / 0.96)
    assert f"{100 * (input_w - 16 * node_w - 1000) / input_w:.1f}" == share


def test_losses_by_step_add_up():
    losses = CHAIN.losses_w(1000.0)
    assert list(losses) == ["SIVOC", "rectifier"]
    assert 1000 + sum(losses.values()) == pytest.approx(float(CHAIN.node_w(1000.0)))
    assert losses["SIVOC"] == pytest.approx(1013 / 0.98 - 1000)


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_node_conversion_is_affine_and_never_gains(one, other):
    both = CHAIN.node_w([one, other])
    assert (both >= [one, other]).all()
    assert both[1] - both[0] == pytest.approx(CHAIN.slope * (other - one), abs=1e-6)
    assert NO_LOSS.node_w(one) == one


def test_partially_used_fixed_load_draws_full_power():
    assert [FixedLoad("CDU", 8000, 384).units(nodes) for nodes in (0, 1, 384, 385)] == [0, 1, 1, 2]


def test_efficiency_curve_interpolates_and_extrapolates():
    curve = EfficiencyCurve((0.2, 0.6), (0.8, 0.9), 1000)
    assert curve.input_w([100, 200, 400, 600, 900]).tolist() == pytest.approx([125, 250, 400 / 0.85, 600 / 0.9, 1000])


@given(st.floats(0, 2e6), st.floats(0, 2e6))
def test_efficiency_curve_input_increases_with_output(one, other):
    curve = EfficiencyCurve((0.1, 0.5, 1.0), (0.80, 0.95, 0.94), 1e6)
    low, high = curve.input_w(sorted((one, other)))
    assert min(one, other) <= low <= high * (1 + 1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AffineLoss("PSU", 5, 0), "efficiency of the loss 'PSU' is 0"),
        (lambda: AffineLoss("PSU", 5, 1.2), "efficiency of the loss 'PSU' is 1.2"),
        (lambda: AffineLoss("PSU", -5, 0.9), "constant_w of the loss 'PSU' is -5"),
        (lambda: FixedLoad("switch", -1, 4), "watts of 'switch' is -1"),
        (lambda: FixedLoad("switch", 1, 0), "nodes_per_unit of 'switch' is 0"),
        (lambda: Conversion((AffineLoss("a", 0, 1), AffineLoss("a", 0, 1))), "a name occurs twice"),
        (lambda: EfficiencyCurve((0.5, 0.1), (0.9, 0.9), 1), "increasing load shares"),
        (lambda: EfficiencyCurve((0.1, 0.2), (0.4, 0.9), 1), "less input for more output"),
        (lambda: EfficiencyCurve((0.1, 0.2), (0, 0.9), 1), "efficiency of 0"),
        (lambda: EfficiencyCurve((0.1,), (0.9,), 0), "rated_w above 0"),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_fixed_load_behind_an_unknown_step():
    with pytest.raises(UnknownNameError, match="did you mean 'rectifier'"):
        CHAIN.fixed_w(FixedLoad("switch", 250, 4, ("rectifyer",)), 16)
