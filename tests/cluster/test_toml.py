"""Clusters described in TOML."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.cluster import Cluster, NodeGroup, Outage, Reservation
from kilowait.cluster.presets import PRESETS
from kilowait.cluster.toml import to_dict
from kilowait.errors import ClusterError, KilowaitError, UnknownNameError
from kilowait.files.documents import to_toml

WHOLE = """
name = "site"

[[group]]
name = "cpu"
nodes = 10
cores = 32
memory_gb = 128          # a whole number does for a float

[[group]]
name = "gpu"
nodes = 4
gpus = 8
gpu_type = "A100"
shared = true

[[queue]]
name = "batch"
groups = ["cpu", "gpu"]

[[outage]]
group = "cpu"
nodes = 2
start_s = 100
end_s = 200.5

[[outage]]
group = "gpu"
nodes = 4
start_s = 300
announced_s = 300
end_s = inf

[[reservation]]
name = "course"
group = "cpu"
nodes = 1
start_s = 0
end_s = 50
"""


@pytest.fixture
def read(tmp_path):
    def write_and_read(text):
        path = tmp_path / "site.toml"
        path.write_text(text, encoding="utf-8")
        return Cluster.from_file(path)

    return write_and_read


def test_file_with_all_entries(read):
    assert read(WHOLE) == Cluster(
        name="site",
        groups=(
            NodeGroup("cpu", 10, cores=32, memory_gb=128.0),
            NodeGroup("gpu", 4, gpus=8, gpu_type="A100", shared=True),
        ),
        queues={"batch": ("cpu", "gpu")},
        outages=(Outage("cpu", 2, 100.0, 200.5), Outage("gpu", 4, 300.0, math.inf, 300.0)),
        reservations=(Reservation("course", "cpu", 1, 0.0, 50.0),),
    )


def test_minimal_file(read):
    cluster = read("[[group]]\nname='n'\nnodes=3")
    assert cluster.nodes == 3
    assert cluster.name == "site", "named after the file"


def test_a_path_may_be_a_string(tmp_path):
    (tmp_path / "x.toml").write_text("[[group]]\nname='n'\nnodes=3")
    assert Cluster.from_file(str(tmp_path / "x.toml")).nodes == 3


def test_node_order_of_mixed_groups(read):
    mixed = Cluster(
        groups=(
            NodeGroup("t4", 2, gpus=2, gpu_type="T4", node_level=True),
            NodeGroup("v100", 1, gpus=8, gpu_type="V100", node_level=True),
        ),
        name="mixed",
        node_groups=(0, 1, 0),
    )
    assert read(to_toml(to_dict(mixed))) == mixed
    assert "layout" not in to_dict(Cluster.preset("gpu-mixed"))


@pytest.mark.parametrize("name", PRESETS)
def test_toml_round_trip(read, name):
    assert read(to_toml(to_dict(Cluster.preset(name)))) == Cluster.preset(name)


def test_toml_round_trip_of_all_entries(read):
    whole = read(WHOLE)
    assert read(to_toml(to_dict(whole))) == whole


GROUP = "[[group]]\nname='n'\nnodes=3\n"
PLACED = GROUP + "gpus=1\ngpu_type='T4'\nnode_level=true\n"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", ClusterError, "has no node groups"),
        ("groups = 3", UnknownNameError, "unknown key in .*site.toml 'groups'; did you mean 'group'"),
        ("[group]\nname='n'\nnodes=3", ClusterError, r"group in .* must be written as \[\[group\]\] tables"),
        ("group = [1]", ClusterError, r"must be written as \[\[group\]\] tables"),
        ("name = 5\n" + GROUP, ClusterError, "name in .* is 5, which is not of type str"),
        ("[[group]]\nname='n'", ClusterError, r"\[\[group\]\] in .*site.toml lacks nodes"),
        ("[[group]]\ncores=1", ClusterError, "lacks name, nodes"),
        (GROUP + "node=1", UnknownNameError, r"unknown key of \[\[group\]\] in .* 'node'; did you mean 'nodes'"),
        ("[[group]]\nname='n'\nnodes='3'", ClusterError, "nodes is '3', which is not of type int"),
        ("[[group]]\nname='n'\nnodes=3.0", ClusterError, "nodes is 3.0, which is not of type int"),
        ("[[group]]\nname='n'\nnodes=true", ClusterError, "nodes is True, which is not of type int"),
        (GROUP + "shared=1", ClusterError, "shared is 1, which is not of type bool"),
        (GROUP + "memory_gb=true", ClusterError, "memory_gb is True, which is not of type float"),
        (GROUP + "memory_gb='8'", ClusterError, "memory_gb is '8', which is not of type float"),
        (GROUP + "memory_gb=nan", ClusterError, "memory_gb nan"),
        (GROUP + "memory_gb=1" + "0" * 400, ClusterError, "which is not of type float"),
        (GROUP + "memory_gb=1" + "0" * 5000, ClusterError, "cannot read the cluster file"),
        ("[[group]]\nname='n'\nnodes=-3", ClusterError, "group 'n' has -3 nodes"),
        (GROUP + GROUP, ClusterError, "more than one node group called 'n'"),
        (GROUP + "[[queue]]\nname='q'", ClusterError, "has the keys name and groups"),
        (GROUP + "[[queue]]\nname='q'\ngroups='n'", ClusterError, "has the keys name and groups"),
        (GROUP + "[[queue]]\nname=['q']\ngroups=['n']", ClusterError, "has the keys name and groups"),
        (GROUP + "[[queue]]\nname='q'\ngroups=['m']", UnknownNameError, "node group of queue 'q' 'm'"),
        (GROUP + "[[queue]]\nname='q'\ngroups=['n']\n" * 2, ClusterError, "queue 'q' is defined twice in"),
        (GROUP + "[[outage]]\ngroup='n'\nnodes=1", ClusterError, r"\[\[outage\]\] in .* lacks start_s"),
        (GROUP + "[[outage]]\ngroup='n'\nnodes=4\nstart_s=0", ClusterError, "outage takes 4 nodes of 'n'"),
        (GROUP + "[[reservation]]\nname='r'\ngroup='n'\nnodes=1\nstart_s=0", ClusterError, "lacks end_s"),
        ("layout = 3\n" + PLACED, ClusterError, "layout in .* must be a list of whole numbers"),
        ("layout = [0, true]\n" + PLACED, ClusterError, "layout in .* must be a list of whole numbers"),
        ("layout = [0, 0]\n" + PLACED, ClusterError, "must name each group once per node"),
        ("layout = [0, 0, 0]\n" + GROUP, ClusterError, "layout in .* has no effect: no group has node_level"),
        ("[[group", ClusterError, "cannot read the cluster file .*site.toml"),
    ],
)
def test_invalid_entries_are_named(read, text, error, words):
    with pytest.raises(error, match=words):
        read(text)


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(ClusterError, match="no cluster file .*absent.toml; give a preset's name, nodes:N or a TOML"):
        Cluster.from_file(tmp_path / "absent.toml")


def test_binary_file_is_an_error(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "x.toml", tmp_path):
        with pytest.raises(ClusterError, match="cannot read the cluster file"):
            Cluster.from_file(path)


@given(st.data())
def test_mutilated_files_raise_cluster_errors(tmp_path_factory, data):
    """A valid file, truncated or with inserted text, gives a cluster or a kilowait error, no other exception."""
    start = data.draw(st.integers(0, len(WHOLE)))
    stop = data.draw(st.integers(start, min(len(WHOLE), start + 20)))
    middle = data.draw(st.text(max_size=4) | st.sampled_from(["[]", "-1", "nan", "true", "{}", "''", "1979-05-27"]))
    path = tmp_path_factory.getbasetemp() / "mutilated.toml"
    path.write_text(WHOLE[:start] + middle + WHOLE[stop:], encoding="utf-8", errors="surrogatepass")
    try:
        assert Cluster.from_file(path).nodes >= 0
    except KilowaitError as problem:
        assert str(problem)


DATED = (
    GROUP
    + """
