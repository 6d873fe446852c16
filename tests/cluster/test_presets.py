"""Cluster presets."""

from __future__ import annotations

import csv
import gzip
from collections import Counter

import pytest

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_catalogue import gpu
from kilowait.cluster.presets import PRESETS
from kilowait.errors import UnknownNameError

PLACED = ("gpu-mixed", "gavel", "philly", "helios-venus", "thetagpu", "openb")


@pytest.mark.parametrize(("name", "nodes"), [("polaris", 560), ("mira", 49_152), ("cooley", 126), ("theta", 4_392)])
def test_preset_sizes(name, nodes):
    assert Cluster.preset(name).nodes == nodes
    assert Cluster.preset(name.upper()) is Cluster.preset(name)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_complete(name):
    cluster = PRESETS[name]
    assert name == name.lower() == cluster.name
    assert not cluster.outages
    assert cluster.node_level == (name in PLACED)
    for group in cluster.groups:
        assert group.memory_gb > 0
        assert bool(group.gpus) == bool(group.gpu_type)
        if group.gpus:
            assert gpu(group.gpu_type)


def test_polaris_has_gpus():
    assert Cluster.preset("polaris").groups[0].gpus == 4


@pytest.mark.parametrize(
    ("name", "nodes", "gpus"),
    [
        ("gpu-mixed", 14, {"A100": 16, "V100": 16, "T4": 12, "RTX4090": 12}),
        ("gavel", 108, {"V100": 36, "P100": 36, "K80": 36}),
        ("philly", 552, {"P40": 3752, "P100-12": 166}),
        ("helios-venus", 133, {"V100": 1064}),
        ("thetagpu", 24, {"A100-SXM4-40": 176, "A100-SXM4-80": 16}),
        (*("openb", 1213), {"G2": 4392, "T4": 842, "G3": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2}),
    ],
)
def test_gpus_by_type(name, nodes, gpus):
    found = Counter()
    for group in Cluster.preset(name).groups:
        found[group.gpu_type] += group.nodes * group.gpus
    assert Cluster.preset(name).nodes == nodes
    assert found == gpus


def test_venus_virtual_clusters_use_their_nodes():
    venus = Cluster.preset("helios-venus")
    assert set(venus.queues) == {group.name for group in venus.groups}
    assert venus.queues["vcvGl"] == ("vcvGl",)
    sizes = {group.name: group.nodes for group in venus.groups}
    assert sizes["vcvGl"] == 20 and sizes["vcvlY"] == 2


def test_openb_groups_match_its_node_list(data_dir):
    path = data_dir / "gpu/alibaba_v2023/openb_node_list_gpu_node.csv.gz"
    with gzip.open(path, "rt") as file:
        listed = Counter(
            (int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        )
    groups = Cluster.preset("openb").groups
    ours = {
        (group.cores * 1000, round(group.memory_gb * 1e9 / 2**20), group.gpus, group.gpu_type): group.nodes
        for group in groups
    }
    assert ours == listed and len(groups) == len(listed)


@pytest.mark.parametrize(("wrong", "near"), [("polari", "polaris"), ("Meera", "mira"), ("coolie", "cooley")])
def test_unknown_preset_error_suggests_the_nearest(wrong, near):
    with pytest.raises(UnknownNameError, match=f"unknown cluster preset '{wrong}'; did you mean '{near}'"):
        Cluster.preset(wrong)
