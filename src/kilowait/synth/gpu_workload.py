"""Workloads of GPU clusters: a parametric model, and Gavel's synthetic training jobs.

The parametric model has job sizes, heavy-tailed run times, fractional GPUs, and bursty or daily arrivals.

Gavel's workload is identical to that of its simulator for the same seed. D. Narayanan, K. Santhanam, F. Kazhamiaka, A.
Phanishayee, M. Zaharia, "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020; the
order of random numbers is that of its simulator (github.com/stanford-futuredata/gavel, scheduler/utils.py, job_table.py
and scheduler.py): Python's random generator, seeded with seed + 2 for the jobs, seed + 3 for the interarrival times,
seed + 6 for the deadlines. For each job these are sampled, in this order:

- the number of GPUs: 1 with probability 0.7, 2 with 0.1, 4 with 0.15, 8 with 0.05; sampled even if all jobs use one;
- minutes on V100: 10^U(3, 4) with probability 0.2, else 10^U(1.5, 3);
- one of 26 model types, equally likely; resampled until it supports several GPUs if the job has them;
- with priorities, its weight: 5 with probability 0.2, else 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kilowait.cluster import Cluster, NodeGroup
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.log_schema import DAY_S, Floats, Ints
from kilowait.synth.lublin import BUCKETS, DailyCycle, sampled_users, whole_number
from kilowait.synth.lublin_parameters import COMBINED_PARAMETERS
from kilowait.synth.rescale import check_load


def _batches(name: str, *sizes: int) -> tuple[str, ...]:
    return tuple(f"{name} (batch size {size})" for size in sizes)


RUNTIME_GPU_TYPE = "V100"
"""GPU type of which the run times of both workloads are."""

MULTI_GPU_MODELS: tuple[str, ...] = (
    *_batches("ResNet-18", 16, 32, 64, 128, 256),
    *_batches("ResNet-50", 16, 32, 64, 128),
    *_batches("Transformer", 16, 32, 64, 128, 256),
    *_batches("LM", 5, 10, 20, 40, 80),
)
"""Model types that run on several GPUs."""

MODEL_TYPES: tuple[str, ...] = (
    *MULTI_GPU_MODELS,
    *_batches("Recommendation", 512, 1024, 2048, 4096, 8192),
    "A3C",
    "CycleGAN",
)
"""All model types, in Gavel's order."""


def gavel_jobs(
    jobs: int,
    jobs_per_hour: float,
    seed: int = 0,
    *,
    multi_gpu: bool = False,
    priorities: bool = False,
    slo: bool = False,
) -> JobTable:
    """The first `jobs` jobs of Gavel's workload; `runtime_s` and `estimate_s` are seconds on V100.

    Args:
        jobs: number of jobs. Gavel's published results are of jobs 4000 to 4999 while later jobs keep arriving.
        jobs_per_hour: rate of the Poisson process; the first job arrives at 0. Infinite: all arrive at 0.
        seed: the seed of Gavel's simulator.
        multi_gpu: some jobs take 2, 4 or 8 GPUs, on any nodes (`gpus_may_span_nodes`).
        priorities: a fifth of the jobs has priority 5, the others 1.
        slo: deadlines of 1.2, 2 or 10 times the run time, a third each; `slack_s` is the deadline less the run time.

    >>> workload = gavel_jobs(5000, 4.0, seed=0)
    >>> float(workload["runtime_s"][4000:].mean() / 3600), workload.labels["model"][workload["model"][0]]
    (17.4146..., 'ResNet-18 (batch size 64)')
    """
    count = whole_number("number of jobs", jobs)
    if not jobs_per_hour > 0:
        raise InputError(f"{jobs_per_hour} jobs per hour; the rate must be above 0")
    # Python seeds with the absolute value, so -6 would give the jobs of seed 2.
    seed = whole_number("seed", seed, least=0)
    job_rng, arrival_rng, slo_rng = (random.Random(seed + offset) for offset in (2, 3, 6))
    gap_s = 3600.0 / jobs_per_hour  # computed as in Gavel, so that the last bit agrees
    submit, gpus, runtime, model, priority, slack = [], [], [], [], [], []
    now_s = 0.0
    for _ in range(count):
        job_gpus = _gavel_gpus(job_rng.uniform(0, 1))
        if not multi_gpu:
            job_gpus = 1
        runtime_s = _gavel_runtime_s(job_rng)
        model_type = job_rng.choice(MODEL_TYPES)
        while job_gpus > 1 and model_type not in MULTI_GPU_MODELS:
            model_type = job_rng.choice(MODEL_TYPES)
        if priorities:
            priority.append(5.0 if job_rng.uniform(0, 1) <= 0.2 else 1.0)
        if slo:
            slack.append((_gavel_slo(slo_rng.uniform(0, 1)) - 1.0) * runtime_s)
        submit.append(now_s)
        gpus.append(job_gpus)
        runtime.append(runtime_s)
        model.append(MODEL_TYPES.index(model_type))
        if gap_s > 0:
            now_s += -math.log(1.0 - arrival_rng.random()) / (1.0 / gap_s)
    return JobTable(
        job_id=np.arange(count),
        submit_s=submit,
        runtime_s=runtime,
        nodes=np.ones(count, np.int64),
        gpus=gpus,
        model=model,
        runtime_gpu_type=np.zeros(count, np.int32),
        gpus_may_span_nodes=np.ones(count, np.int8) if multi_gpu else None,
        priority=priority if priorities else None,
        slack_s=slack if slo else None,
        labels={"model": MODEL_TYPES, "runtime_gpu_type": (RUNTIME_GPU_TYPE,)},
        meta={"workload": "gavel", "seed": seed, "jobs_per_hour": float(jobs_per_hour)},
    )