[[outage]]
group = "n"
nodes = 1
start = 2009-01-05T08:00:00+01:00
end = "2009-01-06"
announced = 2009-01-05

[[reservation]]
name = "course"
group = "n"
nodes = 1
start = 2009-01-05T00:00:10
end_s = 50
"""
)
UNIX_START_S = 1231113600.0
"""2009-01-05, 00:00 UTC."""


def test_dates_are_seconds_after_the_start_of_the_log(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(DATED)
    cluster = Cluster.from_file(path, unix_start_s=UNIX_START_S)
    assert cluster.outages == (Outage("n", 1, 7 * 3600.0, 86400.0, 0.0),)
    assert cluster.reservations == (Reservation("course", "n", 1, 10.0, 50.0),)
    with pytest.raises(ClusterError, match="start is a date, but the log does not state .* give start_s"):
        Cluster.from_file(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("start = 5", r"start is 5, which is not a date such as 2024-06-01T08:00:00Z; seconds are .*start_s"),
        ("start = 'soon'", "start is 'soon', which is not a date"),
        ("start = 08:00:00", "which is not a date"),
        ("start = 2009-01-05\nstart_s = 4", "has start and start_s; give the date or the seconds, not both"),
    ],
)
def test_invalid_dates(tmp_path, line, message):
    path = tmp_path / "site.toml"
    path.write_text(f"{GROUP}[[outage]]\ngroup = 'n'\nnodes = 1\n{line}\n")
    with pytest.raises(ClusterError, match=message):
        Cluster.from_file(path, unix_start_s=0.0)
