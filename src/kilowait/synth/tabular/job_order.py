"""Ordering of independently sampled rows into a workload with submission times.

The next job after each submission is one of the rows sampled for this hour of the week, or, if the last job's user
continues a burst, one of this user's rows; it is submitted after the gap of its row. So users submit in bursts. Then
the rows of a user are permuted, so that rows that repeat a request follow one with the same request; a row without a
match takes the request of another row of its user.

The weekly arrival intensity gives a rescaled time in which submissions have no daily and weekly cycle. It stores the
relative intensity of every hour of the week. Interarrival times outside bursts are measured in rescaled time, in
training and sampling, so that every generated workload has the weekly cycle of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kilowait.synth.log_schema import WEEK_S, Bools, Floats, Ints

HOURS_PER_WEEK = 168
MAX_BURST_GAP_S = 1800.0
"""Maximum time between two jobs of a user in one burst, seconds. Scripts submit at any hour, so the time within a burst
is not rescaled."""
PRIOR_HOURS = 8.0
"""Smoothing: prior weeks with which an hour of the week is shrunk to the product of its hour of day and its weekday,
which are shrunk to the mean with one prior observation."""


@dataclass(frozen=True)
class WeeklyIntensity:
    """Relative arrival intensity of each hour of the week."""

    pace: Floats
    """Intensity of each hour of the week; 1 on average."""

    def rescaled_s(self, unix_s: Floats) -> Floats:
        """Rescaled time, seconds, at Unix times.

        >>> WeeklyIntensity(np.tile([0.5, 1.5], 84)).rescaled_s(np.array([0.0, 3600.0, 5400.0, 7200.0])).tolist()
        [0.0, 1800.0, 4500.0, 7200.0]
        """
        week, into_week_s = np.divmod(unix_s, WEEK_S)
        rescaled_s: Floats = week * WEEK_S + np.interp(into_week_s, *self._ends())
        return rescaled_s

    def time_adder(self) -> Callable[[float, float], float]:
        """A function that adds seconds of rescaled time to a Unix time.

        >>> WeeklyIntensity(np.tile([0.5, 1.5], 84)).time_adder()(3600.0, 2700.0)
        5400.0
        """
        ends, pace = self._ends()[1].tolist(), self.pace.tolist()

        def add(unix_s: float, gap_s: float) -> float:
            week, into_week_s = divmod(unix_s, WEEK_S)
            hour = min(int(into_week_s // 3600), HOURS_PER_WEEK - 1)
            weeks, into_week_s = divmod(ends[hour] + pace[hour] * (into_week_s - 3600 * hour) + gap_s, WEEK_S)
            hour = min(bisect_right(ends, into_week_s), HOURS_PER_WEEK) - 1
            return float((week + weeks) * WEEK_S + 3600 * hour + (into_week_s - ends[hour]) / pace[hour])

        return add

    def _ends(self) -> tuple[Floats, Floats]:
        """Ends of the hours of the week, in real and in rescaled time."""
        ends: Floats = 3600.0 * np.arange(HOURS_PER_WEEK + 1, dtype=np.float64)
        return ends, 3600.0 * np.concatenate(([0.0], np.cumsum(self.pace)))


def fit_weekly_intensity(unix_s: Floats, span_s: tuple[float, float]) -> WeeklyIntensity:
    """Estimate the weekly intensity from submissions at Unix times within an observed span."""
    counts = np.bincount((unix_s // 3600 % HOURS_PER_WEEK).astype(np.int64), minlength=HOURS_PER_WEEK).reshape(7, 24)
    hours_observed = np.bincount(
        np.arange(int(span_s[0] // 3600), int(span_s[1] // 3600) + 1) % HOURS_PER_WEEK, minlength=HOURS_PER_WEEK
    ).reshape(7, 24)
    mean = counts.sum() / hours_observed.sum()
    by_hour, by_day = (
        (counts.sum(axis=axis, keepdims=True) + mean) / (hours_observed.sum(axis=axis, keepdims=True) + 1)
        for axis in (0, 1)
    )
    expected = by_hour * by_day / mean
    rate = ((counts + PRIOR_HOURS * expected) / (hours_observed + PRIOR_HOURS)).ravel()
    return WeeklyIntensity(rate / rate.mean())


# -- order of rows --------------------------------------------------------------------------------


def within_burst(table: dict[str, Floats]) -> Bools:
    """Which rows are within a burst of their user."""
    if "again" not in table:
        return np.zeros(len(table["gap_s"]), np.bool_)
    burst: Bools = (table["again"] > 0) & (table["gap_s"] <= MAX_BURST_GAP_S)
    return burst


def order_in_time(
    table: dict[str, Floats],
    jobs: int,
    first_s: float,
    intensity: WeeklyIntensity,
    zero_s: float,
    rng: np.random.Generator,
) -> tuple[Ints, Floats]:
    """The order of `jobs` rows, and their submission times in log time.

    Args:
        table: rows, with `hour`, `weekday` and `gap_s`, and where there are users `user` and `again`; more than
            needed, so that the last hours still have a choice.
        jobs: number of jobs, at most the number of rows.
        first_s: submission of the first job, in log time.
        intensity: weekly intensity of the log; gaps outside bursts are in its rescaled time.
        zero_s: Unix time of log time 0.
        rng: random generator.
    """
    count = len(table["gap_s"])
    hour = (24 * table["weekday"] + table["hour"]).astype(np.int64).tolist()
    user = table["user"].tolist() if "again" in table else [0.0] * count
    continues = (table["again"] > 0).tolist() if "again" in table else [False] * count
    gap_s, burst = table["gap_s"].tolist(), within_burst(table).tolist()
    rows_by_hour: list[list[int]] = [[] for _ in range(HOURS_PER_WEEK)]
    continuing: dict[float, list[int]] = defaultdict(list)
    for row in rng.permutation(count).tolist():
        (continuing[user[row]] if continues[row] else rows_by_hour[hour[row]]).append(row)
    user_codes, rows = np.unique(user, return_counts=True)
    continuation_share = {
        user_code: len(continuing[user_code]) / row_count
        for user_code, row_count in zip(user_codes.tolist(), rows.tolist(), strict=True)
    }
    uniforms = rng.random(jobs).tolist()
    nearest = _nearest_hours()
    add_gap = intensity.time_adder()
    now_s = first_s + zero_s
    last_user: float | None = None
    order, time_s = np.empty(jobs, np.int64), np.empty(jobs)
    for position in range(jobs):
        continuing_rows = continuing[last_user] if last_user is not None else []
        if continuing_rows and uniforms[position] < continuation_share[last_user]:
            row = continuing_rows.pop()
        else:
            now = int(now_s // 3600 % HOURS_PER_WEEK)
            row = next((rows_by_hour[other_hour].pop() for other_hour in nearest[now] if rows_by_hour[other_hour]), -1)
            if row < 0:  # only rows that continue a burst are left
                row = next(rows.pop() for rows in continuing.values() if rows)
        if position:
            now_s = now_s + gap_s[row] if burst[row] else add_gap(now_s, gap_s[row])
        last_user = user[row]
        order[position], time_s[position] = row, now_s
    return order, time_s - zero_s


def _nearest_hours() -> list[list[int]]:
    """For each hour of the week all hours, sorted by distance of the hour of day, then of the weekday."""
    hour, day = np.arange(HOURS_PER_WEEK) % 24, np.arange(HOURS_PER_WEEK) // 24
    hours = np.abs(hour[:, None] - hour)
    days = np.abs(day[:, None] - day)
    far = 7 * np.minimum(hours, 24 - hours) + np.minimum(days, 7 - days)
    order: list[list[int]] = np.argsort(far, axis=1, kind="stable").tolist()
    return order


def group_repeats(user: Ints, request: Ints, repeats: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """For each position in time the row, and the row whose request it takes; both of the position's user.

    A run starts with a row that does not repeat, followed by rows that repeat its request. The longest runs are placed
    at the longest sequences of repeating rows. A repeating row whose request no other row of its user has takes the
    request of one of them.

    Args:
        user: of each row, in the order of time.
        request: key of the row's request.
        repeats: 1 where it repeats its user's previous request.
        rng: random generator.

    >>> rng = np.random.default_rng(0)
    >>> user, repeats = np.zeros(5, np.int64), np.array([0, 1, 0, 1, 1])
    >>> group_repeats(user, np.array([7, 8, 8, 8, 9]), repeats, rng)
    (array([0, 2, 1, 3, 4]), array([0, 2, 1, 3, 2]))
    """
    request_row = _request_rows(user, request, repeats, rng)
    request = request[request_row]
    count = len(user)
    uniforms = rng.random(count)
    group = user * (int(request.max()) + 1) + request
    # A run starts with a row that does not repeat; where there is none, with any.
    order = np.lexsort((uniforms, repeats, group))
    run_starts = repeats == 0
    heads = order[_group_starts(group[order])]
    run_starts[heads] = True
    is_head = np.zeros(count, np.bool_)
    is_head[heads] = True
    order = np.lexsort((uniforms, ~is_head, group))
    run = np.cumsum(run_starts[order]) - 1
    run_user, run_length = user[order][run_starts[order]], np.bincount(run)

    positions = np.argsort(user, kind="stable")
    slot_starts = (repeats[positions] == 0) | _group_starts(user[positions])
    slot_user, slot_length = user[positions][slot_starts], np.bincount(np.cumsum(slot_starts) - 1)

    # By user, the longest runs into the longest sequences.
    by_length = np.lexsort((rng.random(len(run_user)), run_length, run_user))
    slots_by_length = np.lexsort((rng.random(len(slot_user)), slot_length, slot_user))
    owner = run_user[by_length]
    low, high = (np.searchsorted(owner, owner, side=side) for side in ("left", "right"))
    first, end = (np.searchsorted(slot_user[slots_by_length], owner, side=side) for side in ("left", "right"))
    rank = (np.arange(len(owner)) - low) * (end - first) // (high - low)
    slot_of_run = np.empty(len(owner), np.int64)
    slot_of_run[by_length] = slots_by_length[first + rank]
    run_order = np.lexsort((np.arange(count), run, slot_of_run[run], user[order]))
    row_order = np.empty(count, np.int64)
    row_order[positions] = order[run_order]
    return row_order, request_row[row_order]


def _request_rows(user: Ints, request: Ints, repeats: Ints, rng: np.random.Generator) -> Ints:
    """Each row itself, or, where it must repeat and has no match, another row of its user."""
    _, group, counts = np.unique(np.stack([user, request]), axis=1, return_inverse=True, return_counts=True)
    unmatched = (counts[group.ravel()] == 1) & (repeats > 0)
    others = np.flatnonzero(~unmatched)
    others = others[np.argsort(user[others], kind="stable")]
    low, high = (np.searchsorted(user[others], user[unmatched], side=side) for side in ("left", "right"))
    chosen = low + (rng.random(len(low)) * (high - low)).astype(np.int64)
    request_row = np.arange(len(user))
    request_row[unmatched] = np.where(
        high > low, others[np.minimum(chosen, len(others) - 1)] if len(others) else -1, request_row[unmatched]
    )
    return request_row


def _group_starts(values: Ints) -> Bools:
    """Where a value differs from the previous one."""
    return np.concatenate(([True], values[1:] != values[:-1]))
