"""Which weeks of the log a sample has, the times of its submissions, and the selection of samples that match its load.

The order of the weeks is first the log's own, then random permutations. A *turn* is one pass over the weeks. From the
second turn on, blocks of consecutive weeks come in random order: busy weeks are clustered, and each week occurs once
per turn, so that the load is preserved. A log seldom starts and ends at a week boundary. Missing days of its last week
are filled from another week, and later turns have one week composed of its end and its start.

Submission times are jittered session starts, and generated gaps within sessions.

Waits depend mainly on the work of busy weeks, which a few large jobs dominate. Without selection, a week's work
deviates by about 13 %; with selection among a few draws per user it matches the log day by day, and week by week also
for short and long, small and large jobs, which policies prioritize differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kilowait.synth.log_schema import Floats, Ints
from kilowait.synth.transformer.calendar import Calendar

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


def _shuffled_weeks(count: int, rng: np.random.Generator) -> Ints:
    """Each of `count` weeks once, in blocks of random length and order."""
    order = (np.arange(count) + rng.integers(count)) % count
    cuts = 1 + np.flatnonzero(rng.random(count - 1) < 1 / MEAN_BLOCK_WEEKS)
    blocks = np.split(order, cuts)
    return np.concatenate([blocks[number] for number in rng.permutation(len(blocks))])


# -- submission times -----------------------------------------------------------------------------


JITTER_S, JITTER_SHARE = 900.0, 0.25
"""Maximum jitter of a session, in seconds, and as a share of the time to the user's nearest other session."""


def submission_times(calendar: Calendar, rows: Ints, gap_s: Floats, rng: np.random.Generator) -> Floats:
    """Submission times for rows of the calendar, in log time.

    A session is shifted as a whole, including its split-off parts. Where the user's next session, or the next
    part of this one, would overlap, gaps within are scaled down.

    Args:
        calendar: of the log.
        rows: of the calendar, by user; sessions are complete.
        gap_s: seconds since the user's previous job, for jobs that are not the first of a session.
        rng: for the jitter of sessions.
    """
    start = calendar.start[rows]
    session = np.cumsum(start) - 1
    calendar_session = calendar.session[rows[start]]
    starts_run = ~calendar.goes_on[calendar_session] | (np.diff(calendar_session, prepend=-1) != 1)
    ends_run = np.append(starts_run[1:], True)
    run_index = np.cumsum(starts_run) - 1
    available_s = calendar.room_s[calendar_session]
    before_s = calendar.room_s[np.maximum(calendar_session[starts_run] - 1, 0)]
    max_shift_s = np.minimum(JITTER_S, JITTER_SHARE * np.minimum(available_s[ends_run], before_s))
    shift_s = np.round(rng.uniform(-1, 1, len(max_shift_s)) * max_shift_s)
    begin_s = calendar.session_s[calendar_session] + shift_s[run_index]
    cumulative_s = np.cumsum(np.where(start, 0.0, gap_s))
    since_s = cumulative_s - cumulative_s[start][session]
    length_s = np.maximum.reduceat(since_s, np.flatnonzero(start))
    available_s -= np.where(ends_run, 2 * JITTER_SHARE * np.minimum(available_s, JITTER_S / JITTER_SHARE), 0.0)
    scale = np.where(length_s > available_s, available_s / np.maximum(length_s, 1.0), 1.0)
    submit_s: Floats = begin_s[session] + np.floor(since_s * scale[session])
    return submit_s


# -- load matching --------------------------------------------------------------------------------


PASSES = 3
WEEK_WEIGHT, CLASS_WEIGHT = 3.0, 2.0
"""Weights of the full week, and of a week's work of one job class, relative to each day's; their remaining deviation
is carried into the next week."""


def select_draws(work: Floats, week: Ints, target: Floats, rng: np.random.Generator) -> Ints:
    """Select a draw for each block.

    Args:
        work: node-seconds of each draw, block, weekday and job class.
        week: of each block.
        target: target: cumulative node-seconds of each week by day and class.
        rng: for the order of the blocks.

    >>> work = np.zeros((2, 2, 7, 1))
    >>> work[:, :, 0, 0] = [[5.0, 5.0], [1.0, 2.0]]
    >>> select_draws(work, np.array([0, 0]), np.full((1, 7, 1), 3.0), np.random.default_rng(0)).tolist()
    [1, 1]
    """
    draws, blocks, days, classes = work.shape
    selected = np.zeros(blocks, np.int64)
    if draws == 1:
        return selected
    draw_goals, target_goals = _goals(work.cumsum(2)), _goals(target)
    weight = np.array([1.0] * (days - 1) + [WEEK_WEIGHT] + [CLASS_WEIGHT] * classes)
    excess = np.zeros(days + classes)
    order = np.argsort(week, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(week[order])) + 1):
        goal = target_goals[week[members[0]]] - excess
        total = draw_goals[selected[members], members].sum(0)
        for _ in range(PASSES):
            for block in rng.permutation(members):
                others = total - draw_goals[selected[block], block]
                error = ((others + draw_goals[:, block] - goal) ** 2 * weight).sum(1)
                selected[block] = np.argmin(error)
                total = others + draw_goals[selected[block], block]
        deviation = total - goal
        excess = np.concatenate((np.full(days, deviation[days - 1]), deviation[days:]))
    return selected


def _goals(cumulative: Floats) -> Floats:
    """Matching goals: all classes together by each day, and each class by the last day."""
    goals: Floats = np.concatenate((cumulative.sum(-1), cumulative[..., -1, :]), -1)
    return goals
