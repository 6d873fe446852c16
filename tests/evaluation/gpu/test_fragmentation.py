from __future__ import annotations

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.engine.gpu.initial_state import build_gpu_state
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.interface import PriorityPolicy
from kilowait.errors import InputError
from kilowait.evaluation import fragmentation
from kilowait.evaluation.allocations import node_allocations
from kilowait.evaluation.gpu import targets_of
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.gpu.example_logs import SEEDS, C, node_level_log, nodes, preempted_run, random_run


def one_busy_node(**columns):
    """One node of two GPUs and four cores; the first job runs from 0 to 10, the others wait."""
    cluster = Cluster((nodes("t", 1, 2, "T4"),))
    count = len(columns["gpus"])
    times = {"submit_s": np.zeros(count), "runtime_s": np.full(count, 10.0)}
    jobs = JobTable(job_id=np.arange(count), nodes=np.ones(count, int), **times, **columns)
    gpu_milli = int(jobs.column("gpu_milli")[0])
    return node_level_log(cluster, jobs, (0, 0, 10, C, 10, 0, [(0, 0b01, gpu_milli)])), cluster


def fragmentation_values(*case):
    return fragmentation(*case).value.tolist()


def test_too_small_gpu_fractions_are_fragments():
    # Free are 0.4 and 1 GPU. Half of the jobs request 0.6, the others 1: 0.4 is too small for both.
    assert fragmentation_values(*one_busy_node(gpus=[1, 1], gpu_milli=[600, 1000])) == [0.2]


def test_large_enough_gpu_fractions_are_not_fragments():
    # Free are 0.7 and 1 GPU; 0.3 fits on both, a full GPU on one of them only
    assert fragmentation_values(*one_busy_node(gpus=[1, 1], gpu_milli=[300, 1000])) == pytest.approx([0.5 * 0.7 / 2])


def test_all_idle_gpus_are_fragments_with_too_few_gpus():
    # One GPU is free, and half of the jobs request two
    assert fragmentation_values(*one_busy_node(gpus=[1, 2])) == [0.5 * 1 / 2]


def test_all_idle_gpus_are_fragments_with_too_few_cores():
    # Three of four cores are in use; half of the jobs need three, the others one
    assert fragmentation_values(*one_busy_node(gpus=[1, 1], cores=[3, 1])) == [0.5 * 1 / 2]


def test_all_idle_gpus_are_fragments_of_a_forbidden_type():
    labels = {"gpu_types": ("P100", "T4|P100")}
    assert fragmentation_values(*one_busy_node(gpus=[1, 1], gpu_types=[1, 0], labels=labels)) == [0.5 * 1 / 2]


def test_all_idle_gpus_are_fragments_for_cpu_jobs():
    assert fragmentation_values(*one_busy_node(gpus=[1, 0], cores=[1, 1])) == [0.5 * 1 / 2]


def test_nodes_are_empty_before_and_after_the_run():
    log, cluster = one_busy_node(gpus=[1, 0], cores=[1, 1])
    result = fragmentation(log, cluster, horizon_s=(-10, 30))
    assert result.edge_s.tolist() == [-10, 0, 10, 30]
    assert result.value.tolist() == [0.5, 0.25, 0.5]


def test_rare_and_rejected_jobs_are_not_targets():
    log, cluster = one_busy_node(gpus=[1] * 19 + [2])
    assert fragmentation_values(log, cluster) == [0]  # 19 of 20 are enough
    log, cluster = one_busy_node(gpus=[1, 1, 2, 2])
    assert fragmentation_values(log, cluster) == [0.25]
    log.job_outcome[2:] = Outcome.REJECTED
    assert fragmentation_values(log, cluster) == [0]


def test_fragmentation_of_an_example_run():
    log, cluster, _ = preempted_run()
    # Targets are 2 GPUs, 0.5 GPU and no GPU, a third each. All request one core, which is available.
    result = fragmentation(log, cluster)
    assert result.edge_s.tolist() == [0, 10, 14, 18, 44]
    empty = 2 / 3  # of an empty node: the job without GPUs can use neither GPU
    half = (1.5 + 0 + 1.5) / 3  # beside half a GPU in use, jobs of two GPUs and of no GPU cannot use the rest
    assert result.value.tolist() == pytest.approx(
        [(0 + empty) / 4, (half + empty) / 4, (half + 0) / 4, (empty + 0) / 4]
    )


def test_no_gpus_and_no_time():
    cluster = Cluster((nodes("c", 1, 0, ""),))
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], cores=[1])
    with pytest.raises(InputError, match="no GPUs"):
        fragmentation(node_level_log(cluster, jobs, (0, 0, 9, C, 9, 0, [(0, 0, 0)])), cluster)
    cluster = Cluster((nodes("t", 1, 1, "T4"),))
    with pytest.raises(InputError, match="no timeline; give horizon_s"):
        fragmentation(node_level_log(cluster, jobs), cluster)


@pytest.mark.parametrize("seed", SEEDS)
def test_targets_equal_those_of_the_engine(seed):
    log, cluster, _ = random_run(seed)
    settings = GpuSettings(placement="fgd", on_oversized="drop")
    state = build_gpu_state(log.jobs_table, cluster, settings, PriorityPolicy("none", lambda job, now, p: 0.0))
    engine = [tuple(target) for target in state.typical_jobs.tolist()]
    result = targets_of(log, node_allocations(log, cluster))
    total = sum(target[4] for target in result)
    assert [(*target[:4], target[4] / total) for target in result] == engine
    assert len(result) > 10


def _fragments(free, cores, kind, targets, labels):
    """Fragmented thousandths of GPUs of a node, as defined in docs/gpu-engine.md."""
    total = sum(target[4] for target in targets)
    total_fragments = 0.0
    for cpu, gpu_milli, gpus, label, count in targets:
        allowed = not labels[label] or kind in labels[label].split("|")
        if gpu_milli == 0 or not allowed or cpu > cores or sum(g >= gpu_milli for g in free) < gpus:
            fragments = sum(free)
        else:
            fragments = sum(g for g in free if g < gpu_milli)
        total_fragments += count / total * fragments
    return total_fragments


@pytest.mark.parametrize("seed", SEEDS)
def test_fragmentation_equals_its_definition_at_any_time(seed):
    log, cluster, _ = random_run(seed)
    result = fragmentation(log, cluster)
    node_level, pieces = node_allocations(log, cluster), log.pieces
    targets = targets_of(log, node_level)
    kinds = [group for group in cluster.groups for _ in range(group.nodes)]
    for time in (result.edge_s[:-1] + result.edge_s[1:])[::7] / 2:
        total = 0.0
        for node, group in enumerate(kinds):
            free, cores = [1000] * group.gpus, group.cores * 1000
            for i in np.flatnonzero(pieces.node == node).tolist():
                segment = pieces.segment[i]
                if log.start_s[segment] <= time < log.end_s[segment]:
                    job = log.job[segment]
                    cores -= int(pieces.count[i] * node_level.want.cpu[job])
                    for g in range(group.gpus):
                        free[g] -= int(pieces.gpus[i] >> g & 1) * int(log.jobs_table["gpu_milli"][job])
            assert min([cores, *free]) >= 0
            total += _fragments(free, cores, group.gpu_type, targets, node_level.want.labels)
        gpus = sum(group.gpus for group in kinds)
        assert float(result.at(time)) == pytest.approx(total / (1000 * gpus), abs=1e-12)
