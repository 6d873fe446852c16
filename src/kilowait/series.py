"""Step functions of time: carbon intensity, prices, temperatures and other piecewise-constant signals.

Integrals are exact. The cumulative area at each edge is computed once, so an integral between any two times takes two
look-ups.
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

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Gaps = Literal["error", "hold", "interpolate"]

WEEK_S = 7 * 86400.0
YEAR_S = 52 * WEEK_S
"""Period with which a series repeats: 52 whole weeks, so that hour of day and day of week stay aligned."""

_FOREVER_S = 1e15  # 30 million years: a constant covers every time.
_MAX_LISTED_GAPS = 3  # gaps listed in an error message


@dataclass(frozen=True, eq=False)
class Series:
    """A piecewise-constant signal: ``value[i]`` holds from ``edge_s[i]`` until ``edge_s[i + 1]``.

    Methods accept arrays of times and return arrays of the same shape.

    >>> series = Series([0, 10, 30], [4, 1], "g/kWh")
    >>> series.at([0, 9, 10]).tolist(), float(series.integral(5, 20)), float(series.mean(0, 30))
    ([4.0, 4.0, 1.0], 30.0, 2.0)
    """

    edge_s: Floats
    """Increasing times, one more than values. Unix seconds when read from a file; see `shifted`."""
    value: Floats
    unit: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Origin of the data: name, location, kind (average, marginal), scope (direct, life-cycle), source, sha256."""
    unix_zero_s: float | None = None
    """Unix time of second 0 of this series; None if its times have no date."""
    _area: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        edge, value = _floats(self.edge_s, "edge_s"), _floats(self.value, "value")
        if len(edge) != len(value) + 1 or len(value) == 0:
            raise InputError(
                f"a series needs at least one value, and one edge more than values; it has {len(value)} values "
                f"and {len(edge)} edges"
            )
        for name, array in (("edge_s", edge), ("value", value)):
            if not np.isfinite(array).all():
                at = int(np.argmin(np.isfinite(array)))
                raise InputError(f"{name}[{at}] of a series is {array[at]}; all must be finite numbers")
        falls = np.flatnonzero(np.diff(edge) <= 0)
        if len(falls):
            at = int(falls[0])
            raise InputError(
                f"the edges of a series must increase, but edge_s[{at + 1}] = {edge[at + 1]:.12g} follows "
                f"{edge[at]:.12g}; sort them and remove duplicates"
            )
        area = np.concatenate(([0.0], np.cumsum(value * np.diff(edge))))
        for name, array in (("edge_s", edge), ("value", value), ("_area", area)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "meta", dict(self.meta))

    # -- constructors -------------------------------------------------------------------------------

    @classmethod
    def constant(cls, value: float, unit: str = "", meta: Mapping[str, Any] | None = None) -> Series:
        """A series with one value at all times.

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
        """Build a series from samples; each sample holds until the next one.

        The typical step is `step_s`, or else the median distance of two samples. NaN is a missing sample: the previous
        one continues to hold. No sample holds for longer than `longest_s` (default: three typical steps). A longer gap
        is an error, unless `gaps` is "hold" (the sample holds anyway) or "interpolate" (linear, in typical steps). The
        last sample holds for the typical step, or for the step before it if that is shorter. Samples may be in any
        order. Two samples of one time are merged if they are equal, and are an error otherwise.

        >>> series = Series.from_samples([0, 60, 120, 240], [1, 2, 3, 4])
        >>> series.edge_s.tolist(), float(series.at(239))
        ([0.0, 60.0, 120.0, 240.0, 300.0], 3.0)
        """
        time, values = _samples(time_s, value)
        time, values = _one_each(time, values, unix_zero_s)
        steps = np.diff(time)
        if step_s is None and len(steps) == 0:
            raise InputError("the duration of a single sample is unknown; give step_s")
        typical = float(np.median(steps)) if step_s is None else float(step_s)
        longest = 3 * typical if longest_s is None else float(longest_s)
        if not (0 < typical < math.inf and longest > 0):
            raise InputError(
                f"step_s is {typical:g} and longest_s {longest:g}; both must be above 0, and the step finite"
            )
        gap_rows = np.flatnonzero(steps > longest)
        if len(gap_rows) and gaps == "error":
            raise InputError(_gaps_message(time, gap_rows, typical, longest, unix_zero_s))
        last = typical if step_s is not None or len(steps) == 0 else min(typical, float(steps[-1]))
        facts = {"samples": len(time), "step_s": typical, "holes": len(gap_rows)}
        if len(gap_rows) and gaps == "interpolate":
            inside = np.concatenate(
                [np.arange(time[at] + typical, time[at + 1] - typical / 2, typical) for at in gap_rows]
            )
            filled = np.sort(np.concatenate((time, inside)))
            time, values = filled, np.interp(filled, time, values)
        elif gaps not in ("error", "hold", "interpolate"):
            raise InputError(f"gaps is {gaps!r}; it must be 'error', 'hold' or 'interpolate'")
        edge = np.append(time, time[-1] + last)
        return cls(edge, values, unit, {**(meta or {}), **facts}, unix_zero_s)

    # -- queries ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.value)

    @property
    def start_s(self) -> float:
        """Start of the time it covers."""
        return float(self.edge_s[0])

    @property
    def end_s(self) -> float:
        """End of the time it covers."""
        return float(self.edge_s[-1])

    def covers(self, start_s: float, end_s: float) -> bool:
        """Whether it has values at all times from `start_s` to `end_s`."""
        return bool(self.edge_s[0] <= start_s and end_s <= self.edge_s[-1])

    def require(self, start_s: float, end_s: float, what: str = "the run") -> None:
        """Raise an error that names the missing time span unless the series covers it all; `what` names the caller."""
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
            "repeat_signals=True to repeat it by whole weeks"
        )

    def at(self, time_s: npt.ArrayLike) -> Floats:
        """The value at each time; at `end_s` it is that of the last step."""
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
        # Within one step no areas are subtracted, so that short spans keep full precision.
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

    # -- derived series -----------------------------------------------------------------------------

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
        """The series with `by_s` added to all times; minus a log's Unix start converts Unix time to log time.

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
                f"{self._name()} and {other._name()} have different time origins (their seconds 0 are Unix "
                f"{self.unix_zero_s} and {other.unix_zero_s}); shift both to one origin"
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
        """The series from `start_s` to `end_s`, repeated periodically where it has no data.

        The period is 52 weeks (or the largest multiple it covers); for a series shorter than 52 weeks it is the
        largest number of whole weeks it covers. So hour of day and day of week stay aligned (in UTC), and a year
        shifts by 1.25 days. After the end, the last period repeats; before the start, the first period repeats.

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
                f"{self._name()} is {length / 86400:.3g} days long; to be repeated it must cover at least one week"
            )
        if not (math.isfinite(start_s) and math.isfinite(end_s) and start_s < end_s):
            raise InputError(f"wrapped from {start_s} to {end_s}: give two finite times, the earlier one first")
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

    # -- descriptions -------------------------------------------------------------------------------

    def moment(self, time_s: float) -> str:
        """Format a time of this series: UTC if its times have a date, else seconds."""
        return _moment(time_s, self.unix_zero_s)

    def describe(self) -> str:
        """Describe the series in one line: name, location, kind, unit, time span, mean, source file."""
        properties = {key: str(self.meta[key]) for key in ("name", "location", "kind", "scope") if self.meta.get(key)}
        facts = [f"{key} {words}" if words == "not stated" else words for key, words in properties.items()]
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
        raise InputError(f"none of the {len(time)} samples has a value; a series needs at least one")
    return time[known], values[known]


def _one_each(time: Floats, value: Floats, zero: float | None) -> tuple[Floats, Floats]:
    order = np.argsort(time, kind="stable")
    time, value = time[order], value[order]
    same = np.flatnonzero(np.diff(time) == 0)
    differ = same[value[same] != value[same + 1]]
    if len(differ):
        at = int(differ[0])
        raise InputError(
            f"{len(differ)} time(s) occur twice with different values, first {_moment(time[at], zero)} with "
            f"{value[at]:g} and {value[at + 1]:g}; remove the duplicates (give local times in UTC)"
        )
    keep = np.append(True, np.diff(time) > 0)
    return time[keep], value[keep]


def _gaps_message(time: Floats, gap_rows: Ints, typical: float, longest: float, zero: float | None) -> str:
    named = ", ".join(
        f"{_moment(time[at], zero)} to {_moment(time[at + 1], zero)}" for at in gap_rows[:_MAX_LISTED_GAPS]
    )
    more = f" and {len(gap_rows) - _MAX_LISTED_GAPS} more" if len(gap_rows) > _MAX_LISTED_GAPS else ""
    return (
        f"{len(gap_rows)} gap(s) longer than {longest:g} s (the typical step is {typical:g} s): {named}{more}. "
        "Complete the file, or use gaps='hold', gaps='interpolate' or a larger longest_s"
    )


def _moment(time_s: float, zero: float | None) -> str:
    if zero is not None:
        try:
            return f"{datetime.fromtimestamp(float(time_s) + zero, UTC):%Y-%m-%d %H:%M} UTC"
        except (ValueError, OverflowError, OSError):
            pass
    return f"{time_s:.12g} s"
