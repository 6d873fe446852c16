"""Linear agent for node-level GPU clusters: one score orders jobs, another orders the GPU types that a job tries.

Both are weighted sums of features in fixed units (hours, the size of the machine), never of statistics of a log. FCFS,
SJF, SRTF, SRSF and LAS, with GPUs of any type or the fastest first, are special cases: `agent_equal_to_policy` returns
their weights, which give the same schedules. Settings that are not weights (preemption, round interval, placement,
migration) are the agent's `gpu_settings` and apply in every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log, log1p
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.io import LinearWeights, check_agent_fields, weights_in_order, write_agent
from kilowait.cluster import Cluster
from kilowait.cluster.gpu_catalogue import gpu
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.demand import node_types
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import run_gpu_simulation
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import RunInputs, gpu_settings_of
from kilowait.errors import InputError, KilowaitError, UnknownNameError
from kilowait.files.fields import Either, Flag, Number, Record, Text
from kilowait.jobs import ExecutionLog, JobTable

Floats = npt.NDArray[np.float64]

FORMAT = "kilowait linear GPU agent"
VERSION_1_FORMAT = "kilowait linear agent of placed nodes"
"""Name of the format up to version 1."""
VERSION = 2
_FIELDS = {
    "gpu_settings": Record(
        {},
        {
            "preempt": Flag(),
            "migrate": Flag(),
            "placement": Text(),
            "round_interval_s": Either(Number(0, 0), Number(1, 1e12)),
        },
    )
}

FEATURES: dict[str, str] = {
    "remaining": "ln(remaining / 1 h) / 3, by its estimate",
    "length": "ln(estimate / 1 h) / 3",
    "width": "ln(GPUs) / ln(1 + GPUs of the machine); shares of a GPU count as fractions",
    "share": "GPUs / GPUs of the machine",
    "attained": "ln(1 + GPU-hours attained) / 3",
    "age": "days since it joined the queue",
    "wait": "ln(1 + time without an allocation / 1 h) / 3",
    "patience": "ln(1 + time without an allocation / estimate) / 3",
    "priority": "p / (1 + p); 0 for priorities below 0",
    "running": "1: running; 0: waiting",
    "speed": "ln(speed on its fastest type)",
    "speed_ratio": "ln(speed on its fastest type / speed on its slowest)",
}
"""Features of a job, waiting or (with preemption) running; the smallest weighted sum goes first."""

GPU_TYPE_FEATURES: dict[str, str] = {
    "slow": "-ln(its speed on the type)",
    "slow_length": "slow x ln(estimate / 1 h) / 3",
    "slow_width": "slow x ln(GPUs) / ln(1 + GPUs of the machine)",
    "tflops": "ln(FP32 TFLOPS of the type / those of a V100); 0 where not known",
    "tflops_length": "tflops x ln(estimate / 1 h) / 3",
}
"""Features of a job on a GPU type; the type with the smallest weighted sum is tried first, equal types together."""

COUNT = len(FEATURES)
CHANGING_FEATURES = COUNT - 2  # the last two features are constant during a run
MIN_ESTIMATE_S, MIN_GPU_SHARE = 1.0, 1e-3
GPU_SETTINGS = ("preempt", "round_interval_s", "placement", "migrate")

POLICY_WEIGHTS: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "fcfs": ({"age": -1.0}, {}),
    "sjf": ({"length": 1.0}, {}),
    "srtf": ({"remaining": 1.0}, {"preempt": True}),
    "srsf": ({"remaining": 3.0, "width": 0.0}, {"preempt": True}),
    "las": ({"attained": 1.0}, {"preempt": True, "round_interval_s": 300.0}),
}
"""Policies that are special cases: their weights (the width of srsf depends on the machine), and their GPU settings."""


def _score(job: Any, now: float, parameters: Any) -> Any:
    """Compiled score; parameters: weights of the features that change, ln(1 + GPUs), GPUs, then a term for each job."""
    gpus = max(job.gpu_share, 1e-3)
    wait_s = max(job.waited_s, 0.0)
    total = parameters[0] * log(job.remaining_s / 3600.0) / 3.0
    total += parameters[1] * log(job.estimate_s / 3600.0) / 3.0
    total += parameters[2] * log(gpus) / parameters[10] + parameters[3] * job.gpu_share / parameters[11]
    total += parameters[4] * log1p(job.attained_s * job.gpu_share / 3600.0) / 3.0
    total += parameters[5] * (now - job.submit_s) / 86400.0
    total += parameters[6] * log1p(wait_s / 3600.0) / 3.0
    total += parameters[7] * log1p(wait_s / job.estimate_s) / 3.0
    if job.priority > 0.0:
        total += parameters[8] * job.priority / (1.0 + job.priority)
    total += parameters[9] * job.running
    return total + parameters[12 + job.number]


@dataclass(frozen=True, eq=False)
class LinearGpuAgent(LinearWeights):
    """Weights that order the jobs of a GPU cluster and the types they try; ``kilowait.simulate(jobs, cluster, agent)``.

    >>> agent = agent_equal_to_policy("srtf", 56, gpu_type_order="fastest")
    >>> agent.explain()[0], agent.gpu_settings
    (('remaining', 1.0), (('preempt', True), ('gpu_type_order', 'given')))
    """

    weights: Floats
    """One for each of FEATURES, then of TYPE_FEATURES; only their ratios matter."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """preempt, round_interval_s, placement and migrate where they differ from the defaults of
    `engine.gpu.settings.GpuSettings`.
    """
    name: str = "agent"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Origin: seed, training trace, objective, settings."""

    def __post_init__(self) -> None:
        self.check_weights()
        for key in self.overrides:
            if key not in GPU_SETTINGS:
                raise UnknownNameError("GPU setting of an agent", key, GPU_SETTINGS)
        GpuSettings(**self.overrides)

    weight_names = (*FEATURES, *GPU_TYPE_FEATURES)
    skips = True
    """Whether a job that does not fit is skipped, so that it does not block the others."""

    @property
    def gpu_settings(self) -> tuple[tuple[str, Any], ...]:
        """GPU settings of a run, in the form that policies declare them."""
        types = (("gpu_type_order", "given"),) if self.weights[COUNT:].any() else ()
        return (*self.overrides.items(), *types)

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under this agent, compiled. An explicit `preference` replaces its own order of types."""
        gpu_settings, preference = gpu_settings_of(inputs, self.name), inputs.preference
        jobs, cluster, speeds = inputs.jobs, inputs.cluster, inputs.speeds
        if gpu_settings.gpu_type_order == "given" and preference is None:
            preference = self.preference(jobs, cluster, speeds)
        policy = PriorityPolicy(
            self.name, _score, self._parameters(jobs, cluster, speeds), time_dependent=True, node_level=True
        )
        return run_gpu_simulation(jobs, cluster, policy, gpu_settings, speeds, preference)

    def _parameters(self, jobs: JobTable, cluster: Cluster, speeds: Speeds | None) -> Floats:
        gpus = _gpus(cluster)
        speed = _speeds_on(jobs, cluster, speeds)
        usable = np.where(speed > 0, speed, np.nan)
        runs_anywhere = (speed > 0).any(axis=0)
        fastest = np.where(runs_anywhere, np.nanmax(np.where(runs_anywhere, usable, 1.0), axis=0), 1.0)
        slowest = np.where(runs_anywhere, np.nanmin(np.where(runs_anywhere, usable, 1.0), axis=0), 1.0)
        constant = self.weights[CHANGING_FEATURES] * np.log(fastest) + self.weights[CHANGING_FEATURES + 1] * np.log(
            fastest / slowest
        )
        if jobs.order is not None:
            constant = constant[jobs.order]
        return np.concatenate((self.weights[:CHANGING_FEATURES], [math.log1p(gpus), gpus], constant))

    def preference(self, jobs: JobTable, cluster: Cluster, speeds: Speeds | None) -> Floats:
        """(types of the cluster, jobs): rank in which a type is tried, 0 first; equal ranks are tried together."""
        speed = _speeds_on(jobs, cluster, speeds)
        slowness = -np.log(np.where(speed > 0, speed, 1e-9))
        length = np.log(np.maximum(jobs["estimate_s"], MIN_ESTIMATE_S) / 3600.0) / 3.0
        width = np.log(np.maximum(_gpu_share(jobs), MIN_GPU_SHARE)) / math.log1p(_gpus(cluster))
        tflops_ratio = np.array([_tflops_ratio(kind.gpu) for kind in node_types(cluster)])[:, None]
        slow_w, slow_length, slow_width, rate_w, rate_length = self.weights[COUNT:]
        cost = slowness * (slow_w + slow_length * length + slow_width * width) + tflops_ratio * (
            rate_w + rate_length * length
        )
        # Ranks instead of sums: jobs with equal ranks are one kind for the engine, which is faster with few kinds.
        return np.asarray((cost[None, :, :] < cost[:, None, :]).sum(axis=1), np.float64)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the agent to a JSON file; `load_agent` restores it exactly."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "weights": self.weights_by_name(),
            "gpu_settings": dict(self.overrides),
            "provenance": dict(self.provenance),
        }
        return write_agent(path, data)


def agent_equal_to_policy(
    name: str, gpus: int, *, gpu_type_order: str = "any", placement: str = "first", migrate: bool = False
) -> LinearGpuAgent:
    """The agent that gives the same schedules as this policy on a machine with `gpus` GPUs.

    >>> agent_equal_to_policy("srsf", 56).weights[[0, 2]].round(2).tolist()
    [3.0, 4.04]
    """
    if name not in POLICY_WEIGHTS:
        raise UnknownNameError("policy with a linear GPU agent", name, POLICY_WEIGHTS)
    policy_weights, gpu_settings = POLICY_WEIGHTS[name]
    names = LinearGpuAgent.weight_names
    weights = np.zeros(len(names))
    for feature, value in policy_weights.items():
        weights[names.index(feature)] = value
    if name == "srsf":
        weights[names.index("width")] = math.log1p(gpus)
    if gpu_type_order == "fastest":
        weights[names.index("slow")] = 1.0
    explicit = {"placement": placement, "migrate": migrate}
    gpu_settings = {**gpu_settings, **{key: value for key, value in explicit.items() if value not in ("first", False)}}
    return LinearGpuAgent(
        weights, gpu_settings, provenance={"policy": name, "gpu_type_order": gpu_type_order, **explicit}
    )


def gpu_agent_from_dict(data: Mapping[str, Any], source: str | PathLike[str]) -> LinearGpuAgent:
    """The agent of the JSON document of `source`; a damaged one raises an InputError with the reason."""
    check_agent_fields(data, VERSION, _FIELDS, source)
    values = weights_in_order(data["weights"], LinearGpuAgent.weight_names, source)
    try:
        return LinearGpuAgent(values, data["gpu_settings"], data["name"], data["provenance"])
    except KilowaitError as problem:
        raise InputError(f"{source}: {problem}") from None


def _gpus(cluster: Cluster) -> int:
    return max(sum(group.nodes * group.gpus for group in cluster.groups), 1)


def _gpu_share(jobs: JobTable) -> Floats:
    gpus = jobs["gpus"] if "gpus" in jobs else np.zeros(len(jobs))
    return np.asarray(gpus * jobs.column("gpu_milli") / 1000.0, np.float64)


def _speeds_on(jobs: JobTable, cluster: Cluster, speeds: Speeds | None) -> Floats:
    """(types of the cluster, jobs); 1 where the speed is unknown."""
    kinds = node_types(cluster)
    if speeds is None:
        return np.ones((len(kinds), len(jobs)))
    rows = [speeds.speed[speeds.types.index(kind.gpu)] if kind.gpu in speeds.types else None for kind in kinds]
    return np.array([np.ones(len(jobs)) if row is None else row for row in rows])


def _tflops_ratio(name: str) -> float:
    """ln of the FP32 rate of a GPU type relative to a V100; 0 where it is unknown."""
    try:
        ratio = gpu(name).fp32_tflops / gpu("V100").fp32_tflops if name else 1.0
    except UnknownNameError:
        return 0.0
    return math.log(ratio) if ratio > 0 else 0.0
