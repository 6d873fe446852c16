"""Runs on placed GPU nodes in tables: by type of GPU, by priority of job."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.evaluation.gpu.allocations import (
    NodeAllocations,
    ended,
    pieces_of,
    places_of,
)
from kilowait.evaluation.gpu.timeline import in_use
from kilowait.evaluation.horizon import horizon_of, inside_s
from kilowait.evaluation.job_measures import Ints, counted_rows, summary
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome

__all__ = ["by_priority", "by_type"]

Row = dict[str, Any]


def by_type(
    log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None
) -> list[Row]:
    """A row for each GPU type of the cluster, in the order in which its groups name them; all jobs count.

    - `type`: nodes without GPUs are called ``-``; `nodes`, `gpus`: how many there are;
    - `jobs`: jobs that ran there for some time, however short; one that moved counts for every type it ran on;
    - `gpu_hours`: GPUs held times hours, over the whole log;
    - `utilization`: GPUs held times time over GPUs times time, within the horizon (by default the makespan); NaN
      without GPUs;
    - `shared`: of the time in which GPUs had a job, the share in which they had two or more; NaN if none ever had;
    - `preemptions`, `migrations`: segments there that ended so.

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
    >>> [
    ...     (row["type"], row["gpus"], row["jobs"], row["utilization"], row["shared"])
    ...     for row in by_type(*two_jobs())
    ... ]
    [('T4', 2, 2, 0.625, 0.0)]
    """
    places = places_of(log, cluster)
    horizon = horizon_of(log, counted_rows(log, None), horizon_s)
    span_s = horizon[1] - horizon[0]
    kinds = len(places.types)
    hours = np.bincount(places.type, places.gpus * (log.end_s - log.start_s), kinds) / 3600.0
    used = np.bincount(places.type, places.gpus * inside_s(log.start_s, log.end_s, horizon), kinds)
    capacity = places.type_gpus
    shared = _shared(log, places)
    rows = []
    for place, name in enumerate(places.types):
        own = places.type == place
        outcome = log.outcome[own]
        gpus = int(capacity[place])
        rows.append(
            {
                "type": name or "-",
                "nodes": int(np.count_nonzero(places.node_type == place)),
                "gpus": gpus,
                "jobs": len(np.unique(log.job[own])),
                "gpu_hours": float(hours[place]),
                "utilization": float(used[place]) / (gpus * span_s) if gpus and span_s > 0 else math.nan,
                "shared": shared[place],
                "preemptions": int(np.count_nonzero(outcome == Outcome.PREEMPTED)),
                "migrations": int(np.count_nonzero(outcome == Outcome.MIGRATED)),
            }
        )
    return rows


def _shared(log: ExecutionLog, places: NodeAllocations) -> list[float]:
    """By type, of the time in which GPUs had a job, the share in which they had more than one."""
    pieces = places.pieces
    most = int(places.node_gpus.max(initial=0))
    bits = (pieces.gpus[:, None] >> np.arange(most)) & 1
    piece, place = np.nonzero(bits)
    unit: Ints = pieces.node[piece] * most + place
    kind = places.type[pieces.segment[piece]]
    start, end = log.start_s[pieces.segment[piece]], log.end_s[pieces.segment[piece]]
    shares = []
    for number in range(len(places.types)):
        own = kind == number
        with_job, with_more = (_unit_s(unit[own], start[own], end[own], least) for least in (1, 2))
        shares.append(with_more / with_job if with_job > 0 else math.nan)
    return shares


def _unit_s(
    unit: Ints, start_s: npt.NDArray[np.float64], end_s: npt.NDArray[np.float64], least: int
) -> float:
    """Seconds in which `least` intervals or more lie on a unit, of all units together."""
    time, change = in_use(unit, start_s, end_s, least)
    return float((time[change < 0] - time[change > 0]).sum())


def by_priority(log: ExecutionLog, *, counted: npt.ArrayLike | None = None) -> list[Row]:
    """A row for each priority, the most important first.

    - `priority`; `jobs`: counted jobs that have it, `finished` of them;
    - `mean_jct_s`, `p95_jct_s`, `mean_queueing_s`, `p95_queueing_s`: as in `gpu_metrics`, over those; NaN without any;
    - `preemptions`: how often such jobs had to make room;
    - `gpu_hours`: GPUs they held times hours.

    `counted` is a mask over the rows of `log.jobs_table`: only the jobs where it is true are looked at; None takes
    them all.

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
    >>> by_priority(two_jobs()[0])[0]["mean_jct_s"]
    15.0
    """
    pieces = pieces_of(log)
    mask = counted_rows(log, counted)
    priority = log.jobs_table.column("priority")
    finished = np.zeros(len(mask), np.bool_)
    finished[ended(log)] = True
    gpu_s = np.bincount(pieces.segment, pieces.gpu_milli, len(log)) / 1000 * (log.end_s - log.start_s)
    records = log.jobs()
    rows = []
    for value in np.unique(priority[mask])[::-1].tolist():
        members = mask & (priority == value)
        done = members & finished
        own = members[log.job]
        mean_jct, _, p95_jct, _, _ = summary(records["turnaround_s"][done])
        mean_queueing, _, p95_queueing, _, _ = summary(records["wait_s"][done])
        rows.append(
            {
                "priority": value,
                "jobs": int(np.count_nonzero(members)),
                "finished": int(np.count_nonzero(done)),
                "mean_jct_s": mean_jct,
                "p95_jct_s": p95_jct,
                "mean_queueing_s": mean_queueing,
                "p95_queueing_s": p95_queueing,
                "preemptions": int(np.count_nonzero(log.outcome[own] == Outcome.PREEMPTED)),
                "gpu_hours": float(gpu_s[own].sum()) / 3600.0,
            }
        )
    return rows
