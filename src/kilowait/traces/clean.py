"""The rules by which a row becomes a job: what is dropped, what is mended, always with a line in the ledger.

Every reader fills a `Draft` with what its format says and calls `finish`; so a rule stands once, here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABELLED
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.parse import Words

__all__ = ["LONGEST_S", "RawColumns", "NeverRan", "build_table"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
NeverRan = Literal["drop", "keep"]

LONGEST_S = 1e10
"""A run time, wait or limit longer than this (317 years) is a broken number."""
LATEST_S = 1e12
"""So is a time on the log's clock beyond this."""
MOST = 1e12
"""And a count of nodes, cores or GPUs, or megabytes, beyond this."""

_LIMIT = {"runtime_s": LONGEST_S, "estimate_s": LONGEST_S, "wait_s": LONGEST_S, "think_s": LONGEST_S}
_LIMIT |= {"planned_s": LONGEST_S, "limit_s": LONGEST_S, "overrun_planned_s": LONGEST_S}
_LIMIT |= {"nodes": 1e9, "cores": MOST, "gpus": MOST, "memory_mb": MOST, "energy_j": 1e15, "status": 127}
_LIMIT |= {"cpu_milli": 1000 * MOST, "gpu_milli": 1000, "gpus_may_span_nodes": 1, "priority": 1e15}
_LIMIT |= {"checkpoint_s": LONGEST_S, "checkpoint_load_s": LONGEST_S}
_OPTIONAL: tuple[str, ...] = (
    "planned_s",
    "limit_s",
    "overrun_planned_s",
    "cores",
    "memory_mb",
    "gpus",
    "status",
    "wait_s",
    "energy_j",
    "begin_s",
    "cancel_s",
)
_OPTIONAL += (
    "cpu_milli",
    "gpu_milli",
    "gpus_may_span_nodes",
    "priority",
    "checkpoint_s",
    "checkpoint_load_s",
)
_WHOLE = ("nodes", "cores", "gpus", "status", "cpu_milli", "gpu_milli", "gpus_may_span_nodes")
_LEAST = {"gpu_milli": 1, "priority": -1e15}
_MISSING = {"status": -1.0, "begin_s": -np.inf, "cancel_s": np.inf}
_MISSING |= {"cpu_milli": -1.0, "gpu_milli": 1000.0, "gpus_may_span_nodes": 0.0, "priority": 0.0}


@dataclass
class RawColumns:
    """Rows as a reader found them: one array per column, NaN where the log does not say."""

    line: npt.NDArray[np.int64]
    """Line (or record) of each row in the file."""
    numbers: dict[str, Floats]
    """Columns of kilowait's names; `job_id` and `after_id` are floats here, NaN where unknown."""
    words: dict[str, Words] = field(default_factory=dict)
    """The labelled columns: numbers with -1 for unknown, and the names behind them."""
    never: dict[str, Flags] = field(default_factory=dict)
    """Jobs that never ran, by why."""
    unfit: dict[str, Flags] = field(default_factory=dict)
    """Rows that cannot be jobs for a reason only the format knows."""
    mend_submit: bool = False
    """An unknown submission takes the row before's; else the row is dropped."""

    def __len__(self) -> int:
        return len(self.line)

    def get(self, name: str) -> Floats:
        """The column, or NaN throughout."""
        return self.numbers[name] if name in self.numbers else np.full(len(self), np.nan)


class _Book:
    """The ledger seen from rows: counts those that are still alive."""

    def __init__(self, draft: RawColumns, ledger: CleaningReport) -> None:
        self.line, self.ledger = draft.line, ledger
        self.alive: Flags = np.ones(len(draft), np.bool_)

    def drop(self, reason: str, rows: Flags) -> None:
        self._note("dropped", reason, rows)
        self.alive &= ~rows

    def mend(self, reason: str, rows: Flags) -> None:
        self._note("mended", reason, rows)

    def note(self, reason: str, rows: Flags) -> None:
        self._note("note", reason, rows)

    def _note(self, kind: Literal["dropped", "mended", "note"], reason: str, rows: Flags) -> None:
        rows = rows & self.alive
        count = int(rows.sum())
        if count:
            self.ledger.add(kind, reason, count, int(self.line[int(np.argmax(rows))]))


