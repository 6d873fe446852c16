"""Simulation result: ExecutionLog with one row per execution segment, and per-job records derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import UnknownNameError
from kilowait.jobs import conversion
from kilowait.jobs.columns import ColumnArray, NamedColumns
from kilowait.jobs.table import JobTable
from kilowait.series import Floats, Ints


class Outcome(IntEnum):
    """Outcome of a segment or job."""

    UNSTARTED = 0
    """Still waiting at the end of the simulation."""
    COMPLETED = 1
    """Ran for its whole run time."""
    KILLED = 2
    """Stopped at its limit with at_limit="kill"."""
    CANCELLED = 3
    """Cancelled while waiting."""
    REJECTED = 4
    """Larger than the cluster, and never queued; or the reservation of its queue ended before it could start."""
    PREEMPTED = 5
    """Of a segment: its job was preempted."""
    MIGRATED = 6
    """Of a segment: its job migrated to other nodes."""


@dataclass(frozen=True, eq=False)
class NodeStates:
    """Number of nodes shutting down, asleep or waking over time: one row per change of a group.

    Row i holds for its group from ``time_s[i]`` until the group's next row; before the first row all numbers are 0.
    Nodes allocated to a job and still waking are included.
    """

    time_s: Floats
    group: npt.NDArray[np.int16]
    shutting_down: Ints
    asleep: Ints
    waking: Ints

    def __len__(self) -> int:
        return len(self.time_s)


def node_states(time_s: Floats, group: Ints, shutting_down: Ints, asleep: Ints, waking: Ints) -> NodeStates:
    """Build NodeStates from changes sorted by (group, time); changes of one instant are merged, empty ones dropped."""
    if not len(time_s):
        empty = np.zeros(0, np.int64)
        return NodeStates(np.zeros(0), empty.astype(np.int16), empty, empty, empty)
    last = np.append((group[1:] != group[:-1]) | (time_s[1:] != time_s[:-1]), True)
    ends = np.flatnonzero(last)
    before = np.searchsorted(group[ends], group[ends], side="left")  # the group's first row

    def counts(change: Ints) -> Ints:
        total = np.cumsum(change)[ends]
        base = np.concatenate(([0], total))[before]
        return total - base

    columns = [counts(change) for change in (shutting_down, asleep, waking)]
    group_of_end = group[ends]
    same_group = np.append(False, group_of_end[1:] == group_of_end[:-1])
    changed = np.zeros(len(ends), bool)
    for column in columns:
        previous = np.where(same_group, np.append(0, column[:-1]), 0)
        changed |= column != previous
    order = np.lexsort((group_of_end[changed], time_s[ends][changed]))
    kept = np.flatnonzero(changed)[order]
    return NodeStates(time_s[ends][kept], group_of_end[kept].astype(np.int16), *(column[kept] for column in columns))


@dataclass(frozen=True, eq=False)
class Allocations:
    """Nodes and GPUs of segments on node-level clusters: one row per segment and node."""

    segment: Ints
    """Row of the execution log."""
    node: Ints
    gpus: Ints
    """Allocated GPUs of the node, as bits."""
    gpu_milli: Ints
    """Allocated thousandths of GPUs, summed over GPUs."""
    count: Ints
    """Number of pieces of the job on the node."""
    work_s: Floats
    """Per segment: work done in it, seconds at speed 1."""
    lost_s: Floats
    """Per segment: work lost at its end (since the last checkpoint), seconds at speed 1."""
    node_group: Ints
    """Per node: number of its group."""

    def __len__(self) -> int:
        return len(self.segment)


@dataclass(frozen=True, eq=False)
class ExecutionLog:
    """Result of a simulation: execution segments in the order of allocation (with node sleep not always the order of
    starts). A job that never started has no segment.

    `run` records the settings (policy, backfill, at_limit, ...); `capacity_s` and `capacity` are the available
    size of the machine over time, in the log's `unit`.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[3, 2])
    >>> log = kw.simulate(jobs, kw.Cluster.from_nodes(4))
    >>> log.start_s.tolist(), log.jobs()["wait_s"].tolist()
    ([0.0, 60.0], [0.0, 59.0])
    """

    jobs_table: JobTable
    job: Ints
    """Row of `jobs_table`."""
    start_s: Floats
    end_s: Floats
    group: npt.NDArray[np.int16]
    """Number of the node group."""
    level: npt.NDArray[np.int16]
    """DVFS level; 0 is full speed."""
    outcome: npt.NDArray[np.int8]
    """`Outcome` of the segment."""
    eligible_s: Floats
    """Per row of `jobs_table`: when the job joined the queue (NaN: never)."""
    job_outcome: npt.NDArray[np.int8]
    """Per row of `jobs_table`: `Outcome` of the job."""
    capacity_s: Floats
    capacity: Ints
    groups: tuple[str, ...] = ("nodes",)
    run: Mapping[str, Any] = field(default_factory=dict)
    states: NodeStates | None = None
    """States of sleeping nodes; None without node sleep."""
    pieces: Allocations | None = None
    """Node-level allocations; None for clusters without node-level groups."""

    def __len__(self) -> int:
        return len(self.job)

    def __repr__(self) -> str:
        what = ", ".join(f"{key}={value}" for key, value in self.run.items())
        return f"ExecutionLog({len(self):,} segments of {len(self.jobs_table):,} jobs; {what})"

    @property
    def unit(self) -> str:
        """What jobs are allocated and `capacity` counts: ``"node"``, ``"core"`` or ``"processor"``."""
        return self.jobs_table.unit

    @property
    def size(self) -> Ints:
        """Per row of `jobs_table`: what the job is allocated, in units of `unit`."""
        return self.jobs_table.size

    def jobs(self) -> JobRecords:
        """The per-job record, in the job table's order."""
        return self._records

    @cached_property
    def _records(self) -> JobRecords:
        table = self.jobs_table
        n = len(table)
        start = np.full(n, np.nan)
        end = np.full(n, np.nan)
        group = np.full(n, -1, np.int16)
        # Segments are in start order: writing backwards leaves each job's first start.
        start[self.job[::-1]] = self.start_s[::-1]
        end[self.job] = self.end_s
        group[self.job] = self.group
        run, wait = end - start, start - self.eligible_s
        if self.pieces is not None:  # a job may have run in several segments
            run = np.bincount(self.job, self.end_s - self.start_s, n).astype(np.float64)
            run[np.isnan(start)] = np.nan
            again = np.bincount(self.job, minlength=n) > 1
            # Sums of many segments have rounding errors; wait times are not negative.
            wait[again] = np.maximum(end - self.eligible_s - run, 0.0)[again]
        return JobRecords(
            {
                "job_id": table["job_id"],
                "submit_s": table["submit_s"],
                "eligible_s": self.eligible_s,
                "start_s": start,
                "end_s": end,
                "wait_s": wait,
                "turnaround_s": end - self.eligible_s,
                "run_s": run,
                "nodes": table["nodes"],
                **({} if table.unit == "node" else {"cores": table.size}),
                "group": group,
                "outcome": self.job_outcome,
            }
        )

    def to_arrow(self) -> Any:
        """The segments as a pyarrow.Table with job ids."""
        import pyarrow as pa

        return pa.table(
            {
                "job_id": self.jobs_table["job_id"][self.job],
                "start_s": self.start_s,
                "end_s": self.end_s,
                "group": self.group,
                "level": self.level,
                "outcome": self.outcome,
            }
        )

    def to_parquet(self, path: Any) -> None:
        """Write the segments to a Parquet file."""
        import pyarrow.parquet as pq

        pq.write_table(self.to_arrow(), path, write_page_checksum=True)


