"""The energy of a node over time, from the samples of its meters; and when it is known.

Between two samples of a meter the energy is the rise of its counter or, where that does not say, the mean of the two
powers times the time between (the trapezoid rule); it is spread evenly over that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.telemetry.labels.samples import MeterSamples
from kilowait.telemetry.meters.host_clock import STEADY_S

__all__ = ["EnergyCurve", "course_of", "known_spans"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LONGEST_STEPS = 3
"""A gap of more than so many usual steps is not bridged, unless a longest gap is given."""
_SURGE = 3.0
"""A counter that begins again, seen to rise faster than so many times its highest pace, was reset instead."""


@dataclass(frozen=True)
class EnergyCurve:
    """Joules of one meter up to each moment, and which of the stretches between moments are known."""

    kind: str
    time_s: Floats
    """Seconds since the origin it was made for."""
    total_j: Floats
    known: Flags
    """One fewer than moments; unknown stretches add nothing to the total."""

    def at(self, time_s: Floats) -> Floats:
        """Joules known up to these times."""
        return np.interp(time_s, self.time_s, self.total_j)

    def spans(self) -> Floats:
        """Beginnings and ends of the time that is known, one row each."""
        edge = np.diff(np.concatenate(([False], self.known, [False])).astype(np.int8))
        return np.column_stack(
            (self.time_s[np.flatnonzero(edge == 1)], self.time_s[np.flatnonzero(edge == -1)])
        )


def course_of(
    samples: MeterSamples, origin_s: float, longest_s: float | None, trouble: Counter[str]
) -> EnergyCurve:
    """The course of a meter; `trouble` counts the stretches that are not known, by reason.

    >>> nan = np.full(3, np.nan)
    >>> samples = MeterSamples("gpu0", np.array([0.0, 10, 20]), nan, np.array([100.0, 200, nan[0]]), nan, nan)
    >>> course = course_of(samples, 0.0, None, Counter())
    >>> course.total_j.tolist(), course.known.tolist()
    ([0.0, 1500.0, 1500.0], [True, False])
    """
    time = samples.utc_s - origin_s
    step = np.diff(time)
    steady = _steady(samples.monotonic_s, step)
    rise, reset = _counted(samples, step, steady)
    power = samples.power_w
    rise = np.where(np.isnan(rise), (power[:-1] + power[1:]) / 2 * step, rise)
    longest = (
        longest_s if longest_s is not None else LONGEST_STEPS * float(np.median(step)) if len(step) else 0.0
    )
    reasons = {
        "a gap": step > longest * (1 + 1e-9),
        "the clock was set, or the machine started anew": ~steady,
        "the counter was reset": reset,
        "no value": np.ones(len(step), np.bool_),
    }
    known = np.ones(len(step), np.bool_)
    for reason, rows in reasons.items():
        lost = known & rows & (np.isnan(rise) if reason in ("the counter was reset", "no value") else True)
        trouble[reason] += int(lost.sum())
        known &= ~lost
    total = np.concatenate(([0.0], np.cumsum(np.where(known, rise, 0.0))))
    return EnergyCurve(samples.kind, time, total, known)


def _counted(samples: MeterSamples, step: Floats, steady: Flags) -> tuple[Floats, Flags]:
    """What the counter rose by, NaN where it does not say; and where it was reset."""
    rise = np.diff(samples.energy_j)
    full = samples.range_j[1:]
    with np.errstate(invalid="ignore"):
        back = rise < 0
        pace = (rise / step)[steady & (rise >= 0)]
        highest = float(pace.max()) if len(pace) else 0.0
        # At its highest pace the counter may have gone round more than once: then it says nothing.
        lost_count = highest * step > full
        around = rise + full
        sure = (around >= 0) & ((around <= _SURGE * highest * step) | (highest == 0.0))
    rise = np.where(back, np.where(sure, around, np.nan), rise)
    return np.where(lost_count, np.nan, rise), back & ~sure


def _steady(monotonic_s: Floats, step: Floats) -> Flags:
    """Where both clocks moved alike; two samples out of order, or of two starts of the machine, are not so."""
    passed = np.diff(monotonic_s)
    with np.errstate(invalid="ignore"):
        leeway = np.minimum(STEADY_S, passed / 2) + 0.001 * passed
        alike = (passed > 0) & (np.abs(step - passed) <= leeway)
    return alike | np.isnan(passed)


def known_spans(courses: Sequence[EnergyCurve]) -> Floats:
    """The time in which all these meters are known: beginnings and ends, one row each.

    >>> one = EnergyCurve("node", np.array([0.0, 10, 20]), np.zeros(3), np.array([True, True]))
    >>> other = EnergyCurve("node", np.array([5.0, 12, 30]), np.zeros(3), np.array([True, False]))
    >>> known_spans([one, other]).tolist()
    [[5.0, 12.0]]
    """
    if not courses:
        return np.zeros((0, 2))
    spans = [course.spans() for course in courses]
    edges = np.unique(np.concatenate([each.ravel() for each in spans]))
    change = np.zeros(len(edges) + 1, np.int64)
    for each in spans:
        np.add.at(change, np.searchsorted(edges, each[:, 0]), 1)
        np.add.at(change, np.searchsorted(edges, each[:, 1]), -1)
    everyone = np.cumsum(change[:-1]) == len(courses)
    edge = np.diff(np.concatenate(([False], everyone, [False])).astype(np.int8))
    return np.column_stack((edges[np.flatnonzero(edge == 1)], edges[np.flatnonzero(edge == -1)]))
