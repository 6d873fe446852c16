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

from kilowait.telemetry.labels.samples import MeterSamples
from kilowait.telemetry.meters.host_clock import STEADY_S

__all__ = ["EnergyCurve", "energy_curve", "known_spans"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LONGEST_STEPS = 3
"""A gap longer than this many median steps is not bridged, unless a longest gap is given."""
_SURGE = 3.0
"""A counter that falls was reset, not wrapped, if a wrap implied a rate above this multiple of its highest rate."""


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
        return np.column_stack(
            (self.time_s[np.flatnonzero(edge == 1)], self.time_s[np.flatnonzero(edge == -1)])
        )


def energy_curve(
    samples: MeterSamples, origin_s: float, longest_s: float | None, trouble: Counter[str]
) -> EnergyCurve:
    """The energy curve of a meter; `trouble` counts the unknown intervals by reason.

    >>> nan = np.full(3, np.nan)
    >>> samples = MeterSamples("gpu0", np.array([0.0, 10, 20]), nan, np.array([100.0, 200, nan[0]]), nan, nan)
    >>> curve = energy_curve(samples, 0.0, None, Counter())
    >>> curve.total_j.tolist(), curve.known.tolist()
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
        "the clock was set, or the machine rebooted": ~steady,
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
    """Increase of the counter, NaN if unknown; and where it was reset."""
    rise = np.diff(samples.energy_j)
    full = samples.range_j[1:]
    with np.errstate(invalid="ignore"):
        back = rise < 0
        pace = (rise / step)[steady & (rise >= 0)]
        highest = float(pace.max()) if len(pace) else 0.0
        # At its highest rate the counter may have wrapped more than once: then the increase is unknown.
        lost_count = highest * step > full
        around = rise + full
        sure = (around >= 0) & ((around <= _SURGE * highest * step) | (highest == 0.0))
    rise = np.where(back, np.where(sure, around, np.nan), rise)
    return np.where(lost_count, np.nan, rise), back & ~sure


def _steady(monotonic_s: Floats, step: Floats) -> Flags:
    """Where both clocks advanced equally; false for samples out of order or from before and after a reboot."""
    passed = np.diff(monotonic_s)
    with np.errstate(invalid="ignore"):
        leeway = np.minimum(STEADY_S, passed / 2) + 0.001 * passed
        agree = (passed > 0) & (np.abs(step - passed) <= leeway)
    return agree | np.isnan(passed)


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
    edges = np.unique(np.concatenate([each.ravel() for each in spans]))
    change = np.zeros(len(edges) + 1, np.int64)
    for each in spans:
        np.add.at(change, np.searchsorted(edges, each[:, 0]), 1)
        np.add.at(change, np.searchsorted(edges, each[:, 1]), -1)
    everyone = np.cumsum(change[:-1]) == len(curves)
    edge = np.diff(np.concatenate(([False], everyone, [False])).astype(np.int8))
    return np.column_stack((edges[np.flatnonzero(edge == 1)], edges[np.flatnonzero(edge == -1)]))