class JobRecords(NamedColumns):
    """Per-job results as columns, in the job table's order; NaN where a job never started.

    `start_s` is the first start, `end_s` the last end. The `wait_s` of a preempted job includes all time
    in which it did not run.

    ``records["wait_s"]`` is a numpy array, and ``"wait_s" in records`` is true for the name of a column, as in a
    `JobTable`; `to_pandas`, `to_arrow` and `to_parquet` convert all columns.

    >>> records = JobRecords({"job_id": np.array([1, 2]), "wait_s": np.array([0.0, 5.0])})
    >>> "wait_s" in records, "power_w" in records, len(records)
    (True, False, 2)
    """

    __slots__ = ()

    def __init__(self, columns: dict[str, ColumnArray]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> ColumnArray:
        if not isinstance(name, str):  # so that nobody takes these columns for rows
            raise TypeError(f"records[{name!r}] is no column; write records['wait_s'][{name!r}] for a job's value")
        try:
            return self._columns[name]
        except KeyError:
            raise UnknownNameError("job record column", name, self._columns) from None

    def to_arrow(self) -> Any:
        """A pyarrow.Table."""
        import pyarrow as pa

        return pa.table(self._columns)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame."""
        return conversion.as_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """A polars.DataFrame."""
        return conversion.as_polars(self.to_arrow())

    def to_parquet(self, path: Any) -> None:
        """Write a Parquet file."""
        import pyarrow.parquet as pq

        pq.write_table(self.to_arrow(), path, write_page_checksum=True)
