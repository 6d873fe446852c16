"""Statistics of a workload: patterns of hourly submissions, and its users.

Submissions have an autocorrelation, a spectrum, and daily and weekly profiles; users have a number, an inequality,
sessions and repetitions.
"""

from __future__ import annotations

import numpy as np

from kilowait.jobs import JobTable
from kilowait.synth.fidelity.distances import correlation
from kilowait.synth.fidelity.job_features import REPEATED, previous_job
from kilowait.synth.log_schema import DAY_S, WEEK_S, Floats, Ints, unix_zero_s

LAGS_H = 15 * 24
"""Maximum lag: two weeks and a day, to include the peak of the second week."""
BANDS = 39
"""Bands of periods, from two hours to four weeks."""
STEP = 7.0 ** (1 / 13)
"""Ratio of consecutive bands, so that a day and a week lie at the center of theirs."""
MIN_HOURS = 7 * 24
"""Minimum number of common hours to compare the calendars of two logs."""


def arrival_pattern(jobs: JobTable) -> dict[str, float]:
    """Statistics of hourly submissions: variability, autocorrelation at an hour, a day and a week, and cycles.

    `day_power` and `week_power` are the shares of the variance that a sine of a day's or a week's period explains.

    >>> jobs = JobTable(
    ...     job_id=range(96),
    ...     submit_s=[3600 * (h // 4 * 24 + h % 4) for h in range(96)],
    ...     runtime_s=[1] * 96,
    ...     nodes=[1] * 96,
    ... )
    >>> round(arrival_pattern(jobs)["autocorrelation_day"], 2)
    1.0
    """
    counts = _hourly(jobs)
    pattern = {"mean_an_hour": float(counts.mean()), "dispersion": float(counts.var() / counts.mean())}
    for name, lag in (("hour", 1), ("day", 24), ("week", 168)):
        pattern[f"autocorrelation_{name}"] = _lagged(counts, lag)
    centred = counts - counts.mean()
    variance = float((centred**2).sum())
    for name, period_s in (("day", DAY_S), ("week", WEEK_S)):
        wave = np.exp(-2j * np.pi * np.arange(len(counts)) * 3600 / period_s)
        power = 2 * abs(complex(centred @ wave)) ** 2 / len(counts)
        pattern[f"{name}_power"] = float(power / variance) if variance > 0 else 0.0
    return pattern


def autocorrelation(jobs: JobTable, lags: int = LAGS_H) -> Floats:
    """Autocorrelation of hourly submissions at lags of 1, 2, ... hours; 0 where the log is too short."""
    counts = _hourly(jobs)
    return np.array([_lagged(counts, lag) for lag in range(1, lags + 1)])


def spectrum(jobs: JobTable) -> Floats:
    """Spectrum of hourly submissions: the share of their variance in every band of periods (`band_edges_h`).

    Longer periods than the last band's are left out, so the parts add up to less than 1. NaN where a log is too short
    to resolve a band.
    """
    counts = _hourly(jobs)
    power = np.abs(np.fft.rfft(counts - counts.mean()))[1:] ** 2
    if len(counts) % 2 == 0 and len(power):
        power[-1] /= 2  # the Nyquist frequency has no conjugate
    period_h = len(counts) / np.arange(1, len(power) + 1)
    edges = band_edges_h()
    frequencies, power_by_band = (np.histogram(period_h, edges, weights=weights)[0] for weights in (None, power))
    total = float(power.sum())
    return np.where(frequencies > 0, power_by_band / total if total > 0 else 0.0, np.nan)


def band_edges_h() -> Floats:
    """Edges of the spectrum's bands, hours.

    >>> edges = band_edges_h()
    >>> middle = np.sqrt(edges[:-1] * edges[1:])
    >>> round(edges[0], 2), round(middle[16], 6), round(middle[29], 6), round(edges[-1] / 24, 1)
    (np.float64(2.03), np.float64(24.0), np.float64(168.0), np.float64(29.0))
    """
    edges: Floats = 24.0 * np.float_power(STEP, np.arange(BANDS + 1) - 16.5)
    return edges


