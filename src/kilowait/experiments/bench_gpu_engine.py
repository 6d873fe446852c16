"""How long runs on placed nodes take: the 1,213 nodes and 6,212 GPUs of openb, each of them followed."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import kilowait as kw
from kilowait.synth import gpu_workload

__all__ = ["POD_LIST", "first_fit_s", "fgd_run", "pods_of"]

POD_LIST = Path("gpu", "alibaba_v2023", "openb_pod_list_default.csv.gz")
"""Where the folder of real logs has the pods."""
PODS = 8152
"""Pods on that list."""


def first_fit_s(count: int) -> float:
    """Seconds of so many jobs of one GPU each, made for a load of 0.9, on the first GPU that is free; run once."""
    openb = kw.Cluster.preset("openb")
    jobs = gpu_workload(count, openb, load=0.9, seed=0, sizes={1: 1.0}, priorities=None)
    kw.simulate(
        jobs[:100], openb, placement="first", backfill="none", gpu_speeds="none"
    )  # what must be compiled is
    began = time.perf_counter()
    kw.simulate(jobs, openb, placement="first", backfill="none", gpu_speeds="none")
    return time.perf_counter() - began


def pods_of(folder: Path | None) -> kw.JobTable:
    """The pods of the list, where it is there; else as many jobs made, two in five with a part of a GPU."""
    if folder is not None and (folder / POD_LIST).exists():
        return kw.read_trace(folder / POD_LIST)
    return gpu_workload(PODS, kw.Cluster.preset("openb"), load=0.9, seed=0, shared=0.4)


def fgd_run(pods: kw.JobTable) -> partial[kw.ExecutionLog]:
    """A run that puts every pod where the fewest fragments arise."""
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
