"""Cumulative energy of a meter over time, and the time spans in which it is known.

Between two samples the energy is the increase of the energy counter or, without a usable counter, the mean of the two
powers times the time between (trapezoidal rule). It is distributed evenly over that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.telemetry.labels.sample_reader import MeterSamples
from kilowait.telemetry.meters.host_clock import CLOCK_TOLERANCE_S

__all__ = ["EnergyCurve", "energy_curve", "known_spans"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MAX_GAP_STEPS = 3
"""Default of the longest gap that is bridged, in median steps between samples."""
_MAX_RATE_RATIO = 3.0
"""A counter that decreases was reset, not wrapped, if a wrap implies a rate above this multiple of its highest rate."""


@dataclass(frozen=True)
class EnergyCurve:
    """Cumulative energy of one meter, and which of the intervals between samples are known."""

    kind: str
    time_s: Floats
    """Seconds since the origin given to `energy_curve`."""
    total_j: Floats
    known: Flags
    """One per interval, one fewer than times; unknown intervals add no energy."""

    def at(self, time_s: Floats) -> Floats:
        """Known energy up to these times, joules."""
        return np.interp(time_s, self.time_s, self.total_j)

    def spans(self) -> Floats:
        """Starts and ends of the known time spans, one row each."""
        edge = np.diff(np.concatenate(([False], self.known, [False])).astype(np.int8))
        return np.column_stack((self.time_s[np.flatnonzero(edge == 1)], self.time_s[np.flatnonzero(edge == -1)]))


def energy_curve(
    samples: MeterSamples, origin_s: float, max_gap_s: float | None, unknown_intervals: Counter[str]
) -> EnergyCurve:
    """The energy curve of a meter; `unknown_intervals` counts these by reason.

    >>> nan = np.full(3, np.nan)
    >>> samples = MeterSamples("gpu0", np.array([0.0, 10, 20]), nan, np.array([100.0, 200, nan[0]]), nan, nan)
    >>> curve = energy_curve(samples, 0.0, None, Counter())
    >>> curve.total_j.tolist(), curve.known.tolist()
    ([0.0, 1500.0, 1500.0], [True, False])
    """
    time = samples.utc_s - origin_s
    step = np.diff(time)
    steady = _steady(samples.monotonic_s, step)
    increase, reset = _counter_increase(samples, step, steady)
    power = samples.power_w
    increase = np.where(np.isnan(increase), (power[:-1] + power[1:]) / 2 * step, increase)
    max_gap = max_gap_s if max_gap_s is not None else MAX_GAP_STEPS * float(np.median(step)) if len(step) else 0.0
    reasons = {
        "a gap": step > max_gap * (1 + 1e-9),
        "the clock was set, or the machine rebooted": ~steady,
        "the counter was reset": reset,
        "no value": np.ones(len(step), np.bool_),
    }
    known = np.ones(len(step), np.bool_)
    for reason, rows in reasons.items():
        newly_unknown = known & rows & (np.isnan(increase) if reason in ("the counter was reset", "no value") else True)
        unknown_intervals[reason] += int(newly_unknown.sum())
        known &= ~newly_unknown
    total = np.concatenate(([0.0], np.cumsum(np.where(known, increase, 0.0))))
    return EnergyCurve(samples.kind, time, total, known)


def _counter_increase(samples: MeterSamples, step: Floats, steady: Flags) -> tuple[Floats, Flags]:
    """Increase of the counter per interval, NaN if unknown; and the intervals in which it was reset."""
    increase = np.diff(samples.energy_j)
    range_j = samples.range_j[1:]
    with np.errstate(invalid="ignore"):
        decreased = increase < 0
        rate = (increase / step)[steady & (increase >= 0)]
        max_rate = float(rate.max()) if len(rate) else 0.0
        # At its highest rate the counter may have wrapped more than once: then the increase is unknown.
        may_wrap_twice = max_rate * step > range_j
        wrapped = increase + range_j
        wrap_plausible = (wrapped >= 0) & ((wrapped <= _MAX_RATE_RATIO * max_rate * step) | (max_rate == 0.0))
    increase = np.where(decreased, np.where(wrap_plausible, wrapped, np.nan), increase)
    return np.where(may_wrap_twice, np.nan, increase), decreased & ~wrap_plausible


def _steady(monotonic_s: Floats, step: Floats) -> Flags:
    """Intervals in which both clocks advanced equally; false if samples are out of order or the machine rebooted."""
    elapsed = np.diff(monotonic_s)
    with np.errstate(invalid="ignore"):
        tolerance = np.minimum(CLOCK_TOLERANCE_S, elapsed / 2) + 0.001 * elapsed
        agree = (elapsed > 0) & (np.abs(step - elapsed) <= tolerance)
    return agree | np.isnan(elapsed)


def known_spans(curves: Sequence[EnergyCurve]) -> Floats:
    """The time spans in which all these meters are known: starts and ends, one row each.

    >>> one = EnergyCurve("node", np.array([0.0, 10, 20]), np.zeros(3), np.array([True, True]))
    >>> other = EnergyCurve("node", np.array([5.0, 12, 30]), np.zeros(3), np.array([True, False]))
    >>> known_spans([one, other]).tolist()
    [[5.0, 12.0]]
    """
    if not curves:
        return np.zeros((0, 2))
    spans = [curve.spans() for curve in curves]
    edges = np.unique(np.concatenate([span_array.ravel() for span_array in spans]))
    change = np.zeros(len(edges) + 1, np.int64)
    for span_array in spans:
        np.add.at(change, np.searchsorted(edges, span_array[:, 0]), 1)
        np.add.at(change, np.searchsorted(edges, span_array[:, 1]), -1)
    all_known = np.cumsum(change[:-1]) == len(curves)
    edge = np.diff(np.concatenate(([False], all_known, [False])).astype(np.int8))
    return np.column_stack((edges[np.flatnonzero(edge == 1)], edges[np.flatnonzero(edge == -1)]))
