"""Metrics of a run: waits, slowdowns, makespan, utilization, throughput, backlog, and fairness."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.allocations import node_allocations
from kilowait.evaluation.breakdown import by_class
from kilowait.evaluation.job_measures import (
    StartedJobColumns,
    capacity_at,
    evaluated_mask,
    horizon_of,
    jain,
    makespan,
    overlap_s,
    started_jobs,
    summary,
    waits,
)
from kilowait.evaluation.timeline import usage_changes
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Floats, Ints

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

    Where jobs are allocated cores or processors (``log.unit``), node-hours and nodes are core-hours and cores
    (`busy_core_h`, `mean_backlog_cores`), or `busy_processor_h` and `mean_backlog_processors`.

    Over the horizon (`horizon_start_s` to `horizon_end_s`; by default the makespan), exactly, from intervals
    clipped to it:

    - `utilization`: busy node-seconds / available node-seconds (of cores or processors, where jobs are allocated
      these), outages subtracted. It may exceed 1 if jobs continued into an outage;
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
    result[f"busy_{log.unit}_h"] = _busy_node_s(log, evaluated_segments, (-math.inf, math.inf)) / 3600.0
    over = horizon_of(log, mask, horizon)
    result["horizon_start_s"], result["horizon_end_s"] = over
    result.update(_over_horizon(log, cluster, over))
    return result


def _over_horizon(log: ExecutionLog, cluster: Cluster | None, horizon: tuple[float, float]) -> Metrics:
    span_s = horizon[1] - horizon[0]
    if not span_s > 0:  # no job started, or all of them ended at once
        names = ("utilization", "throughput_per_h", "mean_backlog_jobs", f"mean_backlog_{log.unit}s")
        return dict.fromkeys(names, math.nan)
    end = log.jobs()["end_s"]
    has_ended = log.job_outcome != Outcome.UNSTARTED  # a preempted job that waits again has not ended
    ended = int(np.count_nonzero((end >= horizon[0]) & (end <= horizon[1]) & has_ended))
    intervals = waits(log)
    waited = overlap_s(intervals.from_s, intervals.to_s, horizon)
    size = log.size.astype(np.float64)
    return {
        "utilization": _utilization(log, cluster, horizon),
        "throughput_per_h": ended / span_s * 3600.0,
        "mean_backlog_jobs": float(waited.sum()) / span_s,
        f"mean_backlog_{log.unit}s": float(np.dot(size[intervals.row], waited)) / span_s,
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
        size = log.size.astype(np.float64)[log.job[segments]]
        return float(np.dot(size, overlap_s(log.start_s[segments], log.end_s[segments], horizon)))
    selected = np.isin(log.pieces.segment, segments)
    segment = log.pieces.segment[selected]
    time, change = usage_changes(log.pieces.node[selected], log.start_s[segment], log.end_s[segment])
    return float(overlap_s(time[change > 0], time[change < 0], horizon).sum())


def _capacity_node_s(log: ExecutionLog, from_s: float, to_s: float) -> float:
    """Node-seconds available between the two times."""
    steps = log.capacity_s[(log.capacity_s > from_s) & (log.capacity_s < to_s)]
    edges = np.concatenate(([from_s], steps, [to_s]))
    return float(np.dot(capacity_at(log, edges[:-1]).astype(np.float64), np.diff(edges)))


_MIN_JOBS_PER_USER = 10
"""Users with fewer started jobs are left out of `worst_user_bsld`: their means are too noisy."""
_MIN_ESTIMATE_S = 3600.0
"""Shorter estimates count as one hour for starvation: a one-minute job does not starve after ten minutes."""


def fairness(
    log: ExecutionLog,
    *,
    counted: npt.ArrayLike | None = None,
    bound_s: float = 10.0,
    wait_bound_s: float = 86400.0,
    starving: float = 10.0,
) -> Metrics:
    """Fairness between users and between job sizes, and the number of long-waiting and starved jobs.

    Fairness is Jain's index of the classes' mean bounded slowdowns, (sum x)² / (n · sum x²): 1 if all n are
    equal, 1/n if one class has all the slowdown. Means are over evaluated jobs that started; NaN without any.

    - `users`: users with such a job; jobs of unknown users are left out here;
    - `jain_user_bsld`: Jain's index over them, `p95_user_bsld` the 95th percentile of their means;
    - `worst_user_bsld`: the largest mean of a user with at least 10 started jobs; of any user if none has as many;
    - `jain_size_bsld`, `worst_size_bsld`: the same over the size classes of `by_class`;
    - `share_wait_over_bound`: the share of evaluated jobs that waited longer than `wait_bound_s`;
    - `starved_jobs`, `starved_share`: jobs that waited longer than `starving` times their own estimate, or
      `starving` times 1 h if the estimate is shorter.

    The last two include all waits of a preempted job. A job that queued and never started, or was
    preempted and never resumed, has an infinite wait; a cancelled job waited until its cancellation. A rejected job
    has no wait.

    Args:
        log: the execution log of the run.
        counted: mask over the rows of `log.jobs_table`, true for the evaluated jobs; None: all.
        bound_s: bound of the bounded slowdown, seconds.
        wait_bound_s: the longest acceptable wait, seconds.
        starving: the wait from which a job counts as starved, in multiples of the estimate.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[20, 10], nodes=[4, 2], user=[0, 1])
    >>> log = kw.simulate(jobs, kw.Cluster.from_nodes(4), policy="fcfs")
    >>> result = fairness(log, wait_bound_s=15.0)  # users have slowdowns of 1 and 3: 4² / (2 · 10)
    >>> result["users"], result["jain_user_bsld"], result["share_wait_over_bound"], result["starved_jobs"]
    (2, 0.8, 0.5, 0)
    """
    _check(wait_bound_s, starving)
    mask = evaluated_mask(log, counted)
    users, jobs_of_user = _user_means(log, started_jobs(log, bound_s, mask))
    sizes = np.array([row.mean_bsld for row in by_class(log, "size", bound_s=bound_s, counted=mask) if row.started])
    with_enough_jobs = users[jobs_of_user >= _MIN_JOBS_PER_USER]
    intervals = waits(log)
    waited = np.bincount(intervals.row, intervals.to_s - intervals.from_s, len(mask))[
        mask
    ]  # inf: still waiting at the end, 0: never queued
    over = int(np.count_nonzero(waited > wait_bound_s))
    starvation_wait_s = starving * np.maximum(log.jobs_table["estimate_s"][mask], _MIN_ESTIMATE_S)
    starved = int(np.count_nonzero(waited > starvation_wait_s))
    jobs = len(waited)
    return {
        "users": len(users),
        "jain_user_bsld": jain(users),
        "worst_user_bsld": _largest(with_enough_jobs if len(with_enough_jobs) else users),
        "p95_user_bsld": float(np.percentile(users, 95.0)) if len(users) else math.nan,
        "jain_size_bsld": jain(sizes),
        "worst_size_bsld": _largest(sizes),
        "share_wait_over_bound": over / jobs if jobs else math.nan,
        "starved_jobs": starved,
        "starved_share": starved / jobs if jobs else math.nan,
    }


def _user_means(log: ExecutionLog, ran: StartedJobColumns) -> tuple[Floats, Ints]:
    """Mean bounded slowdown of each known user, and the number of jobs it covers."""
    user = log.jobs_table.column("user")[ran.row]
    known = user >= 0
    _, code = np.unique(user[known], return_inverse=True)
    jobs = np.bincount(code)
    return np.bincount(code, weights=ran.bsld[known]) / jobs, jobs


def _largest(values: Floats) -> float:
    return float(values.max()) if len(values) else math.nan


def _check(wait_bound_s: float, starving: float) -> None:
    if not (math.isfinite(wait_bound_s) and wait_bound_s >= 0):
        raise InputError(f"wait_bound_s is {wait_bound_s}; the longest acceptable wait must be finite, 0 or more")
    if not (math.isfinite(starving) and starving > 0):
        raise InputError(f"starving is {starving}; give a finite multiple of the estimate, above 0")