def _gavel_gpus(uniform: float) -> int:
    if uniform < 0.7:
        return 1
    if uniform <= 0.8:
        return 2
    return 4 if uniform <= 0.95 else 8


def _gavel_runtime_s(rng: random.Random) -> float:
    low, high = (3.0, 4.0) if rng.random() >= 0.8 else (1.5, 3.0)
    return float(60 * 10 ** rng.uniform(low, high))


def _gavel_slo(uniform: float) -> float:
    if uniform < 0.33:
        return 1.2
    return 2.0 if uniform < 0.67 else 10.0


# -- the parametric model -------------------------------------------------------------------------


SIZES: Mapping[int, float] = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}
"""Number of GPUs to the share of jobs; Gavel's distribution."""

PARTS: Mapping[int, float] = {160: 0.03, 230: 0.07, 320: 0.13, 470: 0.29, 570: 0.05, 650: 0.08, 810: 0.35}
"""Thousandths of a GPU to their share: the 3,078 pods of openb's default list that request a fraction, in seven
classes."""

LOGNORMAL_S = (206.0, math.sqrt(2 * math.log(6651.681 / 206.0)))
"""Median and sigma, fitted to Helios' median and mean, 206 s and 6,652 s, over its 1.58 million GPU jobs."""

PARETO = (60.0, 0.7)
"""Shortest run time, seconds, and exponent; assumed. The longest run time determines the mean."""

BURST_CV = 4.0
"""Coefficient of variation of the interarrival times of bursty arrivals; assumed."""

PRIORITIES: Mapping[float, float] = {0: 0.8, 1: 0.2}
"""Priority to its share of jobs; assumed."""

USERS = 64

ARRIVALS = ("poisson", "daily", "bursty")
DURATIONS = ("lognormal", "pareto", "gavel")
SHORTEST_S = {"lognormal": 1.0, "pareto": PARETO[0], "gavel": 60 * 10**1.5}
"""Shortest run time of each distribution, seconds."""


