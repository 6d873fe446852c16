"""The latency of decisions: a queue that stands still, and how the cost along it is told."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.errors import InputError
from kilowait.experiments.bench_latency import (
    Latency,
    latencies,
    slope,
    slopes,
    standing_queue,
)
from kilowait.report.latency_figure import draw_latencies


@pytest.mark.parametrize("policy", ["saf", "wfp3"])
@pytest.mark.parametrize("nodes", [256, 49152])
def test_the_queue_stands_while_the_small_jobs_pass(policy, nodes):
    jobs = standing_queue(50, nodes, probes=20)
    start = kw.simulate(jobs, kw.Cluster.from_nodes(nodes), policy, "easy").jobs()["start_s"]
    assert np.array_equal(start[51:], jobs["submit_s"][51:])  # each at once
    assert (
        start[1:51].min() >= jobs["submit_s"][-1] + 30
    )  # none of the others before the last of them is gone


def test_every_decider_is_measured_along_the_queue_and_the_nodes():
    found = list(latencies(lengths=(64,), nodes=(256, 512), seconds=0.0, networks=False))
    assert {(one.queue, one.nodes) for one in found} == {(64, 256), (1024, 256), (1024, 512)}
    assert {one.policy for one in found} == {"SAF", "WFP3", "linear agent"} == set(slopes(found))
    assert all(one.seconds > 0 for one in found)


def test_networks_are_measured_too():
    found = list(latencies(lengths=(512,), nodes=(), seconds=0.0))
    names = [one.policy for one in found if one.seconds > 0]
    assert names[-2:] == ["kernel network, 128 slots", "kernel network, all shown"]


def test_the_slope_is_the_power():
    found = [Latency("x", queue, 256, 3e-6 * queue) for queue in (64, 256, 1024, 4096)]
    found[0] = Latency("x", 64, 256, 1.0)  # short queues do not count
    found += [Latency("x", 1024, nodes, 3e-6 * 1024) for nodes in (1024, 4096)]
    assert slope(found, "x", "queue") == pytest.approx(1.0) and slope(found, "x", "nodes") == pytest.approx(
        0.0
    )
    assert np.isnan(slope(found[:1], "x", "queue"))


def test_the_figure_is_written_by_its_ending(tmp_path):
    found = [Latency("x", queue, 256, 3e-6 * queue) for queue in (256, 1024)] + [
        Latency("x", 1024, 512, 0.003)
    ]
    assert draw_latencies(found, slopes(found), tmp_path / "a" / "x.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="cannot write the figure"):
        draw_latencies(found, slopes(found), tmp_path / "x.nothing")
