"""Step functions of time: carbon intensity, prices, temperatures, anything that holds until it changes.

Integrals are exact: the area up to each edge is summed once, so an integral between any two times is two look-ups,
whatever lies between, and nothing is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

__all__ = ["Gaps", "Series", "WEEK_S", "YEAR_S"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Gaps = Literal["error", "hold", "interpolate"]

WEEK_S = 7 * 86400.0
YEAR_S = 52 * WEEK_S
"""The year a series is repeated by: 52 whole weeks, so that hour of day and day of week stay where they are."""

_FOREVER_S = 1e15  # Thirty million years: a constant covers whatever is asked.
_SHOWN = 3  # holes named in a message


@dataclass(frozen=True, eq=False)
class Series:
    """A value for every moment: ``value[i]`` holds from ``edge_s[i]`` until ``edge_s[i + 1]``.

    Methods that take times take arrays of them and give arrays of the same shape.

    >>> series = Series([0, 10, 30], [4, 1], "g/kWh")
    >>> series.at([0, 9, 10]).tolist(), float(series.integral(5, 20)), float(series.mean(0, 30))
    ([4.0, 4.0, 1.0], 30.0, 2.0)
    """

    edge_s: Floats
    """Rising, one more than there are values. Unix seconds as read from a file; see `shifted`."""
    value: Floats
    unit: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from: name, location, kind (average, marginal), scope (direct, life-cycle), source, sha256."""
    unix_zero_s: float | None = None
    """Unix time at which this series' clock says 0; None where its clock has no date."""
    _area: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        edge, value = _floats(self.edge_s, "edge_s"), _floats(self.value, "value")
        if len(edge) != len(value) + 1 or len(value) == 0:
            raise InputError(
                f"a series needs one value or more, and one edge more than values; it has {len(value)} values "
                f"and {len(edge)} edges"
            )
        for name, array in (("edge_s", edge), ("value", value)):
            if not np.isfinite(array).all():
                at = int(np.argmin(np.isfinite(array)))
                raise InputError(
                    f"{name}[{at}] of a series is {array[at]}; every one must be a finite number"
                )
        falls = np.flatnonzero(np.diff(edge) <= 0)
        if len(falls):
            at = int(falls[0])
            raise InputError(
                f"the edges of a series must rise, but edge_s[{at + 1}] = {edge[at + 1]:.12g} follows "
                f"{edge[at]:.12g}; sort them and keep one of each"
            )
        area = np.concatenate(([0.0], np.cumsum(value * np.diff(edge))))
        for name, array in (("edge_s", edge), ("value", value), ("_area", area)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "meta", dict(self.meta))

    # -- made ---------------------------------------------------------------------------------------

    @classmethod
    def constant(cls, value: float, unit: str = "", meta: Mapping[str, Any] | None = None) -> Series:
        """The same value at any time, on any clock.

        >>> float(Series.constant(400, "g/kWh").integral(0, 10))
        4000.0
        """
        return cls(np.array([-_FOREVER_S, _FOREVER_S]), np.array([value]), unit, meta or {})

    @classmethod
    def from_samples(
        cls,
        time_s: npt.ArrayLike,
        value: npt.ArrayLike,
        unit: str = "",
        meta: Mapping[str, Any] | None = None,
        *,
        step_s: float | None = None,
        gaps: Gaps = "error",
        longest_s: float | None = None,
        unix_zero_s: float | None = None,
    ) -> Series:
        """A series from samples, each of which holds until the next one.

        The usual step is `step_s`, or else the median distance of two samples. NaN is a missing sample: the one before
        holds on. No sample holds for longer than `longest_s` (three usual steps unless given): a longer hole is an
        error, unless `gaps` is "hold" (it holds nevertheless) or "interpolate" (a straight line, in usual steps). The
        last sample holds for the usual step, or for the step before it if that is shorter. Samples may come in any
        order; of two for the same time one is kept if they are equal, and they are an error if not.

        >>> series = Series.from_samples([0, 60, 120, 240], [1, 2, 3, 4])
        >>> series.edge_s.tolist(), float(series.at(239))
        ([0.0, 60.0, 120.0, 240.0, 300.0], 3.0)
        """
        time, values = _samples(time_s, value)
        time, values = _one_each(time, values, unix_zero_s)
        steps = np.diff(time)
        if step_s is None and len(steps) == 0:
            raise InputError("one sample alone does not say how long it holds; give step_s")
        usual = float(np.median(steps)) if step_s is None else float(step_s)
        longest = 3 * usual if longest_s is None else float(longest_s)
        if not (0 < usual < math.inf and longest > 0):
            raise InputError(
                f"step_s is {usual:g} and longest_s {longest:g}; both must be above 0, and the step finite"
            )
        holes = np.flatnonzero(steps > longest)
        if len(holes) and gaps == "error":
            raise InputError(_gaps_message(time, holes, usual, longest, unix_zero_s))
        last = usual if step_s is not None or len(steps) == 0 else min(usual, float(steps[-1]))
        facts = {"samples": len(time), "step_s": usual, "holes": len(holes)}
        if len(holes) and gaps == "interpolate":
            inside = np.concatenate(
                [np.arange(time[at] + usual, time[at + 1] - usual / 2, usual) for at in holes]
            )
            filled = np.sort(np.concatenate((time, inside)))
            time, values = filled, np.interp(filled, time, values)
        elif gaps not in ("error", "hold", "interpolate"):
            raise InputError(f"gaps is {gaps!r}; it must be 'error', 'hold' or 'interpolate'")
        edge = np.append(time, time[-1] + last)
        return cls(edge, values, unit, {**(meta or {}), **facts}, unix_zero_s)

    # -- asked --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.value)

    @property
    def start_s(self) -> float:
        """The first moment it covers."""
        return float(self.edge_s[0])

    @property
    def end_s(self) -> float:
        """The moment at which it ends."""
        return float(self.edge_s[-1])

    def covers(self, start_s: float, end_s: float) -> bool:
        """Whether it has a value at all times from `start_s` to `end_s`."""
        return bool(self.edge_s[0] <= start_s and end_s <= self.edge_s[-1])

    def require(self, start_s: float, end_s: float, what: str = "the run") -> None:
        """An error that names the missing span and what helps, unless it covers all of it; `what` needs it."""
        if self.covers(start_s, end_s):
            return
        if math.isnan(start_s) or math.isnan(end_s):
            raise InputError(f"{what} asks for a time that is NaN; give times in seconds")
        missing = []
        if start_s < self.start_s:
            missing.append((start_s, min(self.start_s, end_s)))
        if end_s > self.end_s:
            missing.append((max(self.end_s, start_s), end_s))
        spans = " and ".join(f"{self.moment(a)} to {self.moment(b)}" for a, b in missing)
        raise InputError(
            f"{self._name()} covers {self.moment(self.start_s)} to {self.moment(self.end_s)}, and {what} needs it "
            f"from {self.moment(start_s)} to {self.moment(end_s)}: missing {spans}. Give a longer file, or ask for "
            "wrap=True to repeat it by whole weeks"
        )

    def at(self, time_s: npt.ArrayLike) -> Floats:
        """The value at each time; at the very end that of the last step."""
        time = np.asarray(time_s, np.float64)
        if time.size:
            self.require(float(time.min()), float(time.max()), "a look-up")
        return np.asarray(self.value[self._step(time)])

    def integral(self, start_s: npt.ArrayLike, end_s: npt.ArrayLike) -> Floats:
        """Value times seconds between two times, exact.

        >>> Series([0, 10, 30], [4, 1]).integral([0, 5], [30, 5]).tolist()
        [60.0, 0.0]
        """
        start, end = np.broadcast_arrays(np.asarray(start_s, np.float64), np.asarray(end_s, np.float64))
        if start.size == 0:
            return np.zeros(start.shape)
        if not (start <= end).all():
            at = int(np.argmin(start <= end))
            raise InputError(
                f"an integral from {start.flat[at]:.12g} s to {end.flat[at]:.12g} s: the start must come first"
            )
        self.require(float(start.min()), float(end.max()), "an integral")
        first, last = self._step(start), self._step(end)
        # Within one step no areas are subtracted: short spans keep all their digits.
        head = self.value[first] * (np.minimum(self.edge_s[first + 1], end) - start)
        whole = self._area[last] - self._area[np.minimum(first + 1, last)]
        tail = np.where(first == last, 0.0, self.value[last] * (end - self.edge_s[last]))
        return np.asarray(head + whole + tail)

    def mean(self, start_s: npt.ArrayLike, end_s: npt.ArrayLike) -> Floats:
        """The mean over time between two times; the value itself where they are the same."""
        area = self.integral(start_s, end_s)
        length = np.broadcast_to(np.subtract(end_s, start_s, dtype=np.float64), area.shape)
        if (length > 0).all():
            return np.asarray(area / length)
        value = self.at(np.broadcast_to(np.asarray(start_s, np.float64), area.shape))
        return np.asarray(np.where(length > 0, area / np.where(length > 0, length, 1.0), value))

    # -- changed ------------------------------------------------------------------------------------

    def between(self, start_s: float, end_s: float) -> Series:
        """The part from `start_s` to `end_s`."""
        self.require(start_s, end_s, "a part of it")
        if not start_s < end_s:
            raise InputError(f"a part from {start_s:.12g} s to {end_s:.12g} s has no length")
        first = int(self._step(np.asarray(start_s)))
        last = int(np.searchsorted(self.edge_s, end_s, side="left"))
        edge = self.edge_s[first : last + 1].copy()
        edge[0], edge[-1] = start_s, end_s
        return replace(self, edge_s=edge, value=self.value[first:last])

    def shifted(self, by_s: float) -> Series:
        """The same on another clock, which reads `by_s` more: minus a log's Unix start puts it on the log's.

        >>> Series([3600, 7200], [5]).shifted(-3600).edge_s.tolist()
        [0.0, 3600.0]
        """
        zero = None if self.unix_zero_s is None else self.unix_zero_s - by_s
        return replace(self, edge_s=self.edge_s + by_s, unix_zero_s=zero)

    def scaled(self, factor: float, unit: str) -> Series:
        """Every value times `factor`, in a unit of that name."""
        return replace(self, value=self.value * factor, unit=unit)

    def times(self, other: Series, unit: str) -> Series:
        """The product with another series, step by step, over the time both cover; keeps this one's meta.

        >>> Series([0, 10, 20], [1, 2]).times(Series([5, 15, 30], [10, 100]), "W").value.tolist()
        [10.0, 20.0, 200.0]
        """
        if None not in (self.unix_zero_s, other.unix_zero_s) and self.unix_zero_s != other.unix_zero_s:
            raise InputError(
                f"{self._name()} and {other._name()} are on different clocks (their seconds 0 are Unix "
                f"{self.unix_zero_s} and {other.unix_zero_s}); shift both alike"
            )
        start, end = max(self.start_s, other.start_s), min(self.end_s, other.end_s)
        if not start < end:
            raise InputError(
                f"{self._name()} ({self.moment(self.start_s)} to {self.moment(self.end_s)}) and {other._name()} "
                f"({other.moment(other.start_s)} to {other.moment(other.end_s)}) have no time in common; "
                "shift or wrap one of them"
            )
        edge = np.union1d(self.edge_s, other.edge_s)
        edge = edge[(edge >= start) & (edge <= end)]
        zero = other.unix_zero_s if self.unix_zero_s is None else self.unix_zero_s
        return Series(edge, self.at(edge[:-1]) * other.at(edge[:-1]), unit, self.meta, zero)

    def wrapped(self, start_s: float, end_s: float) -> Series:
        """From `start_s` to `end_s`, repeating itself where it has no values of its own.

        It repeats with a period of 52 weeks (or the largest multiple it fills); what is shorter than 52 weeks, with the
        largest number of whole weeks it fills. So hour of day and day of week stay aligned (in UTC), and a year
        moves by a day and a quarter. After its end come its last period's values, before its start its first's.

        >>> week = Series(np.arange(8) * 86400.0, [1, 2, 3, 4, 5, 6, 7])
        >>> week.wrapped(-86400, 8 * 86400).value.tolist()
        [7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1.0]
        """
        if self.covers(start_s, end_s):
            return self.between(start_s, end_s)
        length = self.end_s - self.start_s
        unit_s = YEAR_S if length >= YEAR_S else WEEK_S
        period = math.floor(length / unit_s) * unit_s
        if period == 0:
            raise InputError(
                f"{self._name()} is {length / 86400:.3g} days long; to be repeated it must fill a week at least"
            )
        if not (math.isfinite(start_s) and math.isfinite(end_s) and start_s < end_s):
            raise InputError(
                f"wrapped from {start_s} to {end_s}: give two finite times, the earlier one first"
            )
        before = self.between(self.start_s, self.start_s + period)
        after = self.between(self.end_s - period, self.end_s)
        earlier = range(-max(0, math.ceil((self.start_s - start_s) / period)), 0)
        later = range(1, max(0, math.ceil((end_s - self.end_s) / period)) + 1)
        pieces = [(before, turn) for turn in earlier] + [(self, 0)] + [(after, turn) for turn in later]
        edge = np.concatenate([piece.edge_s[:-1] + turn * period for piece, turn in pieces])
        stop = self.end_s + len(later) * period
        value = np.concatenate([piece.value for piece, _ in pieces])
        meta = {**self.meta, "wrapped": f"repeated every {period / WEEK_S:.0f} weeks"}
        return replace(self, edge_s=np.append(edge, stop), value=value, meta=meta).between(start_s, end_s)

    # -- said ---------------------------------------------------------------------------------------

    def moment(self, time_s: float) -> str:
        """A time on this clock for people: UTC where the clock has a date, else its seconds."""
        return _moment(time_s, self.unix_zero_s)

    def describe(self) -> str:
        """One line to print with every result: what, where, which kind, unit, span, mean, file."""
        told = {
            key: str(self.meta[key]) for key in ("name", "location", "kind", "scope") if self.meta.get(key)
        }
        facts = [f"{key} {words}" if words == "not stated" else words for key, words in told.items()]
        mean = f"{float(self.mean(self.start_s, self.end_s)):.4g} {self.unit}".rstrip()
        if self.end_s - self.start_s >= 2 * _FOREVER_S:
            return ", ".join([*facts, f"constant {mean}"])
        facts += [f"{self.moment(self.start_s)} to {self.moment(self.end_s)}", f"mean {mean}"]
        facts += [str(self.meta[key]) for key in ("wrapped", "note") if self.meta.get(key)]
        if self.meta.get("source"):
            mark = f" (sha256 {str(self.meta['sha256'])[:12]})" if self.meta.get("sha256") else ""
            facts.append(f"{self.meta['source']}{mark}")
        return ", ".join(facts)

    def _name(self) -> str:
        words = [str(self.meta[key]) for key in ("name", "location") if self.meta.get(key)]
        return f"the series {' '.join(words)}".rstrip() if words else "the series"

    def _step(self, time: npt.NDArray[Any]) -> Ints:
        step = np.searchsorted(self.edge_s, time, side="right") - 1
        return np.minimum(step, len(self.value) - 1)