@dataclass(frozen=True, kw_only=True)
class GpuWorkloadSettings:
    """Settings of the parametric GPU workload."""

    arrivals: str = "poisson"
    """"poisson"; "daily" (Poisson in a time that follows the daily cycle of the Lublin-Feitelson model; a day has 24
    hours at any load); "bursty" (gamma-distributed gaps, `BURST_CV`)."""
    sizes: Mapping[int, float] = field(default_factory=lambda: SIZES)
    """GPUs of a job to its weight."""
    shared: float = 0.0
    """Share of all jobs that request a fraction of one GPU, in place of their size."""
    parts: Mapping[int, float] = field(default_factory=lambda: PARTS)
    """Thousandths of a GPU to their weight among those."""
    durations: str = "lognormal"
    """"lognormal" (`LOGNORMAL_S`), "pareto" (`PARETO`) or "gavel" (see `gavel_jobs`)."""
    mean_s: float | None = None
    """Scales all run times to this mean; None: unscaled."""
    longest_s: float = 30 * DAY_S
    """Longest run time, before scaling."""
    priorities: Mapping[float, float] | None = field(default_factory=lambda: PRIORITIES)
    """Priority to its weight; None: the jobs have none."""
    gpus_may_span_nodes: bool = False
    """The GPUs of a job may lie on any nodes."""

    def __post_init__(self) -> None:
        for what, known in (("arrivals", ARRIVALS), ("durations", DURATIONS)):
            if getattr(self, what) not in known:
                raise UnknownNameError(f"kind of {what}", getattr(self, what), known)
        if not 0 <= self.shared <= 1:
            raise InputError(f"the share of jobs with a fraction of a GPU is {self.shared}; it must be from 0 to 1")
        if self.mean_s is not None and not (math.isfinite(self.mean_s) and self.mean_s > 0):
            raise InputError(f"the mean run time is {self.mean_s} s; it must be above 0")
        shortest_s = SHORTEST_S[self.durations]
        if not self.longest_s > shortest_s:
            raise InputError(
                f"the longest run time is {self.longest_s} s; it must be above {shortest_s:.0f} s for "
                f"{self.durations!r}"
            )


def gpu_workload(
    jobs: int, cluster: Cluster, settings: GpuWorkloadSettings | None = None, *, load: float = 0.9, seed: int = 0
) -> JobTable:
    """Sample `jobs` jobs from midnight on whose offered load on `cluster` is exactly `load` (see `gpu_load`).

    Args:
        jobs: number of jobs.
        cluster: its number of GPUs, and of GPUs per node. A job with more GPUs than any node has takes the minimum
            number of nodes, with the same number of GPUs on each.
        settings: sizes, run times, arrivals and priorities of the jobs.
        load: offered GPU-seconds over those of the cluster from the first submission to the last.
        seed: the same seed gives the same jobs. Sizes, run times, ... have separate random streams: a change of one
            does not change the others.

    Model types (`model`) are Gavel's, equally likely; the k-th of 64 users has the weight 1/k. Estimates are exact:
    `jobs.with_columns(estimate_s=user_estimates(jobs["runtime_s"]))` replaces them.

    >>> mixed = Cluster.preset("gpu-mixed")
    >>> workload = gpu_workload(1000, mixed, GpuWorkloadSettings(shared=0.3), load=0.8)
    >>> round(gpu_load(workload, mixed), 12), int((workload["gpu_milli"] < 1000).sum())
    (0.8, 301)
    """
    count = whole_number("number of jobs", jobs)
    if count < 2:
        raise InputError(f"{count} job(s) have no offered load; use two or more")
    check_load(load)
    chosen = settings or GpuWorkloadSettings()
    capacity = gpus_of(cluster)
    gpus, gpu_milli = _sizes(chosen, count, seed)
    nodes = _nodes(gpus, cluster, chosen.gpus_may_span_nodes)
    runtime = _runtimes(chosen.durations, count, chosen.longest_s, seed)
    if chosen.mean_s is not None:
        runtime *= chosen.mean_s / runtime.mean()
    work = float(np.dot(gpus * gpu_milli / 1000.0, runtime))
    priorities = chosen.priorities
    return JobTable(
        job_id=np.arange(1, count + 1),
        submit_s=_arrivals(chosen.arrivals, count, work / (capacity * load), seed),
        runtime_s=runtime,
        nodes=nodes,
        gpus=gpus,
        gpu_milli=gpu_milli,
        gpus_may_span_nodes=np.ones(count, np.int8) if chosen.gpus_may_span_nodes else None,
        model=_models(gpus, seed),
        runtime_gpu_type=np.zeros(count, np.int32),
        priority=None if priorities is None else _sample("priorities", priorities, count, seed),
        user=sampled_users(stream(seed, "gpu.users"), count, USERS),
        labels={"model": MODEL_TYPES, "runtime_gpu_type": (RUNTIME_GPU_TYPE,)},
        meta={"workload": "gpu", "seed": int(seed), "cluster": cluster.name},
    )


