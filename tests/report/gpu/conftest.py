"""Contests on a small GPU cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kilowait as kw
from kilowait.cluster import NodeGroup
from kilowait.evaluation import gpu_metrics
from kilowait.evaluation.comparison import cut_windows
from kilowait.synth import gpu_workload

GPUS = kw.Cluster(
    (
        NodeGroup("a", 1, cores=16, gpus=4, gpu_type="A100", node_level=True),
        NodeGroup("t", 2, cores=16, gpus=4, gpu_type="T4", node_level=True),
        NodeGroup("c", 1, cores=16, node_level=True),
    ),
    node_groups=(1, 0, 2, 1),
)


def gpu_contest(*, windows=None, measured=True, policies=("fcfs", "srtf", "las")):
    """Rules on the same jobs; with what was measured at the speeds of the run, here 1."""
    jobs = gpu_workload(150, GPUS, load=1.3, shared=0.4, seed=5)
    cut = jobs if windows is None else cut_windows(jobs, windows, window_jobs=40, warmup_jobs=10, seed=0)
    contest = kw.compare(cut, GPUS, list(policies), trace="gpu:150")
    if not measured:
        return contest
    kept = {
        label: gpu_metrics(contest.logs(who, 0), GPUS, counted=contest.windows[0].evaluated)
        for who, label in enumerate(contest.labels)
    }
    return replace(contest, gpus=kept)


@pytest.fixture(scope="session")
def gpus():
    """fcfs, srtf and las on one log."""
    return gpu_contest()
