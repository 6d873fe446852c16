"""Load shifting: carbon-aware and price-aware earliest start times of jobs, computed before the simulation.

A rule uses a forecast and a job's run-time estimate, never its run time, and returns the time until which the scheduler
shifts the job. It does not know the wait queue: the job may start later if the cluster is full. The same rules apply to
carbon intensity and to prices:

- ``lowest_window``: the start with the lowest mean over the job's estimate.
- ``wait_awhile``: the same rule; WaitAwhile for jobs without interruption. Its deadline is submission + estimate +
  slack. WaitAwhile also interrupts jobs; that needs preemption and is not modelled here.
- ``lowest_slot``: the step with the lowest value, whatever follows it.
- ``carbon_time``: the start that saves most per time in the system, (mean now - mean then) / (wait + estimate).
- ``threshold:percentile=30``: the first step whose value is below that percentile of the following 24 h, by the
  forecast issued when the step begins (Ecovisor). A step that is the lowest of those 24 h also counts: in a tariff with
  two prices no value is below the lower one.

All rules but ``threshold`` decide at submission. Among equal starts the earliest is taken; means that differ by less
than 1e-9 of the largest value are equal.
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
from kilowait.series import Floats, Ints, Series
from kilowait.settings import named_parameters

GAIA_SLACK_S: Mapping[float, float] = {2 * 3600.0: 6 * 3600.0, math.inf: 24 * 3600.0}
"""Slack in seconds by run-time estimate: 6 h for estimates below 2 h, else 24 h (GAIA's two queues)."""

_DAY_S = 86400.0
_EQUAL = 1e-9
_SHORTEST_S = 1.0  # Estimates below one second count as one second, as in the engine.
_CELLS = 1 << 17  # Candidate starts evaluated at once: small enough for the CPU cache.


class ShiftableJobs(NamedTuple):
    """Jobs with slack; times in the log's seconds, one value per job."""

    submit_s: Floats
    latest_s: Floats
    """Latest start: submission + slack."""
    length_s: Floats
    """Run-time estimate."""

    def select(self, rows: Ints) -> ShiftableJobs:
        """The jobs of these rows."""
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
    """The earliest start of each job after load shifting, for the column `hold_until_s`; -inf if it is not shifted.

    Times are in the log's seconds, those of `signal` too. No job is shifted by more than its slack: its column
    `slack_s` where known, else the argument: seconds, or seconds by estimate as in `GAIA_SLACK_S` (each key is an
    exclusive upper bound of the estimate). Without a `forecast` the signal itself is known in advance. With one, a job
    uses the last forecast issued before its submission; forecasts are issued every `issue_s` seconds from the start of
    the signal.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[3600, 3600], nodes=[1, 1], slack_s=[7200, 0])
    >>> grams = Series([0, 3600, 7200, 10800], [300, 200, 100], "g/kWh")
    >>> shift_jobs(jobs, grams, "lowest_window", slack_s=0).tolist()
    [7200.0, -inf]
    """
    choose = _rule(rule)
    if not (issue_s > 0 and math.isfinite(issue_s)):
        raise InputError(f"issue_s is {issue_s}; give the seconds between two forecasts, more than 0")
    submit, length = jobs["submit_s"], np.maximum(jobs["estimate_s"], _SHORTEST_S)
    slack = _slack(jobs, slack_s)
    hold_until_s = np.full(len(jobs), -np.inf)
    rows = np.flatnonzero(slack > 0)
    if len(rows):
        shiftable = ShiftableJobs(submit, submit + slack, length).select(rows)
        start = np.clip(choose(shiftable, signal, forecast, issue_s), shiftable.submit_s, shiftable.latest_s)
        hold_until_s[rows] = np.where(start > shiftable.submit_s, start, -np.inf)
    return hold_until_s


# -- rules that decide at submission ----------------------------------------------------------------

ChooseStart = Callable[[ShiftableJobs, Series, Forecast | None, float], Floats]
Score = Callable[[Floats, Floats, Floats], Floats]
"""Score of starts, lower is better: from their mean minus the mean at submission, their wait and their length (s)."""


def _at_submission(choose: Callable[[ShiftableJobs, Series], Floats], name: str, *, whole_job: bool) -> ChooseStart:
    """Apply a rule at submission; jobs with the same forecast are processed together."""
    purpose = f"load shifting by {name}"

    def choose_start(jobs: ShiftableJobs, signal: Series, forecast: Forecast | None, issue_s: float) -> Floats:
        end = jobs.latest_s + jobs.length_s if whole_job else jobs.latest_s
        if forecast is None:
            signal.require(float(jobs.submit_s.min()), float(end.max()), purpose)
            return choose(jobs, signal)
        start = np.empty(len(jobs.submit_s))
        issue = np.floor((jobs.submit_s - signal.start_s) / issue_s)
        order = np.argsort(issue, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(issue[order])) + 1):
            at = min(signal.start_s + issue[rows[0]] * issue_s, float(jobs.submit_s[rows].min()))
            issued = forecast.issued(at)
            _require_horizon(issued, at, float(end[rows].max()), purpose)
            start[rows] = choose(jobs.select(rows), issued)
        return start

    return choose_start


