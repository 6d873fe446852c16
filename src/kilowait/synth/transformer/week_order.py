"""Order of the weeks of a sample: first the log's own order, then random permutations.

A *turn* is one pass over the weeks. From the second turn on, blocks of consecutive weeks come in random order: busy
weeks are clustered, and each week occurs once per turn, so that the load is preserved. A log seldom starts and ends at
a week boundary. Missing days of its last week are filled from another week, and later turns have one week composed of
its end and its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["WeekPiece", "DayRange", "sampled_weeks"]

MEAN_BLOCK_WEEKS = 4
"""Mean number of consecutive weeks of a block."""


@dataclass(frozen=True)
class WeekPiece:
    """Days of a week of the log, and their position in the sample."""

    week: int
    """Week of the log, counted from its first."""
    place: int
    """Week of the sample, counted from its first."""
    first: int = 0
    """First day of the calendar week, 0 to 6."""
    last: int = 6


@dataclass(frozen=True)
class DayRange:
    """Range of days of a log: from `first` of its first week to `last` of its last."""

    weeks: int
    first: int
    last: int

    def complete_weeks(self) -> list[tuple[tuple[int, int, int], ...]]:
        """Complete weeks in the log's order, each as parts (week, first day, last day).

        >>> DayRange(3, 2, 1).complete_weeks()
        [((1, 0, 6),), ((2, 0, 1), (0, 2, 6))]
        """
        last_week = self.weeks - 1
        weeks: list[tuple[tuple[int, int, int], ...]] = [((week, 0, 6),) for week in range(1, last_week)]
        if self.first == 0 and (last_week > 0 or self.last == 6):
            weeks.insert(0, ((0, 0, 6),))
        if self.last == 6 and last_week > 0:
            weeks.append(((last_week, 0, 6),))
        elif self.first > 0 and self.last >= self.first - 1 and last_week > 0:
            weeks.append(((last_week, 0, self.first - 1), (0, self.first, 6)))
        return weeks or [((week, 0, 6),) for week in range(self.weeks)]


def sampled_weeks(span: DayRange, first: int, rng: np.random.Generator) -> Iterator[tuple[WeekPiece, ...]]:
    """Endless sequence of the weeks of a sample, starting at a week of the log.

    >>> weeks = sampled_weeks(DayRange(2, 0, 3), 0, np.random.default_rng(0))
    >>> [[(part.week, part.first, part.last) for part in next(weeks)] for _ in range(3)]
    [[(0, 0, 6)], [(1, 0, 3), (0, 4, 6)], [(0, 0, 6)]]
    """
    end, position = span.weeks - 1, 0
    for week in range(first, span.weeks):
        if week < end or span.last == 6:
            yield (WeekPiece(week, position),)
        else:
            donors = [other for other in range(end) if other > 0 or span.first <= span.last + 1]
            filling = [WeekPiece(int(rng.choice(donors)), position, span.last + 1)] if donors else []
            yield (WeekPiece(week, position, 0, span.last), *filling)
        position += 1
    complete = span.complete_weeks()
    while True:
        for index in _shuffled_weeks(len(complete), rng):
            yield tuple(WeekPiece(week, position, low, high) for week, low, high in complete[index])
            position += 1


def _shuffled_weeks(count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Each of `count` weeks once, in blocks of random length and order."""
    order = (np.arange(count) + rng.integers(count)) % count
    cuts = 1 + np.flatnonzero(rng.random(count - 1) < 1 / MEAN_BLOCK_WEEKS)
    blocks = np.split(order, cuts)
    return np.concatenate([blocks[number] for number in rng.permutation(len(blocks))])
