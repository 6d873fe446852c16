"""Synthetic submission calendar from noisy counts of how often, when and for how long users submit.

It preserves the number of sessions per user, the number of weeks they are active, hours and weekdays of sessions, and
jobs per session. It does not preserve identities, the log's busy and quiet weeks, single users' weeks, and behavior of
few users (categories of users rarer than the noise are dropped), including the heaviest users.

Noisy counts are counts of users (Gaussian mechanism): each user contributes at most one to a count. Adding or removing
a user changes the vector of all counts by at most the square root of the number of counts in the Euclidean norm (the
sensitivity); the Gaussian noise is a multiple of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kilowait.synth.log_schema import DAY_S, WEEK_S, Columns, Floats, Ints, LogSchema
from kilowait.synth.transformer.calendar import (
    CONDITION_SIZES,
    Calendar,
    by_user,
    calendar_of,
    octave_codes,
    session_starts,
)

MAX_ENTRIES = 8
"""Maximum number of a user's jobs or sessions that are counted, selected at random, with equal weights."""
KERNEL = np.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16


@dataclass(frozen=True)
class Count:
    """One count: the category and the user of each entry."""

    category: Ints
    """Categories from 0 on."""
    user: Ints
    categories: int
    max_entries: int = MAX_ENTRIES
    """Maximum number of entries per user, with equal weights."""


def noisy_counts(counts: dict[str, Count], noise: float, rng: np.random.Generator) -> tuple[dict[str, Floats], float]:
    """Noisy number of users per category (fractional by entries), and the standard deviation of the noise.

    Args:
        counts: what to count.
        noise: standard deviation of the noise over the sensitivity.
        rng: secret random generator.
    """
    deviation = noise * np.sqrt(len(counts))
    return {
        name: _bounded(count, rng) + rng.normal(0.0, deviation, count.categories) for name, count in counts.items()
    }, float(deviation)


def _bounded(count: Count, rng: np.random.Generator) -> Floats:
    """Users by category: at most `max_entries` entries per user, so that no user adds more than one in total."""
    shuffled = rng.permutation(len(count.user))
    order = shuffled[np.argsort(count.user[shuffled], kind="stable")]
    user = count.user[order]
    rank_in_user = np.arange(len(user)) - np.searchsorted(user, user)
    used = order[rank_in_user < count.max_entries]
    return np.bincount(count.category[used], minlength=count.categories) / count.max_entries


def shares(noisy: Floats, threshold: float) -> Floats:
    """Probabilities from noisy counts: counts of at most `threshold` are set to 0, unless all are.

    >>> shares(np.array([40.0, -3.0, 2.0, 10.0]), 4.0).tolist()
    [0.8, 0.0, 0.0, 0.2]
    """
    above_threshold = np.where(noisy > threshold, noisy, 0.0)
    if not above_threshold.sum() > 0:
        above_threshold = np.maximum(noisy, 0.0) + 1e-9
    probabilities: Floats = above_threshold / above_threshold.sum()
    return probabilities


def smooth(noisy: Floats, *, cyclic: bool = False) -> Floats:
    """Smooth the counts of ordered bins with their neighbors: less noise and less detail.

    Args:
        noisy: the counts.
        cyclic: cyclic bins, such as hours.

    >>> smooth(np.array([0.0, 0, 16, 0, 0])).tolist()
    [1.0, 4.0, 6.0, 4.0, 1.0]
    """
    padded = np.pad(noisy, 2, mode="wrap" if cyclic else "edge")
    smoothed: Floats = np.convolve(padded, KERNEL, mode="valid")
    return smoothed


# -- the calendar ---------------------------------------------------------------------------------


CODE_COUNTS = {"sessions": 12, "weeks": 9, "session_jobs": 12}
"""Number of categories of each count, in octaves."""
PRIVATE_CONDITIONS = ("user", "work", "interarrival")
"""Conditions derived from a user's jobs, which a synthetic calendar does not have."""
JOB_GAP_S = 1.0
"""Time between the jobs of a session in the calendar, seconds."""
LONGEST_S = 4 * 3600.0
"""Maximum length of a session; longer ones are split."""
THRESHOLD_DEVIATIONS = 2.0
"""Minimum count of a category of users or sessions, in standard deviations of the noise: a few categories that are
only noise, with thousands of sessions each, would dominate the calendar."""
MAX_JOBS = 300_000
"""Maximum jobs of a calendar; where the counts give more, users are dropped."""


