"""Metrics of a run: waits, slowdowns, makespan, utilization, throughput, backlog."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.evaluation.gpu.allocations import node_allocations
from kilowait.evaluation.gpu.timeline import usage_changes
from kilowait.evaluation.job_measures import (
    Ints,
    capacity_at,
    evaluated_mask,
    horizon_of,
    makespan,
    overlap_s,
    started_jobs,
    summary,
    waits,
)
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome

__all__ = ["Metrics", "metrics"]

Metrics = dict[str, float | int]
"""Metric name to value; units are part of the names, shares and slowdowns have none."""

_OUTCOMES = (Outcome.COMPLETED, Outcome.KILLED, Outcome.CANCELLED, Outcome.REJECTED, Outcome.UNSTARTED)
_STATISTICS = ("mean", "median", "p95", "p99", "max")


def metrics(
    log: ExecutionLog,
    *,
    horizon: tuple[float, float] | None = None,
    bound_s: float = 10.0,
    counted: npt.ArrayLike | None = None,
    cluster: Cluster | None = None,
) -> Metrics:
    """Compute the metrics of a run.

    Counts: `jobs`, `started`, `completed`, `killed`, `cancelled`, `rejected`, `unstarted`.

    Over all started jobs, independent of the horizon: `mean_`, `median_`, `p95_`, `p99_` and `max_` of
    `wait_s`, `turnaround_s`, `slowdown` (without jobs that ran for 0 s) and `bsld` (bounded slowdown: run
    times below `bound_s` count as `bound_s`). Waits are counted from the time a job joined the queue.
    Percentiles are interpolated linearly between ranks. NaN if no job started.

    `makespan_s` is the time from the first submission to the last end, `busy_node_h` the node-hours used.

    Over the horizon (`horizon_start_s` to `horizon_end_s`; by default the makespan), exactly, from intervals
    clipped to it:

    - `utilization`: busy node-seconds / available node-seconds, outages subtracted. It may exceed 1
      if jobs continued into an outage. A job on shared nodes counts with its `nodes`;
    - `throughput_per_h`: jobs per hour that ended in the horizon, both ends included;
    - `mean_backlog_jobs`, `mean_backlog_nodes`: time averages of waiting jobs and of the nodes they request.

    With `counted`, all but the last group cover the evaluated jobs only, and so does the makespan that is the
    default horizon. The metrics over the horizon always cover the whole machine: a warm-up job
    takes nodes and a place in the queue like any other.

    On *node-level* clusters (see `gpu_metrics` for more metrics of them) jobs share nodes, and may be preempted:

    - `busy_node_h` and `utilization` count a node once while any job runs on it; given a `cluster` with
      GPUs, `utilization` is the allocated share of its GPUs, fractional GPUs as fractions;
    - waits and the backlog include all time without an allocation, before a job starts and between its segments;
    - slowdowns are turnaround over all time for which the job had an allocation. Lost and repeated work increases
      that time: if jobs lose work, use `turnaround_s` or finish-time fairness instead.

    Args:
        log: the execution log of the run.
        horizon: start and end in seconds, in the time of the log.
        bound_s: bound of the bounded slowdown, seconds.
        counted: mask over the rows of `log.jobs_table`, true for the evaluated jobs; None: all.
        cluster: the machine of a run on a node-level cluster, for the share of its GPUs; other runs do not need it.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[20, 20], nodes=[4, 2])
    >>> log = kw.simulate(jobs, kw.Cluster.from_nodes(4), policy="fcfs")
    >>> result = metrics(log)
    >>> result["mean_wait_s"], result["mean_bsld"], result["utilization"], result["mean_backlog_jobs"]
    (10.0, 1.5, 0.75, 0.5)
    >>> metrics(log, counted=[False, True])["mean_wait_s"]
    20.0
    """
    mask = evaluated_mask(log, counted)
    ran = started_jobs(log, bound_s, mask)
    result: Metrics = {"jobs": int(np.count_nonzero(mask)), "started": len(ran.row)}
    for outcome in _OUTCOMES:
        result[outcome.name.lower()] = int(np.count_nonzero(log.job_outcome[mask] == outcome))
    for name, values in (
        ("wait_s", ran.wait_s),
        ("turnaround_s", ran.turnaround_s),
        ("slowdown", ran.slowdown()),
        ("bsld", ran.bsld),
    ):
        result.update(zip((f"{which}_{name}" for which in _STATISTICS), summary(values), strict=True))
    first_s, last_s = makespan(log, mask)
    result["makespan_s"] = last_s - first_s
    evaluated_segments = np.flatnonzero(mask[log.job])  # segments of counted jobs
    result["busy_node_h"] = _busy_node_s(log, evaluated_segments, (-math.inf, math.inf)) / 3600.0
    over = horizon_of(log, mask, horizon)
    result["horizon_start_s"], result["horizon_end_s"] = over
    result.update(_over_horizon(log, cluster, over))
    return result


def _over_horizon(log: ExecutionLog, cluster: Cluster | None, horizon: tuple[float, float]) -> Metrics:
    span_s = horizon[1] - horizon[0]
    if not span_s > 0:  # no job started, or all of them ended at once
        names = ("utilization", "throughput_per_h", "mean_backlog_jobs", "mean_backlog_nodes")
        return dict.fromkeys(names, math.nan)
    end = log.jobs()["end_s"]
    has_ended = log.job_outcome != Outcome.UNSTARTED  # a preempted job that waits again has not ended
    ended = int(np.count_nonzero((end >= horizon[0]) & (end <= horizon[1]) & has_ended))
    intervals = waits(log)
    waited = overlap_s(intervals.from_s, intervals.to_s, horizon)
    nodes = log.jobs_table["nodes"].astype(np.float64)
    return {
        "utilization": _utilization(log, cluster, horizon),
        "throughput_per_h": ended / span_s * 3600.0,
        "mean_backlog_jobs": float(waited.sum()) / span_s,
        "mean_backlog_nodes": float(np.dot(nodes[intervals.row], waited)) / span_s,
    }


def _utilization(log: ExecutionLog, cluster: Cluster | None, horizon: tuple[float, float]) -> float:
    if log.pieces is not None and cluster is not None:
        places = node_allocations(log, cluster)
        gpu_s = int(places.node_gpus.sum()) * (horizon[1] - horizon[0])
        if gpu_s > 0:
            return float(np.dot(places.gpus, overlap_s(log.start_s, log.end_s, horizon))) / gpu_s
    offered = _capacity_node_s(log, *horizon)
    return _busy_node_s(log, np.arange(len(log)), horizon) / offered if offered > 0 else math.nan


def _busy_node_s(log: ExecutionLog, segments: Ints, horizon: tuple[float, float]) -> float:
    """Node-seconds of these segments within the horizon; on node-level clusters a shared node counts once."""
    if log.pieces is None:
        nodes = log.jobs_table["nodes"].astype(np.float64)[log.job[segments]]
        return float(np.dot(nodes, overlap_s(log.start_s[segments], log.end_s[segments], horizon)))
    selected = np.isin(log.pieces.segment, segments)
    segment = log.pieces.segment[selected]
    time, change = usage_changes(log.pieces.node[selected], log.start_s[segment], log.end_s[segment])
    return float(overlap_s(time[change > 0], time[change < 0], horizon).sum())


def _capacity_node_s(log: ExecutionLog, from_s: float, to_s: float) -> float:
    """Node-seconds available between the two times."""
    steps = log.capacity_s[(log.capacity_s > from_s) & (log.capacity_s < to_s)]
    edges = np.concatenate(([from_s], steps, [to_s]))
    return float(np.dot(capacity_at(log, edges[:-1]).astype(np.float64), np.diff(edges)))
