"""Wait and slowdown metrics by class of job: size, GPUs, run time, user, account, queue, QoS, name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kilowait.errors import UnknownNameError
from kilowait.evaluation.job_measures import Floats, Ints, evaluated_mask, started_jobs, summary
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.columns import LABEL_COLUMNS

__all__ = ["ClassRow", "by_class", "combine_classes"]

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
    node_h: float
    """Node-hours used."""
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
    >>> [(row.label, row.jobs, row.node_h) for row in by_class(log, "size")]
    [('1', 1, 1.0), ('2-4', 2, 7.0)]
    >>> [(row.label, row.jobs, row.node_h) for row in by_class(log, "size", counted=[True, False, False])]
    [('2-4', 1, 4.0)]
    """
    table = log.jobs_table
    code, labels = _classes(table, kind)
    count = len(labels)
    mask = evaluated_mask(log, counted)
    ran = started_jobs(log, bound_s, mask)
    node_s = table["nodes"].astype(np.float64)[ran.row] * ran.run_s
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
        rows.sort(key=lambda row: -row.node_h)
    return rows


def combine_classes(windows: Sequence[Sequence[ClassRow]], kind: str) -> list[ClassRow]:
    """Combine the rows of `by_class` of several windows, in the same order: means over all jobs of a class.

    Percentiles cannot be combined and are NaN if a class has jobs in more than one window.

    >>> one = ClassRow("1", 3, 2, 10.0, 10.0, 10.0, 12.0, 1.5, 4.0)
    >>> two = ClassRow("1", 1, 1, 40.0, 40.0, 40.0, 40.0, 3.0, 1.0)
    >>> row = combine_classes([[one], [two]], "size")[0]
    >>> row.jobs, row.mean_wait_s, row.mean_bsld, row.max_wait_s, row.node_h
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
        combined.sort(key=lambda row: -row.node_h)
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
        node_h=sum(row.node_h for row in rows),
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
        node_h=float(used_s[0].sum()) / 3600.0,
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
        return np.searchsorted(np.array(tops), table["nodes"], side="left"), labels
    if kind == "gpus":
        return np.searchsorted(_GPU_TOPS * 1000, _gpu_milli(table), side="left"), list(_GPU_LABELS)
    if kind == "runtime":
        return np.searchsorted(_RUNTIME_EDGES_S, table["runtime_s"], side="right"), list(_RUNTIME_LABELS)
    if kind in LABEL_COLUMNS:
        values, code = np.unique(table.column(kind), return_inverse=True)
        names = table.labels.get(kind)
        return code, ["-" if v < 0 else str(v) if names is None else names[v] for v in values.tolist()]
    raise UnknownNameError("class of jobs", kind, ("size", "gpus", "runtime", *LABEL_COLUMNS))