def calendar_counts(rows: Columns, zero_s: float, session_s: float) -> dict[str, Count]:
    """Counts of submission behavior; rows are the log's."""
    order, user = by_user(rows)
    submit_s = rows["submit_s"][order]
    first, start = session_starts(submit_s, user, session_s, LONGEST_S)
    session_start_s, session_user = submit_s[start] + zero_s, user[start]
    users = user[first]
    session = np.cumsum(start) - 1
    last_s = submit_s[np.append(np.flatnonzero(first)[1:], len(user)) - 1]
    active_weeks = np.floor((last_s - submit_s[first]) / WEEK_S) + 1
    return {
        "sessions": Count(
            octave_codes(np.bincount(session_user), CODE_COUNTS["sessions"]),
            users,
            CODE_COUNTS["sessions"],
            max_entries=1,
        ),
        "weeks": Count(octave_codes(active_weeks, CODE_COUNTS["weeks"]), users, CODE_COUNTS["weeks"], max_entries=1),
        "session_jobs": Count(
            octave_codes(np.bincount(session), CODE_COUNTS["session_jobs"]), session_user, CODE_COUNTS["session_jobs"]
        ),
        "hour": Count((session_start_s // 3600 % 24).astype(np.int64), session_user, 24),
        "weekday": Count((session_start_s // DAY_S % 7).astype(np.int64), session_user, 7),
    }


def sample_calendar(
    noisy: dict[str, Floats], deviation: float, schema: LogSchema, session_s: float, rng: np.random.Generator
) -> Calendar:
    """Sample a calendar from the counts, over the weeks of the log; the schema is public."""
    users = max(1, round(float(noisy["sessions"].sum())))
    weeks = round(schema.span_s / WEEK_S)

    probabilities = {name: shares(noisy[name], THRESHOLD_DEVIATIONS * deviation) for name in CODE_COUNTS}
    # A few extra sessions at night are harmless; nights without any session are not.
    probabilities |= {"hour": shares(smooth(noisy["hour"], cyclic=True), 0.0), "weekday": shares(noisy["weekday"], 0.0)}

    def sample_category(name: str, count: int) -> Ints:
        return rng.choice(len(probabilities[name]), count, p=probabilities[name])

    def sample_octave(name: str, count: int) -> Ints:
        low = 2.0 ** sample_category(name, count)
        return np.floor(low * 2.0 ** rng.random(count)).astype(np.int64)

    sessions = sample_octave("sessions", users)
    active_weeks = np.minimum(sample_octave("weeks", users), weeks)
    first_week = np.floor(rng.random(users) * (weeks - active_weeks + 1)).astype(np.int64)
    user = np.repeat(np.arange(users), sessions)
    week = first_week[user] + np.floor(rng.random(len(user)) * active_weeks[user])
    session_start_s = (
        schema.first_s
        + week * WEEK_S
        + sample_category("weekday", len(user)) * DAY_S
        + sample_category("hour", len(user)) * 3600.0
        + np.floor(rng.random(len(user)) * 3600.0)
    )
    jobs = sample_octave("session_jobs", len(user))
    session_count = max(1, int(np.searchsorted(np.cumsum(jobs), MAX_JOBS)))
    jobs, user, session_start_s = jobs[:session_count], user[:session_count], session_start_s[:session_count]
    session = np.repeat(np.arange(len(user)), jobs)
    submit_s = session_start_s[session] + JOB_GAP_S * (
        np.arange(len(session)) - np.repeat(np.cumsum(jobs) - jobs, jobs)
    )
    order = np.argsort(submit_s, kind="stable")
    rows: Columns = {
        "submit_s": submit_s[order],
        "user": user[session][order],
        "nodes": np.zeros(len(order), np.int64),
        "runtime_s": np.zeros(len(order)),
    }
    return calendar_without_jobs(rows, schema.zero_s, session_s)


def calendar_without_jobs(rows: Columns, zero_s: float, session_s: float) -> Calendar:
    """The calendar of rows, without content of the jobs."""
    codes = np.zeros((len(rows["submit_s"]), 1), np.int64)
    return calendar_of(rows, codes, (0,), (1,), zero_s=zero_s, session_s=session_s, frequent_jobs=1)


def without_job_content(calendar: Calendar, copied: tuple[int, ...], sizes: tuple[int, ...]) -> Calendar:
    """The calendar with empty frequent-job lists and constant private conditions."""
    conditions = calendar.conditions.copy()
    conditions[:, [list(CONDITION_SIZES).index(name) for name in PRIVATE_CONDITIONS]] = 0
    shape = calendar.share.shape
    frequent_jobs = np.tile(np.array([sizes[column] for column in copied]), (*shape, 1))
    return replace(
        calendar,
        conditions=conditions,
        frequent_jobs=frequent_jobs,
        share=np.zeros(shape, np.int64),
        level=np.zeros(shape, np.int64),
        daily_work=np.zeros_like(calendar.daily_work),
    )
