"""Sampling of workloads: superposed layers of generated jobs, thinned by weight, cut, and scaled to a load.

A generator gives *layers*: endless samples of the same workload at the same time, each a stream of parts in bounded
memory. A job of layer k, with a random number u from 0 to 1 and a weight w, has the score (k + u) / w, and belongs to a
workload of density d if that is below d. So at density 1 jobs of weight 2 come from two layers, jobs of
weight 1/2 from half of the first, and a higher density gives more jobs of all kinds at the same hours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.rng import stream
from kilowait.synth.conditions import Conditions
from kilowait.synth.log_schema import DAY_S, Columns, LogSchema
from kilowait.synth.what_if import Changes, Weights

__all__ = ["SampleRequest", "Layers", "Part", "SampleProgress", "drawn", "expected_jobs"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Part = tuple[Columns, float]
"""Jobs, and a time before which no later part of the stream has any."""
SampleProgress = Callable[[str, float], None]
"""Progress callback: current activity and completed share."""
Layers = Callable[[int, SampleProgress], Iterator[Part]]
"""Function that gives a layer by its number; its callback gets the share of the current part."""

MOST_DRAWN = 50
"""Maximum samples per requested job, plus two log lengths, before conditions are rejected as impossible."""
MOST_LAYERS = 64
AHEAD = 20_000
"""Maximum jobs of the pilot sample without changes."""
MARGIN = 1.5
"""Oversampling factor for a target load; the sample is then thinned."""
ATTEMPTS = 4
EXCHANGES = 20
"""Maximum number of jobs exchanged to reach a load."""
SCORE = "score"


@dataclass(frozen=True)
class SampleRequest:
    """Parameters of a sample."""

    jobs: int | None
    days: float | None
    """From the log's first submission on; jobs or days is None."""
    seed: int
    wanted: Conditions
    changes: Changes
    work: str = "nodes"
    """Column whose product with the run time is the work of a job."""
    capacity: float | None = None
    """Capacity of the machine in that column; None: its nodes."""

    def check(self) -> None:
        """Raise unless exactly one of jobs and days is given and positive."""
        if (self.jobs is None) == (self.days is None):
            given = "both" if self.jobs is not None else "neither"
            raise InputError(f"{given} of jobs and days are given; give the number of jobs or of days")
        jobs, days = self.jobs, self.days
        if jobs is not None and (isinstance(jobs, bool) or jobs != int(jobs) or jobs < 1):
            raise InputError(f"the number of jobs is {jobs}; it must be a whole number, at least 1")
        if days is not None and not (math.isfinite(days) and days > 0):
            raise InputError(f"the number of days is {days}; it must be above 0")


def drawn(
    layers: Layers, facts: LogSchema, asked: SampleRequest, progress: SampleProgress
) -> Iterator[Columns]:
    """Yield the requested jobs in parts, in order of submission."""
    drawing = _Sampling(layers, facts, asked, progress)
    changes = asked.changes
    ahead = drawing.ahead() if changes.looks_ahead else None
    weights = changes.weights(ahead)
    if ahead is None or (changes.load is None and changes.nodes is None):
        for rows in drawing.cut(weights, 1.0, asked.jobs):
            del rows[SCORE]
            yield rows
        return
    capacity = asked.capacity or changes.nodes or facts.machine
    has = drawing.rate(ahead, weights)
    if changes.load is not None:
        goal = changes.load * capacity
    else:
        goal = has / facts.machine * capacity
    yield from drawing.at_rate(weights, goal, goal / drawing.rate(changes.resized(ahead), weights))


def expected_jobs(facts: LogSchema, asked: SampleRequest) -> int:
    """Expected number of jobs of a sample."""
    if asked.jobs is not None:
        return int(asked.jobs)
    assert asked.days is not None
    return max(1, math.ceil(facts.jobs * asked.days * DAY_S / facts.span_s))


