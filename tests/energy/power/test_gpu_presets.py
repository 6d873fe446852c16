"""Power presets of GPU clusters agree with their sources and with the GPU catalogue."""

from __future__ import annotations

import pytest

from kilowait.cluster.gpu_catalogue import gpu
from kilowait.cluster.presets import PRESETS
from kilowait.energy.power.breakdown import power_breakdown
from kilowait.energy.power.model import PowerModel

NODE_LEVEL = [name for name, cluster in PRESETS.items() if cluster.node_level]


@pytest.mark.parametrize(("group", "idle_w", "full_w"), [("8-gpu", 764.26, 2724.26), ("2-gpu", 424.26, 1224.26)])
def test_philly_nodes_equal_those_of_raps(group, idle_w, full_w):
    power = PowerModel.preset("philly").group(group)
    assert (power.idle_w, power.full_w) == pytest.approx((idle_w, full_w))


@pytest.mark.parametrize("group", ["a100-40", "a100-80"])
def test_thetagpu_nodes_draw_the_measured_power(group):
    power = PowerModel.preset("thetagpu").group(group)
    assert (power.idle_w, power.full_w) == pytest.approx((1512, 5040))


@pytest.mark.parametrize("name", NODE_LEVEL)
def test_gpus_match_the_cluster_preset(name):
    model = PowerModel.preset(name)
    for nodes in PRESETS[name].groups:
        (part,) = (component for component in model.group(nodes.name).node.components if component.kind == "gpu")
        assert part.count == nodes.gpus
        if name != "philly" and nodes.gpu_type not in {"G2", "G3"}:  # RAPS' own numbers; undisclosed
            assert (part.idle_w, part.max_w) == (gpu(nodes.gpu_type).idle_w, gpu(nodes.gpu_type).tdp_w)
        assert part.estimate or "measured" in part.source


@pytest.mark.parametrize("name", NODE_LEVEL)
def test_estimates_are_marked(name):
    breakdown = power_breakdown(PowerModel.preset(name))
    assert breakdown["estimates"] >= len(breakdown["parts"]) - 1
    assert all(part["source"] for part in breakdown["parts"])
    assert set(breakdown["sleep"].values()) == {None}
