"""Benchmark of the GPU engine on the openb cluster of 1,213 nodes and 6,212 GPUs."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import kilowait as kw
from kilowait.synth import GpuWorkloadSettings, gpu_workload

__all__ = ["first_fit_s", "fgd_run", "pods_of"]

POD_LIST = Path("gpu", "alibaba_v2023", "openb_pod_list_default.csv.gz")
"""Path of the list of pods in the folder of real logs."""
PODS = 8152
"""Number of pods in that list."""


def first_fit_s(count: int) -> float:
    """Seconds of one run of `count` synthetic jobs of one GPU each, at load 0.9, with first-fit placement."""
    openb = kw.Cluster.preset("openb")
    jobs = gpu_workload(count, openb, GpuWorkloadSettings(sizes={1: 1.0}, priorities=None), load=0.9, seed=0)
    # The first run compiles the kernels.
    kw.simulate(jobs[:100], openb, placement="first", backfill="none", gpu_speeds="none")
    began = time.perf_counter()
    kw.simulate(jobs, openb, placement="first", backfill="none", gpu_speeds="none")
    return time.perf_counter() - began


def pods_of(folder: Path | None) -> kw.JobTable:
    """The pods of the list if it exists; else as many synthetic jobs, 40 % of them with a part of a GPU."""
    if folder is not None and (folder / POD_LIST).exists():
        return kw.read_trace(folder / POD_LIST)
    return gpu_workload(PODS, kw.Cluster.preset("openb"), GpuWorkloadSettings(shared=0.4), load=0.9, seed=0)


def fgd_run(pods: kw.JobTable) -> partial[kw.ExecutionLog]:
    """A simulation of the pods with placement by fragmentation gradient descent (FGD)."""
    return partial(
        kw.simulate,
        pods,
        kw.Cluster.preset("openb"),
        "fcfs",
        placement="fgd",
        on_oversized="drop",
        backfill="none",
        gpu_speeds="none",
    )
