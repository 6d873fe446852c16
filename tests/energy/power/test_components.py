"""Power of a node from its components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.power import (
    AffineLoss,
    Component,
    Conversion,
    EfficiencyCurve,
    FixedLoad,
    LoadCurve,
    NodePower,
    PowerModel,
)
from kilowait.energy.power.components import LOAD_CURVES, NO_LOSS
from kilowait.errors import InputError, UnknownNameError

NODE = NodePower(
    (
        Component("CPU", "cpu", 2, 45, 140),
        Component("GPU", "gpu", 4, 88, 560),
        Component("RAM", "memory", 1, 70, 80),
        Component("NIC", "nic", 4, 20, 20),
    )
)
SHARE = st.floats(0, 1)


def test_power_at_idle_full_and_partial_load():
    assert NODE.idle_w == 2 * 45 + 4 * 88 + 70 + 80
    assert NODE.full_w == 2 * 140 + 4 * 560 + 80 + 80
    # CPUs at half, GPUs at a quarter; memory follows the CPUs.
    assert NODE.at(0.5, 0.25) == pytest.approx(NODE.idle_w + 95 + 4 * 118 + 5)


@given(SHARE, SHARE, SHARE, SHARE)
def test_power_increases_with_utilization(cpu, gpu, more_cpu, more_gpu):
    low = NODE.at(min(cpu, more_cpu), min(gpu, more_gpu))
    high = NODE.at(max(cpu, more_cpu), max(gpu, more_gpu))
    assert NODE.idle_w <= low <= high <= NODE.full_w + 1e-9


@pytest.mark.parametrize(
    ("name", "idle", "full"), [("frontier", 626.26, 2704.26), ("polaris", 432, 1919), ("cooley", 168, 564)]
)
def test_published_node_power(name, idle, full):
    node = PowerModel.preset(name).group().node
    assert (node.idle_w, node.full_w) == (pytest.approx(idle), pytest.approx(full))


def test_breakdown_adds_up_and_marks_estimates():
    rows = PowerModel.preset("frontier").group().node.breakdown()
    assert sum(row["idle_w"] for row in rows) == pytest.approx(626.26)
    assert sum(row["full_w"] for row in rows) == pytest.approx(2704.26)
    assert not any(row["estimate"] for row in rows)
    assert all(row["source"] for row in rows)


def test_load_curve_goes_through_the_measured_points():
    curve = LOAD_CURVES["E5-2620v3"]
    assert (curve.share([0.1, 0.5, 0.8, 1.0]) * 117).round(9).tolist() == [16, 62, 112, 117]
    node = NodePower((Component("CPU", "cpu", 2, 12, 85),), curve)
    assert node.at(0.5) == pytest.approx(24 + 146 * 62 / 117)
    assert node.at([0.0, 1.0]).tolist() == [24, 170]


def test_memory_by_size():
    part = Component.memory(192, 0.07, "SustainCluster")
    assert part.idle_w == part.max_w == pytest.approx(13.44)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Component("CPU", "cpu", 1, -3, 5), "idle_w of 'CPU' is -3; it must be a number of at least 0"),
        (lambda: Component("CPU", "cpu", -1, 3, 5), "count of 'CPU' is -1"),
        (lambda: Component("CPU", "cpu", 1, 3, np.nan), "max_w of 'CPU' is nan"),
        (lambda: Component("CPU", "cpu", 1, 9, 5), "'CPU' draws 5 W at most but 9 W idle"),
        (lambda: NodePower(()), "no components"),
        (lambda: NODE.at(1.5), r"cpu utilization is 1.5; it must be a number from 0 to 1"),
        (lambda: NODE.at([0.1, np.nan]), r"cpu utilization \[1\] is nan"),
        (lambda: NODE.at(0.5, "much"), "gpu utilization does not contain numbers"),
        (lambda: LoadCurve((0, 0.5), (0, 1)), "increasing from 0 to 1"),
        (lambda: LoadCurve((0, 0.5, 1), (0, 1, 0.5)), "never decrease"),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_unknown_kind():
    with pytest.raises(UnknownNameError, match="did you mean 'gpu'"):
        Component("A100", "gpus", 4, 60, 400)


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
def test_invalid_conversion_steps(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_fixed_load_behind_an_unknown_step():
    with pytest.raises(UnknownNameError, match="did you mean 'rectifier'"):
        CHAIN.fixed_w(FixedLoad("switch", 250, 4, ("rectifyer",)), 16)
