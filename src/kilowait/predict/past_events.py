"""Past events of similar jobs at each submission: counts, latest values, sums and means.

Jobs are similar if they have the same key, for example the same user. An event of a job is its submission, start or
end. For every job the events of similar jobs are sorted by time and the job's submission is located among them: only
earlier events are used. Sums are sums of integers: the rounding of floats would depend on later jobs, and so would a
job's features.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["PastEvents", "group_keys"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROUNDING = 1e-4
"""Values are rounded to this before they are summed."""


def group_keys(*columns: npt.ArrayLike) -> Ints:
    """Integer key of each combination of values; equal combinations have equal keys.

    >>> group_keys([1, 1, 2], [5, 6, 5]).tolist()
    [0, 1, 2]
    """
    key = np.zeros(len(np.asarray(columns[0])), np.int64)
    for column in columns:
        _, code = np.unique(np.asarray(column), return_inverse=True)
        _, key = np.unique(key * (int(code.max(initial=0)) + 1) + code, return_inverse=True)
    return key.astype(np.int64)


class PastEvents:
    """Events of jobs with the same key that came before each job's submission.

    An event at the exact time of a submission counts as past if its job precedes the other in the table.

    Args:
        key: group key of each job, the jobs in order of submission.
        at_s: time of each job's event, seconds; inf: never.
        submit_s: submission times, seconds.

    >>> ended = PastEvents(group_keys([7, 7, 7]), np.array([10.0, 99.0, 30.0]), np.array([0.0, 5.0, 20.0]))
    >>> ended.count.tolist(), ended.latest(np.array([1.0, 2.0, 3.0])).tolist()
    ([0, 0, 1], [nan, nan, 1.0])
    """

    def __init__(self, key: Ints, at_s: Floats, submit_s: Floats) -> None:
        jobs = len(key)
        rows = np.arange(jobs)
        # Events and submissions in one order; at equal times by row, and a job's own submission before its events.
        event = np.repeat([True, False], jobs)
        order = np.lexsort((event, np.tile(rows, 2), np.concatenate([at_s, submit_s]), np.tile(key, 2)))
        is_event = event[order]
        events_before = np.empty(jobs, np.int64)
        events_before[order[~is_event] - jobs] = np.cumsum(is_event)[~is_event]
        self._order = order[is_event]
        self._end = events_before
        self._first = np.searchsorted(key[self._order], key, "left")

    @property
    def count(self) -> Ints:
        """Number of past events."""
        return self._end - self._first

    def latest(self, values: Floats, back: int = 1) -> Floats:
        """The value of the job whose event was the latest, or the `back`-th latest; NaN if there are fewer."""
        position = self._end - back
        found = values[self._order[np.maximum(position, 0)]]
        return np.where(position >= self._first, found, np.nan)

    def latest_values(self, values: Floats, count: int) -> Floats:
        """(count, n) the latest values, newest first."""
        return np.stack([self.latest(values, back) for back in range(1, count + 1)])

    def sum(self, values: Floats, last: int | None = None) -> Floats:
        """Sum of the values, of the `last` latest events or of all."""
        begin = self._first if last is None else np.maximum(self._first, self._end - last)
        units = np.rint(np.where(np.isfinite(values), values, 0.0) / ROUNDING).astype(np.int64)
        total = np.concatenate([[0], np.cumsum(units[self._order])])
        return np.asarray((total[self._end] - total[begin]) * ROUNDING, np.float64)

    def mean(self, values: Floats, last: int) -> Floats:
        """Mean of the `last` latest values; NaN if there are none."""
        counts = np.minimum(self.count, last)
        mean: Floats = np.where(counts > 0, self.sum(values, last) / np.maximum(counts, 1), np.nan)
        return mean


def row_median(rows: Floats) -> Floats:
    """Median of each column over the rows that are known; NaN where none is.

    >>> row_median(np.array([[1.0, np.nan], [5.0, np.nan], [np.nan, np.nan]])).tolist()
    [3.0, nan]
    """
    known = np.isfinite(rows).sum(axis=0)
    ordered = np.sort(rows, axis=0)  # NaN last
    low, high = np.maximum(known - 1, 0) // 2, np.minimum(known // 2, len(rows) - 1)
    column = np.arange(rows.shape[1])
    return np.where(known > 0, (ordered[low, column] + ordered[high, column]) / 2, np.nan)
