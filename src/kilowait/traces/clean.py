"""Cleaning rules of all trace readers: which rows are dropped or corrected, each with an entry in the cleaning report.

Every reader fills a `RawColumns` with the values of its format and calls `build_table`, so each rule exists once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS
from kilowait.jobs.table import table_of_new_arrays
from kilowait.traces.cell_parser import CodedNames
from kilowait.traces.cleaning_report import CleaningKind, CleaningReport

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
NeverRan = Literal["drop", "keep"]

LONGEST_S = 1e10
"""A longer run time, wait or limit (317 years) is invalid."""
LATEST_S = 1e12
"""A larger time of the log is invalid."""
MOST = 1e12
"""A larger count of cores or GPUs, or of megabytes, is invalid."""
LARGEST_SIZE = 1e9
"""A larger number of nodes or processors of a job is invalid."""
_EXACT_MB = 2.0**53 / 1e6
"""From here on a float cannot hold a number of whole bytes."""

_LIMIT = {"runtime_s": LONGEST_S, "estimate_s": LONGEST_S, "wait_s": LONGEST_S, "think_s": LONGEST_S}
_LIMIT |= {"planned_s": LONGEST_S, "limit_s": LONGEST_S, "overrun_planned_s": LONGEST_S}
_LIMIT |= {"nodes": LARGEST_SIZE, "cores": MOST, "gpus": MOST, "memory_mb": MOST, "energy_j": 1e15, "status": 127}
_LIMIT |= {"cpu_milli": 1000 * MOST, "gpu_milli": 1000, "gpus_may_span_nodes": 1, "priority": 1e15}
_LIMIT |= {"checkpoint_s": LONGEST_S, "checkpoint_load_s": LONGEST_S, "slack_s": LONGEST_S}
_LIMIT |= {"power_w": MOST, "predicted_power_w": MOST}
_LIMIT |= dict.fromkeys(("expected_inverse_runtime", "beta", "cpu_utilization", "gpu_utilization"), 1)
_OPTIONAL = (
    "planned_s limit_s overrun_planned_s cores memory_mb gpus status wait_s energy_j begin_s cancel_s cpu_milli "
    "gpu_milli gpus_may_span_nodes priority checkpoint_s checkpoint_load_s expected_inverse_runtime power_w "
    "predicted_power_w beta cpu_utilization gpu_utilization slack_s hold_until_s"
).split()
_WHOLE = frozenset(name for name in ("nodes", *_OPTIONAL) if issubclass(COLUMNS[name].dtype, np.integer))
_LEAST = {"gpu_milli": 1, "priority": -1e15}


@dataclass
class RawColumns:
    """Rows as read from the file, before cleaning: one array per column, NaN for unknown values."""

    line: npt.NDArray[np.int64]
    """Line (or record) of each row in the file."""
    numbers: dict[str, Floats]
    """Numeric columns by kilowait's names; `job_id` and `after_id` are floats here, NaN if unknown."""
    words: dict[str, CodedNames] = field(default_factory=dict)
    """The labelled columns: codes with -1 for unknown, and their names."""
    never_ran: dict[str, Flags] = field(default_factory=dict)
    """Jobs that never ran, by reason."""
    invalid: dict[str, Flags] = field(default_factory=dict)
    """Rows that are not valid jobs, by format-specific reason."""
    correct_submit: bool = False
    """Whether an unknown submission time is replaced by that of the previous row; else the row is dropped."""
    unit: str = "node"
    """What the log counts, as `JobTable.unit`."""
    whole_bytes: bool = True
    """Whether memory is rounded to whole bytes, so that a conversion of units and back gives the same number."""

    def __len__(self) -> int:
        return len(self.line)

    def get(self, name: str) -> Floats:
        """The column, or all NaN if it is missing."""
        return self.numbers[name] if name in self.numbers else np.full(len(self), np.nan)

    def take(self, name: str) -> Floats:
        """Like `get`; the column is removed, so that a large log does not exist twice."""
        return self.numbers.pop(name) if name in self.numbers else np.full(len(self), np.nan)

    def keep(self, rows: Flags) -> None:
        """Keep only these rows; one column after the other, so that a large log does not exist twice."""
        self.line = self.line[rows]
        for name, numbers in self.numbers.items():
            self.numbers[name] = numbers[rows]
        for flags in (self.never_ran, self.invalid):
            for reason, marked in flags.items():
                flags[reason] = marked[rows]
        for name, (codes, names) in self.words.items():
            self.words[name] = (codes[rows], names)


