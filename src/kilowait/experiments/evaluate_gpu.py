"""Evaluation of an agent on a GPU cluster against priority policies, on windows of test jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.evaluation.comparison.bootstrap import ratio_interval
from kilowait.experiments.gpu_options import GpuOptions, simulate_arguments
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.rng import stream

__all__ = ["POLICY_VARIANTS", "evaluate_gpu_agent", "simulate_to_end"]

BASELINES = ("fcfs", "sjf", "srtf", "las")
"""Baseline policies. Preemptive ones preempt by their definition; the others run without head-of-line blocking."""
POLICY_VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    ", fastest": {"gpu_type_order": "fastest"},
    ", fastest, migration": {"gpu_type_order": "fastest", "migrate": True},
}
"""GPU settings of the variants of a policy, by the suffix of its name: GPUs of any type; the fastest types first; the
fastest types first, with migration of running jobs to GPUs where they end sooner."""
METRICS = ("mean_jct_s", "p95_jct_s", "makespan_s", "gpu_utilization", "flops_utilization")
_FIXED: dict[str, Any] = {"at_limit": "extend", "on_oversized": "drop", "dependencies": False}


def simulate_to_end(
    policy: Any, jobs: JobTable, cluster: Cluster, *, placement: str | None = None, **options: Any
) -> tuple[ExecutionLog, dict[str, float]]:
    """Simulate a policy until all jobs end; the log and its `gpu_metrics`. `options`: fields of `GpuOptions`.

    Utilization is over the time in which jobs arrive, which is the same for all policies.
    """
    settings = simulate_arguments(
        {**_FIXED, "placement": placement, "gpu": GpuOptions(**options)}, jobs, cluster, policy, "skip"
    )
    log = kw.simulate(jobs, cluster, policy, "skip", **settings)
    first_s, last_s = float(jobs["submit_s"].min()), float(jobs["submit_s"].max())
    horizon = (first_s, last_s) if last_s > first_s else None
    return log, kw.gpu_metrics(log, cluster, settings["speeds"], horizon_s=horizon)


def evaluate_gpu_agent(
    agent: Any, windows: Sequence[JobTable], cluster: Cluster, *, policies: Sequence[str] = BASELINES, seed: int = 0
) -> dict[str, Any]:
    """Mean `METRICS` over the windows, of the agent and every policy; for mean_jct_s also the ratio to the best policy.

    Each policy runs in all `POLICY_VARIANTS`, the agent with its own settings. Metrics include all jobs of a window,
    which runs until its last job has ended.
    """
    runs: dict[str, tuple[Any, dict[str, Any]]] = {"agent": (agent, {})}
    runs |= {policy + suffix: (policy, options) for policy in policies for suffix, options in POLICY_VARIANTS.items()}
    rows: dict[str, dict[str, list[float]]] = {}
    for name, (policy, options) in runs.items():
        results = [simulate_to_end(policy, jobs, cluster, **options)[1] for jobs in windows]
        rows[name] = {metric: [run[metric] for run in results] for metric in METRICS}
    return {
        "windows": len(windows),
        "window_jobs": len(windows[0]),
        "policies": {
            name: {
                **{metric: float(np.mean(values)) for metric, values in metrics.items()},
                "mean_jct_s_by_window": metrics["mean_jct_s"],
            }
            for name, metrics in rows.items()
        },
        "ratios": _ratios(rows, seed),
    }


def _ratios(rows: Mapping[str, Mapping[str, list[float]]], seed: int) -> dict[str, list[float]]:
    """Ratio of each policy's mean completion time to that of the best policy, with a 95 % interval over windows."""
    means = {name: np.mean(metrics["mean_jct_s"]) for name, metrics in rows.items()}
    best = min((name for name in means if name != "agent"), key=lambda name: means[name])
    return {
        name: [
            float(means[name] / means[best]),
            *ratio_interval(metrics["mean_jct_s"], rows[best]["mean_jct_s"], random=stream(seed, "gpu judging")),
        ]
        for name, metrics in rows.items()
        if name != best
    }
