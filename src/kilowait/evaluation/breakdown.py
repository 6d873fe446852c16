"""Metrics by class of job (size, GPUs, run time, user, ...), and on node-level clusters by GPU type and priority."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import UnknownNameError
from kilowait.evaluation.allocations import NodeAllocations, allocations_of, ended, node_allocations
from kilowait.evaluation.job_measures import evaluated_mask, horizon_of, overlap_s, started_jobs, summary
from kilowait.evaluation.timeline import usage_changes
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.columns import LABEL_COLUMNS
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Floats, Ints

_RUNTIME_EDGES_S = np.array([60.0, 600.0, 3600.0, 21600.0, 86400.0])
_RUNTIME_LABELS = ("< 1 min", "1-10 min", "10-60 min", "1-6 h", "6-24 h", ">= 24 h")
_GPU_TOPS = np.array([0, 0.999, *(2**power for power in range(20))])
_GPU_LABELS = (
    "none",
    "part of 1",
    "1",
    "2",
    *(f"{2**power + 1}-{2 ** (power + 1)}" for power in range(1, 19)),
    f"> {2**19}",
)


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Metrics of one class of jobs. Waits and slowdowns cover its started jobs, NaN if none started."""

    label: str
    jobs: int
    """Evaluated jobs of the class in the table."""
    started: int
    mean_wait_s: float
    median_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    mean_bsld: float
    allocated_h: float
    """Node-hours used; core-hours where jobs are allocated cores (`ExecutionLog.unit`)."""
    gpu_h: float = 0.0
    """GPU-hours used, from the GPUs requested; fractional GPUs count as fractions."""


def by_class(
    log: ExecutionLog, kind: str, *, bound_s: float = 10.0, counted: npt.ArrayLike | None = None
) -> list[ClassRow]:
    """Metrics of the jobs of a log by class; classes without jobs are left out.

    `kind` is

    - ``"size"``: nodes, in steps of 4: 1, 2-4, 5-16, 17-64, 65-256, ..., smallest first;
    - ``"gpus"``: total GPUs: none, a part of one, 1, 2, 3-4, 5-8, 9-16, ..., smallest first;
    - ``"runtime"``: actual run time: below 1 min, 10 min, 1 h, 6 h, 24 h, and longer, shortest first;
    - ``"user"``, ``"account"``, ``"queue"``, ``"qos"``, ``"name"``: the values of the table, most node-hours
      first; jobs with an unknown value are labelled ``-``.

    `counted` is a mask over the rows of `log.jobs_table` that selects the evaluated jobs; None selects all.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2, 3], submit_s=[0, 0, 0], runtime_s=[3600, 3600, 3600], nodes=[4, 1, 3])
    >>> log = kw.simulate(jobs, kw.Cluster.from_nodes(8), policy="fcfs")
    >>> [(row.label, row.jobs, row.allocated_h) for row in by_class(log, "size")]
    [('1', 1, 1.0), ('2-4', 2, 7.0)]
    >>> [(row.label, row.jobs, row.allocated_h) for row in by_class(log, "size", counted=[True, False, False])]
    [('2-4', 1, 4.0)]
    """
    table = log.jobs_table
    code, labels = _classes(table, kind)
    count = len(labels)
    mask = evaluated_mask(log, counted)
    ran = started_jobs(log, bound_s, mask)
    node_s = table.size.astype(np.float64)[ran.row] * ran.run_s
    gpu_s = _gpu_milli(table)[ran.row] / 1000.0 * ran.run_s
    ran_code = code[ran.row]
    order = np.argsort(ran_code, kind="stable")
    edges = np.searchsorted(ran_code[order], np.arange(count + 1))
    jobs = np.bincount(code[mask], minlength=count)
    rows = []
    for number in np.flatnonzero(jobs).tolist():
        members = order[edges[number] : edges[number + 1]]
        rows.append(
            _row(
                labels[number],
                int(jobs[number]),
                ran.wait_s[members],
                ran.bsld[members],
                (node_s[members], gpu_s[members]),
            )
        )
    if kind in LABEL_COLUMNS:
        rows.sort(key=lambda row: -row.allocated_h)
    return rows


