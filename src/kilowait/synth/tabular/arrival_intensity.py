"""Weekly arrival intensity: a rescaled time in which submissions have no daily and weekly cycle.

It stores the relative intensity of every hour of the week. Interarrival times outside bursts are measured in rescaled
time, in training and sampling, so that every generated workload has the weekly cycle of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kilowait.synth.log_schema import WEEK_S
from kilowait.synth.tabular.known_values import Floats

__all__ = ["MAX_BURST_GAP_S", "HOURS_PER_WEEK", "WeeklyIntensity", "fit_weekly_intensity"]

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
