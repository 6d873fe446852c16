"""A run on placed GPU nodes in numbers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.evaluation.gpu.allocations import (
    NodeAllocations,
    ended,
    places_of,
    tflops_of,
)
from kilowait.evaluation.gpu.fairness import fairness_of, rho_of
from kilowait.evaluation.gpu.fragmentation import fragments_over
from kilowait.evaluation.gpu.timeline import in_use, steps
from kilowait.evaluation.horizon import horizon_of, inside_s, makespan
from kilowait.evaluation.job_measures import (
    Floats,
    Mask,
    counted_rows,
    summary,
)
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
    """The metrics of a run on a cluster whose jobs are placed on single nodes; NaN where there is nothing to measure.

    Of the counted jobs:

    - `jobs`, and `unfinished_jobs`: those of them that never finished, whether they were rejected, withdrawn, or were
      still there when the log ends. A killed job has finished;
    - `mean_`, `median_`, `p95_`, `p99_jct_s`: job completion time, from joining the queue to the last end, over all
      that finished; `mean_`, `p95_queueing_s`: the part of it in which a job held no place, before it started and
      between its segments;
    - `makespan_s`: from the first submission to the last end;
    - `gpu_hours`: GPUs held times hours, parts of GPUs as parts; loading, saving and work that was lost included;
    - `preemptions`, `migrations`: segments that ended so. `lost_gpu_hours`: the work lost by it, as GPU-hours at the
      speed the job has where it lost it;
    - `mean_rho`, `max_rho`, `unfair_share` (rho above 1.05), `jain_rho`: finish-time fairness, see `finish_time_rho`.

    Of the whole machine over the horizon, segments cut at its ends, jobs that do not count included:

    - `gpu_utilization`: GPUs held times time, over GPUs times time;
    - `flops_utilization`: the same with each GPU weighted by its catalogued rate, over the types whose rate is known;
      `flops_known_share` is the share of the GPUs that are of such types. With one type it is `gpu_utilization`;
    - `work_utilization`: only work that was kept counts, with the time it takes at the job's speed on that type,
      undisturbed. What it lacks to `gpu_utilization` is lost work, loading and saving, sharing a GPU and being spread.
      Work is taken to be spread evenly over a segment that is cut;
    - `mean_fragmentation`: mean over time of `fragmentation`;
    - `mean_nodes_in_use`, `peak_nodes_in_use`: nodes with some job on them.

    Args:
        log: what happened.
        cluster: the machine of the run.
        speeds: those of the run; None: all are 1.
        counted: mask over the rows of `log.jobs_table`, true for the jobs that are judged; None: all.
        horizon_s: start and end in seconds on the log's clock; None: the makespan of the counted jobs.
        precision: "fp64", "fp32" or "fp16", of the rates.

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
    >>> found = gpu_metrics(*two_jobs())
    >>> found["mean_jct_s"], found["mean_queueing_s"], found["gpu_utilization"], found["mean_fragmentation"]
    (15.0, 5.0, 0.625, 0.1875)
    """
    mask = counted_rows(log, counted)
    places = places_of(log, cluster, speeds)
    finished = ended(log)
    finished = finished[mask[finished]]
    records = log.jobs()
    first_s, last_s = makespan(log, mask)
    found = {
        "jobs": float(np.count_nonzero(mask)),
        "unfinished_jobs": float(np.count_nonzero(mask) - len(finished)),
    }
    mean, median, p95, p99, _ = summary(records["turnaround_s"][finished])
    found |= {"mean_jct_s": mean, "median_jct_s": median, "p95_jct_s": p95, "p99_jct_s": p99}
    mean, _, p95, _, _ = summary(records["wait_s"][finished])
    found |= {"mean_queueing_s": mean, "p95_queueing_s": p95, "makespan_s": last_s - first_s}
    found |= _held(log, places, mask)
    found |= fairness_of(rho_of(log, places, mask))
    found |= _over_horizon(log, places, horizon_of(log, mask, horizon_s), tflops_of(places.types, precision))
    return found


def _held(log: ExecutionLog, places: NodeAllocations, mask: Mask) -> dict[str, float]:
    """What the counted jobs held, and what was in vain."""
    own = mask[log.job]
    lost_s = places.pieces.lost_s / places.speed_there(log)
    return {
        "gpu_hours": float(np.dot(places.gpus[own], (log.end_s - log.start_s)[own])) / 3600.0,
        "preemptions": float(np.count_nonzero(log.outcome[own] == Outcome.PREEMPTED)),
        "migrations": float(np.count_nonzero(log.outcome[own] == Outcome.MIGRATED)),
        "lost_gpu_hours": float(np.dot(places.gpus[own], lost_s[own])) / 3600.0,
    }


def _over_horizon(
    log: ExecutionLog, places: NodeAllocations, horizon: tuple[float, float], tflops: Floats
) -> dict[str, float]:
    capacity = places.type_gpus.astype(np.float64)
    gpus = float(capacity.sum())
    known = ~np.isnan(tflops) & (capacity > 0)
    share = {"flops_known_share": float(capacity[known].sum()) / gpus if gpus > 0 else math.nan}
    span_s = horizon[1] - horizon[0]
    if not span_s > 0:  # no job started, or all of them ended at once
        return dict.fromkeys(_OVER_HORIZON, math.nan) | share
    inside = inside_s(log.start_s, log.end_s, horizon)
    used = np.bincount(places.type, places.gpus * inside, len(places.types))
    offered = float(np.dot(tflops[known], capacity[known])) * span_s
    nodes = steps(
        *in_use(places.pieces.node, log.start_s[places.pieces.segment], log.end_s[places.pieces.segment]),
        0,
        horizon,
    )
    useful = float(np.dot(places.gpus, _useful_share(log, places) * inside))
    return share | {
        "gpu_utilization": float(used.sum()) / (gpus * span_s) if gpus > 0 else math.nan,
        "flops_utilization": float(np.dot(tflops[known], used[known])) / offered if offered > 0 else math.nan,
        "work_utilization": useful / (gpus * span_s) if gpus > 0 else math.nan,
        "mean_fragmentation": float(fragments_over(log, places, horizon).mean(*horizon))
        if gpus > 0
        else math.nan,
        "mean_nodes_in_use": float(nodes.mean(*horizon)),
        "peak_nodes_in_use": float(nodes.value.max()),
    }


def _useful_share(log: ExecutionLog, places: NodeAllocations) -> Floats:
    """Per segment: the part of its time that the work it did and kept takes, undisturbed."""
    kept_s = (places.pieces.work_s - places.pieces.lost_s) / places.speed_there(log)
    held_s = log.end_s - log.start_s
    share: Floats = np.divide(kept_s, held_s, out=np.zeros(len(log)), where=held_s > 0)
    return share
