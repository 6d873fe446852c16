"""What had happened to jobs like this one by the time it was submitted: counted, gathered, averaged.

Jobs are alike if they have the same key: the same user, say. An event of a job is its submission, start or end. For
every job the events of its like are put in order of time, and the job's own submission is found among them: what lies
before has happened, what lies behind is not looked at. Sums are sums of whole numbers: those of floats
would round otherwise if later jobs were not there, and a job's features would depend on them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["PastEvents", "keyed"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GRAIN = 1e-4
"""What values are rounded to before they are summed."""


def keyed(*columns: npt.ArrayLike) -> Ints:
    """A number for every combination of values; the same for equal ones.

    >>> keyed([1, 1, 2], [5, 6, 5]).tolist()
    [0, 1, 2]
    """
    key = np.zeros(len(np.asarray(columns[0])), np.int64)
    for column in columns:
        _, place = np.unique(np.asarray(column), return_inverse=True)
        _, key = np.unique(key * (int(place.max(initial=0)) + 1) + place, return_inverse=True)
    return key.astype(np.int64)


class PastEvents:
    """Events of jobs with the same key that came before each job's submission.

    An event at the very time of a submission has happened if its job stands before the other in the table's order.

    Args:
        key: of each job, the jobs in order of submission.
        at_s: when the event happened to it, seconds; inf: never.
        submit_s: when it was submitted, seconds.

    >>> ended = PastEvents(keyed([7, 7, 7]), np.array([10.0, 99.0, 30.0]), np.array([0.0, 5.0, 20.0]))
    >>> ended.count.tolist(), ended.latest(np.array([1.0, 2.0, 3.0])).tolist()
    ([0, 0, 1], [nan, nan, 1.0])
    """

    def __init__(self, key: Ints, at_s: Floats, submit_s: Floats) -> None:
        jobs = len(key)
        rows = np.arange(jobs)
        # Events and submissions in one order; at equal times by row, and a job's own submission before its events.
        event = np.repeat([True, False], jobs)
        both = np.lexsort((event, np.tile(rows, 2), np.concatenate([at_s, submit_s]), np.tile(key, 2)))
        is_event = event[both]
        before = np.empty(jobs, np.int64)
        before[both[~is_event] - jobs] = np.cumsum(is_event)[~is_event]
        self._order = both[is_event]
        self._end = before
        self._first = np.searchsorted(key[self._order], key, "left")

    @property
    def count(self) -> Ints:
        """How many events had happened."""
        return self._end - self._first

    def latest(self, values: Floats, back: int = 1) -> Floats:
        """The value of the job whose event was the latest, or the `back`-th latest; NaN if there were not so many."""
        at = self._end - back
        found = values[self._order[np.maximum(at, 0)]]
        return np.where(at >= self._first, found, np.nan)

    def several(self, values: Floats, many: int) -> Floats:
        """(many, n) the latest values, the newest first."""
        return np.stack([self.latest(values, back) for back in range(1, many + 1)])

    def sum(self, values: Floats, last: int | None = None) -> Floats:
        """Sum of the values, of the `last` latest events or of all."""
        begin = self._first if last is None else np.maximum(self._first, self._end - last)
        whole = np.rint(np.where(np.isfinite(values), values, 0.0) / GRAIN).astype(np.int64)
        total = np.concatenate([[0], np.cumsum(whole[self._order])])
        return np.asarray((total[self._end] - total[begin]) * GRAIN, np.float64)

    def mean(self, values: Floats, last: int) -> Floats:
        """Mean of the `last` latest values; NaN if there were none."""
        many = np.minimum(self.count, last)
        mean: Floats = np.where(many > 0, self.sum(values, last) / np.maximum(many, 1), np.nan)
        return mean


def middle(rows: Floats) -> Floats:
    """Median over the rows that are known; NaN where none is.

    >>> middle(np.array([[1.0, np.nan], [5.0, np.nan], [np.nan, np.nan]])).tolist()
    [3.0, nan]
    """
    known = np.isfinite(rows).sum(axis=0)
    ordered = np.sort(rows, axis=0)  # NaN last
    low, high = np.maximum(known - 1, 0) // 2, np.minimum(known // 2, len(rows) - 1)
    column = np.arange(rows.shape[1])
    return np.where(known > 0, (ordered[low, column] + ordered[high, column]) / 2, np.nan)