class _Sampling:
    """State of one sampling run."""

    def __init__(
        self, layers: Layers, facts: LogSchema, asked: SampleRequest, progress: SampleProgress
    ) -> None:
        self._layers, self._facts, self._asked, self._told = layers, facts, asked, progress
        self._drawn = self._met = 0
        """Number of jobs of the first layer, and of those that match."""
        self._done, self._coming = 0.0, 1.0
        """Completed share of the sample, and share of the next part."""
        self._end_s = math.inf if asked.days is None else facts.first_s + asked.days * DAY_S

    def ahead(self) -> Columns:
        """Pilot sample: jobs that match the conditions, without changes."""
        most = min(AHEAD, max(1000, expected_jobs(self._facts, self._asked)))
        parts = list(self.cut(Weights(), 1.0, most, resized=False))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def rate(self, rows: Columns, weights: Weights) -> float:
        """Work per second, jobs counted by weight."""
        span_s = float(np.ptp(rows["submit_s"]))
        if not span_s > 0:
            raise InputError(
                f"{len(rows['submit_s'])} job(s) have no offered load; at least two different "
                "submission times are needed"
            )
        work = float((self._work(rows) * weights.of(rows)).sum())
        if not work > 0:
            raise InputError(
                f"the requested jobs have no {self._asked.work} or no run time, so that their load is always 0"
            )
        return work / span_s

    def _work(self, rows: Columns) -> Floats:
        if self._asked.work not in rows:
            raise InputError(f"these jobs have no column {self._asked.work!r}, so they have no such load")
        work: Floats = rows[self._asked.work] * rows["runtime_s"]
        return work

    # -- streams -----------------------------------------------------------------------------------

    def cut(
        self, weights: Weights, density: float, jobs: int | None, *, resized: bool = True
    ) -> Iterator[Columns]:
        """Jobs at a density, up to a number of jobs or the horizon, with scores."""
        count = math.ceil(density * weights.most)
        if count > MOST_LAYERS:
            raise InputError(
                f"this needs {count:,} superposed copies of the workload, and the maximum is {MOST_LAYERS}; "
                "use smaller factors or a lower load"
            )
        self._drawn = self._met = found = 0
        most = math.inf if jobs is None else jobs
        expected = expected_jobs(self._facts, self._asked) if jobs is None else jobs
        self._done, self._coming = 0.0, 1.0
        layers = [self._layer(number, weights, density, resized) for number in range(max(count, 1))]
        for part, until_s in merged(layers):
            left = int(min(most - found, (part["submit_s"] < self._end_s).sum()))
            if left:
                found += left
                yield _chosen(part, slice(left))
            self._coming = max(0.0, min(found / expected - self._done, 1 - found / expected))
            self._done = min(1.0, found / expected)
            self._told("drawing jobs", self._done)
            if found >= most or until_s >= self._end_s:
                break
            if jobs is not None and self._drawn >= MOST_DRAWN * jobs + 2 * self._facts.jobs:
                raise InputError(f"{self._rare()}, and {jobs:,} are requested; {self._remedy()}")
        if not found:
            raise InputError(f"{self._rare()} in {self._asked.days:g} days; {self._remedy()}")

    def _heard(self, what: str, share: float) -> None:
        """Report progress within a part, which is about as large as the previous one."""
        self._told(what, self._done + share * self._coming)

    def _rare(self) -> str:
        said = ", ".join(filter(None, [str(self._asked.wanted), str(self._asked.changes)]))
        return f"conditions {said or '(none)'}: {self._met:,} of {self._drawn:,} sampled jobs match them all"

    def _remedy(self) -> str:
        return "such jobs are too rare in the workload: widen the conditions"

    def _layer(self, number: int, weights: Weights, density: float, resized: bool) -> Iterator[Part]:
        rng = stream(self._asked.seed, f"synth.layer.{number}")
        facts, changes = self._facts, self._asked.changes
        for part, until_s in self._layers(number, self._heard):
            limit_s = part["estimate_s"] + facts.most_over_s
            part["runtime_s"] = np.minimum(part["runtime_s"], limit_s)
            if facts.exact_requests:
                part["estimate_s"] = part["runtime_s"]
            rows = _chosen(part, self._asked.wanted.met(part))
            weight = weights.of(rows)
            with np.errstate(divide="ignore"):
                rows[SCORE] = (number + rng.random(len(weight))) / weight
            rows = _chosen(rows, rows[SCORE] < density)
            if number == 0:
                self._drawn += len(limit_s)
                self._met += len(rows[SCORE])
            yield (changes.resized(rows) if resized else rows), until_s

    # -- load --------------------------------------------------------------------------------------

    def at_rate(self, weights: Weights, goal: float, density: float) -> Iterator[Columns]:
        """Jobs at the density that gives `goal` work per second.

        Jobs are oversampled into files, and then selected.
        """
        jobs = self._asked.jobs
        with TemporaryDirectory(prefix="kilowait-") as folder:
            for attempt in range(ATTEMPTS):
                kept = self._kept(weights, MARGIN * density, Path(folder))
                taken, way = kept.density_for(goal, jobs, MARGIN * density)
                if way == 0 or attempt == ATTEMPTS - 1:
                    yield from kept.parts(kept.chosen(taken, goal, jobs), goal)
                    return
                density *= 2.0**way

    def _kept(self, weights: Weights, density: float, folder: Path) -> _StoredJobs:
        """Sample jobs at a density into files, about twice as many as needed."""
        jobs = self._asked.jobs
        files: list[Path] = []
        columns: list[tuple[Floats, Floats, Floats]] = []
        for rows in self.cut(weights, density, None if jobs is None else 2 * jobs):
            files.append(folder / f"{len(files)}.npz")
            np.savez(files[-1], allow_pickle=False, **rows)
            columns.append((rows["submit_s"], self._work(rows), rows[SCORE]))
        submit, work, score = (np.concatenate(column) for column in zip(*columns, strict=True))
        return _StoredJobs(files, submit, work, score)


