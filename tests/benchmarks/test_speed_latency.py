"""Tests of the decision-latency benchmark: the workload with a constant queue, and the scaling exponents."""

import numpy as np
import pytest
from benchmarks.speed.latency import Latency, latencies, slope, slopes, standing_queue
from benchmarks.speed.latency_figure import draw_latencies

import kilowait as kw
from kilowait.errors import InputError


@pytest.mark.parametrize("policy", ["saf", "wfp3"])
@pytest.mark.parametrize("nodes", [256, 49152])
def test_queue_waits_while_small_jobs_start(policy, nodes):
    jobs = standing_queue(50, nodes, probes=20)
    start = kw.simulate(jobs, kw.Cluster.from_nodes(nodes), policy, "easy").jobs()["start_s"]
    assert np.array_equal(start[51:], jobs["submit_s"][51:])  # every small job starts at once
    # No waiting job starts before the last small job has ended.
    assert start[1:51].min() >= jobs["submit_s"][-1] + 30


def test_every_policy_is_measured_by_queue_length_and_nodes():
    results = list(latencies(lengths=(64,), nodes=(256, 512), seconds=0.0, networks=False))
    assert {(row.queue, row.nodes) for row in results} == {(64, 256), (1024, 256), (1024, 512)}
    assert {row.policy for row in results} == {"SAF", "WFP3", "linear agent"} == set(slopes(results))
    assert all(row.seconds > 0 for row in results)


def test_networks_are_measured():
    results = list(latencies(lengths=(512,), nodes=(), seconds=0.0))
    names = [row.policy for row in results if row.seconds > 0]
    assert names[-2:] == ["kernel network, 128 jobs observed", "kernel network, all observed"]


def test_slope_is_the_scaling_exponent():
    results = [Latency("x", queue, 256, 3e-6 * queue) for queue in (64, 256, 1024, 4096)]
    results[0] = Latency("x", 64, 256, 1.0)  # short queues are excluded
    results += [Latency("x", 1024, nodes, 3e-6 * 1024) for nodes in (1024, 4096)]
    assert slope(results, "x", "queue") == pytest.approx(1.0) and slope(results, "x", "nodes") == pytest.approx(0.0)
    assert np.isnan(slope(results[:1], "x", "queue"))


def test_figure_format_follows_the_suffix(tmp_path):
    results = [Latency("x", queue, 256, 3e-6 * queue) for queue in (256, 1024)] + [Latency("x", 1024, 512, 0.003)]
    assert draw_latencies(results, slopes(results), tmp_path / "a" / "x.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="cannot write the figure"):
        draw_latencies(results, slopes(results), tmp_path / "x.nothing")
