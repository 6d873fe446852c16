"""Machines known by name."""

from __future__ import annotations

import pytest

from kilowait.cluster import Cluster
from kilowait.cluster.presets import PRESETS
from kilowait.errors import UnknownNameError


@pytest.mark.parametrize(
    ("name", "nodes"), [("polaris", 560), ("mira", 49_152), ("cooley", 126), ("theta", 4_392)]
)
def test_sizes(name, nodes):
    assert Cluster.preset(name).nodes == nodes
    assert Cluster.preset(name.upper()) is Cluster.preset(name)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_whole(name):
    cluster = PRESETS[name]
    assert name == name.lower() == cluster.name
    assert not cluster.outages
    for group in cluster.groups:
        assert group.memory_gb > 0
        assert bool(group.gpus) == bool(group.gpu_type)


def test_polaris_has_gpus():
    assert Cluster.preset("polaris").groups[0].gpus == 4


@pytest.mark.parametrize(("wrong", "near"), [("polari", "polaris"), ("Meera", "mira"), ("coolie", "cooley")])
def test_did_you_mean(wrong, near):
    with pytest.raises(UnknownNameError, match=f"unknown cluster preset '{wrong}'; did you mean '{near}'"):
        Cluster.preset(wrong)
