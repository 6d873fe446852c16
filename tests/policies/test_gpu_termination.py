"""Every GPU policy ends on clusters whose nodes differ: all jobs complete, or an error names what is wrong."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.errors import InputError, TableError
from kilowait.policies import POLICIES
from kilowait.policies.round_based import ROUND_BASED_POLICIES

LIMIT_S = 60
LEARNING = {"easy+", "easy++"}
"""Policies that learn from ended jobs, which the GPU engine does not report."""
POLICY_NAMES = sorted({*POLICIES, *ROUND_BASED_POLICIES} - LEARNING)


@contextmanager
def time_limit(seconds: int = LIMIT_S) -> Iterator[None]:
    """Raise an error in the main thread after this time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the run has not ended after {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def cluster(*groups: tuple[int, int, int, str], **more: object) -> Cluster:
    """A cluster of groups of (nodes, cores, GPUs, GPU type)."""
    return Cluster(
        tuple(
            NodeGroup(f"g{number}", count, cores=cores, memory_gb=64, gpus=gpus, gpu_type=kind, node_level=True)
            for number, (count, cores, gpus, kind) in enumerate(groups)
        ),
        **more,
    )


def jobs(*rows: tuple[int, int, int], **columns: object) -> kw.JobTable:
    """Jobs of (nodes, GPUs, cores); one is submitted every 100 s and runs for 1000 s or more."""
    n = len(rows)
    nodes, gpus, cores = np.array(rows).T
    return kw.JobTable(
        job_id=np.arange(n),
        submit_s=100.0 * np.arange(n),
        runtime_s=1000.0 + 300.0 * np.arange(n),
        nodes=nodes,
        gpus=gpus,
        cores=cores,
        **columns,
    )


MIXED = cluster((4, 8, 2, "T4"), (1, 8, 4, "V100"))
CASES = {
    "the GPUs of a type suffice, but no node of it": (MIXED, jobs((1, 4, 1))),
    "several such jobs and small ones": (MIXED, jobs((1, 4, 1), (1, 2, 1), (1, 4, 1), (1, 1, 1), (1, 3, 1))),
    "the cores of a node do not suffice": (
        cluster((4, 2, 4, "T4"), (1, 16, 4, "V100")),
        jobs((1, 2, 8), (1, 1, 1), (1, 2, 8)),
    ),
    "the memory of a node does not suffice": (
        Cluster(
            (
                NodeGroup("a", 4, cores=8, memory_gb=16, gpus=4, gpu_type="T4", node_level=True),
                NodeGroup("b", 1, cores=8, memory_gb=64, gpus=2, gpu_type="V100", node_level=True),
            )
        ),
        jobs((1, 1, 1), (1, 2, 1), memory_mb=[32_000, 32_000]),
    ),
    "one job needs more nodes than a type has": (
        cluster((1, 8, 8, "T4"), (2, 8, 4, "V100")),
        jobs((2, 8, 2), (1, 8, 1), (2, 4, 2)),
    ),
    "GPUs may span nodes": (MIXED, jobs((8, 8, 8), (4, 4, 4), (6, 6, 6), gpus_may_span_nodes=[1, 0, 1])),
    "one type with nodes of two sizes": (cluster((3, 8, 2, "T4"), (1, 8, 4, "T4")), jobs((1, 4, 1), (1, 3, 1))),
    "CPU-only jobs": (MIXED, jobs((1, 0, 4), (1, 2, 1), (3, 0, 6), (1, 0, 8), (1, 4, 8))),
    "CPU-only jobs fit only nodes without GPUs": (
        cluster((2, 4, 2, "T4"), (2, 32, 0, "")),
        jobs((1, 0, 16), (1, 2, 2), (2, 0, 64), (1, 0, 16), (1, 1, 4)),
    ),
    "only CPU-only jobs": (MIXED, jobs((1, 0, 4), (2, 0, 16), (1, 0, 1))),
    "a cluster without GPUs": (cluster((2, 16, 0, "")), jobs((1, 0, 16), (2, 0, 32), (1, 0, 1))),
    "queues with nodes of their own": (
        cluster((2, 8, 2, "T4"), (1, 8, 4, "T4"), queues={"small": ("g0",), "large": ("g1",)}),
        jobs((1, 2, 1), (1, 4, 1), (1, 0, 1), queue=[0, 1, 0], labels={"queue": ("small", "large")}),
    ),
    "a job may use one type only": (
        MIXED,
        jobs((1, 2, 1), (1, 2, 1), (1, 4, 1), gpu_types=[0, 1, -1], labels={"gpu_types": ("T4", "V100")}),
    ),
    "fractions of GPUs": (
        cluster((1, 4, 1, "T4"), (2, 4, 2, "V100")),
        jobs((1, 1, 2), (1, 1, 3), (1, 2, 2), (1, 1, 4), gpu_milli=[500, 700, 1000, 100]),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy_completes_all_jobs(policy: str, case: str) -> None:
    machine, table = CASES[case]
    with time_limit():
        log = kw.simulate(table, machine, policy, gpu_speeds="none")
    assert (log.job_outcome == 1).all()


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_jobs_that_need_gpus_on_a_cluster_without_gpus_are_an_error_before_the_run(policy: str) -> None:
    with time_limit(), pytest.raises(TableError, match="job 1 needs .*it fits on no nodes of the cluster"):
        kw.simulate(jobs((1, 0, 1), (1, 1, 1)), cluster((2, 16, 0, "")), policy, gpu_speeds="none")


@pytest.mark.parametrize("policy", sorted(LEARNING))
def test_policies_that_learn_from_ended_jobs_are_an_error_before_the_run(policy: str) -> None:
    with time_limit(), pytest.raises(InputError, match=f"policy '{policy[:4]}"):
        kw.simulate(jobs((1, 1, 1)), MIXED, policy, gpu_speeds="none")


@pytest.mark.parametrize("policy", ROUND_BASED_POLICIES)
def test_the_preset_with_nodes_of_two_sizes(policy: str) -> None:
    philly = Cluster.preset("philly")
    with time_limit():
        log = kw.simulate(jobs((1, 8, 4), (1, 2, 4), (1, 4, 4), (2, 16, 4)), philly, policy, gpu_speeds="none")
    assert (log.job_outcome == 1).all()
