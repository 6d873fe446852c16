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
LEAST_JOBS = 100
"""Minimum number of jobs of a log."""
MODELLED = "user account queue gpus nodes estimate_s runtime_s status energy_j".split()
"""Columns that are generated where a log has them; others are left out of samples."""
NUMBERED = ("user", "account")
"""Columns that identify people; samples have new numbers for them."""
KEPT_META = ("max_procs", "max_nodes", "unix_start_s", "time_zone")
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
    """Those of `MODELLED` that the log has."""
    most_over_s: float
    """The longest overrun of a request, seconds; 0 where there is none."""
    exact_requests: bool
    """Every request equals the run time: the log has no requests, and neither have samples."""
    longest_s: float
    """The longest run time."""
    labels: Mapping[str, tuple[str, ...]]
    meta: Mapping[str, Any]
    seen: Mapping[str, npt.NDArray[Any]] = field(repr=False)
    """The distinct values of each column but run time and energy; of users and accounts only where names are kept,
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


def log_schema(jobs: JobTable, *, names: bool = False) -> LogSchema:
    """The schema of a log; an error if it is too small or too short to learn from.

    Args:
        jobs: the log.
        names: keep the numbers and names of users and accounts. Otherwise they are dropped here.
    """
    if len(jobs) < LEAST_JOBS:
        raise InputError(
            f"{len(jobs)} jobs are too few to learn a workload from; at least {LEAST_JOBS} are needed. "
            "kilowait has models that need no log: lublin:JOBS:NODES"
        )
    submit, runtime, request = jobs["submit_s"], jobs["runtime_s"], jobs["estimate_s"]
    if not np.ptp(submit) > 0:
        raise InputError(
            f"all {len(jobs):,} jobs are submitted at {submit[0]:g} s, so arrival times cannot "
            "be learned; give a log with submission times"
        )
    columns = tuple(name for name in MODELLED if name in jobs)
    seen = {
        name: _by_node_seconds(jobs, name) if name in NUMBERED else np.unique(jobs[name])
        for name in columns
        if name not in ("runtime_s", "energy_j") and (names or name not in NUMBERED)
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
            name: tuple(words)
            for name, words in jobs.labels.items()
            if name in columns and (names or name not in NUMBERED)
        },
        meta={name: jobs.meta[name] for name in KEPT_META if jobs.meta.get(name) is not None},
        seen=seen,
        numbered={name: len(np.unique(jobs[name])) for name in NUMBERED if name in columns},
    )


def rows_of(jobs: JobTable, facts: LogSchema) -> Columns:
    """The modelled columns and `submit_s`, in order of submission; users and accounts by rank, 0 for the largest."""
    ordered = jobs.sorted()
    rows: Columns = {name: ordered[name] for name in ("submit_s", *facts.columns)}
    for name in facts.numbered:
        values = _by_node_seconds(jobs, name)
        by_number = np.argsort(values)
        rows[name] = by_number[np.searchsorted(values, rows[name], sorter=by_number)]
    return rows


def _by_node_seconds(jobs: JobTable, name: str) -> npt.NDArray[Any]:
    """The distinct values of a column, sorted by node-seconds of their jobs, largest first."""
    values, place = np.unique(jobs[name], return_inverse=True)
    volume = np.bincount(place, jobs["nodes"] * jobs["runtime_s"])
    ranked: npt.NDArray[Any] = values[np.argsort(-volume, kind="stable")]
    return ranked