class _RowReport:
    """Adds masks of rows to the cleaning report, counting only rows that are not yet dropped."""

    def __init__(self, draft: RawColumns, report: CleaningReport) -> None:
        self.line, self.report = draft.line, report
        self.alive: Flags = np.ones(len(draft), np.bool_)

    def drop(self, reason: str, rows: Flags) -> None:
        self._add("dropped", reason, rows)
        self.alive &= ~rows

    def correct(self, reason: str, rows: Flags) -> None:
        self._add("corrected", reason, rows)

    def note(self, reason: str, rows: Flags) -> None:
        self._add("note", reason, rows)

    def _add(self, kind: CleaningKind, reason: str, rows: Flags) -> None:
        self.report.add_rows(kind, reason, rows & self.alive, self.line)


def build_table(
    draft: RawColumns, report: CleaningReport, *, never_ran: NeverRan, source: str, meta: dict[str, Any]
) -> JobTable:
    """Apply the cleaning rules and build the table, sorted by (submit_s, job_id). Uses up the columns of `draft`."""
    if never_ran not in ("drop", "keep"):
        raise UnknownNameError("value of never_ran", str(never_ran), ("drop", "keep"))
    rows_report = _RowReport(draft, report)
    for reason, rows in draft.invalid.items():
        rows_report.drop(reason, rows)
    if never_ran == "drop":
        for reason, rows in draft.never_ran.items():
            rows_report.drop(f"never ran: {reason}", rows)
    submit = _submissions(draft, rows_report)
    columns: dict[str, Any] = {"submit_s": submit}
    if never_ran == "keep":
        _keep_unrun(draft, rows_report, submit)
    del submit
    columns["runtime_s"] = _needed(draft, rows_report, "runtime_s", "run time", least=0)
    columns["nodes"] = _needed(draft, rows_report, "nodes", "number of nodes", least=1, whole=True)
    columns["estimate_s"] = _estimates(draft, rows_report, columns["runtime_s"])
    for name in _OPTIONAL:
        values = _optional(draft, rows_report, name)
        if values is not None:
            columns[name] = values
        del values
    _whole_gpus(columns, rows_report)
    if not rows_report.alive.any():
        reasons = "; ".join(report.lines()[1:4]) or "it has no rows"
        raise TraceError(f"no job in {source} can be used: {reasons}")

    kept_rows, ids = _sorted_rows(draft, rows_report, columns["submit_s"])
    for name, values in columns.items():  # one by one, so that the columns of a large log do not exist twice
        columns[name] = values[kept_rows].astype(np.int64 if name in _WHOLE else values.dtype, copy=False)
    columns["job_id"] = ids
    columns |= _dependencies(draft, rows_report, kept_rows, ids)
    labels: dict[str, tuple[str, ...]] = {}
    for name in list(draft.words):
        codes, names = draft.words.pop(name)
        assert name in LABEL_COLUMNS
        codes = codes[kept_rows]
        if (codes >= 0).any():
            columns[name] = codes
            if names is not None:
                labels[name] = names
    report.jobs = len(kept_rows)
    unit = {} if draft.unit == "node" else {"unit": draft.unit}
    return table_of_new_arrays(columns, labels=labels, meta={**meta, **unit, "ledger": report.to_dict()})