def combine_classes(windows: Sequence[Sequence[ClassRow]], kind: str) -> list[ClassRow]:
    """Combine the rows of `by_class` of several windows, in the same order: means over all jobs of a class.

    Percentiles cannot be combined and are NaN if a class has jobs in more than one window.

    >>> one = ClassRow("1", 3, 2, 10.0, 10.0, 10.0, 12.0, 1.5, 4.0)
    >>> two = ClassRow("1", 1, 1, 40.0, 40.0, 40.0, 40.0, 3.0, 1.0)
    >>> row = combine_classes([[one], [two]], "size")[0]
    >>> row.jobs, row.mean_wait_s, row.mean_bsld, row.max_wait_s, row.allocated_h
    (4, 20.0, 2.0, 40.0, 5.0)
    """
    parts: dict[str, list[ClassRow]] = {}
    for rows in windows:
        for row in rows:
            parts.setdefault(row.label, []).append(row)
    combined = [_combined(rows) for rows in parts.values()]
    if kind == "size":
        combined.sort(key=lambda row: float(row.label.partition("-")[0].lstrip("> ")))
    elif kind in ("runtime", "gpus"):
        combined.sort(key=lambda row: (_RUNTIME_LABELS if kind == "runtime" else _GPU_LABELS).index(row.label))
    else:
        combined.sort(key=lambda row: -row.allocated_h)
    return combined


def _combined(rows: Sequence[ClassRow]) -> ClassRow:
    if len(rows) == 1:
        return rows[0]
    ran = [row for row in rows if row.started]
    started = sum(row.started for row in ran)
    nan = float("nan")
    return ClassRow(
        label=rows[0].label,
        jobs=sum(row.jobs for row in rows),
        started=started,
        mean_wait_s=sum(row.mean_wait_s * row.started for row in ran) / started if started else nan,
        median_wait_s=nan,
        p95_wait_s=nan,
        max_wait_s=max((row.max_wait_s for row in ran), default=nan),
        mean_bsld=sum(row.mean_bsld * row.started for row in ran) / started if started else nan,
        allocated_h=sum(row.allocated_h for row in rows),
        gpu_h=sum(row.gpu_h for row in rows),
    )


def _row(label: str, jobs: int, wait_s: Floats, bsld: Floats, used_s: tuple[Floats, Floats]) -> ClassRow:
    mean, median, p95, _, largest = summary(wait_s)
    return ClassRow(
        label=label,
        jobs=jobs,
        started=len(wait_s),
        mean_wait_s=mean,
        median_wait_s=median,
        p95_wait_s=p95,
        max_wait_s=largest,
        mean_bsld=float(bsld.mean()) if len(bsld) else float("nan"),
        allocated_h=float(used_s[0].sum()) / 3600.0,
        gpu_h=float(used_s[1].sum()) / 3600.0,
    )


def _gpu_milli(table: JobTable) -> Ints:
    """Total GPUs requested by each job, in thousandths."""
    if "gpus" not in table:
        return np.zeros(len(table), np.int64)
    gpu_milli: Ints = table["gpus"] * table.column("gpu_milli")
    return gpu_milli


def _classes(table: JobTable, kind: str) -> tuple[Ints, list[str]]:
    """Index of each job's class, from 0, and the labels of the classes."""
    if kind == "size":
        tops = [4**power for power in range(32)]
        labels = ["1", *(f"{low + 1}-{top}" for low, top in pairwise(tops)), f"> {tops[-1]}"]
        return np.searchsorted(np.array(tops), table.size, side="left"), labels
    if kind == "gpus":
        return np.searchsorted(_GPU_TOPS * 1000, _gpu_milli(table), side="left"), list(_GPU_LABELS)
    if kind == "runtime":
        return np.searchsorted(_RUNTIME_EDGES_S, table["runtime_s"], side="right"), list(_RUNTIME_LABELS)
    if kind in LABEL_COLUMNS:
        return table.classes(kind)
    raise UnknownNameError("class of jobs", kind, ("size", "gpus", "runtime", *LABEL_COLUMNS))


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

    >>> from kilowait.evaluation.allocations import two_jobs
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

    >>> from kilowait.evaluation.allocations import two_jobs
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
