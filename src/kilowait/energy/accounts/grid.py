"""Times between which nothing changes, and step functions laid on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kilowait.jobs import SegmentLog
from kilowait.series import Series

__all__ = ["Floats", "Grid", "Ints", "grid_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Grid:
    """Cell i goes from ``edge_s[i]`` to ``edge_s[i + 1]``; every start and end of a segment is an edge."""

    edge_s: Floats
    begin: Ints
    """Per segment of the log: the edge at which it starts, or the horizon does."""
    end: Ints
    """The edge at which it ends, or the horizon does."""

    def __len__(self) -> int:
        return len(self.edge_s) - 1

    @cached_property
    def length_s(self) -> Floats:
        """Of each cell."""
        return np.diff(self.edge_s)

    @cached_property
    def ran_s(self) -> Floats:
        """How long each segment ran within the horizon."""
        return np.asarray(self.edge_s[self.end] - self.edge_s[self.begin])

    def running(self, amount: Floats, rows: Ints | None = None) -> Floats:
        """The sum of an amount over the segments that run, cell by cell; exactly 0 where none does."""
        begin, end = (self.begin, self.end) if rows is None else (self.begin[rows], self.end[rows])
        size = len(self) + 1
        change = np.bincount(begin, amount, size) - np.bincount(end, amount, size)
        number = np.bincount(begin, minlength=size) - np.bincount(end, minlength=size)
        # What starts and ends in between leaves crumbs of rounding: they must not outlive the last job.
        total = np.where(np.cumsum(number) > 0, np.cumsum(change), 0.0)
        return np.maximum(total, 0.0)[:-1]

    def steps(self, time_s: npt.ArrayLike, value: npt.ArrayLike, before: float = 0.0) -> Floats:
        """``value[i]`` from ``time_s[i]`` on, `before` before the first; the times rise, and are edges of the grid."""
        place = np.searchsorted(self.edge_s[:-1], np.asarray(time_s, np.float64), side="left")
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
        mean = float(np.dot(value, self.length_s)) / float(self.edge_s[-1] - self.edge_s[0])
        area = np.concatenate(([0.0], np.cumsum((value - mean) * self.length_s)))
        return np.asarray(mean * self.ran_s + (area[self.end] - area[self.begin]))


def grid_of(log: SegmentLog, horizon_s: tuple[float, float], times: Iterable[npt.ArrayLike]) -> Grid:
    """All starts and ends of segments, and the `times` given, within the horizon."""
    first, last = horizon_s
    others = np.concatenate([np.empty(0), *(np.asarray(some, np.float64) for some in times)])
    others = others[(others > first) & (others < last)]
    time = np.concatenate((log.start_s, log.end_s, [first, last], others))
    np.clip(time, first, last, out=time)
    order = np.argsort(time, kind="stable")  # starts and ends nearly stand in order
    ordered = time[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    place = np.empty(len(time), np.int64)
    place[order] = np.cumsum(new) - 1
    n = len(log)
    return Grid(ordered[new], place[:n], place[n : 2 * n])
