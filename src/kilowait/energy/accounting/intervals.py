"""Time intervals of constant power, and step functions over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kilowait.jobs import ExecutionLog
from kilowait.series import Series

__all__ = ["Floats", "Ints", "TimeGrid", "time_grid", "weighted_sum"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def weighted_sum(amount: Floats, weight: Floats) -> float:
    """The sum of the products.

    This is not `np.dot` because that starts threads, and on a busy machine waiting for them takes longer than the sum.

    >>> weighted_sum(np.array([1.0, 2.0]), np.array([10.0, 100.0]))
    210.0
    """
    return float(np.einsum("i,i->", amount, weight))


@dataclass(frozen=True, eq=False)
class TimeGrid:
    """Time intervals (cells): cell i is ``edge_s[i]`` to ``edge_s[i + 1]``; segment starts and ends are edges."""

    edge_s: Floats
    begin: Ints
    """Per segment of the log: index of the edge at which it starts, clipped to the horizon."""
    end: Ints
    """Per segment: index of the edge at which it ends, clipped to the horizon."""
    ran_s: Floats
    """Per segment: run time within the horizon."""
    others: tuple[Ints, ...] = ()
    """Edge indices of the further times of the grid, list by list, clipped to the horizon."""

    def __len__(self) -> int:
        return len(self.edge_s) - 1

    @cached_property
    def length_s(self) -> Floats:
        """Length of each cell."""
        return np.diff(self.edge_s)

    def integral(self, value: Floats) -> float:
        """Integral of cell values over the whole grid."""
        return weighted_sum(value, self.length_s)

    @cached_property
    def _idle_cells(self) -> Ints:
        """The cells in which no segment runs."""
        return self._cells_without(self.begin, self.end)

    def _cells_without(self, begin: Ints, end: Ints) -> Ints:
        """The cells in which none of these segments runs."""
        size = len(self) + 1
        number = np.bincount(begin, minlength=size)
        number -= np.bincount(end, minlength=size)
        np.cumsum(number, out=number)
        return np.flatnonzero(number[:-1] <= 0)

    def running(self, amount: Floats, rows: Ints | None = None) -> Floats:
        """Sum of an amount over the segments that run in each cell; exactly 0 in cells without segments."""
        begin, end = (self.begin, self.end) if rows is None else (self.begin[rows], self.end[rows])
        size = len(self) + 1
        total = np.bincount(begin, amount, size).astype(np.float64, copy=False)  # int64 for empty input
        total -= np.bincount(end, amount, size)
        np.cumsum(total, out=total)
        # Starts and ends leave rounding errors, which must not remain after the last job.
        total[self._idle_cells if rows is None else self._cells_without(begin, end)] = 0.0
        return np.maximum(total, 0.0, out=total)[:-1]

    def steps(self, time_s: npt.ArrayLike, value: npt.ArrayLike, before: float = 0.0) -> Floats:
        """Step function: ``value[i]`` from ``time_s[i]`` on, `before` before the first; times are increasing edges."""
        index = np.searchsorted(self.edge_s[:-1], np.asarray(time_s, np.float64), side="left")
        return self.steps_at(index, value, before)

    def steps_at(self, index: Ints, value: npt.ArrayLike, before: float = 0.0) -> Floats:
        """The same, given the indices of the edges at which the values begin."""
        cells = np.diff(np.concatenate(([0], index, [len(self)])))
        values = np.concatenate(([before], np.asarray(value, np.float64)))
        return np.repeat(values, cells)

    def series(self, series: Series) -> Floats:
        """Values of a series, cell by cell; it must cover the grid and its edges must be edges of the grid."""
        return self.steps(series.edge_s[1:-1], series.value[1:], float(series.value[0]))

    def over_segments(self, value: Floats) -> Floats:
        """Integral of cell values over each segment, from one cumulative sum.

        The mean is subtracted first and added back as mean times length: the sum then stays small, and short segments
        late in a long log keep their precision.
        """
        mean = self.integral(value) / float(self.edge_s[-1] - self.edge_s[0])
        area = np.concatenate(([0.0], np.cumsum((value - mean) * self.length_s)))
        return np.asarray(mean * self.ran_s + (area[self.end] - area[self.begin]))


def time_grid(log: ExecutionLog, horizon_s: tuple[float, float], times: Iterable[npt.ArrayLike]) -> TimeGrid:
    """The grid of all segment starts and ends and of further `times`, within the horizon."""
    first, last = horizon_s
    lists = [log.start_s, log.end_s, *(np.asarray(times_s, np.float64) for times_s in times)]
    time = np.concatenate((*lists, [first, last]))
    np.clip(time, first, last, out=time)
    order = np.argsort(time, kind="stable")  # fast: starts and ends are almost sorted
    ordered = time[order]
    new = np.empty(len(time), bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    number = np.cumsum(new)
    number -= 1
    edge_index = np.empty(len(time), np.int64)
    edge_index[order] = number
    begin, end, *others = np.split(edge_index[:-2], np.cumsum([len(times_s) for times_s in lists[:-1]]))
    n = len(log)
    return TimeGrid(ordered[new], begin, end, time[n : 2 * n] - time[:n], tuple(others))
