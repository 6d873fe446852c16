"""Manually constructed logs of GPU clusters, and random ones from the engine."""

from __future__ import annotations

from functools import cache

import numpy as np

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import constant_speeds, gpu_types
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import run_gpu_simulation
from kilowait.engine.interface import PriorityPolicy
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import Allocations, Outcome
from kilowait.rng import stream

C, P, M = Outcome.COMPLETED, Outcome.PREEMPTED, Outcome.MIGRATED


def nodes(name, count, gpus, gpu_type, cores=4):
    return NodeGroup(name, count, cores=cores, gpus=gpus, gpu_type=gpu_type, node_level=True)


def node_level_log(cluster, jobs, *segments, outcome=None):
    """An execution log of segments (row, start, end, outcome, work, lost, [(node, GPUs as bits, thousandths), ...]).

    Jobs without segments never started; `outcome` overrides the outcomes of single rows.
    """
    pieces = [
        (number, node, bits, gpu_milli)
        for number, segment in enumerate(segments)
        for node, bits, gpu_milli in segment[6]
    ]
    segment, node, gpus, gpu_milli = np.array(pieces, np.int64).reshape(-1, 4).T
    row, start, end, segment_outcome, work, lost = (
        np.array([s[column] for s in segments], float if column in (1, 2, 4, 5) else np.int64) for column in range(6)
    )
    results = np.zeros(len(jobs), np.int8)
    results[row] = np.where(np.isin(segment_outcome, (P, M)), 0, segment_outcome)
    for number, result in (outcome or {}).items():
        results[number] = result
    layout = cluster.node_groups or np.repeat(np.arange(len(cluster.groups)), [g.nodes for g in cluster.groups])
    return ExecutionLog(
        jobs_table=jobs,
        job=row,
        start_s=start,
        end_s=end,
        group=np.zeros(len(row), np.int16),
        level=np.zeros(len(row), np.int16),
        outcome=segment_outcome.astype(np.int8),
        eligible_s=np.where(results == Outcome.REJECTED, np.nan, jobs["submit_s"]),
        job_outcome=results,
        capacity_s=np.array([-np.inf]),
        capacity=np.array([cluster.nodes]),
        groups=tuple(group.name for group in cluster.groups),
        pieces=Allocations(
            segment, node, gpus, gpu_milli, np.ones(len(node), np.int64), work, lost, np.asarray(layout, np.int64)
        ),
    )


def preempted_run():
    """Two GPUs of each type. A job of two GPUs is preempted on the V100s, losing 4 s of work, by a job of higher
    priority on half a GPU, and resumes 4 s later on the T4s at half speed, after 2 s of loading. A third has no GPU.
    """
    cluster = Cluster((nodes("v", 1, 2, "V100"), nodes("t", 1, 2, "T4")))
    jobs = JobTable(
        job_id=[1, 2, 3],
        submit_s=[0, 10, 0],
        runtime_s=[20, 8, 4],
        nodes=[1, 1, 1],
        cores=[1, 1, 1],
        gpus=[2, 1, 0],
        gpu_milli=[1000, 500, 1000],
        priority=[0, 1, 0],
    )
    log = node_level_log(
        cluster,
        jobs,
        (0, 0, 10, P, 10, 4, [(0, 0b11, 2000)]),
        (2, 0, 4, C, 4, 0, [(1, 0, 0)]),
        (1, 10, 18, C, 8, 0, [(0, 0b10, 500)]),
        (0, 14, 44, C, 14, 0, [(1, 0b11, 2000)]),
    )
    return log, cluster, constant_speeds(jobs, ("V100", "T4"), {"V100": 1.0, "T4": 0.5})


def _highest_priority(job, now, parameters):
    return -job.priority


SEEDS = range(8)


@cache
def random_run(seed):
    """Log, cluster and speeds of a run with preemption, migration, sharing, gangs and jobs without GPUs."""
    rng = stream(seed, "gpu metrics")
    groups = [nodes("v", 3, 4, "V100", 8), nodes("t", 4, 2, "T4", 6), nodes("c", 1, 0, "", 16)]
    cluster = Cluster(tuple(groups[:1] if seed % 4 == 3 else groups))
    count = 150
    gpus = rng.choice([0, 1, 1, 2, 4], count)
    fractional = (gpus == 1) & (rng.random(count) < 0.5)
    jobs = JobTable(
        job_id=rng.permutation(count),
        submit_s=rng.uniform(0, 3000, count).round(),
        runtime_s=rng.lognormal(4.5, 1.2, count).round(),
        nodes=np.where((gpus == 4) & (rng.random(count) < 0.5), 2, 1),
        cores=rng.choice([2, 2, 4], count),
        gpus=gpus,
        gpu_milli=np.where(fractional, rng.choice([200, 250, 500, 700], count), 1000),
        gpus_may_span_nodes=(gpus == 2) & (rng.random(count) < 0.5),
        priority=rng.integers(0, 3, count),
        cancel_s=np.where(rng.random(count) < 0.1, 1500.0, np.inf),
        gpu_types=np.where(rng.random(count) < 0.2, 0, -1),
        labels={"gpu_types": ("V100",)},
    )
    kinds = [name for name in gpu_types(cluster) if name]
    speeds = constant_speeds(jobs, kinds, {name: rng.choice([0.5, 1.0, 2.0], count) for name in kinds}, 0.7)
    settings = GpuSettings(
        placement=("first", "best", "fgd", "consolidate")[seed % 4],
        head_of_line_blocking=False,
        preempt=seed % 2 == 0,
        migrate=seed >= 4,
        min_run_before_preempt_s=60.0,
        grace_s=5.0 * (seed % 3),
        checkpoint_write_s=3.0,
        checkpoint_load_s=10.0,
        checkpoint_s=(0.0, 45.0, np.inf)[seed % 3],
        on_oversized="drop",
    )
    return (
        run_gpu_simulation(jobs, cluster, PriorityPolicy("important", _highest_priority), settings, speeds),
        cluster,
        speeds,
    )
