"""Holding jobs back for clean or cheap power: until when, decided before the clock starts.

A rule looks at a forecast and at a job's estimate, never at its run time, and says until when the scheduler holds the
job. It knows nothing of the queue: the job may start later than that, when the machine is full. Every rule reads any
series alike, so that grams and prices are held for by the same names:

- ``lowest_window``: the start at which the mean over the job's estimate is least.
- ``wait_awhile``: the same by another name, WaitAwhile for jobs in one piece. Its deadline is submission, estimate and
  slack together. WaitAwhile also cuts jobs into pieces; that needs preemption and is not done here.
- ``lowest_slot``: the step with the least value, whatever comes after it.
- ``carbon_time``: the start that saves most per time in the system, (mean now - mean then) / (wait + estimate).
- ``threshold:percentile=30``: the first step whose value is below that percentile of the 24 h that follow, by the
  forecast issued as the step begins (Ecovisor). A step than which none of those hours is lower will do as well: on a
  tariff of two levels nothing is ever below the low one.

All but the last decide when a job is submitted. Of equal starts the earliest is taken; means that differ by less than
1e-9 of the largest value are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.energy.signals.forecast import Forecast
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.series import Series

__all__ = ["GAIA_SLACK_S", "RULES", "shift_jobs"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GAIA_SLACK_S: Mapping[float, float] = {2 * 3600.0: 6 * 3600.0, math.inf: 24 * 3600.0}
"""Seconds a job may be held by its estimate: 6 h if that is below 2 h, else 24 h (GAIA's two queues)."""

_DAY_S = 86400.0
_EQUAL = 1e-9
_SHORTEST_S = 1.0  # Estimates below a second are planned as one, as everywhere.
_CELLS = 1 << 17  # Starts weighed at once: small enough to stay in the cache.


class ShiftableJobs(NamedTuple):
    """Jobs that may be held; seconds on the log's clock, one value a job."""

    submit_s: Floats
    latest_s: Floats
    """Submission and slack."""
    length_s: Floats
    """By the estimate."""

    def some(self, rows: Ints) -> ShiftableJobs:
        return ShiftableJobs(self.submit_s[rows], self.latest_s[rows], self.length_s[rows])


def shift_jobs(
    jobs: JobTable,
    signal: Series,
    rule: str = "lowest_window",
    *,
    slack_s: float | Mapping[float, float],
    forecast: Forecast | None = None,
    issue_s: float = 3600.0,
) -> Floats:
    """Until when each job is held, seconds on the log's clock; -inf where it is not. For the column `hold_until_s`.

    `signal` is on the log's clock too. No job is held longer than its `slack_s`: the column where it is known, else
    the argument: seconds, or seconds by estimate as in `GAIA_SLACK_S` (each key is the estimate its jobs stay
    below). Without a `forecast` the signal itself is foreseen. With one, a job is told the latest forecast at its
    submission, of those issued every `issue_s` seconds from the signal's start on.

    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 0], runtime_s=[3600, 3600], nodes=[1, 1], slack_s=[7200, 0]
    ... )
    >>> grams = Series([0, 3600, 7200, 10800], [300, 200, 100], "g/kWh")
    >>> shift_jobs(jobs, grams, "lowest_window", slack_s=0).tolist()
    [7200.0, -inf]
    """
    choose = _rule(rule)
    if not (issue_s > 0 and math.isfinite(issue_s)):
        raise InputError(f"issue_s is {issue_s}; forecasts are issued every so many seconds, more than 0")
    submit, length = jobs["submit_s"], np.maximum(jobs["estimate_s"], _SHORTEST_S)
    slack = _slack(jobs, slack_s)
    held = np.full(len(jobs), -np.inf)
    rows = np.flatnonzero(slack > 0)
    if len(rows):
        who = ShiftableJobs(submit, submit + slack, length).some(rows)
        start = np.clip(choose(who, signal, forecast, issue_s), who.submit_s, who.latest_s)
        held[rows] = np.where(start > who.submit_s, start, -np.inf)
    return held


# -- rules that decide at submission ----------------------------------------------------------------

Choice = Callable[[ShiftableJobs, Series, Forecast | None, float], Floats]
Worth = Callable[[Floats, Floats, Floats], Floats]
"""Of starts, the less the better: from their means less that at submission, their waits and the lengths (s)."""


def _at_submission(
    choose: Callable[[ShiftableJobs, Series], Floats], name: str, *, whole_job: bool
) -> Choice:
    """Jobs that are told the same forecast choose together."""
    what = f"holding jobs by {name}"

    def chosen(who: ShiftableJobs, signal: Series, forecast: Forecast | None, issue_s: float) -> Floats:
        end = who.latest_s + who.length_s if whole_job else who.latest_s
        if forecast is None:
            signal.require(float(who.submit_s.min()), float(end.max()), what)
            return choose(who, signal)
        start = np.empty(len(who.submit_s))
        turn = np.floor((who.submit_s - signal.start_s) / issue_s)
        order = np.argsort(turn, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(turn[order])) + 1):
            at = min(signal.start_s + turn[rows[0]] * issue_s, float(who.submit_s[rows].min()))
            seen = forecast.issued(at)
            _require_reach(seen, at, float(end[rows].max()), what)
            start[rows] = choose(who.some(rows), seen)
        return start

    return chosen


