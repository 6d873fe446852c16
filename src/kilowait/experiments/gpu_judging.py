"""A policy on a GPU cluster beside the rules, on windows of later jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.evaluation.judging.bootstrap import ratio_interval
from kilowait.experiments.placing import PlacedSettings, arguments
from kilowait.jobs import JobTable
from kilowait.seeding import stream

__all__ = ["RIVALS", "judged_on_gpus"]

RIVALS = ("fcfs", "sjf", "srtf", "las")
"""Rules a trained agent is held against; those that preempt do so in their own way, the others may be overtaken."""
FIGURES = ("mean_jct_s", "p95_jct_s", "makespan_s", "gpu_utilization", "flops_utilization")


def judged_on_gpus(
    agent: Any, windows: Sequence[JobTable], cluster: Cluster, *, rules: Sequence[str] = RIVALS, seed: int = 0
) -> dict[str, Any]:
    """Means over the windows of `FIGURES`, of the agent and of every rule; of mean_jct_s the ratio to the best rule's.

    A rule runs twice: with GPUs of any type as they come, and trying the fastest types first. All jobs of a window
    count, and each window runs until its last job has finished.
    """
    fixed: dict[str, Any] = {
        "walltime": "extend",
        "oversized": "reject",
        "dependencies": False,
        "placement": None,
    }
    policies: dict[str, tuple[Any, str | None]] = {"agent": (agent, None)}
    for rule in rules:
        policies |= {rule: (rule, None), f"{rule}, fastest": (rule, "fastest")}
    rows: dict[str, dict[str, list[float]]] = {}
    for name, (policy, types) in policies.items():
        found: dict[str, list[float]] = {figure: [] for figure in FIGURES}
        for jobs in windows:
            told = arguments({**fixed, "placed": PlacedSettings(types=types)}, jobs, cluster, policy, "skip")
            log = kw.simulate(jobs, cluster, policy, "skip", **told)
            measured = kw.gpu_metrics(log, cluster, told["speeds"])
            for figure in FIGURES:
                found[figure].append(measured[figure])
        rows[name] = found
    return {
        "windows": len(windows),
        "window_jobs": len(windows[0]),
        "policies": {
            name: {
                **{figure: float(np.mean(values)) for figure, values in found.items()},
                "mean_jct_s_by_window": found["mean_jct_s"],
            }
            for name, found in rows.items()
        },
        "ratios": _ratios(rows, seed),
    }


def _ratios(rows: Mapping[str, Mapping[str, list[float]]], seed: int) -> dict[str, list[float]]:
    """Of each policy's mean completion time to that of the best, with a 95 % interval over windows."""
    means = {name: np.mean(found["mean_jct_s"]) for name, found in rows.items()}
    best = min((name for name in means if name != "agent"), key=lambda name: means[name])
    return {
        name: [
            float(means[name] / means[best]),
            *ratio_interval(
                found["mean_jct_s"], rows[best]["mean_jct_s"], random=stream(seed, "gpu judging")
            ),
        ]
        for name, found in rows.items()
        if name != best
    }