def build_table(
    draft: RawColumns, ledger: CleaningReport, *, never_ran: NeverRan, source: str, meta: dict[str, Any]
) -> JobTable:
    """Apply the rules and make the table, sorted by (submit_s, job_id)."""
    if never_ran not in ("drop", "keep"):
        raise UnknownNameError("way to treat jobs that never ran", str(never_ran), ("drop", "keep"))
    book = _Book(draft, ledger)
    for reason, rows in draft.unfit.items():
        book.drop(reason, rows)
    if never_ran == "drop":
        for reason, rows in draft.never.items():
            book.drop(f"never ran: {reason}", rows)
    submit = _submissions(draft, book)
    columns: dict[str, Any] = {"submit_s": submit}
    if never_ran == "keep":
        _keep_unrun(draft, book, submit)
    columns["runtime_s"] = _needed(draft, book, "runtime_s", "run time", least=0)
    columns["nodes"] = _needed(draft, book, "nodes", "number of nodes", least=1, whole=True)
    columns["estimate_s"] = _estimates(draft, book, columns["runtime_s"])
    for name in _OPTIONAL:
        found = _optional(draft, book, name)
        if found is not None:
            columns[name] = found
    _whole_gpus(columns, book)
    if not book.alive.any():
        said = "; ".join(ledger.lines()[1:4]) or "it has no rows"
        raise TraceError(f"no job in {source} can be used: {said}")

    kept = np.flatnonzero(book.alive)
    columns = {name: values[kept] for name, values in columns.items()}
    ids = _ids(draft, book, kept)
    backward = np.zeros(len(draft), np.bool_)
    backward[kept[1:]] = np.diff(columns["submit_s"]) < 0
    if backward.any():
        book.mend("rows not in submit order: sorted", backward)
    order = np.lexsort((ids, columns["submit_s"]))
    kept, ids = kept[order], ids[order]
    columns = {name: values[order] for name, values in columns.items()}
    columns["job_id"] = ids
    columns |= _dependencies(draft, book, kept, ids)
    labels: dict[str, tuple[str, ...]] = {}
    for name, (codes, names) in draft.words.items():
        assert name in LABELLED
        if (codes[kept] >= 0).any():
            columns[name] = codes[kept]
            if names is not None:
                labels[name] = names
    for name in _WHOLE:
        if name in columns:
            columns[name] = columns[name].astype(np.int64)
    ledger.jobs = len(kept)
    return JobTable(labels=labels, meta={**meta, "ledger": ledger.to_dict()}, **columns)


def _submissions(draft: RawColumns, book: _Book) -> Floats:
    submit = draft.get("submit_s").copy()
    with np.errstate(invalid="ignore"):
        book.drop(
            f"submit time beyond {LATEST_S:g} s or not a number",
            np.isinf(submit) | (np.abs(submit) > LATEST_S),
        )
    submit[~book.alive] = np.nan
    unknown = np.isnan(submit)
    if draft.mend_submit and unknown.any() and not unknown.all():
        last = np.maximum.accumulate(np.where(unknown, -1, np.arange(len(submit))))
        last[last < 0] = int(np.argmin(unknown))
        book.mend("submit time not known: that of the row before taken", unknown)
        submit = submit[last]
    else:
        book.drop("submit time not known", unknown)
    return submit


def _keep_unrun(draft: RawColumns, book: _Book, submit: Floats) -> None:
    """Give jobs that never ran no run time, and the moment they were withdrawn: after the wait the log tells."""
    wait, cancel, runtime = (draft.get(name).copy() for name in ("wait_s", "cancel_s", "runtime_s"))
    with np.errstate(invalid="ignore"):
        wait[~((wait >= 0) & (wait <= LONGEST_S))] = 0.0
    sized = draft.get("nodes") >= 1
    for reason, rows in draft.never.items():
        book.drop(f"never ran: {reason}; and it does not say on how many nodes", rows & ~sized)
        book.note(f"never ran: {reason}; kept with run time 0 and withdrawn after its wait", rows)
        unsaid = rows & np.isnan(cancel)
        cancel[unsaid] = (submit + wait)[unsaid]
        runtime[rows] = 0.0
    draft.numbers |= {"cancel_s": cancel, "runtime_s": runtime}


def _needed(
    draft: RawColumns, book: _Book, name: str, said: str, *, least: int, whole: bool = False
) -> Floats:
    values = draft.get(name)
    book.drop(f"{said} not known", np.isnan(values))
    with np.errstate(invalid="ignore"):
        book.drop(f"{said} below {least}", values < least)
        book.drop(f"{said} beyond {_LIMIT[name]:g}: a broken number", values > _LIMIT[name])
        if whole:
            book.drop(f"{said} not whole", values != np.floor(values))
    return values