def gpu_load(jobs: JobTable, cluster: Cluster) -> float:
    """GPU-seconds of all jobs / (GPUs of the cluster x seconds from the first submission to the last).

    Fractions of a GPU count as fractions; run times are those of the table, at speed 1, on any GPU type.

    >>> mixed = Cluster.preset("gpu-mixed")  # 56 GPUs
    >>> two = JobTable(job_id=[1, 2], submit_s=[0, 100], runtime_s=[700, 700], nodes=[1, 1], gpus=[2, 2])
    >>> gpu_load(two, mixed)
    0.5
    """
    if "gpus" not in jobs:
        raise InputError("these jobs have no column 'gpus', so they have no offered GPU load")
    span_s = float(np.ptp(jobs["submit_s"])) if len(jobs) else 0.0
    if span_s <= 0:
        raise InputError(f"{len(jobs)} job(s) have no offered load; at least two different submission times are needed")
    work = float(np.dot(jobs["gpus"] * jobs.column("gpu_milli") / 1000.0, jobs["runtime_s"]))
    return work / (gpus_of(cluster) * span_s)


def counts_gpus(cluster: Cluster) -> bool:
    """Whether the offered load of a machine counts GPUs."""
    return cluster.node_level and any(group.gpus and group.nodes for group in cluster.groups)


def gpus_of(cluster: Cluster) -> int:
    """Number of GPUs of a machine; an error if it has none."""
    gpus = sum(group.nodes * group.gpus for group in cluster.groups)
    if gpus < 1:
        raise InputError(f"cluster {cluster.name!r} has no GPUs; use one that has, such as gpu-mixed")
    return gpus


