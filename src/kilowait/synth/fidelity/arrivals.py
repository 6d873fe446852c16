"""Arrival patterns: hourly submissions, autocorrelation, spectrum, and daily and weekly profiles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable
from kilowait.synth.fidelity.correlations import correlation
from kilowait.synth.log_schema import DAY_S, WEEK_S, unix_zero_s

__all__ = ["arrival_pattern", "autocorrelation", "band_edges_h", "calendar_correlation", "profile", "spectrum"]

Floats = npt.NDArray[np.float64]

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
