"""Parametric GPU workload: job sizes, heavy-tailed run times, fractional GPUs, bursty or daily arrivals."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, NodeGroup
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.gavel import MODEL_TYPES, MULTI_GPU_MODELS
from kilowait.synth.lublin_daily_cycle import BUCKETS, DAY_S, DailyCycle
from kilowait.synth.lublin_parameters import COMBINED_PARAMETERS
from kilowait.synth.rescale import check_load

__all__ = ["counts_gpus", "gpu_load", "gpu_workload", "gpus_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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


def gpu_workload(
    jobs: int,
    cluster: Cluster,
    *,
    load: float = 0.9,
    seed: int = 0,
    arrivals: str = "poisson",
    sizes: Mapping[int, float] = SIZES,
    shared: float = 0.0,
    parts: Mapping[int, float] = PARTS,
    durations: str = "lognormal",
    mean_s: float | None = None,
    longest_s: float = 30 * DAY_S,
    priorities: Mapping[float, float] | None = PRIORITIES,
    gpus_may_span_nodes: bool = False,
) -> JobTable:
    """Sample `jobs` jobs from midnight on whose offered load on `cluster` is exactly `load` (see `gpu_load`).

    Args:
        jobs: number of jobs.
        cluster: its number of GPUs, and of GPUs per node. A job with more GPUs than any node has takes the minimum
            number of nodes, with the same number of GPUs on each.
        load: offered GPU-seconds over those of the cluster from the first submission to the last.
        seed: the same seed gives the same jobs. Sizes, run times, ... have separate random streams: a change of one
            does not change the others.
        arrivals: "poisson"; "daily" (Poisson in a time that follows the daily cycle of the Lublin-Feitelson
            model; a day has 24 hours at any load); "bursty" (gamma-distributed gaps, `BURST_CV`).
        sizes: GPUs of a job to its weight.
        shared: share of all jobs that request a fraction of one GPU, in place of their size.
        parts: thousandths of a GPU to their weight among those.
        durations: "lognormal" (`LOGNORMAL_S`), "pareto" (`PARETO`) or "gavel" (see `gavel_jobs`).
        mean_s: scales all run times to this mean; None: unscaled.
        longest_s: longest run time, before scaling.
        priorities: priority to its weight; None: the jobs have none.
        gpus_may_span_nodes: the GPUs of a job may lie on any nodes.

    Model types (`model`) are Gavel's, equally likely; the k-th of 64 users has the weight 1/k. Estimates are exact:
    `jobs.with_columns(estimate_s=user_estimates(jobs["runtime_s"]))` replaces them.

    >>> mixed = Cluster.preset("gpu-mixed")
    >>> workload = gpu_workload(1000, mixed, load=0.8, shared=0.3)
    >>> round(gpu_load(workload, mixed), 12), int((workload["gpu_milli"] < 1000).sum())
    (0.8, 301)
    """
    count = _count(jobs)
    check_load(load)
    for what, name, known in (("arrivals", arrivals, ARRIVALS), ("durations", durations, DURATIONS)):
        if name not in known:
            raise UnknownNameError(f"kind of {what}", name, known)
    if not 0 <= shared <= 1:
        raise InputError(f"the share of jobs with a fraction of a GPU is {shared}; it must be from 0 to 1")
    capacity = gpus_of(cluster)
    gpus = _whole_numbers("sizes", _sample("sizes", sizes, count, seed))
    gpu_milli = np.full(count, 1000)
    fractional = stream(seed, "gpu.shared").random(count) < shared
    if fractional.any():
        gpu_milli[fractional] = _whole_numbers("parts", _sample("parts", parts, count, seed))[fractional]
        gpus[fractional] = 1
    if (gpu_milli < 1).any() or (gpu_milli > 1000).any():
        raise InputError(
            f"fractions of a GPU go from {gpu_milli.min()} to {gpu_milli.max()}; they must be thousandths, 1 to 1000"
        )
    nodes = _nodes(gpus, cluster, gpus_may_span_nodes)
    runtime = _runtimes(durations, count, longest_s, seed)
    if mean_s is not None:
        if not (math.isfinite(mean_s) and mean_s > 0):
            raise InputError(f"the mean run time is {mean_s} s; it must be above 0")
        runtime *= mean_s / runtime.mean()
    work = float(np.dot(gpus * gpu_milli / 1000.0, runtime))
    span_s = work / (capacity * load)
    weights = 1.0 / np.arange(1, USERS + 1)
    return JobTable(
        job_id=np.arange(1, count + 1),
        submit_s=_arrivals(arrivals, count, span_s, seed),
        runtime_s=runtime,
        nodes=nodes,
        gpus=gpus,
        gpu_milli=gpu_milli,
        gpus_may_span_nodes=np.ones(count, np.int8) if gpus_may_span_nodes else None,
        model=_models(gpus, seed),
        priority=None if priorities is None else _sample("priorities", priorities, count, seed),
        user=stream(seed, "gpu.users").choice(USERS, count, p=weights / weights.sum()),
        labels={"model": MODEL_TYPES},
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


def _count(jobs: int) -> int:
    try:
        count = operator.index(jobs)
    except TypeError:
        raise InputError(f"the number of jobs is {jobs!r}; it must be a whole number") from None
    if count < 2:
        raise InputError(f"{count} job(s) have no offered load; use two or more")
    return count


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
    shortest_s = {"lognormal": 1.0, "pareto": PARETO[0], "gavel": 60 * 10**1.5}[distribution]
    if not longest_s > shortest_s:
        raise InputError(
            f"the longest run time is {longest_s} s; it must be above {shortest_s:.0f} s for {distribution!r}"
        )
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