def _require_horizon(issued: Series, issued_s: float, until_s: float, purpose: str) -> None:
    if until_s > issued.end_s:
        raise InputError(
            f"{purpose} needs a forecast until {issued.moment(until_s)}, but the one issued at "
            f"{issued.moment(issued_s)} ends at {issued.moment(issued.end_s)}; give a longer horizon_s or less slack"
        )


def _by_mean(score: Score) -> Callable[[ShiftableJobs, Series], Floats]:
    """A rule that takes the start with the lowest score, computed from the mean over the job's length.

    The mean is piecewise linear in the start: it bends where the job would begin or end at an edge of the series. So
    the best start is at such a bend, at submission or at the latest start, and no other has to be evaluated.
    """

    def best_start(jobs: ShiftableJobs, signal: Series) -> Floats:
        # Only the span of these jobs, and relative to its mean: the sums stay small, and so does the rounding error.
        first_s, last_s = float(jobs.submit_s.min()), float((jobs.latest_s + jobs.length_s).max())
        first = int(np.searchsorted(signal.edge_s, first_s, side="right")) - 1
        last = int(np.searchsorted(signal.edge_s, last_s, side="left"))
        edge, value = np.clip(signal.edge_s[first : last + 1], first_s, last_s), signal.value[first:last]
        area = np.append(0.0, np.cumsum((value - value.mean()) * np.diff(edge)))
        equal = _EQUAL * float(np.abs(value).max())
        begins = _EdgeRanges.within(edge, jobs.submit_s, jobs.latest_s)
        ends = _EdgeRanges.within(edge, jobs.submit_s + jobs.length_s, jobs.latest_s + jobs.length_s)
        start = np.empty(len(jobs.submit_s))
        for rows in _chunks(begins.n_edges + ends.n_edges + 2):
            submit, latest, length = (column[:, None] for column in jobs.select(rows))
            extremes = np.concatenate((submit, latest), axis=1)
            begin, begin_valid = begins.indices(rows)
            end, end_valid = ends.indices(rows)
            before = np.clip(edge[end] - length, submit, latest)
            areas = (
                np.interp(extremes + length, edge, area) - np.interp(extremes, edge, area),
                np.where(begin_valid, np.interp(edge[begin] + length, edge, area) - area[begin], np.inf),
                np.where(end_valid, area[end] - np.interp(before, edge, area), np.inf),
            )
            candidate = np.concatenate((extremes, edge[begin], before), axis=1)
            mean = np.concatenate(areas, axis=1) / length
            scores = score(mean - mean[:, :1], candidate - submit, length)
            best = scores <= scores.min(axis=1, keepdims=True) + equal
            start[rows] = np.where(best, candidate, np.inf).min(axis=1)
        return start

    return best_start


def _lowest_slot(jobs: ShiftableJobs, signal: Series) -> Floats:
    edge, last = signal.edge_s, len(signal) - 1
    begins = _EdgeRanges.within(edge, jobs.submit_s, jobs.latest_s)
    start = np.empty(len(jobs.submit_s))
    for rows in _chunks(begins.n_edges + 1):
        submit = jobs.submit_s[rows, None]
        begin, valid = begins.indices(rows)
        value = np.where(valid, signal.value[np.minimum(begin, last)], np.inf)
        value = np.concatenate((signal.at(submit), value), axis=1)
        candidate = np.concatenate((submit, edge[begin]), axis=1)
        start[rows] = np.take_along_axis(candidate, value.argmin(axis=1, keepdims=True), axis=1)[:, 0]
    return start