def calendar_correlation(real: JobTable, synthetic: JobTable) -> float | None:
    """Correlation of the hourly submissions of two logs, with the weekly cycle removed.

    About 0 for a workload with another calendar, 1 for one with the calendar of the real log. None where
    the logs overlap by less than a week.
    """
    hours = [((jobs["submit_s"] + unix_zero_s(jobs)) // 3600).astype(np.int64) for jobs in (real, synthetic)]
    low, high = max(int(hour.min()) for hour in hours), min(int(hour.max()) for hour in hours)
    if high - low + 1 < MIN_HOURS:
        return None
    week = np.arange(high - low + 1) % MIN_HOURS
    residuals = []
    for hour in hours:
        counts = np.bincount(hour[(hour >= low) & (hour <= high)] - low, minlength=len(week))
        weekly_mean = np.bincount(week, weights=counts) / np.bincount(week)
        residuals.append(counts - weekly_mean[week])
    return correlation(*residuals)


def profile(jobs: JobTable, period_s: float, *, dated: bool = True) -> Floats:
    """Share of the jobs submitted in every hour of a day or a week.

    The week begins on Monday; where the log has no date, at log time 0.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[3 * 3600, 27 * 3600], runtime_s=[1, 1], nodes=[1, 1])
    >>> profile(jobs, 86400.0)[3], profile(jobs, 604800.0)[[75, 99]].tolist()
    (np.float64(1.0), [0.5, 0.5])
    """
    begin_s = 3 * DAY_S if dated else 0.0  # 1 January 1970 was a Thursday
    hour = (jobs["submit_s"] + unix_zero_s(jobs) + begin_s) // 3600 % (period_s // 3600)
    return np.bincount(hour.astype(np.int64), minlength=int(period_s // 3600)) / max(len(jobs), 1)


def _hourly(jobs: JobTable) -> Floats:
    """Submissions in every hour, from the first to the last."""
    hour = ((jobs["submit_s"] + unix_zero_s(jobs)) // 3600).astype(np.int64)
    return np.bincount(hour - hour.min()).astype(np.float64)


def _lagged(counts: Floats, lag: int) -> float:
    return correlation(counts[lag:], counts[:-lag]) if len(counts) > lag + 1 else 0.0


# -- users ----------------------------------------------------------------------------------------


SESSION_S = 1800.0
"""Maximum time between a user's jobs of one session, seconds."""


def has_users(jobs: JobTable) -> bool:
    """Whether any job of the workload has a user."""
    return "user" in jobs and bool((jobs["user"] >= 0).any())


def user_statistics(jobs: JobTable) -> dict[str, float]:
    """Number of users, inequality of use, session lengths, and share of repeated jobs."""
    jobs = jobs.sorted()
    per_user = _jobs_per_user(jobs)
    before = previous_job(jobs)
    known = before >= 0
    gap_s = (jobs["submit_s"] - jobs["submit_s"][before])[known]
    count = max(1, len(per_user) // 10)
    statistics = {
        "users": float(len(per_user)),
        "median_jobs_a_user": float(np.median(per_user)),
        "share_of_busiest_tenth": float(per_user[:count].sum() / len(jobs)),
        "jobs_a_session": float(len(jobs) / (len(jobs) - int((gap_s <= SESSION_S).sum()))),
        "median_user_gap_s": float(np.median(gap_s)) if len(gap_s) else 0.0,
    }
    for name in REPEATED:
        if name in jobs:
            same = (jobs[name] == jobs[name][before])[known]
            statistics[f"same_{name}"] = float(same.mean()) if len(same) else 0.0
    return statistics


def user_distributions(jobs: JobTable) -> dict[str, Floats]:
    """Distributions over users: jobs per user, jobs per session, and time between a user's jobs."""
    jobs = jobs.sorted()
    before = previous_job(jobs)
    known = before >= 0
    gap_s = np.full(len(jobs), np.inf)
    gap_s[known] = (jobs["submit_s"] - jobs["submit_s"][before])[known]
    return {"jobs_a_user": _jobs_per_user(jobs), "jobs_a_session": _sessions(before, gap_s), "user_gap_s": gap_s[known]}


def _jobs_per_user(jobs: JobTable) -> Floats:
    """Jobs per user, largest first."""
    return np.sort(np.unique(jobs.column("user"), return_counts=True)[1])[::-1].astype(np.float64)


def _sessions(before: Ints, gap_s: Floats) -> Floats:
    """Number of jobs of every session."""
    first = np.arange(len(before))
    # In order of submission, so that the first job of the previous job's session is known.
    for job in np.flatnonzero(gap_s <= SESSION_S).tolist():
        first[job] = first[before[job]]
    return np.unique(first, return_counts=True)[1].astype(np.float64)
