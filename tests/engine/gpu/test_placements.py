"""Every placement on small clusters with a known answer."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.gpu.settings import PLACEMENTS, GpuSettings


def cluster(*gpus):
    """One node for each number of GPUs, with 16 cores each."""
    return Cluster(
        groups=tuple(
            NodeGroup(f"n{i}", 1, cores=16, gpus=g, gpu_type="V100" if g else "", node_level=True)
            for i, g in enumerate(gpus)
        )
    )


def where(placement, machine, gpus, **columns):
    """The node of each job; jobs of `gpus` GPUs arrive at once."""
    n = len(gpus)
    jobs = kw.JobTable(
        job_id=range(n),
        submit_s=[0] * n,
        runtime_s=[10] * n,
        **{"nodes": [1] * n, "gpus": gpus, "cores": [1] * n, **columns},
    )
    log = kw.simulate(jobs, machine, settings=GpuSettings(placement=placement, interference=None), gpu_speeds="none")
    assert (log.start_s == 0).all()
    first = np.searchsorted(log.pieces.segment, np.arange(len(log)))
    place = np.empty(n, int)
    place[log.job] = log.pieces.node[first]
    return place.tolist()


def test_first_uses_the_first_node_that_fits():
    assert where("first", cluster(2, 8), [1, 2, 1]) == [0, 1, 0]


def test_best_uses_the_fullest_node_and_worst_the_emptiest():
    assert where("best", cluster(8, 4), [1, 1]) == [1, 1]
    assert where("worst", cluster(8, 4), [1, 1, 4, 1]) == [0, 0, 0, 1]


def test_consolidate_keeps_a_gang_together():
    spread = {"gpus_may_span_nodes": [0, 1], "nodes": [1, 3]}
    machine = cluster(4, 4)
    log = kw.simulate(
        kw.JobTable(job_id=[0, 1], submit_s=[0, 0], runtime_s=[9, 9], gpus=[2, 3], cores=[1, 3], **spread),
        machine,
        settings=GpuSettings(placement="consolidate"),
        gpu_speeds="none",
    )
    assert log.pieces.node.tolist() == [0, 1] and log.pieces.count.tolist() == [1, 3]


def test_random_placement_depends_on_the_seed():
    jobs = kw.JobTable(job_id=range(40), submit_s=[0] * 40, runtime_s=[9] * 40, nodes=[1] * 40, gpus=[1] * 40)
    drawn = [
        kw.simulate(
            jobs, cluster(8, 8, 8, 8, 8), settings=GpuSettings(placement="random", seed=seed), gpu_speeds="none"
        ).pieces.node
        for seed in (1, 1, 2)
    ]
    assert (drawn[0] == drawn[1]).all() and (drawn[0] != drawn[2]).any()
    assert len(set(drawn[0])) == 5


def test_dot_product_prefers_nodes_with_the_least_of_the_requested_resources():
    assert where("dot-product", cluster(8, 4), [1]) == [1]


def test_gpu_packing_fills_shared_gpus_before_free_ones():
    parts = {"gpu_milli": [500, 500, 1000]}
    assert where("gpu-packing", cluster(2, 2), [1, 1, 1], **parts) == [0, 0, 0]


def test_gpu_clustering_groups_jobs_of_equal_size():
    parts = {"gpu_milli": [500, 1000, 400, 1000]}
    assert where("gpu-clustering", cluster(4, 4), [1, 1, 1, 1], **parts) == [0, 1, 0, 1]


def test_fgd_keeps_free_nodes_free():
    # Most jobs want four GPUs: a small one goes where four are not free any more.
    gpus = [1, 1, 4, 4, 4, 4, 4, 4]
    machine = cluster(4, 4, 2, 4, 4, 4, 4)
    assert where("fgd", machine, gpus)[:2] == [2, 2]


def test_capacity_keeps_capacity_for_the_jobs_of_the_table():
    # Most jobs want four GPUs: a small one goes where four are not free any more.
    gpus = [1, 1, 4, 4, 4, 4, 4, 4]
    assert where("capacity", cluster(4, 4, 2, 4, 4, 4, 4), gpus)[:2] == [2, 2]


def test_capacity_fills_a_shared_gpu_before_a_free_one():
    parts = {"gpu_milli": [500, 500, 1000]}
    assert where("capacity", cluster(2, 2), [1, 1, 1], **parts) == [0, 0, 0]


def test_capacity_accounts_for_free_cores():
    """By hand, of one kind with 6 cores and a GPU: on the node of 10 cores the first takes the room of all four GPUs,
    0.8 * 4 + 0.2 * 1; on the node of 40 each takes that of its own, 0.8 + 0.2."""
    machine = Cluster(
        groups=tuple(
            NodeGroup(f"n{cores}", 1, cores=cores, gpus=4, gpu_type="V100", node_level=True) for cores in (10, 40)
        )
    )
    assert where("capacity", machine, [1] * 5, cores=[6] * 5) == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_job_without_gpus_is_placed_by_every_placement(placement):
    assert where(placement, cluster(0, 4), [0]) in ([0], [1])