class _EdgeRanges(NamedTuple):
    """For each job a range of consecutive edges of a series."""

    first: Ints
    n_edges: Ints
    total: int

    @classmethod
    def within(cls, edge: Floats, after: Floats, until: Floats) -> _EdgeRanges:
        first = np.searchsorted(edge, after, side="right")
        return cls(first, np.searchsorted(edge, until, side="right") - first, len(edge))

    def indices(self, rows: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Edge indices, one row per job, and which of them are valid: shorter ranges are padded."""
        offset = np.arange(self.n_edges[rows].max())
        at = np.minimum(self.first[rows, None] + offset, self.total - 1)
        return at, offset < self.n_edges[rows, None]


def _chunks(width: Ints) -> Iterator[Ints]:
    """Chunks of rows of similar width, at most `_CELLS` cells each, so that little of a chunk is padding."""
    order = np.argsort(width, kind="stable")
    begin = 0
    while begin < len(order):
        # The last row of a chunk is its widest, so the chunk is shortened until that row fits.
        end = min(begin + max(1, _CELLS // int(width[order[begin]])), len(order))
        end = min(end, begin + max(1, _CELLS // int(width[order[end - 1]])))
        yield order[begin:end]
        begin = end


# -- the rule that decides step by step -------------------------------------------------------------


def _threshold(percentile: float) -> ChooseStart:
    if not 0 < percentile <= 100:
        raise InputError(f"percentile is {percentile:g}; it must be above 0 and at most 100")
    purpose = "load shifting by threshold"

    def choose_start(jobs: ShiftableJobs, signal: Series, forecast: Forecast | None, issue_s: float) -> Floats:
        horizon_s = 0.0 if forecast is not None else _DAY_S
        signal.require(float(jobs.submit_s.min()), float(jobs.latest_s.max()) + horizon_s, purpose)
        step = np.searchsorted(signal.edge_s, jobs.submit_s, side="right") - 1
        first = int(step.min())
        begin = signal.edge_s[first : np.searchsorted(signal.edge_s, jobs.latest_s.max(), side="right")]
        if forecast is None:
            low = _is_low(signal, begin, percentile)
        else:
            low = np.empty(len(begin), bool)
            for index, at in enumerate(begin.tolist()):
                issued = forecast.issued(at)
                _require_horizon(issued, at, at + _DAY_S, purpose)
                low[index] = _is_low(issued, np.array([at]), percentile)[0]
        # The first low step from each step on; after the last low step there is none.
        index_if_low = np.where(low, np.arange(len(low)), len(low))
        next_low = np.minimum.accumulate(index_if_low[::-1])[::-1]
        return np.asarray(np.append(begin, np.inf)[next_low[step - first]])

    return choose_start


def _is_low(signal: Series, begin: Floats, percentile: float) -> npt.NDArray[np.bool_]:
    """Whether the value at each time is below the percentile of the following 24 h, or the lowest of them.

    The percentile is time-weighted: the value is at or below it for that percentage of the time.
    """
    last = len(signal) - 1
    first = np.minimum(np.searchsorted(signal.edge_s, begin, side="right") - 1, last)
    count = np.searchsorted(signal.edge_s, begin + _DAY_S, side="left") - first
    low = np.empty(len(begin), bool)
    for rows in _chunks(count):
        time, offset = begin[rows, None], np.arange(count[rows].max())
        at = np.minimum(first[rows, None] + offset, last)
        until = np.minimum(signal.edge_s[at + 1], time + _DAY_S)
        length_s = np.where(offset < count[rows, None], until - np.maximum(signal.edge_s[at], time), 0.0)
        value = np.where(length_s > 0, signal.value[at], np.inf)
        order = np.argsort(value, axis=1)
        cumulative_s = np.cumsum(np.take_along_axis(length_s, order, axis=1), axis=1)
        rank = np.argmax(cumulative_s >= _DAY_S * (percentile / 100 - _EQUAL), axis=1)[:, None]
        limit = np.take_along_axis(value, np.take_along_axis(order, rank, axis=1), axis=1)[:, 0]
        now = signal.value[first[rows]]
        low[rows] = (now < limit) | (now <= value.min(axis=1))
    return low


# -- names and slack --------------------------------------------------------------------------------

_AT_SUBMISSION: dict[str, tuple[Callable[[ShiftableJobs, Series], Floats], bool]] = {
    "lowest_window": (_by_mean(lambda increase, wait, length: increase), True),
    "wait_awhile": (_by_mean(lambda increase, wait, length: increase), True),
    "lowest_slot": (_lowest_slot, False),
    "carbon_time": (_by_mean(lambda increase, wait, length: increase * length / (wait + length)), True),
}
"""Name to the rule, and whether it uses the signal over the whole job rather than at its start."""
SHIFT_RULES = (*_AT_SUBMISSION, "threshold")
"""Names of the load-shifting rules."""


def _rule(rule: str) -> ChooseStart:
    name = rule.strip().partition(":")[0]
    if name not in SHIFT_RULES:
        raise UnknownNameError("load-shifting rule", name, SHIFT_RULES)
    parameters = named_parameters("rule", rule, ("percentile",) if name == "threshold" else ())
    if name in _AT_SUBMISSION:
        choose, whole_job = _AT_SUBMISSION[name]
        return _at_submission(choose, name, whole_job=whole_job)
    percentile = parameters.get("percentile", "30")
    try:
        number = float(percentile)
    except ValueError:
        raise InputError(f"rule {rule!r}: percentile is {percentile!r}, which is not a number") from None
    return _threshold(number)


def _slack(jobs: JobTable, slack_s: float | Mapping[float, float]) -> Floats:
    """Maximum shift of each job, seconds: its column `slack_s` where known, else the default `slack_s`."""
    estimate, column = jobs["estimate_s"], jobs.column("slack_s")
    if isinstance(slack_s, Mapping):
        below = np.array(sorted(slack_s), np.float64)
        values = np.array([slack_s[key] for key in sorted(slack_s)], np.float64)
        place = np.searchsorted(below, estimate, side="right")
        outside = np.isnan(column) & (place == len(below))
        if outside.any():
            longest = float(estimate[outside].max())
            raise InputError(
                f"slack_s has no entry for estimates of {longest:g} s; add math.inf, or a number above it, as the last "
                "key"
            )
        default = np.append(values, 0.0)[place]
    else:
        values = np.array([slack_s], np.float64)
        default = np.full(len(jobs), values[0])
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(f"slack_s is {slack_s!r}; give finite seconds, 0 or more")
    return np.where(np.isnan(column), default, column)
