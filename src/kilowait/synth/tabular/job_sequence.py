"""Rows drawn apart from one another become a workload: which comes when, and after which.

The clock stands at the last submission. The next job is one of the rows that were drawn for this hour of the week,
or, as often as the last job's user goes on at once, one of this user's; it comes after its own gap. So users submit in
bursts. Then the rows of a user change places, so that those that are to repeat a request come after one like it; and
one that finds none like it asks for what another of the user's rows asks for.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from kilowait.synth.tabular.arrival_intensity import BURST_S, HOURS, WeeklyIntensity
from kilowait.synth.tabular.known_values import Floats, Ints

__all__ = ["in_burst", "in_runs", "in_time"]

Bools = npt.NDArray[np.bool_]


def in_burst(table: dict[str, Floats]) -> Bools:
    """Which rows come within a burst of their user."""
    if "again" not in table:
        return np.zeros(len(table["gap_s"]), np.bool_)
    burst: Bools = (table["again"] > 0) & (table["gap_s"] <= BURST_S)
    return burst


def in_time(
    table: dict[str, Floats],
    jobs: int,
    first_s: float,
    clock: WeeklyIntensity,
    zero_s: float,
    rng: np.random.Generator,
) -> tuple[Ints, Floats]:
    """Which rows come one after another, and when: `jobs` rows, and their submissions on the log's clock.

    Args:
        table: rows, with `hour`, `weekday` and `gap_s`, and where there are users `user` and `again`; more than are
            wanted, so that the last hours can still choose.
        jobs: how many are wanted, no more than there are rows.
        first_s: when the first comes, on the log's clock.
        clock: of the log; gaps are on it, but for those within a user's burst.
        zero_s: Unix time of the zero of the log's clock.
        rng: who decides.
    """
    count = len(table["gap_s"])
    hour = (24 * table["weekday"] + table["hour"]).astype(np.int64).tolist()
    user = table["user"].tolist() if "again" in table else [0.0] * count
    again = (table["again"] > 0).tolist() if "again" in table else [False] * count
    gap_s, burst = table["gap_s"].tolist(), in_burst(table).tolist()
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
            if row < 0:  # only those are left that go on
                row = next(rows.pop() for rows in going_on.values() if rows)
        if place:
            moment = moment + gap_s[row] if burst[row] else later(moment, gap_s[row])
        last = user[row]
        picked[place], when[place] = row, moment
    return picked, when - zero_s


def _nearest_hours() -> list[list[int]]:
    """For each hour of the week all hours of it, those nearest by the clock first, and of these the nearest days."""
    hour, day = np.arange(HOURS) % 24, np.arange(HOURS) // 24
    hours = np.abs(hour[:, None] - hour)
    days = np.abs(day[:, None] - day)
    far = 7 * np.minimum(hours, 24 - hours) + np.minimum(days, 7 - days)
    order: list[list[int]] = np.argsort(far, axis=1, kind="stable").tolist()
    return order


def in_runs(user: Ints, asked: Ints, repeats: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """For each place in time the row that comes there, and the row whose request it has; rows of the place's user.

    A run begins with a row that does not repeat, and has rows that repeat and ask for the same. The longest runs come
    where most rows in a row were to repeat. A row that repeats what no other row of its user asks for takes the
    request of one of them.

    Args:
        user: of each row, in the order of time.
        asked: what the row asks for, as a number.
        repeats: 1 where it asks for what its user asked for last.
        rng: who decides.

    >>> rng = np.random.default_rng(0)
    >>> user, repeats = np.zeros(5, np.int64), np.array([0, 1, 0, 1, 1])
    >>> in_runs(user, np.array([7, 8, 8, 8, 9]), repeats, rng)
    (array([0, 2, 1, 3, 4]), array([0, 2, 1, 3, 2]))
    """
    like = _like(user, asked, repeats, rng)
    asked = asked[like]
    count = len(user)
    chance = rng.random(count)
    group = user * (int(asked.max()) + 1) + asked
    # What is asked for begins with a row that does not repeat; where there is none, with any.
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

    # By user, the longest runs into the longest stretches.
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
    """For each row itself, or, where it is to repeat and nothing is like it, another of its user."""
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
    """Where a value differs from the one before."""
    return np.concatenate(([True], values[1:] != values[:-1]))
