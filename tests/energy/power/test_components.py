"""Power of a node from its components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.power import Component, LoadCurve, NodePower, PowerModel
from kilowait.energy.power.components import LOAD_CURVES
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
