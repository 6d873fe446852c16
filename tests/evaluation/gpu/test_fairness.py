from __future__ import annotations

import math

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import constant_speeds
from kilowait.evaluation import finish_time_rho, gpu_metrics
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.gpu.example_logs import SEEDS, C, P, node_level_log, nodes, preempted_run, random_run

ONE_GPU = Cluster((nodes("t", 1, 1, "T4"),))


def sequential_log(*runs, submit=None, **columns):
    """Jobs of one GPU in sequence on a single GPU."""
    count = len(runs)
    jobs = JobTable(
        job_id=range(count),
        submit_s=submit or [0] * count,
        runtime_s=runs,
        nodes=[1] * count,
        gpus=[1] * count,
        **columns,
    )
    ends = np.cumsum(runs)
    return node_level_log(
        ONE_GPU, jobs, *((i, ends[i] - runs[i], ends[i], C, runs[i], 0, [(0, 1, 1000)]) for i in range(count))
    )


def test_rho_of_a_single_job():
    assert finish_time_rho(sequential_log(10), ONE_GPU).tolist() == [1]


def test_two_equal_jobs_in_sequence():
    # n is 2 for the first job: with half a GPU it would take 20 s, and took 10 s. The second: n is 1.5, 20 s of 15 s.
    assert finish_time_rho(sequential_log(10, 10), ONE_GPU).tolist() == pytest.approx([0.5, 20 / 15])


def test_share_is_limited_to_the_requested_gpus():
    cluster = Cluster((nodes("t", 1, 8, "T4"),))
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[10], nodes=[1], gpus=[2])
    log = node_level_log(cluster, jobs, (0, 5, 15, C, 10, 0, [(0, 0b11, 2000)]))
    assert finish_time_rho(log, cluster).tolist() == [1.5]


def test_rho_of_an_example_run():
    # The first: n is 52/44, so its share exceeds two GPUs; half V100, half T4: speed 0.75
    # The second: n is 2, speed 0.75 again. The third has no GPU.
    rho = finish_time_rho(*preempted_run())
    assert rho[:2].tolist() == pytest.approx([44 * 0.75 / 20, 0.75])
    assert math.isnan(rho[2])
    result = gpu_metrics(*preempted_run())
    assert result["mean_rho"] == pytest.approx(1.2)
    assert result["max_rho"] == pytest.approx(1.65)
    assert result["unfair_share"] == 0.5
    assert result["jain_rho"] == pytest.approx(2.4**2 / (2 * (1.65**2 + 0.75**2)))


def test_share_includes_only_allowed_types():
    cluster = Cluster((nodes("v", 1, 1, "V100"), nodes("t", 1, 3, "T4")))
    jobs = JobTable(
        job_id=[1, 2],
        submit_s=[0, 0],
        runtime_s=[10, 10],
        nodes=[1, 1],
        gpus=[1, 1],
        gpu_types=[0, -1],
        labels={"gpu_types": ("V100",)},
    )
    log = node_level_log(cluster, jobs, (0, 0, 10, C, 10, 0, [(0, 1, 1000)]), (1, 0, 20, C, 10, 0, [(1, 1, 1000)]))
    speeds = constant_speeds(jobs, ("V100", "T4"), {"V100": 1.0, "T4": 0.5})
    # n is 2 and 1.5. Half a V100: speed 0.5. 1/1.5 V100 and 3/1.5 T4, in all scaled to 1: (1 * 1 + 3 * 0.5) / 4.
    assert finish_time_rho(log, cluster, speeds).tolist() == pytest.approx([0.5, 20 * 0.625 / 10])


def test_lost_work_does_not_count_as_work():
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[10], nodes=[1], gpus=[1])
    log = node_level_log(ONE_GPU, jobs, (0, 0, 10, P, 10, 10, [(0, 1, 1000)]), (0, 10, 20, C, 10, 0, [(0, 1, 1000)]))
    assert finish_time_rho(log, ONE_GPU).tolist() == [2]


def test_jobs_that_wait_forever_count_until_the_end():
    log = sequential_log(10, 10)
    waiting = node_level_log(ONE_GPU, log.jobs_table, (0, 0, 10, C, 10, 0, [(0, 1, 1000)]))
    assert finish_time_rho(waiting, ONE_GPU)[0] == 0.5  # n is 2
    with_cancelled = node_level_log(
        ONE_GPU,
        log.jobs_table.with_columns(cancel_s=[np.inf, 5]),
        (0, 0, 10, C, 10, 0, [(0, 1, 1000)]),
        outcome={1: Outcome.CANCELLED},
    )
    assert finish_time_rho(with_cancelled, ONE_GPU)[0] == pytest.approx(1 / 1.5)
    assert math.isnan(finish_time_rho(with_cancelled, ONE_GPU)[1])


def test_rho_of_counted_jobs():
    rho = finish_time_rho(sequential_log(10, 10), ONE_GPU, counted=[False, True])
    assert math.isnan(rho[0]) and rho[1] == pytest.approx(20 / 15)


@pytest.mark.parametrize("seed", SEEDS)
def test_rho_equals_its_definition(seed):
    """On random runs, rho of every job equals its definition in the module docstring."""
    log, cluster, speeds = random_run(seed)
    jobs, records = log.jobs_table, log.jobs()
    rho = finish_time_rho(log, cluster, speeds)
    present = [
        (log.eligible_s[i], records["end_s"][i] if log.job_outcome[i] == C else jobs["cancel_s"][i])
        for i in range(len(jobs))
        if jobs["gpus"][i] > 0 and log.job_outcome[i] != Outcome.REJECTED
    ]
    evaluated = np.flatnonzero(~np.isnan(rho))
    assert len(evaluated) > 80
    for i in evaluated[::5].tolist():
        start, end = log.eligible_s[i], records["end_s"][i]
        n = sum(max(0, min(end, right) - max(start, left)) for left, right in present) / (end - start)
        share_gpus, rate = 0.0, 0.0
        for group in cluster.groups:
            if group.gpus and not (jobs["gpu_types"][i] == 0 and group.gpu_type != "V100"):
                x = group.nodes * group.gpus / n / (jobs["gpus"][i] * jobs["gpu_milli"][i] / 1000)
                share_gpus += x
                rate += x * speeds.speed[speeds.types.index(group.gpu_type), i]
        assert rho[i] == pytest.approx((end - start) * rate / max(share_gpus, 1) / jobs["runtime_s"][i])
