"""Metrics of a run on a node-level GPU cluster: JCT, queueing, utilization, fragmentation, fairness, lost work.

Finish-time fairness (Themis): the completion time of a job relative to an exclusive 1/n share of the cluster.

With an *isolated* share a job has 1/n of the GPUs of every type it may use, all the time. As in
Gavel's isolated policy, with G GPUs it could use type k for N_k / (n G) of the time; these fractions are scaled down
to a sum of 1 if they exceed it, and its speed is the mean of its speeds weighted by them. Its isolated completion time
is run / that speed, and rho is its actual completion time divided by it: above 1 the job is slower than in isolation.

n is the mean number of GPU jobs, itself included, that waited or ran while it did. Its run is its work without
lost work, so that lost work counts against the schedule.

Fragmentation (Weng et al., ATC 2023): idle GPUs that typical jobs cannot use.

The *targets* are the most frequent per-node requests of the log's jobs, 95 % of them, each with its share p. For a
target, all idle GPUs of a node are fragments if the request does not fit on the node; otherwise only the idle capacity
of GPUs with less free than the request needs of one. The fragmentation of a node is F = sum of p times that;
docs/gpu-engine.md ("fgd") has the full definition. For a target without GPUs all idle GPUs are fragments, so the share
of such targets is a lower limit: an empty cluster does not have fragmentation 0.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.demand import TypicalShape, typical_shapes
from kilowait.errors import InputError
from kilowait.evaluation.allocations import WHOLE, NodeAllocations, ended, left_s, node_allocations, tflops_of
from kilowait.evaluation.job_measures import Mask, evaluated_mask, horizon_of, jain, makespan, overlap_s, summary
from kilowait.evaluation.timeline import cumulative_steps, timeline_horizon, usage_changes
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Floats, Ints, Series

UNFAIR = 1.05
"""Rho above which a job counts as unfairly treated (Shockwave)."""


def finish_time_rho(
    log: ExecutionLog, cluster: Cluster, speeds: Speeds | None = None, *, counted: npt.ArrayLike | None = None
) -> Floats:
    """Rho of every row of the job table; NaN for jobs without GPUs or work, unfinished and not evaluated jobs.

    >>> from kilowait.evaluation.allocations import two_jobs
    >>> finish_time_rho(*two_jobs()).tolist()  # n is 2, then 1.5: two GPUs half the time, or 2 / 1.5 of half a one
    [0.5, 2.0]
    """
    return rho_of(log, node_allocations(log, cluster, speeds), evaluated_mask(log, counted))


def rho_of(log: ExecutionLog, allocations: NodeAllocations, counted: Mask) -> Floats:
    """Like `finish_time_rho`, for allocations that are already computed."""
    rho = np.full(len(log.jobs_table), math.nan)
    run = np.bincount(log.job, allocations.pieces.work_s - allocations.pieces.lost_s, len(rho))
    gpus, jct_s = allocations.job_gpus, log.jobs()["turnaround_s"]
    rows = ended(log)
    rows = rows[counted[rows] & (gpus[rows] > 0) & (run[rows] > 0) & (jct_s[rows] > 0)]
    if len(rows) == 0:
        return rho
    n = _mean_jobs(log, gpus > 0, rows)
    part = allocations.type_gpus / (n * gpus[rows])[:, None] * (allocations.speed[rows] > 0)
    speed = (part * allocations.speed[rows]).sum(1) / np.maximum(part.sum(1), 1.0)
    rho[rows] = jct_s[rows] * speed / run[rows]
    return rho


def _mean_jobs(log: ExecutionLog, has_gpus: Mask, rows: Ints) -> Floats:
    """Mean number of GPU jobs waiting or running during the time in the system of each job in `rows`."""
    joined, left, end = log.eligible_s, left_s(log), log.jobs()["end_s"]
    in_system = has_gpus & ~np.isnan(left)
    departed = in_system & np.isfinite(left)
    time = np.concatenate((joined[in_system], left[departed]))
    change = np.repeat(np.array([1, -1]), [np.count_nonzero(in_system), np.count_nonzero(departed)])
    active = cumulative_steps(time, change, 0, (float(joined[rows].min()), float(end[rows].max())))
    return active.mean(joined[rows], end[rows])


def fairness_of(rho: Floats) -> dict[str, float]:
    """Mean and largest rho, the share of jobs with rho above 1.05, and Jain's index of rho; NaN without values.

    >>> fairness_of(np.array([1.0, 3.0, np.nan]))
    {'mean_rho': 2.0, 'max_rho': 3.0, 'unfair_share': 0.5, 'jain_rho': 0.8}
    """
    rho = rho[~np.isnan(rho)]
    if len(rho) == 0:
        return dict.fromkeys(("mean_rho", "max_rho", "unfair_share", "jain_rho"), math.nan)
    return {
        "mean_rho": float(rho.mean()),
        "max_rho": float(rho.max()),
        "unfair_share": float(np.mean(rho > UNFAIR)),
        "jain_rho": jain(rho),
    }


_OVER_HORIZON = (
    "gpu_utilization",
    "flops_utilization",
    "work_utilization",
    "mean_fragmentation",
    "mean_nodes_in_use",
    "peak_nodes_in_use",
)


def gpu_metrics(
    log: ExecutionLog,
    cluster: Cluster,
    speeds: Speeds | None = None,
    *,
    counted: npt.ArrayLike | None = None,
    horizon_s: tuple[float, float] | None = None,
    precision: str = "fp32",
) -> dict[str, float]:
    """Compute the metrics of a run on a node-level cluster; NaN where a metric is undefined.

    Of the evaluated jobs:

    - `jobs`, and `unfinished_jobs`: jobs that never finished: rejected, cancelled, or still
      in the system when the log ends. A killed job has finished;
    - `mean_`, `median_`, `p95_`, `p99_jct_s`: job completion time, from joining the queue to the last end, over all
      finished jobs; `mean_`, `p95_queueing_s`: the part of it without an allocation, before the start and
      between segments;
    - `makespan_s`: from the first submission to the last end;
    - `gpu_hours`: allocated GPUs times hours, fractional GPUs as fractions; checkpoint writes, loads and lost work
      included;
    - `preemptions`, `migrations`: segments that ended with one. `lost_gpu_hours`: the work lost by them, as GPU-hours
      at the speed of the job on the GPU type where it was lost;
    - `mean_rho`, `max_rho`, `unfair_share` (rho above 1.05), `jain_rho`: finish-time fairness, see `finish_time_rho`.

    Of the whole machine over the horizon, with segments clipped to it and all jobs included:

    - `gpu_utilization`: allocated GPU time / available GPU time;
    - `flops_utilization`: the same with each GPU weighted by its catalogued TFLOPS, over the types whose rate is known;
      `flops_known_share` is the share of the GPUs of such types. With one type it equals `gpu_utilization`;
    - `work_utilization`: only useful work counts, with the time it takes at the job's speed on that type, without
      interference. Its difference to `gpu_utilization` is lost work, checkpoint writes and loads, GPU sharing and
      slowdown of jobs that span nodes. Work is assumed to be uniform over a clipped segment;
    - `mean_fragmentation`: mean over time of `fragmentation`;
    - `mean_nodes_in_use`, `peak_nodes_in_use`: nodes with at least one job.

    Args:
        log: the execution log of the run.
        cluster: the machine of the run.
        speeds: GPU speeds of the run; None: all are 1.
        counted: mask over the rows of `log.jobs_table`, true for the evaluated jobs; None: all.
        horizon_s: start and end in seconds, in the time of the log; None: the makespan of the evaluated jobs.
        precision: "fp64", "fp32" or "fp16", of the catalogued TFLOPS.

    >>> from kilowait.evaluation.allocations import two_jobs
    >>> result = gpu_metrics(*two_jobs())
    >>> (result["mean_jct_s"], result["mean_queueing_s"], result["gpu_utilization"], result["mean_fragmentation"])
    (15.0, 5.0, 0.625, 0.1875)
    """
    mask = evaluated_mask(log, counted)
    allocations = node_allocations(log, cluster, speeds)
    finished = ended(log)
    finished = finished[mask[finished]]
    records = log.jobs()
    first_s, last_s = makespan(log, mask)
    result = {"jobs": float(np.count_nonzero(mask)), "unfinished_jobs": float(np.count_nonzero(mask) - len(finished))}
    mean, median, p95, p99, _ = summary(records["turnaround_s"][finished])
    result |= {"mean_jct_s": mean, "median_jct_s": median, "p95_jct_s": p95, "p99_jct_s": p99}
    mean, _, p95, _, _ = summary(records["wait_s"][finished])
    result |= {"mean_queueing_s": mean, "p95_queueing_s": p95, "makespan_s": last_s - first_s}
    result |= _allocation_metrics(log, allocations, mask)
    result |= fairness_of(rho_of(log, allocations, mask))
    result |= _over_horizon(log, allocations, horizon_of(log, mask, horizon_s), tflops_of(allocations.types, precision))
    return result


def _allocation_metrics(log: ExecutionLog, allocations: NodeAllocations, mask: Mask) -> dict[str, float]:
    """GPU-hours, preemptions, migrations and lost work of the evaluated jobs."""
    evaluated = mask[log.job]
    lost_s = allocations.pieces.lost_s / allocations.speed_there(log)
    return {
        "gpu_hours": float(np.dot(allocations.gpus[evaluated], (log.end_s - log.start_s)[evaluated])) / 3600.0,
        "preemptions": float(np.count_nonzero(log.outcome[evaluated] == Outcome.PREEMPTED)),
        "migrations": float(np.count_nonzero(log.outcome[evaluated] == Outcome.MIGRATED)),
        "lost_gpu_hours": float(np.dot(allocations.gpus[evaluated], lost_s[evaluated])) / 3600.0,
    }


def _over_horizon(
    log: ExecutionLog, allocations: NodeAllocations, horizon: tuple[float, float], tflops: Floats
) -> dict[str, float]:
    capacity = allocations.type_gpus.astype(np.float64)
    gpus = float(capacity.sum())
    known = ~np.isnan(tflops) & (capacity > 0)
    share = {"flops_known_share": float(capacity[known].sum()) / gpus if gpus > 0 else math.nan}
    span_s = horizon[1] - horizon[0]
    if not span_s > 0:  # no job started, or all of them ended at once
        return dict.fromkeys(_OVER_HORIZON, math.nan) | share
    inside = overlap_s(log.start_s, log.end_s, horizon)
    used = np.bincount(allocations.type, allocations.gpus * inside, len(allocations.types))
    offered = float(np.dot(tflops[known], capacity[known])) * span_s
    pieces = allocations.pieces
    nodes = cumulative_steps(
        *usage_changes(pieces.node, log.start_s[pieces.segment], log.end_s[pieces.segment]), 0, horizon
    )
    useful = float(np.dot(allocations.gpus, _useful_share(log, allocations) * inside))
    return share | {
        "gpu_utilization": float(used.sum()) / (gpus * span_s) if gpus > 0 else math.nan,
        "flops_utilization": float(np.dot(tflops[known], used[known])) / offered if offered > 0 else math.nan,
        "work_utilization": useful / (gpus * span_s) if gpus > 0 else math.nan,
        "mean_fragmentation": float(fragments_over(log, allocations, horizon).mean(*horizon)) if gpus > 0 else math.nan,
        "mean_nodes_in_use": float(nodes.mean(*horizon)),
        "peak_nodes_in_use": float(nodes.value.max()),
    }


def _useful_share(log: ExecutionLog, allocations: NodeAllocations) -> Floats:
    """Per segment: share of its time that its useful work takes without interference."""
    useful_s = (allocations.pieces.work_s - allocations.pieces.lost_s) / allocations.speed_there(log)
    allocated_s = log.end_s - log.start_s
    share: Floats = np.divide(useful_s, allocated_s, out=np.zeros(len(log)), where=allocated_s > 0)
    return share


Small = npt.NDArray[np.int32]


def fragmentation(log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None) -> Series:
    """Fragmentation over time, as a share of all GPUs of the cluster (FGD's "frag ratio"): 0 to 1.

    It spans the first submission to the last end, or the given horizon.

    >>> from kilowait.evaluation.allocations import two_jobs
    >>> found = fragmentation(*two_jobs())
    >>> (found.edge_s.tolist(), found.value.tolist())  # from 10 s on half a GPU is too little for one of two targets
    ([0.0, 10.0, 20.0], [0.0, 0.375])
    """
    return fragments_over(log, node_allocations(log, cluster), timeline_horizon(log, horizon_s))


def fragments_over(log: ExecutionLog, allocations: NodeAllocations, horizon: tuple[float, float]) -> Series:
    """Like `fragmentation`, for allocations that are already computed."""
    gpus = int(allocations.node_gpus.sum())
    if gpus == 0:
        raise InputError("the cluster has no GPUs, so fragmentation is not defined")
    targets = targets_of(log, allocations)
    total = sum(target[4] for target in targets)
    time, node, before, free = _states(log, allocations)
    count = _fragments(allocations, targets, node, *free)
    # Fragments times `total` are integers: sums of changes are exact.
    empty = _fragments(allocations, targets, np.arange(len(allocations.node_gpus)), *_empty(allocations))
    change = count - np.where(before < 0, empty[node], count[before])
    found = cumulative_steps(time, change, int(empty.sum()), horizon)
    return Series(found.edge_s, found.value / (max(total, 1) * gpus * WHOLE))


def targets_of(log: ExecutionLog, allocations: NodeAllocations) -> list[TypicalShape]:
    """Typical requests for the fragmentation, most frequent first; the same as in the placement of the engine."""
    return typical_shapes(allocations.want, log.job_outcome != Outcome.REJECTED)


def _states(log: ExecutionLog, allocations: NodeAllocations) -> tuple[Floats, Ints, Ints, tuple[Small, Ints]]:
    """Every change on a node, sorted by node and time: time, node, index of the node's previous change (-1: none), and
    the free capacity after it, in thousandths: (GPUs of a node, changes) and cores."""
    pieces = allocations.pieces
    segment = np.concatenate((pieces.segment, pieces.segment))
    sign = np.repeat(np.array([1, -1]), len(pieces))
    time = np.concatenate((log.start_s[pieces.segment], log.end_s[pieces.segment]))
    node = np.concatenate((pieces.node, pieces.node))
    order = np.lexsort((time, node))
    node, time = node[order], time[order]
    new = np.append(True, (node[1:] != node[:-1]) | (time[1:] != time[:-1]))[: len(node)]
    instant = np.empty(len(order), np.int64)
    instant[order] = np.cumsum(new) - 1
    node, time = node[new], time[new]
    before = np.arange(len(node)) - 1
    before[np.append(True, node[1:] != node[:-1])[: len(node)]] = -1
    cores = np.zeros(len(node), np.int64)
    np.add.at(cores, instant, sign * np.tile(pieces.count, 2) * allocations.want.cpu[log.job[segment]])
    gpus, each = np.tile(pieces.gpus, 2), np.tile(_each(allocations), 2)
    free = np.zeros((int(allocations.node_gpus.max(initial=0)), len(node)), np.int32)
    for place, row in enumerate(free):
        on = (gpus >> place) & 1 == 1
        np.add.at(row, instant[on], (sign * each)[on].astype(np.int32))
        # Every node is empty at the end, so one cumulative sum over all nodes works.
        np.subtract(np.where(place < allocations.node_gpus[node], WHOLE, 0), np.cumsum(row), out=row)
    return time, node, before, (free, allocations.node_cpu[node] - np.cumsum(cores))


def _each(allocations: NodeAllocations) -> Ints:
    """Thousandths of each of its GPUs that a piece uses."""
    gpu_count = np.bitwise_count(allocations.pieces.gpus).astype(np.int64)
    return allocations.pieces.gpu_milli // np.maximum(gpu_count, 1)


def _empty(allocations: NodeAllocations) -> tuple[Small, Ints]:
    """Free capacity of empty nodes."""
    place = np.arange(int(allocations.node_gpus.max(initial=0)))[:, None]
    return np.where(place < allocations.node_gpus, WHOLE, 0).astype(np.int32), allocations.node_cpu


def _fragments(allocations: NodeAllocations, targets: list[TypicalShape], node: Ints, free: Small, cpu: Ints) -> Ints:
    """Fragments of nodes with this free capacity, in thousandths times the number of jobs of the targets."""
    idle = free.sum(0, dtype=np.int64)
    count: Ints = idle * sum(target[4] for target in targets)
    kind = allocations.node_type[node]
    sizes: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = {}
    for cores, gpu_milli, gpus, label, jobs in targets:
        if gpu_milli > 0:
            sizes.setdefault(gpu_milli, {}).setdefault((gpus, label), []).append((cores, jobs))
    for gpu_milli, requests in sizes.items():
        sufficient = free >= gpu_milli
        gpu_count = sufficient.sum(0, dtype=np.int32)
        usable = np.where(sufficient, free, 0).sum(0, dtype=np.int64)
        for (gpus, label), by_cores in requests.items():
            fits = (gpu_count >= gpus) & allocations.want.label_types[label][kind]
            cores, jobs = np.array(sorted(by_cores)).T
            enough = np.concatenate(([0], np.cumsum(jobs)))[np.searchsorted(cores, cpu, side="right")]
            count -= np.where(fits, usable * enough, 0)
    return count
