"""Times between which nothing changes, and step functions laid on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kilowait.jobs import ExecutionLog
from kilowait.series import Series

__all__ = ["Floats", "TimeGrid", "Ints", "added_up", "grid_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def added_up(amount: Floats, times: Floats) -> float:
    """The sum of the products. Not `np.dot`: that wakes other threads, and on a busy machine waits for them longer
    than the sum takes.

    >>> added_up(np.array([1.0, 2.0]), np.array([10.0, 100.0]))
    210.0
    """
    return float(np.einsum("i,i->", amount, times))


@dataclass(frozen=True, eq=False)
class TimeGrid:
    """Cell i goes from ``edge_s[i]`` to ``edge_s[i + 1]``; every start and end of a segment is an edge."""

    edge_s: Floats
    begin: Ints
    """Per segment of the log: the edge at which it starts, or the horizon does."""
    end: Ints
    """The edge at which it ends, or the horizon does."""
    ran_s: Floats
    """How long each segment ran within the horizon."""
    others: tuple[Ints, ...] = ()
    """Of the other times it was made of, list by list: their edge, or the horizon's where they lie beyond."""

    def __len__(self) -> int:
        return len(self.edge_s) - 1

    @cached_property
    def length_s(self) -> Floats:
        """Of each cell."""
        return np.diff(self.edge_s)

    def integral(self, value: Floats) -> float:
        """Cell values times seconds, over the whole grid."""
        return added_up(value, self.length_s)

    @cached_property
    def _nobody(self) -> Ints:
        """The cells in which no segment runs."""
        return self._empty(self.begin, self.end)

    def _empty(self, begin: Ints, end: Ints) -> Ints:
        size = len(self) + 1
        number = np.bincount(begin, minlength=size)
        number -= np.bincount(end, minlength=size)
        np.cumsum(number, out=number)
        return np.flatnonzero(number[:-1] <= 0)

    def running(self, amount: Floats, rows: Ints | None = None) -> Floats:
        """The sum of an amount over the segments that run, cell by cell; exactly 0 where none does."""
        begin, end = (self.begin, self.end) if rows is None else (self.begin[rows], self.end[rows])
        size = len(self) + 1
        total = np.bincount(begin, amount, size).astype(np.float64, copy=False)  # of nothing it is int64
        total -= np.bincount(end, amount, size)
        np.cumsum(total, out=total)
        # What starts and ends in between leaves crumbs of rounding: they must not outlive the last job.
        total[self._nobody if rows is None else self._empty(begin, end)] = 0.0
        return np.maximum(total, 0.0, out=total)[:-1]

    def steps(self, time_s: npt.ArrayLike, value: npt.ArrayLike, before: float = 0.0) -> Floats:
        """``value[i]`` from ``time_s[i]`` on, `before` before the first; the times rise, and are edges of the grid."""
        place = np.searchsorted(self.edge_s[:-1], np.asarray(time_s, np.float64), side="left")
        return self.steps_at(place, value, before)

    def steps_at(self, place: Ints, value: npt.ArrayLike, before: float = 0.0) -> Floats:
        """The same from the edges at which the values begin."""
        cells = np.diff(np.concatenate(([0], place, [len(self)])))
        values = np.concatenate(([before], np.asarray(value, np.float64)))
        return np.repeat(values, cells)

    def series(self, series: Series) -> Floats:
        """The values of a series that covers the grid and whose edges are among the grid's."""
        return self.steps(series.edge_s[1:-1], series.value[1:], float(series.value[0]))

    def over_segments(self, value: Floats) -> Floats:
        """Integral of cell values over each segment, by one sum for all of them.

        The mean is taken off first and put back as mean times length: the sum then stays small, and short segments
        late in a long log keep their digits.
        """
        mean = self.integral(value) / float(self.edge_s[-1] - self.edge_s[0])
        area = np.concatenate(([0.0], np.cumsum((value - mean) * self.length_s)))
        return np.asarray(mean * self.ran_s + (area[self.end] - area[self.begin]))


def grid_of(log: ExecutionLog, horizon_s: tuple[float, float], times: Iterable[npt.ArrayLike]) -> TimeGrid:
    """All starts and ends of segments, and the `times` given, within the horizon."""
    first, last = horizon_s
    lists = [log.start_s, log.end_s, *(np.asarray(some, np.float64) for some in times)]
    time = np.concatenate((*lists, [first, last]))
    np.clip(time, first, last, out=time)
    order = np.argsort(time, kind="stable")  # starts and ends nearly stand in order
    ordered = time[order]
    new = np.empty(len(time), bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    number = np.cumsum(new)
    number -= 1
    place = np.empty(len(time), np.int64)
    place[order] = number
    begin, end, *others = np.split(place[:-2], np.cumsum([len(some) for some in lists[:-1]]))
    n = len(log)
    return TimeGrid(ordered[new], begin, end, time[n : 2 * n] - time[:n], tuple(others))
