"""A run in numbers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.evaluation.measures import (
    Floats,
    Mask,
    capacity_at,
    counted_rows,
    left_queue_s,
    started,
    summary,
)
from kilowait.jobs import SegmentLog
from kilowait.jobs.segments import Outcome

__all__ = ["Metrics", "metrics"]

Metrics = dict[str, float | int]
"""Name to number; units are in the names, shares and slowdowns have none."""

_OUTCOMES = (Outcome.COMPLETED, Outcome.KILLED, Outcome.CANCELLED, Outcome.REJECTED, Outcome.UNSTARTED)
_STATISTICS = ("mean", "median", "p95", "p99", "max")


def metrics(
    log: SegmentLog,
    *,
    horizon: tuple[float, float] | None = None,
    bound_s: float = 10.0,
    counted: npt.ArrayLike | None = None,
) -> Metrics:
    """The metrics of a run.

    Counts: `jobs`, `started`, `completed`, `killed`, `cancelled`, `rejected`, `unstarted`.

    Over all jobs that started, whatever the horizon: `mean_`, `median_`, `p95_`, `p99_` and `max_` of
    `wait_s`, `turnaround_s`, `slowdown` (without jobs that ran for 0 s) and `bsld` (bounded slowdown: run
    times below `bound_s` count as `bound_s`). Waiting is counted from the time a job joined the queue.
    Percentiles are linear between ranks. NaN where no job started.

    `makespan_s` is the time from the first submission to the last end, `busy_node_h` the node-hours used.

    Over the horizon (`horizon_start_s` to `horizon_end_s`; by default the makespan), exactly, from intervals
    cut at its ends:

    - `utilization`: busy node-seconds / node-seconds the machine had, outages taken off. It may exceed 1
      where jobs ran on into an outage. A job on shared nodes counts with its `nodes`;
    - `throughput_per_h`: jobs that ended in it, both its ends included, by the hour;
    - `mean_backlog_jobs`, `mean_backlog_nodes`: jobs waiting, and nodes they ask for, on average over time.

    With `counted`, all but the last group are of the counted jobs alone, and so is the makespan that is the
    horizon by default. What is over the horizon stays that of the whole machine: a job that only warms it up
    takes nodes and a place in the queue like any other.

    Args:
        log: what happened.
        horizon: start and end in seconds on the log's clock.
        bound_s: bound of the bounded slowdown, seconds.
        counted: mask over the rows of `log.jobs_table`, true for the jobs that are judged; None: all.

    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[20, 20], nodes=[4, 2])
    >>> log = SegmentLog(
    ...     jobs,
    ...     np.array([0, 1]),
    ...     np.array([0.0, 20.0]),
    ...     np.array([20.0, 40.0]),
    ...     np.zeros(2, np.int16),
    ...     np.zeros(2, np.int16),
    ...     np.ones(2, np.int8),
    ...     jobs["submit_s"],
    ...     np.ones(2, np.int8),
    ...     np.array([0.0]),
    ...     np.array([4]),
    ... )
    >>> found = metrics(log)
    >>> found["mean_wait_s"], found["mean_bsld"], found["utilization"], found["mean_backlog_jobs"]
    (10.0, 1.5, 0.75, 0.5)
    >>> metrics(log, counted=[False, True])["mean_wait_s"]
    20.0
    """
    mask = counted_rows(log, counted)
    ran = started(log, bound_s, mask)
    found: Metrics = {"jobs": int(np.count_nonzero(mask)), "started": len(ran.row)}
    for outcome in _OUTCOMES:
        found[outcome.name.lower()] = int(np.count_nonzero(log.job_outcome[mask] == outcome))
    for name, values in (
        ("wait_s", ran.wait_s),
        ("turnaround_s", ran.turnaround_s),
        ("slowdown", ran.slowdown()),
        ("bsld", ran.bsld),
    ):
        found.update(zip((f"{which}_{name}" for which in _STATISTICS), summary(values), strict=True))
    own = np.flatnonzero(mask[log.job])  # segments of counted jobs
    first_s, last_s = _makespan(log, mask, log.end_s[own])
    found["makespan_s"] = last_s - first_s
    nodes = log.jobs_table["nodes"].astype(np.float64)
    found["busy_node_h"] = float(np.dot(nodes[log.job[own]], log.end_s[own] - log.start_s[own])) / 3600.0
    from_s, to_s = (first_s, last_s) if horizon is None else _checked(horizon)
    found["horizon_start_s"], found["horizon_end_s"] = from_s, to_s
    found.update(_over_horizon(log, nodes, from_s, to_s))
    return found


def _over_horizon(log: SegmentLog, nodes: Floats, from_s: float, to_s: float) -> Metrics:
    span_s = to_s - from_s
    if not span_s > 0:  # no job started, or all of them ended at once
        names = ("utilization", "throughput_per_h", "mean_backlog_jobs", "mean_backlog_nodes")
        return dict.fromkeys(names, math.nan)
    busy = float(np.dot(nodes[log.job], _inside(log.start_s, log.end_s, from_s, to_s)))
    offered = _capacity_node_s(log, from_s, to_s)
    end = log.jobs()["end_s"]
    ended = int(np.count_nonzero((end >= from_s) & (end <= to_s)))
    left = left_queue_s(log)
    queued = np.flatnonzero(~np.isnan(left))
    waited = _inside(log.eligible_s[queued], left[queued], from_s, to_s)
    return {
        "utilization": busy / offered if offered > 0 else math.nan,
        "throughput_per_h": ended / span_s * 3600.0,
        "mean_backlog_jobs": float(waited.sum()) / span_s,
        "mean_backlog_nodes": float(np.dot(nodes[queued], waited)) / span_s,
    }


def _inside(start_s: Floats, end_s: Floats, from_s: float, to_s: float) -> Floats:
    """Seconds of each interval that lie between `from_s` and `to_s`."""
    inside: Floats = np.maximum(np.minimum(end_s, to_s) - np.maximum(start_s, from_s), 0.0)
    return inside


def _capacity_node_s(log: SegmentLog, from_s: float, to_s: float) -> float:
    """Node-seconds the machine had between the two times."""
    steps = log.capacity_s[(log.capacity_s > from_s) & (log.capacity_s < to_s)]
    edges = np.concatenate(([from_s], steps, [to_s]))
    return float(np.dot(capacity_at(log, edges[:-1]).astype(np.float64), np.diff(edges)))


def _makespan(log: SegmentLog, mask: Mask, end_s: Floats) -> tuple[float, float]:
    """First submission and last end of the counted jobs; NaN twice where none of them started."""
    if len(end_s) == 0:
        return math.nan, math.nan
    return float(log.jobs_table["submit_s"][mask].min()), float(end_s.max())


def _checked(horizon: tuple[float, float]) -> tuple[float, float]:
    from_s, to_s = (float(edge) for edge in horizon)
    if not (math.isfinite(from_s) and math.isfinite(to_s) and from_s < to_s):
        raise InputError(f"the horizon goes from {from_s} to {to_s} s; give two finite times, earlier first")
    return from_s, to_s
