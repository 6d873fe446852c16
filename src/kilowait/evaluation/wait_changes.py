"""Winners and losers of a policy: the classes of jobs that wait less, or more, than under another policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kilowait.evaluation.breakdown import ClassRow

MIN_JOBS = 10
"""Classes with fewer started jobs are left out: their means are too noisy."""


@dataclass(frozen=True)
class WaitChange:
    """The mean wait of one class of jobs under two policies."""

    kind: str
    """Kind of the class: user, size, queue, ..., as in `by_class`."""
    label: str
    jobs: int
    """Evaluated jobs of the class."""
    before_s: float
    """Mean wait under the policy that is replaced, seconds."""
    after_s: float
    """Mean wait under the policy that replaces it, seconds."""

    @property
    def difference_s(self) -> float:
        """Change of the mean wait, seconds; negative for winners."""
        return self.after_s - self.before_s

    @property
    def total_h(self) -> float:
        """Change of the wait of all jobs of the class together, hours."""
        return self.difference_s * self.jobs / 3600.0


def wait_changes(kind: str, before: Sequence[ClassRow], after: Sequence[ClassRow]) -> list[WaitChange]:
    """The change of the mean wait of every class with at least 10 started jobs under both policies.

    Sorted by the change of the total wait, the largest winner first. Jobs of unknown users or queues are left out.

    >>> row = ClassRow("1", 20, 20, 60.0, 60.0, 60.0, 60.0, 1.0, 4.0)
    >>> other = ClassRow("1", 20, 20, 240.0, 240.0, 240.0, 240.0, 3.0, 4.0)
    >>> [(change.difference_s, change.total_h) for change in wait_changes("size", [row], [other])]
    [(180.0, 1.0)]
    """
    by_label = {row.label: row for row in after}
    changes = [
        WaitChange(kind, row.label, row.jobs, row.mean_wait_s, by_label[row.label].mean_wait_s)
        for row in before
        if row.label != "-" and row.label in by_label
        if min(row.started, by_label[row.label].started) >= MIN_JOBS
    ]
    return sorted(changes, key=lambda change: (change.total_h, change.label))
