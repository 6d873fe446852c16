"""Ordering of independently sampled rows into a workload with submission times.

The next job after each submission is one of the rows sampled for this hour of the week, or, if the last job's user
continues a burst, one of this user's rows; it follows after its own gap. So users submit in bursts. Then the rows of a
user are permuted, so that rows that repeat a request follow one with the same request; a row without a match takes the
request of another row of its user.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from kilowait.synth.tabular.arrival_intensity import BURST_S, HOURS, WeeklyIntensity
from kilowait.synth.tabular.known_values import Floats, Ints

__all__ = ["within_burst", "group_repeats", "order_in_time"]

Bools = npt.NDArray[np.bool_]


def within_burst(table: dict[str, Floats]) -> Bools:
    """Which rows are within a burst of their user."""
    if "again" not in table:
        return np.zeros(len(table["gap_s"]), np.bool_)
    burst: Bools = (table["again"] > 0) & (table["gap_s"] <= BURST_S)
    return burst


def order_in_time(
    table: dict[str, Floats],
    jobs: int,
    first_s: float,
    clock: WeeklyIntensity,
    zero_s: float,
    rng: np.random.Generator,
) -> tuple[Ints, Floats]:
    """The order of `jobs` rows, and their submission times in log time.

    Args:
        table: rows, with `hour`, `weekday` and `gap_s`, and where there are users `user` and `again`; more than
            needed, so that the last hours still have a choice.
        jobs: number of jobs, at most the number of rows.
        first_s: submission of the first job, in log time.
        clock: weekly intensity of the log; gaps outside bursts are in its rescaled time.
        zero_s: Unix time of log time 0.
        rng: random generator.
    """
    count = len(table["gap_s"])
    hour = (24 * table["weekday"] + table["hour"]).astype(np.int64).tolist()
    user = table["user"].tolist() if "again" in table else [0.0] * count
    again = (table["again"] > 0).tolist() if "again" in table else [False] * count
    gap_s, burst = table["gap_s"].tolist(), within_burst(table).tolist()
    waiting: list[list[int]] = [[] for _ in range(HOURS)]
    going_on: dict[float, list[int]] = defaultdict(list)
    for row in rng.permutation(count).tolist():
        (going_on[user[row]] if again[row] else waiting[hour[row]]).append(row)
    known, rows = np.unique(user, return_counts=True)
    goes_on = {
        who: len(going_on[who]) / many for who, many in zip(known.tolist(), rows.tolist(), strict=True)
    }
    coins = rng.random(jobs).tolist()
    nearest = _nearest_hours()
    later = clock.later()
    moment = first_s + zero_s
    last: float | None = None
    picked, when = np.empty(jobs, np.int64), np.empty(jobs)
    for place in range(jobs):
        own = going_on[last] if last is not None else []
        if own and coins[place] < goes_on[last]:
            row = own.pop()
        else:
            now = int(moment // 3600 % HOURS)
            row = next((waiting[one].pop() for one in nearest[now] if waiting[one]), -1)
            if row < 0:  # only rows that continue a burst are left
                row = next(rows.pop() for rows in going_on.values() if rows)
        if place:
            moment = moment + gap_s[row] if burst[row] else later(moment, gap_s[row])
        last = user[row]
        picked[place], when[place] = row, moment
    return picked, when - zero_s


def _nearest_hours() -> list[list[int]]:
    """For each hour of the week all hours, sorted by distance of the hour of day, then of the weekday."""
    hour, day = np.arange(HOURS) % 24, np.arange(HOURS) // 24
    hours = np.abs(hour[:, None] - hour)
    days = np.abs(day[:, None] - day)
    far = 7 * np.minimum(hours, 24 - hours) + np.minimum(days, 7 - days)
    order: list[list[int]] = np.argsort(far, axis=1, kind="stable").tolist()
    return order


def group_repeats(user: Ints, asked: Ints, repeats: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """For each position in time the row, and the row whose request it takes; both of the position's user.

    A run starts with a row that does not repeat, followed by rows that repeat its request. The longest runs are placed
    at the longest sequences of repeating rows. A repeating row whose request no other row of its user has takes the
    request of one of them.

    Args:
        user: of each row, in the order of time.
        asked: key of the row's request.
        repeats: 1 where it repeats its user's previous request.
        rng: random generator.

    >>> rng = np.random.default_rng(0)
    >>> user, repeats = np.zeros(5, np.int64), np.array([0, 1, 0, 1, 1])
    >>> group_repeats(user, np.array([7, 8, 8, 8, 9]), repeats, rng)
    (array([0, 2, 1, 3, 4]), array([0, 2, 1, 3, 2]))
    """
    like = _like(user, asked, repeats, rng)
    asked = asked[like]
    count = len(user)
    chance = rng.random(count)
    group = user * (int(asked.max()) + 1) + asked
    # A run starts with a row that does not repeat; where there is none, with any.
    order = np.lexsort((chance, repeats, group))
    begins = repeats == 0
    head = order[_firsts(group[order])]
    begins[head] = True
    early = np.zeros(count, np.bool_)
    early[head] = True
    order = np.lexsort((chance, ~early, group))
    run = np.cumsum(begins[order]) - 1
    run_user, run_length = user[order][begins[order]], np.bincount(run)

    slots = np.argsort(user, kind="stable")
    opens = (repeats[slots] == 0) | _firsts(user[slots])
    slot_user, slot_length = user[slots][opens], np.bincount(np.cumsum(opens) - 1)

    # By user, the longest runs into the longest sequences.
    by_length = np.lexsort((rng.random(len(run_user)), run_length, run_user))
    stretches = np.lexsort((rng.random(len(slot_user)), slot_length, slot_user))
    owner = run_user[by_length]
    low, high = (np.searchsorted(owner, owner, side=side) for side in ("left", "right"))
    first, end = (np.searchsorted(slot_user[stretches], owner, side=side) for side in ("left", "right"))
    rank = (np.arange(len(owner)) - low) * (end - first) // (high - low)
    stretch = np.empty(len(owner), np.int64)
    stretch[by_length] = stretches[first + rank]
    laid = np.lexsort((np.arange(count), run, stretch[run], user[order]))
    content = np.empty(count, np.int64)
    content[slots] = order[laid]
    return content, like[content]


def _like(user: Ints, asked: Ints, repeats: Ints, rng: np.random.Generator) -> Ints:
    """Each row itself, or, where it must repeat and has no match, another row of its user."""
    _, group, many = np.unique(np.stack([user, asked]), axis=1, return_inverse=True, return_counts=True)
    alone = (many[group.ravel()] == 1) & (repeats > 0)
    others = np.flatnonzero(~alone)
    others = others[np.argsort(user[others], kind="stable")]
    low, high = (np.searchsorted(user[others], user[alone], side=side) for side in ("left", "right"))
    chosen = low + (rng.random(len(low)) * (high - low)).astype(np.int64)
    like = np.arange(len(user))
    like[alone] = np.where(
        high > low, others[np.minimum(chosen, len(others) - 1)] if len(others) else -1, like[alone]
    )
    return like


def _firsts(values: Ints) -> Bools:
    """Where a value differs from the previous one."""
    return np.concatenate(([True], values[1:] != values[:-1]))
