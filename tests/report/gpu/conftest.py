"""Fixtures: comparisons on a small GPU cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kilowait as kw
from kilowait.cluster import NodeGroup
from kilowait.evaluation import gpu_metrics
from kilowait.evaluation.comparison import cut_windows
from kilowait.synth import GpuWorkloadSettings, gpu_workload

GPUS = kw.Cluster(
    (
        NodeGroup("a", 1, cores=16, gpus=4, gpu_type="A100", node_level=True),
        NodeGroup("t", 2, cores=16, gpus=4, gpu_type="T4", node_level=True),
        NodeGroup("c", 1, cores=16, node_level=True),
    ),
    node_groups=(1, 0, 2, 1),
)


def gpu_comparison(*, windows=None, measured=True, policies=("fcfs", "srtf", "las")):
    """A comparison of policies on the same jobs; `measured` adds the metrics that need the GPU speeds (here 1)."""
    jobs = gpu_workload(150, GPUS, GpuWorkloadSettings(shared=0.4), load=1.3, seed=5)
    cut = jobs if windows is None else cut_windows(jobs, windows, window_jobs=40, warmup_jobs=10, seed=0)
    comparison = kw.compare(cut, GPUS, list(policies), trace="gpu:150")
    if not measured:
        return comparison
    metrics = {
        label: gpu_metrics(comparison.logs(index, 0), GPUS, counted=comparison.windows[0].evaluated)
        for index, label in enumerate(comparison.labels)
    }
    return replace(comparison, gpus=metrics)


@pytest.fixture(scope="session")
def gpus():
    """fcfs, srtf and las on one log."""
    return gpu_comparison()