def _sorted_rows(
    draft: RawColumns, rows_report: _RowReport, submit: Floats
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows that are kept, by (submit_s, job_id), and their job numbers."""
    kept_rows = np.flatnonzero(rows_report.alive)
    submit = submit[kept_rows]
    ids = _ids(draft, rows_report, kept_rows)
    backward = np.zeros(len(draft), np.bool_)
    backward[kept_rows[1:]] = np.diff(submit) < 0
    if backward.any():
        rows_report.correct("rows not in submit order: sorted", backward)
    order = np.lexsort((ids, submit))
    return kept_rows[order], ids[order]


def _submissions(draft: RawColumns, rows_report: _RowReport) -> Floats:
    submit = draft.take("submit_s")
    rows_report.drop(
        f"submit time beyond {LATEST_S:g} s or not a number", np.isinf(submit) | (np.abs(submit) > LATEST_S)
    )
    if not rows_report.alive.all():
        submit = np.where(rows_report.alive, submit, np.nan)
    unknown = np.isnan(submit)
    if draft.correct_submit and unknown.any() and not unknown.all():
        last = np.maximum.accumulate(np.where(unknown, -1, np.arange(len(submit))))
        last[last < 0] = int(np.argmin(unknown))
        rows_report.correct("submit time unknown: replaced by that of the previous row", unknown)
        submit = submit[last]
    else:
        rows_report.drop("submit time unknown", unknown)
    return submit


def _keep_unrun(draft: RawColumns, rows_report: _RowReport, submit: Floats) -> None:
    """Set run time 0 for jobs that never ran, and their cancellation time: after the wait in the log."""
    wait, cancel, runtime = (draft.get(name).copy() for name in ("wait_s", "cancel_s", "runtime_s"))
    wait[~((wait >= 0) & (wait <= LONGEST_S))] = 0.0
    sized = draft.get("nodes") >= 1
    for reason, rows in draft.never_ran.items():
        rows_report.drop(f"never ran: {reason}; number of nodes unknown", rows & ~sized)
        rows_report.note(f"never ran: {reason}; kept with run time 0 and cancelled after its wait", rows)
        unknown = rows & np.isnan(cancel)
        cancel[unknown] = (submit + wait)[unknown]
        runtime[rows] = 0.0
    draft.numbers |= {"cancel_s": cancel, "runtime_s": runtime}


def _needed(
    draft: RawColumns, rows_report: _RowReport, name: str, label: str, *, least: int, whole: bool = False
) -> Floats:
    values = draft.take(name)
    rows_report.drop(f"{label} unknown", np.isnan(values))
    rows_report.drop(f"{label} below {least}", values < least)
    rows_report.drop(f"{label} above {_LIMIT[name]:g}: invalid", values > _LIMIT[name])
    if whole:
        rows_report.drop(f"{label} is not a whole number", values != np.floor(values))
    return values


def _estimates(draft: RawColumns, rows_report: _RowReport, runtime: Floats) -> Floats:
    estimate = draft.take("estimate_s")
    broken = (estimate < 0) | (estimate > LONGEST_S)
    rows_report.correct("estimate negative or invalid: treated as unknown", broken)
    unknown = np.isnan(estimate) | broken
    reason = "estimate unknown: replaced by the run time, a perfect estimate"
    if (unknown | ~rows_report.alive).all():
        rows_report.note(f"{reason} (the log has none)", unknown)
    else:
        rows_report.correct(reason, unknown)
    return np.where(unknown, runtime, estimate) if unknown.any() else estimate


def _optional(draft: RawColumns, rows_report: _RowReport, name: str) -> Floats | None:
    """An optional column; None if no row has a value."""
    if name not in draft.numbers:
        return None
    values = draft.take(name)
    is_time = name in ("begin_s", "cancel_s", "hold_until_s")
    if name == "memory_mb" and draft.whole_bytes:
        values = np.where(np.abs(values) < _EXACT_MB, np.round(values, 6), values)
    broken = np.abs(values) > LATEST_S if is_time else (values < _LEAST.get(name, 0)) | (values > _LIMIT[name])
    if name in ("status", "cpu_milli"):
        broken &= values != -1
    if is_time or name == "checkpoint_s":
        broken &= ~np.isinf(values)
    if name in _WHOLE:
        broken |= np.isfinite(values) & (values != np.floor(values))
    rows_report.correct(f"{name} negative or invalid: treated as unknown", broken)
    if broken.any():
        values = np.where(broken, np.nan, values)
    unknown = np.isnan(values)
    if (unknown | ~rows_report.alive).all():
        return None
    missing = COLUMNS[name].missing
    if missing is None:  # These columns have no value for unknown.
        rows_report.note(f"{name} unknown: set to 0", unknown)
    return np.where(unknown, missing or 0.0, values) if unknown.any() else values


def _whole_gpus(columns: dict[str, Any], rows_report: _RowReport) -> None:
    """Fractional GPUs are allowed only for jobs with exactly one GPU."""
    if "gpu_milli" in columns:
        fractional = (columns["gpu_milli"] < 1000) & (columns.get("gpus", 0.0) != 1)
        rows_report.correct("fractional GPU requested with other than 1 GPU: whole GPUs used", fractional)
        columns["gpu_milli"] = np.where(fractional, 1000.0, columns["gpu_milli"])


def _ids(draft: RawColumns, rows_report: _RowReport, kept_rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The log's job numbers if they are whole and unique; else new numbers after the largest."""
    numbers = draft.take("job_id")[kept_rows]
    if np.isnan(numbers).all():
        rows_report.report.add("note", "the log has no job numbers: numbered from 1 in the file's order")
        return np.arange(1, len(kept_rows) + 1)
    fine = (np.abs(numbers) < 2.0**53) & (numbers == np.floor(numbers))
    ids = np.where(fine, numbers, 0).astype(np.int64)
    _, first = np.unique(ids[fine], return_index=True)
    single = np.zeros(len(kept_rows), np.bool_)
    single[np.flatnonzero(fine)[first]] = True
    for reason, rows in (
        ("job number missing or not a whole number: renumbered", ~fine),
        ("duplicate job number: renumbered", fine & ~single),
    ):
        marked = np.zeros(len(draft), np.bool_)
        marked[kept_rows[rows]] = True
        rows_report.correct(reason, marked)
    top = int(ids[single].max()) if single.any() else 0
    ids[~single] = top + 1 + np.arange(int((~single).sum()))
    return ids


def _dependencies(
    draft: RawColumns, rows_report: _RowReport, kept_rows: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[Any]]:
    """Valid after_id and think_s: dependencies on earlier jobs only, so that there are no cycles."""
    if "after_id" not in draft.numbers:
        return {}
    after = draft.get("after_id")[kept_rows]
    has_dependency = after >= 0
    if not has_dependency.any():
        return {}
    marked = np.zeros(len(draft), np.bool_)
    marked[kept_rows[has_dependency]] = True
    if has_dependency.all() and len(after) > 1 and (after == after[0]).all():
        rows_report.correct("all jobs depend on the same job: dependencies left out", marked)
        return {}
    by_id = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids[by_id], np.where(has_dependency, after, 0)), len(ids) - 1)
    target = by_id[place]
    sound = has_dependency & (ids[target] == after) & (target < np.arange(len(ids)))
    marked[:] = False
    marked[kept_rows[has_dependency & ~sound]] = True
    rows_report.correct("preceding job not in the table or not an earlier one: dependency left out", marked)
    if not sound.any():
        return {}
    think = draft.get("think_s")[kept_rows]
    usable = sound & (think >= 0) & (think <= LONGEST_S)
    columns: dict[str, npt.NDArray[Any]] = {"after_id": np.where(sound, after, -1).astype(np.int64)}
    if usable.any():
        columns["think_s"] = np.where(usable, think, 0.0)
    return columns