@dataclass(frozen=True)
class _StoredJobs:
    """Oversampled jobs in files, with the data to select among them."""

    files: list[Path]
    submit_s: Floats
    work: Floats
    score: Floats

    def rate(self, density: float, jobs: int | None) -> float:
        """Work per second at a density."""
        chosen = np.flatnonzero(self.score < density)[:jobs]
        if len(chosen) < 2:
            return 0.0
        span_s = float(self.submit_s[chosen[-1]] - self.submit_s[chosen[0]])
        return float(self.work[chosen].sum()) / span_s if span_s > 0 else math.inf

    def density_for(self, goal: float, jobs: int | None, most: float) -> tuple[float, int]:
        """The density with `goal` work per second; and 0 if it is within the sample, 1 above, -1 below."""
        if self.rate(most, jobs) < goal:
            return most, 1
        low, high = 0.0, most
        if jobs is not None:
            low = math.nextafter(float(np.partition(self.score, jobs - 1)[jobs - 1]), math.inf)
            if self.rate(low, jobs) > goal:
                return low, -1
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if self.rate(middle, jobs) > goal else (middle, high)
        return high, 0

    def chosen(self, density: float, goal: float, jobs: int | None) -> Ints:
        """Select jobs at a density; a few are exchanged for others so that the work matches the goal.

        At any density a large job is too many or too few. Without the exchange, time would have to be scaled
        by about a per cent, which shifts the daily cycle after some weeks.
        """
        chosen = np.flatnonzero(self.score < density)[:jobs]
        if not (len(chosen) > 1 and self.submit_s[chosen[-1]] > self.submit_s[chosen[0]]):
            raise InputError(
                f"{len(chosen)} job(s) have no offered load; at least two different submission times are needed"
            )
        lacks = goal * float(self.submit_s[chosen[-1]] - self.submit_s[chosen[0]]) - self.work[chosen].sum()
        others = np.setdiff1d(np.arange(chosen[0], chosen[-1]), chosen)
        others = others[np.argsort(self.work[others], kind="stable")]
        for _ in range(EXCHANGES):
            if len(chosen) < 3 or not len(others):
                break
            fits = np.searchsorted(self.work[others], self.work[chosen[1:-1]] + lacks)
            fits = np.minimum(fits, len(others) - 1)
            gains = self.work[others[fits]] - self.work[chosen[1:-1]]
            place = int(np.argmin(np.abs(gains - lacks)))
            if not abs(gains[place] - lacks) < abs(lacks):
                break
            lacks -= gains[place]
            chosen[1 + place] = others[fits[place]]
            others = np.delete(others, fits[place])
        return np.sort(chosen)

    def parts(self, chosen: Ints, goal: float) -> Iterator[Columns]:
        """Yield the selected jobs; the remaining difference to `goal` work per second is corrected by scaling time."""
        moments, total = self.submit_s[chosen], float(self.work[chosen].sum())
        if not total > 0:
            raise InputError(
                "the requested jobs have no work, so that their load is always 0; request more jobs"
            )
        stretch = total / goal / float(moments[-1] - moments[0])
        place = 0
        for file in self.files:
            with np.load(file, allow_pickle=False) as columns:
                rows = {name: columns[name] for name in columns.files}
            count = len(rows.pop(SCORE))
            low, high = np.searchsorted(chosen, (place, place + count))
            rows = _chosen(rows, chosen[low:high] - place)
            place += count
            if high > low:
                rows["submit_s"] = np.round(moments[0] + (rows["submit_s"] - moments[0]) * stretch)
                yield rows


def merged(layers: list[Iterator[Part]]) -> Iterator[Part]:
    """Merge streams in order of submission.

    >>> def layer(*moments):
    ...     for moment in moments:
    ...         yield {"submit_s": np.array([moment, moment + 7.0])}, moment + 5.0
    >>> both = merged([layer(0.0, 5.0), layer(0.0, 5.0)])
    >>> [(part["submit_s"].tolist(), until_s) for part, until_s in both]
    [([0.0, 0.0], 5.0), ([5.0, 5.0, 7.0, 7.0], 10.0)]
    """
    until_s = [-math.inf] * len(layers)
    held: list[Columns] = []
    while True:
        slowest = int(np.argmin(until_s))
        before_s = until_s[slowest]
        try:
            rows, until_s[slowest] = next(layers[slowest])
        except StopIteration:
            return
        held.append(rows)
        edge_s = min(until_s)
        if edge_s == before_s:
            continue
        every = {name: np.concatenate([part[name] for part in held]) for name in rows}
        order = np.argsort(every["submit_s"], kind="stable")
        ready = int(np.searchsorted(every["submit_s"][order], edge_s))
        held = [_chosen(every, order[ready:])]
        yield _chosen(every, order[:ready]), edge_s


def _chosen(rows: Columns, which: npt.NDArray[Any] | slice) -> Columns:
    return {name: column[which] for name, column in rows.items()}
