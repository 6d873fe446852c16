"""Schema of a log that generators use: columns, value ranges, limits, the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["DAY_S", "WEEK_S", "Columns", "LogSchema", "unix_zero_s", "log_schema", "rows_of"]

Columns = dict[str, npt.NDArray[Any]]
"""Columns of jobs in order of submission; users and accounts are numbered by rank of use, 0 is the largest."""

DAY_S, WEEK_S = 86400.0, 7 * 86400.0
MIN_JOBS = 100
"""Minimum number of jobs of a log."""
MODELED_COLUMNS = "user account queue gpus nodes estimate_s runtime_s status energy_j".split()
"""Columns that are generated where a log has them; others are left out of samples."""
PERSON_COLUMNS = ("user", "account")
"""Columns that identify people; samples renumber them."""
METADATA = ("max_procs", "max_nodes", "unix_start_s", "time_zone")
"""Metadata of the machine and log time that samples keep."""


@dataclass(frozen=True)
class LogSchema:
    """Schema of one log."""

    source: str
    """Name of the file, or of the workload."""
    jobs: int
    first_s: float
    """First submission, in log time."""
    span_s: float
    """From the first submission to the last."""
    columns: tuple[str, ...]
    """Those of `MODELED_COLUMNS` that the log has."""
    most_over_s: float
    """The maximum by which a run time exceeds its request, seconds; 0 if none does."""
    exact_requests: bool
    """Whether every request equals the run time: the log, and so its samples, have no requests."""
    longest_s: float
    """The longest run time."""
    labels: Mapping[str, tuple[str, ...]]
    meta: Mapping[str, Any]
    seen: Mapping[str, npt.NDArray[Any]] = field(repr=False)
    """The distinct values of each column except run time and energy; of users and accounts only where names are kept,
    by rank."""
    numbered: Mapping[str, int] = field(default_factory=dict)
    """Number of users and accounts."""

    @property
    def machine(self) -> int:
        """Nodes of the machine, or of the largest job where the machine is unknown."""
        return int(self.meta.get("max_procs") or self.meta.get("max_nodes") or self.seen["nodes"].max())

    @property
    def zero_s(self) -> float:
        """Unix time of log time 0, where known; hours of the day refer to it."""
        return float(self.meta.get("unix_start_s") or 0.0)


def unix_zero_s(jobs: JobTable) -> float:
    """Unix time of the jobs' time 0; 0 where it is not known.

    >>> unix_zero_s(JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1]))
    0.0
    """
    return float(jobs.meta.get("unix_start_s") or 0.0)


def log_schema(jobs: JobTable, *, keep_names: bool = False) -> LogSchema:
    """The schema of a log; an error if it is too small or too short to learn from.

    Args:
        jobs: the log.
        keep_names: keep the numbers and names of users and accounts. Otherwise they are dropped here.
    """
    if len(jobs) < MIN_JOBS:
        raise InputError(
            f"{len(jobs)} jobs are too few to learn a workload from; at least {MIN_JOBS} are needed. "
            "kilowait has models that need no log: lublin:JOBS:NODES"
        )
    submit, runtime, request = jobs["submit_s"], jobs["runtime_s"], jobs["estimate_s"]
    if not np.ptp(submit) > 0:
        raise InputError(
            f"all {len(jobs):,} jobs are submitted at {submit[0]:g} s, so arrival times cannot "
            "be learned; give a log with submission times"
        )
    columns = tuple(name for name in MODELED_COLUMNS if name in jobs)
    seen = {
        name: _by_node_seconds(jobs, name) if name in PERSON_COLUMNS else np.unique(jobs[name])
        for name in columns
        if name not in ("runtime_s", "energy_j") and (keep_names or name not in PERSON_COLUMNS)
    }
    return LogSchema(
        source=str(jobs.meta.get("source") or jobs.meta.get("model") or "jobs"),
        jobs=len(jobs),
        first_s=float(submit.min()),
        span_s=float(np.ptp(submit)),
        columns=columns,
        most_over_s=max(0.0, float((runtime - request).max())),
        exact_requests=bool((runtime == request).all()),
        longest_s=float(runtime.max()),
        labels={
            name: tuple(texts)
            for name, texts in jobs.labels.items()
            if name in columns and (keep_names or name not in PERSON_COLUMNS)
        },
        meta={name: jobs.meta[name] for name in METADATA if jobs.meta.get(name) is not None},
        seen=seen,
        numbered={name: len(np.unique(jobs[name])) for name in PERSON_COLUMNS if name in columns},
    )


def rows_of(jobs: JobTable, schema: LogSchema) -> Columns:
    """The modelled columns and `submit_s`, in order of submission; users and accounts by rank, 0 for the largest."""
    ordered = jobs.sorted()
    rows: Columns = {name: ordered[name] for name in ("submit_s", *schema.columns)}
    for name in schema.numbered:
        values = _by_node_seconds(jobs, name)
        order = np.argsort(values)
        rows[name] = order[np.searchsorted(values, rows[name], sorter=order)]
    return rows


def _by_node_seconds(jobs: JobTable, name: str) -> npt.NDArray[Any]:
    """The distinct values of a column, sorted by node-seconds of their jobs, largest first."""
    values, code = np.unique(jobs[name], return_inverse=True)
    volume = np.bincount(code, jobs["nodes"] * jobs["runtime_s"])
    ranked: npt.NDArray[Any] = values[np.argsort(-volume, kind="stable")]
    return ranked
