"""GPU metrics by GPU type and by job priority, for runs on node-level clusters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.evaluation.gpu.allocations import NodeAllocations, allocations_of, ended, node_allocations
from kilowait.evaluation.gpu.timeline import usage_changes
from kilowait.evaluation.job_measures import Ints, evaluated_mask, horizon_of, overlap_s, summary
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome

__all__ = ["by_priority", "by_type"]

Row = dict[str, Any]


def by_type(log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None) -> list[Row]:
    """One row per GPU type of the cluster, in the order of its node groups; all jobs are included.

    - `type`: ``-`` for nodes without GPUs; `nodes`, `gpus`: their numbers;
    - `jobs`: jobs with a segment on this type; a migrated job counts for every type it ran on;
    - `gpu_hours`: allocated GPUs times hours, over the whole log;
    - `utilization`: allocated GPU time / available GPU time, within the horizon (by default the makespan); NaN
      without GPUs;
    - `shared`: share of the time with a job on a GPU in which it had two or more jobs; NaN if no GPU was used;
    - `preemptions`, `migrations`: segments on this type that ended with one.

    >>> from kilowait.evaluation.gpu.allocations import two_jobs
    >>> [(row["type"], row["gpus"], row["jobs"], row["utilization"], row["shared"]) for row in by_type(*two_jobs())]
    [('T4', 2, 2, 0.625, 0.0)]
    """
    allocations = node_allocations(log, cluster)
    horizon = horizon_of(log, evaluated_mask(log, None), horizon_s)
    span_s = horizon[1] - horizon[0]
    kinds = len(allocations.types)
    hours = np.bincount(allocations.type, allocations.gpus * (log.end_s - log.start_s), kinds) / 3600.0
    used = np.bincount(allocations.type, allocations.gpus * overlap_s(log.start_s, log.end_s, horizon), kinds)
    capacity = allocations.type_gpus
    shared = _shared(log, allocations)
    rows = []
    for place, name in enumerate(allocations.types):
        own = allocations.type == place
        outcome = log.outcome[own]
        gpus = int(capacity[place])
        rows.append(
            {
                "type": name or "-",
                "nodes": int(np.count_nonzero(allocations.node_type == place)),
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


def _shared(log: ExecutionLog, allocations: NodeAllocations) -> list[float]:
    """Per type: share of the time with a job on a GPU in which it had more than one."""
    pieces = allocations.pieces
    max_gpus = int(allocations.node_gpus.max(initial=0))
    bits = (pieces.gpus[:, None] >> np.arange(max_gpus)) & 1
    piece, place = np.nonzero(bits)
    unit: Ints = pieces.node[piece] * max_gpus + place
    kind = allocations.type[pieces.segment[piece]]
    start, end = log.start_s[pieces.segment[piece]], log.end_s[pieces.segment[piece]]
    shares = []
    for number in range(len(allocations.types)):
        own = kind == number
        with_job, with_more = (_unit_s(unit[own], start[own], end[own], least) for least in (1, 2))
        shares.append(with_more / with_job if with_job > 0 else math.nan)
    return shares


def _unit_s(unit: Ints, start_s: npt.NDArray[np.float64], end_s: npt.NDArray[np.float64], least: int) -> float:
    """Total seconds, over all units, in which at least `least` intervals overlap on a unit."""
    time, change = usage_changes(unit, start_s, end_s, least)
    return float((time[change < 0] - time[change > 0]).sum())


def by_priority(log: ExecutionLog, *, counted: npt.ArrayLike | None = None) -> list[Row]:
    """One row per priority, the highest first.

    - `priority`; `jobs`: evaluated jobs with it, and the number of them that `finished`;
    - `mean_jct_s`, `p95_jct_s`, `mean_queueing_s`, `p95_queueing_s`: as in `gpu_metrics`, over the finished jobs; NaN
      without any;
    - `preemptions`: number of preemptions of these jobs;
    - `gpu_hours`: allocated GPUs times hours.

    `counted` is a mask over the rows of `log.jobs_table` that selects the evaluated jobs; None selects all.

    >>> from kilowait.evaluation.gpu.allocations import two_jobs
    >>> by_priority(two_jobs()[0])[0]["mean_jct_s"]
    15.0
    """
    pieces = allocations_of(log)
    mask = evaluated_mask(log, counted)
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