def _sample(what: str, weights: Mapping[int, float] | Mapping[float, float], count: int, seed: int) -> Floats:
    """Sample one of the keys for each job, by weight."""
    shares = np.array(list(weights.values()), np.float64)
    if not (len(shares) and np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise InputError(f"the weights of {what} are {list(weights.values())}; they must be 0 or more, some above 0")
    keys = np.array(list(weights), np.float64)
    edges = np.cumsum(shares / shares.sum())
    uniforms = stream(seed, f"gpu.{what}").random(count)
    return keys[np.minimum(np.searchsorted(edges, uniforms, side="right"), len(keys) - 1)]


def _sizes(settings: GpuWorkloadSettings, count: int, seed: int) -> tuple[Ints, Ints]:
    """GPUs of each job, and thousandths of each of them."""
    gpus = _whole_numbers("sizes", _sample("sizes", settings.sizes, count, seed))
    gpu_milli = np.full(count, 1000)
    fractional = stream(seed, "gpu.shared").random(count) < settings.shared
    if fractional.any():
        parts = _whole_numbers("parts", _sample("parts", settings.parts, count, seed))
        gpu_milli[fractional] = parts[fractional]
        gpus[fractional] = 1
    if (gpu_milli < 1).any() or (gpu_milli > 1000).any():
        raise InputError(
            f"fractions of a GPU go from {gpu_milli.min()} to {gpu_milli.max()}; they must be thousandths, 1 to 1000"
        )
    return gpus, gpu_milli


def _whole_numbers(what: str, values: Floats) -> Ints:
    is_whole = values == np.floor(values)
    if not is_whole.all():
        raise InputError(f"{what} contain {values[np.argmin(is_whole)]:g}; they must be whole numbers")
    return values.astype(np.int64)


def _nodes(gpus: Ints, cluster: Cluster, gpus_may_span_nodes: bool) -> Ints:
    """Nodes of each job; an error if a job fits on no GPU type (all GPUs of a job have one type)."""
    groups_by_type: dict[str, list[NodeGroup]] = {}
    for group in cluster.groups:
        if group.gpus:
            groups_by_type.setdefault(group.gpu_type, []).append(group)
    nodes = np.ones(len(gpus), np.int64)
    for size in np.unique(gpus).tolist():
        if size < 1:
            raise InputError(f"a job size is {size} GPUs; it must be at least 1")
        counts = [
            count for groups in groups_by_type.values() if (count := _min_nodes(size, groups, gpus_may_span_nodes))
        ]
        if not counts:
            raise InputError(
                f"no type of GPU of cluster {cluster.name!r} has room for {size} at once, the same number on each "
                "node; leave that size out, or set gpus_may_span_nodes"
            )
        nodes[gpus == size] = min(counts)
    return nodes


def _min_nodes(size: int, groups: Sequence[NodeGroup], gpus_may_span_nodes: bool) -> int:
    """Minimum number of nodes of these groups for `size` GPUs, the same number on each; 0: impossible."""
    if gpus_may_span_nodes:
        return int(size <= sum(group.nodes * group.gpus for group in groups))
    count = -(-size // max(group.gpus for group in groups))
    fitting = sum(group.nodes for group in groups if group.gpus * count >= size)
    return count if size % count == 0 and count <= fitting else 0


def _runtimes(distribution: str, count: int, longest_s: float, seed: int) -> Floats:
    """Run times in seconds, at least 1, by inverse transform sampling, truncated at the longest."""
    uniforms = 1.0 - stream(seed, "gpu.durations").random(count)  # in (0, 1]
    if distribution == "lognormal":
        from scipy.special import ndtr, ndtri

        median_s, sigma = LOGNORMAL_S
        cdf_at_longest = ndtr(math.log(longest_s / median_s) / sigma)
        runtime = median_s * np.exp(sigma * ndtri(uniforms * cdf_at_longest))
    elif distribution == "pareto":
        low_s, exponent = PARETO
        runtime = low_s * (1.0 - uniforms * (1.0 - (low_s / longest_s) ** exponent)) ** (-1.0 / exponent)
    else:
        # 80 % of the probability over 1.5 to 3 of the logarithm, 20 % over 3 to 4.
        max_probability = np.interp(math.log10(longest_s / 60), [1.5, 3.0, 4.0], [0.0, 0.8, 1.0])
        runtime = 60.0 * 10.0 ** np.interp(uniforms * max_probability, [0.0, 0.8, 1.0], [1.5, 3.0, 4.0])
    limited: Floats = np.clip(runtime, 1.0, longest_s)
    return limited


def _arrivals(pattern: str, count: int, span_s: float, seed: int) -> Floats:
    """Submission times from 0 to `span_s`."""
    rng = stream(seed, "gpu.arrivals")
    shape = 1.0 / BURST_CV**2 if pattern == "bursty" else 1.0
    arrival_s = np.concatenate(([0.0], np.cumsum(rng.gamma(shape, 1.0, count - 1))))
    if pattern != "daily":
        return np.asarray(arrival_s * (span_s / arrival_s[-1]), np.float64)
    cycle = DailyCycle(COMBINED_PARAMETERS.cycle_shape, COMBINED_PARAMETERS.cycle_scale)
    # Model time of the last submission: the inverse of `DailyCycle.real_s`.
    days, rest_s = divmod(span_s, DAY_S)
    model_s = np.concatenate(([0.0], np.cumsum(cycle.weights))) * (DAY_S / BUCKETS)
    last_s = days * DAY_S + float(np.interp(rest_s, np.linspace(0.0, DAY_S, BUCKETS + 1), model_s))
    submit = cycle.real_s(arrival_s * (last_s / arrival_s[-1]))
    submit[-1] = span_s
    return submit


def _models(gpus: Ints, seed: int) -> Ints:
    """Model type of each job; jobs with several GPUs have one that can use them."""
    uniforms = stream(seed, "gpu.models").random(len(gpus))
    model_counts = np.where(gpus > 1, len(MULTI_GPU_MODELS), len(MODEL_TYPES))
    return np.floor(uniforms * model_counts).astype(np.int64)