def _require_reach(seen: Series, issued_s: float, until_s: float, what: str) -> None:
    if until_s > seen.end_s:
        raise InputError(
            f"{what} needs a forecast until {seen.moment(until_s)}, and the one issued at {seen.moment(issued_s)} ends "
            f"at {seen.moment(seen.end_s)}; give a longer horizon_s or less slack"
        )


def _by_mean(worth: Worth) -> Callable[[ShiftableJobs, Series], Floats]:
    """The start whose mean over the job's length is worth most.

    The mean is a broken line in the start: it bends where the job would begin or end at an edge of the series. So the
    best start is one of these, the submission or the latest start, and no other has to be tried.
    """

    def best(who: ShiftableJobs, seen: Series) -> Floats:
        # Only what these jobs may meet, and taken from its mean: the sums stay small, and with them the rounding.
        first_s, last_s = float(who.submit_s.min()), float((who.latest_s + who.length_s).max())
        first = int(np.searchsorted(seen.edge_s, first_s, side="right")) - 1
        last = int(np.searchsorted(seen.edge_s, last_s, side="left"))
        edge, value = np.clip(seen.edge_s[first : last + 1], first_s, last_s), seen.value[first:last]
        area = np.append(0.0, np.cumsum((value - value.mean()) * np.diff(edge)))
        equal = _EQUAL * float(np.abs(value).max())
        begins = _Edges.within(edge, who.submit_s, who.latest_s)
        ends = _Edges.within(edge, who.submit_s + who.length_s, who.latest_s + who.length_s)
        start = np.empty(len(who.submit_s))
        for rows in _portions(begins.number + ends.number + 2):
            submit, latest, length = (column[:, None] for column in who.some(rows))
            extremes = np.concatenate((submit, latest), axis=1)
            begin, begin_real = begins.of(rows)
            end, end_real = ends.of(rows)
            before = np.clip(edge[end] - length, submit, latest)
            areas = (
                np.interp(extremes + length, edge, area) - np.interp(extremes, edge, area),
                np.where(begin_real, np.interp(edge[begin] + length, edge, area) - area[begin], np.inf),
                np.where(end_real, area[end] - np.interp(before, edge, area), np.inf),
            )
            tried = np.concatenate((extremes, edge[begin], before), axis=1)
            mean = np.concatenate(areas, axis=1) / length
            found = worth(mean - mean[:, :1], tried - submit, length)
            good = found <= found.min(axis=1, keepdims=True) + equal
            start[rows] = np.where(good, tried, np.inf).min(axis=1)
        return start

    return best


def _lowest_slot(who: ShiftableJobs, seen: Series) -> Floats:
    edge, last = seen.edge_s, len(seen) - 1
    begins = _Edges.within(edge, who.submit_s, who.latest_s)
    start = np.empty(len(who.submit_s))
    for rows in _portions(begins.number + 1):
        submit = who.submit_s[rows, None]
        begin, real = begins.of(rows)
        value = np.where(real, seen.value[np.minimum(begin, last)], np.inf)
        value = np.concatenate((seen.at(submit), value), axis=1)
        tried = np.concatenate((submit, edge[begin]), axis=1)
        start[rows] = np.take_along_axis(tried, value.argmin(axis=1, keepdims=True), axis=1)[:, 0]
    return start


