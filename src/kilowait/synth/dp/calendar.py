"""Synthetic submission calendar from noisy counts of how often, when and for how long users submit.

It preserves the number of sessions per user, the number of weeks they are active, hours and weekdays of sessions, and
jobs per session. It does not preserve identities, the log's busy and quiet weeks, single users' weeks, and behavior of
few users (kinds of user rarer than the noise are dropped), including the heaviest users.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kilowait.synth.dp.noisy_counts import Count, shares, smooth
from kilowait.synth.log_schema import (
    DAY_S,
    WEEK_S,
    Columns,
    LogSchema,
)
from kilowait.synth.transformer.calendar import CONDITIONS, Calendar, by_user, calendar_of, session_starts

__all__ = ["blank", "calendar_counts", "calendar_from", "plain_calendar"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

OCTAVES = {"sessions": 12, "weeks": 9, "session_jobs": 12}
"""Number of values of each count."""
HIDDEN = ("user", "work", "pace")
"""Conditions derived from a user's jobs, which a synthetic calendar does not have."""
SECOND_S = 1.0
LONGEST_S = 4 * 3600.0
"""Number of possible start times of a session; one is drawn at random."""
SURE = 2.0
"""Minimum count of a kind of user or session, in standard deviations of the noise: a few kinds that are only noise,
with thousands of sessions each, would dominate the calendar."""
MAX_JOBS = 300_000
"""Maximum jobs of a calendar; where the counts give more, users are dropped."""


def calendar_counts(rows: Columns, zero_s: float, session_s: float) -> dict[str, Count]:
    """Counts of submission behavior; rows are the log's."""
    order, user = by_user(rows)
    submit_s = rows["submit_s"][order]
    first, start = session_starts(submit_s, user, session_s, LONGEST_S)
    begin_s, whose = submit_s[start] + zero_s, user[start]
    people = user[first]
    session = np.cumsum(start) - 1
    last_s = submit_s[np.append(np.flatnonzero(first)[1:], len(user)) - 1]
    about = np.floor((last_s - submit_s[first]) / WEEK_S) + 1
    return {
        "sessions": Count(_octave(np.bincount(whose), "sessions"), people, OCTAVES["sessions"], most=1),
        "weeks": Count(_octave(about, "weeks"), people, OCTAVES["weeks"], most=1),
        "session_jobs": Count(_octave(np.bincount(session), "session_jobs"), whose, OCTAVES["session_jobs"]),
        "hour": Count((begin_s // 3600 % 24).astype(np.int64), whose, 24),
        "weekday": Count((begin_s // DAY_S % 7).astype(np.int64), whose, 7),
    }


def calendar_from(
    noisy: dict[str, Floats], deviation: float, schema: LogSchema, session_s: float, rng: np.random.Generator
) -> Calendar:
    """Sample a calendar from the counts, over the weeks of the log; the schema is public."""
    users = max(1, round(float(noisy["sessions"].sum())))
    weeks = round(schema.span_s / WEEK_S)

    likely = {name: shares(noisy[name], SURE * deviation) for name in OCTAVES}
    # A few extra sessions at night are harmless; a night without any is not.
    likely |= {
        "hour": shares(smooth(noisy["hour"], around=True), 0.0),
        "weekday": shares(noisy["weekday"], 0.0),
    }

    def drawn(name: str, count: int) -> Ints:
        return rng.choice(len(likely[name]), count, p=likely[name])

    def many(name: str, count: int) -> Ints:
        low = 2.0 ** drawn(name, count)
        return np.floor(low * 2.0 ** rng.random(count)).astype(np.int64)

    sessions = many("sessions", users)
    about = np.minimum(many("weeks", users), weeks)
    begins = np.floor(rng.random(users) * (weeks - about + 1)).astype(np.int64)
    user = np.repeat(np.arange(users), sessions)
    week = begins[user] + np.floor(rng.random(len(user)) * about[user])
    begin_s = (
        schema.first_s
        + week * WEEK_S
        + drawn("weekday", len(user)) * DAY_S
        + drawn("hour", len(user)) * 3600.0
        + np.floor(rng.random(len(user)) * 3600.0)
    )
    jobs = many("session_jobs", len(user))
    room = max(1, int(np.searchsorted(np.cumsum(jobs), MAX_JOBS)))
    jobs, user, begin_s = jobs[:room], user[:room], begin_s[:room]
    session = np.repeat(np.arange(len(user)), jobs)
    submit_s = begin_s[session] + SECOND_S * (
        np.arange(len(session)) - np.repeat(np.cumsum(jobs) - jobs, jobs)
    )
    order = np.argsort(submit_s, kind="stable")
    rows: Columns = {
        "submit_s": submit_s[order],
        "user": user[session][order],
        "nodes": np.zeros(len(order), np.int64),
        "runtime_s": np.zeros(len(order)),
    }
    return plain_calendar(rows, schema.zero_s, session_s)


def plain_calendar(rows: Columns, zero_s: float, session_s: float) -> Calendar:
    """The calendar of rows, without content of the jobs."""
    nothing = np.zeros((len(rows["submit_s"]), 1), np.int64)
    return calendar_of(rows, nothing, (0,), (1,), zero_s=zero_s, session_s=session_s, frequent_jobs=1)


def blank(calendar: Calendar, copied: tuple[int, ...], sizes: tuple[int, ...]) -> Calendar:
    """The calendar with empty frequent-job lists and constant private conditions."""
    conditions = calendar.conditions.copy()
    conditions[:, [list(CONDITIONS).index(name) for name in HIDDEN]] = 0
    places = calendar.share.shape
    frequent_jobs = np.tile(np.array([sizes[column] for column in copied]), (*places, 1))
    return replace(
        calendar,
        conditions=conditions,
        frequent_jobs=frequent_jobs,
        share=np.zeros(places, np.int64),
        level=np.zeros(places, np.int64),
        daily_work=np.zeros_like(calendar.daily_work),
    )


def _octave(values: npt.ArrayLike, name: str) -> Ints:
    octaves: Ints = np.floor(np.log2(np.maximum(values, 1))).astype(np.int64)
    return np.minimum(octaves, OCTAVES[name] - 1)
