"""Power of the GPU clusters: nodes as their sources have them, GPUs as the catalogue has them."""

from __future__ import annotations

import pytest

from kilowait.cluster.gpus import gpu
from kilowait.cluster.presets import PRESETS
from kilowait.energy.power.breakdown import power_breakdown
from kilowait.energy.power.model import PowerModel

PLACED = [name for name, cluster in PRESETS.items() if cluster.node_level]


@pytest.mark.parametrize(
    ("group", "idle_w", "full_w"), [("8-gpu", 764.26, 2724.26), ("2-gpu", 424.26, 1224.26)]
)
def test_philly_s_nodes_are_those_of_raps(group, idle_w, full_w):
    power = PowerModel.preset("philly").group(group)
    assert (power.idle_w, power.full_w) == pytest.approx((idle_w, full_w))


@pytest.mark.parametrize("group", ["a100-40", "a100-80"])
def test_thetagpu_s_nodes_draw_what_was_measured_on_their_like(group):
    power = PowerModel.preset("thetagpu").group(group)
    assert (power.idle_w, power.full_w) == pytest.approx((1512, 5040))


@pytest.mark.parametrize("name", PLACED)
def test_gpus_are_those_of_the_cluster(name):
    model = PowerModel.preset(name)
    for nodes in PRESETS[name].groups:
        (part,) = (one for one in model.group(nodes.name).node.components if one.kind == "gpu")
        assert part.count == nodes.gpus
        if name != "philly" and nodes.gpu_type not in {"G2", "G3"}:  # RAPS' own numbers; undisclosed
            assert (part.idle_w, part.max_w) == (gpu(nodes.gpu_type).idle_w, gpu(nodes.gpu_type).tdp_w)
        assert part.estimate or "measured" in part.source


@pytest.mark.parametrize("name", PLACED)
def test_nearly_all_is_an_estimate_and_says_so(name):
    whole = power_breakdown(PowerModel.preset(name))
    assert whole["estimates"] >= len(whole["parts"]) - 1
    assert all(part["source"] for part in whole["parts"])
    assert set(whole["sleep"].values()) == {None}
