"""Winners and losers: which users, sizes and queues wait less, or more, under the best policy than under FCFS."""

from __future__ import annotations

from collections.abc import Sequence

from kilowait.evaluation.wait_changes import MIN_JOBS, WaitChange, wait_changes
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.data.energy import wait_change
from kilowait.report.format import Cell, ReportTable, capital, listed, number
from kilowait.units import format_duration

PER_KIND = 4
"""Winners, and losers, of each kind of class in the table, at most."""
_KINDS = {"user": "user", "size": "nodes", "gpus": "GPUs", "queue": "queue"}
"""Kinds of classes, and how their labels are introduced."""
_PLURALS = {"user": "users", "size": "job sizes", "gpus": "job sizes", "queue": "queues"}


class WaitChanges:
    """The classes of jobs that wait less or more under one policy than under another."""

    def __init__(self, data: ComparisonData, ours: int, theirs: int) -> None:
        labels = data.comparison.labels
        self.ours, self.theirs = labels[ours], labels[theirs]
        self.by_kind: dict[str, list[WaitChange]] = {}
        for kind in ("user", data.size_kind, "queue"):
            changes = wait_changes(kind, data.class_rows(theirs, kind), data.class_rows(ours, kind))
            if changes:
                self.by_kind[kind] = changes

    @classmethod
    def of(cls, data: ComparisonData) -> WaitChanges | None:
        """The best policy instead of FCFS; where FCFS was not run or is best, instead of the second best.

        None for a single policy, and where no class has enough jobs.
        """
        if len(data.real) < 2:
            return None
        best, fcfs = data.real[0], data.fcfs
        changes = cls(data, best, data.real[1] if fcfs is None or fcfs == best else fcfs)
        return changes if changes.by_kind else None

    def sentence(self) -> str:
        """How many classes of each kind wait less, and how many wait more."""
        parts = []
        for kind, changes in self.by_kind.items():
            less = sum(change.difference_s < 0 for change in changes)
            more = sum(change.difference_s > 0 for change in changes)
            parts.append(f"of {len(changes):,} {_PLURALS[kind]} {less:,} wait less and {more:,} more")
        return f"With {self.ours} instead of {self.theirs}, {listed(parts)}."

    def table(self) -> ReportTable:
        """The largest winners and losers of every kind."""
        rows: list[list[Cell | str]] = []
        for kind, changes in self.by_kind.items():
            winners = [change for change in changes if change.difference_s < 0][:PER_KIND]
            losers = [change for change in changes if change.difference_s > 0][-PER_KIND:]
            rows += [self._row(kind, change) for change in _unique([*winners, *losers])]
        return ReportTable(
            f"Who waits less and who waits more with {self.ours} instead of {self.theirs}",
            ["jobs of", "jobs", f"mean wait, {self.theirs}", f"mean wait, {self.ours}", "change", "in total, hours"],
            rows,
            note=f"The {PER_KIND} largest winners and losers of each kind, by the change of the wait of all their jobs "
            f"together. Classes with fewer than {MIN_JOBS} jobs are left out.",
        )

    @staticmethod
    def _row(kind: str, change: WaitChange) -> list[Cell | str]:
        verdict = "better" if change.difference_s < 0 else "worse"
        hours = change.total_h
        return [
            capital(f"{_KINDS[kind]} {change.label}"),
            f"{change.jobs:,}",
            format_duration(change.before_s),
            format_duration(change.after_s),
            Cell(wait_change(change.after_s, change.before_s), kind=verdict),
            f"{'−' if hours < 0 else '+'}{number(abs(hours))}",
        ]


def _unique(changes: Sequence[WaitChange]) -> list[WaitChange]:
    return list(dict.fromkeys(changes))
