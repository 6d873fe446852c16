"""Energy of a node over time from its meters, and its split among the jobs that held the node.

Between two samples the energy is the increase of the energy counter or, without a usable counter, the mean of the two
powers times the time between (trapezoidal rule). It is distributed evenly over that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.telemetry.sample_reader import Floats, MeterSamples
from kilowait.telemetry.sampler import CLOCK_TOLERANCE_S

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
        return _spans(self.known, self.time_s)


def _spans(known: Flags, edges_s: Floats) -> Floats:
    """Starts and ends of the runs of known intervals between consecutive edges, one row each."""
    change = np.diff(np.concatenate(([False], known, [False])).astype(np.int8))
    return np.column_stack((edges_s[np.flatnonzero(change == 1)], edges_s[np.flatnonzero(change == -1)]))


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
    return _spans(np.cumsum(change[:-1]) == len(curves), edges)


@dataclass(frozen=True)
class NodeShares:
    """Split energy of one node: ``sum(job_j) + unattributed_j == node_j``."""

    job_j: Floats
    known_s: Floats
    """Per job: time on the node with known energy."""
    alone_s: Floats
    """Per job: the part of `known_s` in which no other job held the node."""
    node_j: float
    unattributed_j: float


def split_energy(
    curves: Sequence[EnergyCurve],
    start_s: Floats,
    end_s: Floats,
    held: Mapping[str, Floats],
    size: Mapping[str, float | None],
) -> NodeShares:
    """Split the energy of a node, at every moment, by the resources that each job holds.

    `held` gives for each kind of meter ("node", "gpu") the resources of each job, `size` those of the node; None: the
    jobs that hold resources share all energy. Times have the origin of the energy curves.

    >>> curve = EnergyCurve("node", np.array([0.0, 100]), np.array([0.0, 5000]), np.array([True]))
    >>> start, end, cores = np.array([10.0, 20]), np.array([40.0, 50]), np.array([1.0, 3])
    >>> shares = split_energy([curve], start, end, {"node": cores}, {"node": None})
    >>> shares.job_j.tolist(), shares.unattributed_j
    ([750.0, 1250.0], 3000.0)
    """
    spans = known_spans(curves)
    edges = np.unique(np.concatenate((spans.ravel(), start_s, end_s)))
    if not len(spans) or len(edges) < 2:
        zeros = np.zeros(len(start_s))
        return NodeShares(zeros, zeros, zeros, 0.0, 0.0)
    after = np.searchsorted(spans[:, 0], edges[:-1], side="right") - 1
    known = (after >= 0) & (edges[:-1] < spans[after, 1])
    first, last = np.searchsorted(edges, start_s), np.searchsorted(edges, end_s)
    length = np.where(known, np.diff(edges), 0.0)
    running = _total_held(first, last, np.ones(len(first)), len(edges))
    job_j = np.zeros(len(start_s))
    node_j = unattributed_j = 0.0
    for kind in sorted({curve.kind for curve in curves}):
        total = np.sum([curve.at(edges) for curve in curves if curve.kind == kind], axis=0)
        joules = np.where(known, np.diff(total), 0.0)
        weight = held[kind]
        held_total = _total_held(first, last, weight, len(edges))
        capacity = held_total if size[kind] is None else np.maximum(held_total, float(size[kind] or 0.0))
        in_use = held_total > 0
        rate = np.divide(joules, capacity, out=np.zeros(len(joules)), where=in_use)
        job_j += weight * _sum_ranges(rate, first, last)
        node_j += float(joules.sum())
        unattributed_j += float((joules - rate * np.where(in_use, held_total, 0.0)).sum())
    known_s = _sum_ranges(length, first, last)
    alone_s = _sum_ranges(np.where(running == 1, length, 0.0), first, last)
    return NodeShares(job_j, known_s, alone_s, node_j, unattributed_j)


def _total_held(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], weight: Floats, edges: int) -> Floats:
    """Total resources held between consecutive edges; exactly 0 where no job holds any."""
    is_holder = (weight > 0).astype(np.float64)
    change = np.bincount(first, weight, edges) - np.bincount(last, weight, edges)
    holders = np.cumsum(np.bincount(first, is_holder, edges) - np.bincount(last, is_holder, edges))
    return np.asarray(np.where(holders > 0, np.cumsum(change), 0.0)[:-1])


def _sum_ranges(values: Floats, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> Floats:
    """Per job the sum of ``values[first:last]``. Differences of cumulative sums would be less precise."""
    if not len(first):
        return np.zeros(0)
    sums = np.add.reduceat(np.append(values, 0.0), np.column_stack((first, last)).ravel())[::2]
    return np.where(last > first, sums, 0.0)