def _estimates(draft: RawColumns, book: _Book, runtime: Floats) -> Floats:
    estimate = draft.get("estimate_s")
    with np.errstate(invalid="ignore"):
        broken = (estimate < 0) | (estimate > LONGEST_S)
    book.mend("estimate negative or broken: taken as not known", broken)
    unknown = np.isnan(estimate) | broken
    said = "estimate not known: the run time taken, that is a perfect one"
    if (unknown | ~book.alive).all():
        book.note(f"{said} (the log has none)", unknown)
    else:
        book.mend(said, unknown)
    return np.where(unknown, runtime, estimate)


def _optional(draft: RawColumns, book: _Book, name: str) -> Floats | None:
    """A column that need not be there; None when no row knows it."""
    if name not in draft.numbers:
        return None
    values = draft.numbers[name]
    clock = name in ("begin_s", "cancel_s")
    with np.errstate(invalid="ignore"):
        broken = (
            np.abs(values) > LATEST_S if clock else (values < _LEAST.get(name, 0)) | (values > _LIMIT[name])
        )
        if name in ("status", "cpu_milli"):
            broken &= values != -1
        if clock:
            broken &= ~np.isinf(values)
        if name in _WHOLE:
            broken |= np.isfinite(values) & (values != np.floor(values))
    book.mend(f"{name} negative or broken: taken as not known", broken)
    values = np.where(broken, np.nan, values)
    unknown = np.isnan(values)
    if (unknown | ~book.alive).all():
        return None
    if name in ("cores", "memory_mb", "gpus"):  # These have no value that means unknown.
        book.note(f"{name} not known: 0 written", unknown)
        return np.where(unknown, 0.0, values)
    return np.where(unknown, _MISSING.get(name, np.nan), values)


def _whole_gpus(columns: dict[str, Any], book: _Book) -> None:
    """Part of a GPU is a part of one GPU."""
    if "gpu_milli" in columns:
        parted = (columns["gpu_milli"] < 1000) & (columns.get("gpus", 0.0) != 1)
        book.mend("part of a GPU asked for, but not with 1 GPU: whole GPUs taken", parted)
        columns["gpu_milli"] = np.where(parted, 1000.0, columns["gpu_milli"])


def _ids(draft: RawColumns, book: _Book, kept: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The log's own job numbers where they are whole and unique; fresh ones after the largest elsewhere."""
    given = draft.get("job_id")[kept]
    if np.isnan(given).all():
        book.ledger.add("note", "the log has no job numbers: numbered from 1 in the file's order")
        return np.arange(1, len(kept) + 1)
    with np.errstate(invalid="ignore"):
        fine = (np.abs(given) < 2.0**53) & (given == np.floor(given))
    ids = np.where(fine, given, 0).astype(np.int64)
    _, first = np.unique(ids[fine], return_index=True)
    single = np.zeros(len(kept), np.bool_)
    single[np.flatnonzero(fine)[first]] = True
    for reason, rows in (
        ("job number missing or not a whole number: numbered afresh", ~fine),
        ("job number seen before: numbered afresh", fine & ~single),
    ):
        marked = np.zeros(len(draft), np.bool_)
        marked[kept[rows]] = True
        book.mend(reason, marked)
    top = int(ids[single].max()) if single.any() else 0
    ids[~single] = top + 1 + np.arange(int((~single).sum()))
    return ids


def _dependencies(
    draft: RawColumns, book: _Book, kept: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[Any]]:
    """after_id and think_s where they make sense: on a job that stands earlier, so there are no circles."""
    after = draft.get("after_id")[kept]
    with np.errstate(invalid="ignore"):
        given = after >= 0
    if not given.any():
        return {}
    marked = np.zeros(len(draft), np.bool_)
    marked[kept[given]] = True
    if given.all() and len(after) > 1 and (after == after[0]).all():
        book.mend("every job is said to follow the same job: dependencies left out", marked)
        return {}
    by_id = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids[by_id], np.where(given, after, 0)), len(ids) - 1)
    target = by_id[place]
    sound = given & (ids[target] == after) & (target < np.arange(len(ids)))
    marked[:] = False
    marked[kept[given & ~sound]] = True
    book.mend("preceding job not in the table or not an earlier one: dependency left out", marked)
    if not sound.any():
        return {}
    think = draft.get("think_s")[kept]
    with np.errstate(invalid="ignore"):
        usable = sound & (think >= 0) & (think <= LONGEST_S)
    found: dict[str, npt.NDArray[Any]] = {"after_id": np.where(sound, after, -1).astype(np.int64)}
    if usable.any():
        found["think_s"] = np.where(usable, think, 0.0)
    return found