def _floats(values: npt.ArrayLike, name: str) -> Floats:
    try:
        array = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} of a series must be a list of numbers; it is {values!r:.60}") from None
    if array.ndim != 1:
        raise InputError(f"{name} of a series has the shape {array.shape}; it must be one list of numbers")
    return array


def _samples(time_s: npt.ArrayLike, value: npt.ArrayLike) -> tuple[Floats, Floats]:
    time, values = _floats(time_s, "time_s"), _floats(value, "value")
    if len(time) != len(values):
        raise InputError(f"{len(time)} times and {len(values)} values; there must be one value for each time")
    if not np.isfinite(time).all() or np.isinf(values).any():
        at = int(np.argmin(np.isfinite(time) & ~np.isinf(values)))
        raise InputError(f"sample {at} is {values[at]} at {time[at]}; give finite times and values")
    known = ~np.isnan(values)
    if not known.any():
        raise InputError(f"of {len(time)} samples none has a value; there is nothing to make a series of")
    return time[known], values[known]


def _one_each(time: Floats, value: Floats, zero: float | None) -> tuple[Floats, Floats]:
    order = np.argsort(time, kind="stable")
    time, value = time[order], value[order]
    same = np.flatnonzero(np.diff(time) == 0)
    differ = same[value[same] != value[same + 1]]
    if len(differ):
        at = int(differ[0])
        raise InputError(
            f"{len(differ)} time(s) come twice with different values, first {_moment(time[at], zero)} with "
            f"{value[at]:g} and {value[at + 1]:g}; keep one of each (local times? give them in UTC)"
        )
    keep = np.append(True, np.diff(time) > 0)
    return time[keep], value[keep]


def _gaps_message(time: Floats, holes: Ints, usual: float, longest: float, zero: float | None) -> str:
    named = ", ".join(f"{_moment(time[at], zero)} to {_moment(time[at + 1], zero)}" for at in holes[:_SHOWN])
    more = f" and {len(holes) - _SHOWN} more" if len(holes) > _SHOWN else ""
    return (
        f"{len(holes)} hole(s) longer than {longest:g} s (the usual step is {usual:g} s): {named}{more}. Fill "
        "the file, or ask for gaps='hold', gaps='interpolate' or a larger longest_s"
    )


def _moment(time_s: float, zero: float | None) -> str:
    if zero is not None:
        try:
            return f"{datetime.fromtimestamp(float(time_s) + zero, UTC):%Y-%m-%d %H:%M} UTC"
        except (ValueError, OverflowError, OSError):
            pass
    return f"{time_s:.12g} s"
