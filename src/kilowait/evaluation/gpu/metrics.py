"""Metrics of a run on a node-level GPU cluster: JCT, queueing, utilization, fragmentation, fairness, lost work."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.evaluation.gpu.allocations import NodeAllocations, ended, node_allocations, tflops_of
from kilowait.evaluation.gpu.fairness import fairness_of, rho_of
from kilowait.evaluation.gpu.fragmentation import fragments_over
from kilowait.evaluation.gpu.timeline import cumulative_steps, usage_changes
from kilowait.evaluation.horizon import horizon_of, makespan, overlap_s
from kilowait.evaluation.job_measures import Floats, Mask, evaluated_mask, summary
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome

__all__ = ["gpu_metrics"]

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

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
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