class _Edges(NamedTuple):
    """For each job a run of a series' edges."""

    first: Ints
    number: Ints
    total: int

    @classmethod
    def within(cls, edge: Floats, after: Floats, until: Floats) -> _Edges:
        first = np.searchsorted(edge, after, side="right")
        return cls(first, np.searchsorted(edge, until, side="right") - first, len(edge))

    def of(self, rows: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Numbers of the edges, a row for each job, and which are real: shorter runs are filled up."""
        place = np.arange(self.number[rows].max())
        at = np.minimum(self.first[rows, None] + place, self.total - 1)
        return at, place < self.number[rows, None]


def _portions(width: Ints) -> Iterator[Ints]:
    """Rows, few enough at a time and alike in width, so that little of a portion is filling."""
    order = np.argsort(width, kind="stable")
    begin = 0
    while begin < len(order):
        # The last of a portion is its widest, so the portion is shortened until that one fits.
        end = min(begin + max(1, _CELLS // int(width[order[begin]])), len(order))
        end = min(end, begin + max(1, _CELLS // int(width[order[end - 1]])))
        yield order[begin:end]
        begin = end


# -- the rule that decides step by step -------------------------------------------------------------


def _threshold(percentile: float) -> Choice:
    if not 0 < percentile <= 100:
        raise InputError(f"percentile is {percentile:g}; it must be above 0 and at most 100")
    what = "holding jobs by threshold"

    def chosen(who: ShiftableJobs, signal: Series, forecast: Forecast | None, issue_s: float) -> Floats:
        reach_s = 0.0 if forecast is not None else _DAY_S
        signal.require(float(who.submit_s.min()), float(who.latest_s.max()) + reach_s, what)
        step = np.searchsorted(signal.edge_s, who.submit_s, side="right") - 1
        first = int(step.min())
        begin = signal.edge_s[first : np.searchsorted(signal.edge_s, who.latest_s.max(), side="right")]
        if forecast is None:
            good = _low(signal, begin, percentile)
        else:
            good = np.empty(len(begin), bool)
            for place, at in enumerate(begin.tolist()):
                seen = forecast.issued(at)
                _require_reach(seen, at, at + _DAY_S, what)
                good[place] = _low(seen, np.array([at]), percentile)[0]
        # The first good step from each on; behind the last there is none.
        found = np.where(good, np.arange(len(good)), len(good))
        following = np.minimum.accumulate(found[::-1])[::-1]
        return np.asarray(np.append(begin, np.inf)[following[step - first]])

    return chosen


def _low(seen: Series, begin: Floats, percentile: float) -> npt.NDArray[np.bool_]:
    """Whether the value at each time is below the percentile of the 24 h from then on, or the lowest of them.

    The percentile is that of the step function itself: at or below it are so many per cent of the time.
    """
    last = len(seen) - 1
    first = np.minimum(np.searchsorted(seen.edge_s, begin, side="right") - 1, last)
    count = np.searchsorted(seen.edge_s, begin + _DAY_S, side="left") - first
    low = np.empty(len(begin), bool)
    for rows in _portions(count):
        time, place = begin[rows, None], np.arange(count[rows].max())
        at = np.minimum(first[rows, None] + place, last)
        until = np.minimum(seen.edge_s[at + 1], time + _DAY_S)
        lasting = np.where(place < count[rows, None], until - np.maximum(seen.edge_s[at], time), 0.0)
        value = np.where(lasting > 0, seen.value[at], np.inf)
        order = np.argsort(value, axis=1)
        passed = np.cumsum(np.take_along_axis(lasting, order, axis=1), axis=1)
        enough = np.argmax(passed >= _DAY_S * (percentile / 100 - _EQUAL), axis=1)[:, None]
        limit = np.take_along_axis(value, np.take_along_axis(order, enough, axis=1), axis=1)[:, 0]
        now = seen.value[first[rows]]
        low[rows] = (now < limit) | (now <= value.min(axis=1))
    return low


# -- names and slack --------------------------------------------------------------------------------

_AT_SUBMISSION: dict[str, tuple[Callable[[ShiftableJobs, Series], Floats], bool]] = {
    "lowest_window": (_by_mean(lambda more, wait, length: more), True),
    "wait_awhile": (_by_mean(lambda more, wait, length: more), True),
    "lowest_slot": (_lowest_slot, False),
    "carbon_time": (_by_mean(lambda more, wait, length: more * length / (wait + length)), True),
}
"""Name to what chooses, and whether it looks at the whole job rather than at its start."""
RULES = (*_AT_SUBMISSION, "threshold")
"""Every rule's name."""


def _rule(rule: str) -> Choice:
    name, *settings = rule.strip().split(":")
    if name not in RULES:
        raise UnknownNameError("rule for holding jobs", name, RULES)
    values = {"percentile": "30"} if name == "threshold" else {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"rule {rule!r}: {setting!r} is not written as name=value")
        if key not in values:
            raise UnknownNameError(f"parameter of rule {name!r}", key, values)
        values[key] = value
    if name in _AT_SUBMISSION:
        choose, whole_job = _AT_SUBMISSION[name]
        return _at_submission(choose, name, whole_job=whole_job)
    try:
        percentile = float(values["percentile"])
    except ValueError:
        raise InputError(
            f"rule {rule!r}: percentile is {values['percentile']!r}, which is not a number"
        ) from None
    return _threshold(percentile)


def _slack(jobs: JobTable, given: float | Mapping[float, float]) -> Floats:
    """Seconds each job may be held: its own where known, else as given."""
    estimate, own = jobs["estimate_s"], jobs.column("slack_s")
    if isinstance(given, Mapping):
        below = np.array(sorted(given), np.float64)
        values = np.array([given[key] for key in sorted(given)], np.float64)
        place = np.searchsorted(below, estimate, side="right")
        outside = np.isnan(own) & (place == len(below))
        if outside.any():
            most = float(estimate[outside].max())
            raise InputError(
                f"slack_s says nothing of estimates of {most:g} s; add math.inf, or a number above it, as the last key"
            )
        usual = np.append(values, 0.0)[place]
    else:
        values = np.array([given], np.float64)
        usual = np.full(len(jobs), values[0])
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(f"slack_s is {given!r}; seconds of waiting are 0 or more, and not without end")
    return np.where(np.isnan(own), usual, own)
