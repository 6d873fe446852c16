"""Cleaning report: the numbers of rows dropped or corrected, and the reasons; summary statistics of a log."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kilowait.cluster.cluster import machine_of_trace, peak_use
from kilowait.errors import InputError, TraceError
from kilowait.jobs import JobTable
from kilowait.traces.log_checks import findings

CleaningKind = Literal["dropped", "corrected", "note"]


@dataclass(frozen=True, slots=True)
class Detected:
    """The format of a file, and what decided for it."""

    format: str
    """A name in `kilowait.traces.FORMATS`."""
    reason: str


@dataclass(slots=True)
class CleaningEntry:
    """One line of the cleaning report."""

    kind: CleaningKind
    reason: str
    count: int
    """Number of rows; 0 for a note on the whole file."""
    first_line: int | None
    """Line of the first such row in the file, from 1 (row, for Parquet); None: the whole file."""

    def __str__(self) -> str:
        rows = f" {self.count:,}" if self.count else ""
        where = "" if self.first_line is None else f" (first: line {self.first_line:,})"
        return f"{self.kind}{rows}: {self.reason}{where}"


@dataclass(slots=True)
class CleaningReport:
    """Rows of one file that were dropped, corrected or noted; ``rows_read == jobs + dropped + folded`` always.

    >>> report = CleaningReport(rows_read=3, jobs=2)
    >>> report.add("dropped", "never ran", 1, 7)
    >>> report.lines()
    ['3 rows read, 2 jobs, 1 dropped', 'dropped 1: never ran (first: line 7)']
    """

    rows_read: int = 0
    """Records in the file: data lines, or records of several physical lines."""
    jobs: int = 0
    folded: int = 0
    """Rows that are parts of jobs (Slurm's steps) and were merged into them."""
    entries: list[CleaningEntry] = field(default_factory=list)
    format: str = ""
    """Format the file was read in; "" before that is decided."""
    format_reason: str = ""
    """What decided for the format."""

    @property
    def dropped(self) -> int:
        """Number of rows that did not become jobs."""
        return sum(entry.count for entry in self.entries if entry.kind == "dropped")

    @property
    def corrected(self) -> int:
        """Number of corrections; a row may have several."""
        return sum(entry.count for entry in self.entries if entry.kind == "corrected")

    def decide(self, detected: Detected) -> None:
        """Set the format and what decided for it."""
        self.format, self.format_reason = detected.format, detected.reason

    def add(self, kind: CleaningKind, reason: str, count: int = 0, first_line: int | None = None) -> None:
        """Add an entry; counts of the same kind and reason are summed."""
        for entry in self.entries:
            if entry.kind == kind and entry.reason == reason:
                entry.count += count
                return
        self.entries.append(CleaningEntry(kind, reason, int(count), None if first_line is None else int(first_line)))

    def add_rows(
        self, kind: CleaningKind, reason: str, rows: npt.NDArray[np.bool_], line: npt.NDArray[np.int64]
    ) -> None:
        """Add an entry for these rows, if there are any; `line` is the line of every row in the file.

        >>> report = CleaningReport()
        >>> report.add_rows("note", "a remark", np.array([False, True, True]), np.array([2, 3, 5]))
        >>> report.lines()[1]
        'note 2: a remark (first: line 3)'
        """
        if rows.any():
            self.add(kind, reason, int(rows.sum()), int(line[int(rows.argmax())]))

    def lines(self) -> list[str]:
        """The report as text lines."""
        parts = [f"{self.rows_read:,} rows read", f"{self.jobs:,} jobs"]
        parts += [f"{self.dropped:,} dropped"] if self.dropped else []
        parts += [f"{self.corrected:,} corrected"] if self.corrected else []
        parts += [f"{self.folded:,} folded into their jobs"] if self.folded else []
        order = {"dropped": 0, "corrected": 1, "note": 2}
        return [", ".join(parts), *(str(e) for e in sorted(self.entries, key=lambda e: order[e.kind]))]

    def check(self, source: str) -> None:
        """Raise a TraceError if a row was dropped or corrected; used for ``strict=True``."""
        rejected = [str(entry) for entry in self.entries if entry.kind != "note"]
        if rejected:
            raise TraceError(
                f"{source} is not clean, and strict reading is on: {'; '.join(rejected)}. "
                "Read it without strict to use the remaining rows"
            )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "rows_read": self.rows_read,
            "jobs": self.jobs,
            "folded": self.folded,
            "entries": [
                {"kind": e.kind, "reason": e.reason, "count": e.count, "first_line": e.first_line} for e in self.entries
            ],
            **({"format": self.format, "format_reason": self.format_reason} if self.format else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CleaningReport:
        """The inverse of `to_dict`."""
        return cls(
            data["rows_read"],
            data["jobs"],
            data["folded"],
            [CleaningEntry(**row) for row in data["entries"]],
            data.get("format", ""),
            data.get("format_reason", ""),
        )


def describe(jobs: JobTable, report: CleaningReport | None = None, *, size: int | None = None) -> dict[str, Any]:
    """Summary statistics of a log: counts, span, sizes, times, users, quality of estimates, findings, cleaning report.

    Sizes of jobs and of the machine are in the `unit` of the jobs. `findings` are texts about values that are probably
    wrong or make a simulation of the log meaningless (`kilowait.traces.log_checks`).

    `size` is the size of the machine in the unit of the jobs, for the offered load (requested node-seconds / available
    node-seconds between the first and the last submission); the default is the size in the log's header.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 100], runtime_s=[50, 50], estimate_s=[50, 60], nodes=[2, 4])
    >>> description = describe(jobs, size=4)
    >>> description["findings"]
    []
    >>> (description["jobs"], description["span_s"], description["offered_load"], description["perfect_estimates"])
    (2, 100.0, 0.75, 0.5)
    """
    if size is not None and size < 1:
        raise InputError(f"a machine of {size} {jobs.unit}s; give at least 1")
    if report is None and "ledger" in jobs.meta:
        report = CleaningReport.from_dict(jobs.meta["ledger"])
    source = "given"
    machine = None
    if size is None and len(jobs) and jobs.meta.get("workload") != "gpu":  # whose cluster may be a file
        machine, source = machine_of_trace(jobs)
        size = jobs.machine_size
    description: dict[str, Any] = {
        "format": jobs.meta.get("format"),
        "source": jobs.meta.get("source"),
        "jobs": len(jobs),
        "columns": list(jobs.columns),
        "unit": jobs.unit,
        "machine_size": size,
        "machine": None if machine is None else machine.size_text,
        "machine_source": source if len(jobs) else None,
    }
    if len(jobs):
        submit, runtime, estimate = jobs["submit_s"], jobs["runtime_s"], jobs["estimate_s"]
        span = float(submit.max() - submit.min())
        work = math.fsum(runtime * jobs.size)  # exact; the threads of np.dot change its last digit
        description |= {
            "first_submit_s": float(submit.min()),
            "last_submit_s": float(submit.max()),
            "span_s": span,
            f"{jobs.unit}_seconds": work,
            "offered_load": work / (span * size) if size and span > 0 else None,
            "size": _quantiles(jobs.size),
            "peak_use": peak_use(jobs),
            "runtime_s": _quantiles(runtime),
            "estimate_s": _quantiles(estimate),
            "wait_s": _quantiles(jobs["wait_s"]) if "wait_s" in jobs else None,
            "larger_than_machine": int((jobs.size > size).sum()) if size else None,
            "zero_runtimes": int((runtime == 0).sum()),
            "perfect_estimates": float((estimate == runtime).mean()),
            "overrun_estimates": float((runtime > estimate).mean()),
        }
        for name in ("user", "account", "queue", "qos"):
            known = jobs[name][jobs[name] >= 0] if name in jobs else np.empty(0)
            description[f"{name}s" if name != "qos" else "qos"] = len(np.unique(known))
        if "status" in jobs:
            codes, counts = np.unique(jobs["status"], return_counts=True)
            description["status"] = {int(code): int(count) for code, count in zip(codes, counts, strict=True)}
        description["findings"] = findings(jobs, size)
    description["ledger"] = None if report is None else report.to_dict()
    return description


def _quantiles(values: Any) -> dict[str, float]:
    known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if not len(known):
        return {}
    marks = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99, "max": 1.0}
    quantiles = np.quantile(known, list(marks.values()))
    return {**{name: float(v) for name, v in zip(marks, quantiles, strict=True)}, "mean": float(known.mean())}
