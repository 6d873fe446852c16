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
from kilowait.synth.log_schema import DAY_S, Columns, Floats, Ints, LogSchema
from kilowait.synth.what_if import JobWeights, WorkloadChanges

SamplePart = tuple[Columns, float]
"""Jobs, and a time before which no later part of the stream has any."""
SampleProgress = Callable[[str, float], None]
"""Progress callback: current activity and completed share."""
Layers = Callable[[int, SampleProgress], Iterator[SamplePart]]
"""Function that gives a layer by its number; its callback gets the share of the current part."""

MAX_SAMPLED = 50
"""Maximum samples per requested job, plus two log lengths, before conditions are rejected as impossible."""
MAX_LAYERS = 64
PILOT_JOBS = 20_000
"""Maximum jobs of the pilot sample without changes."""
OVERSAMPLING = 1.5
"""Oversampling factor for a target load; the sample is then thinned."""
ATTEMPTS = 4
EXCHANGES = 20
"""Maximum number of jobs exchanged to reach a load."""
SCORE_COLUMN = "score"

MAX_JOBS = 10**9
"""Maximum number of jobs of a sample."""
MAX_DAYS = 1_000_000
"""Maximum number of days of a sample."""


@dataclass(frozen=True)
class SampleRequest:
    """Parameters of a sample."""

    jobs: int | None
    days: float | None
    """From the log's first submission on; jobs or days is None."""
    seed: int
    conditions: Conditions
    changes: WorkloadChanges
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
        if jobs is not None and (isinstance(jobs, bool) or jobs != int(jobs) or not 1 <= jobs <= MAX_JOBS):
            raise InputError(f"the number of jobs is {jobs}; it must be a whole number from 1 to {MAX_JOBS:,}")
        if days is not None and not 0 < days <= MAX_DAYS:
            raise InputError(f"the number of days is {days}; it must be above 0 and at most {MAX_DAYS:,}")


def sample_parts(
    layers: Layers, schema: LogSchema, request: SampleRequest, progress: SampleProgress
) -> Iterator[Columns]:
    """Yield the requested jobs in parts, in order of submission."""
    sampling = _Sampling(layers, schema, request, progress)
    changes = request.changes
    pilot = sampling.pilot() if changes.needs_pilot else None
    weights = changes.weights(pilot)
    if pilot is None or (changes.load is None and changes.nodes is None):
        for rows in sampling.cut(weights, 1.0, request.jobs):
            del rows[SCORE_COLUMN]
            yield rows
        return
    capacity = request.capacity or changes.nodes or schema.machine
    base_rate = sampling.rate(pilot, weights)
    if changes.load is not None:
        target_rate = changes.load * capacity
    else:
        target_rate = base_rate / schema.machine * capacity
    yield from sampling.at_rate(weights, target_rate, target_rate / sampling.rate(changes.resized(pilot), weights))


def expected_job_count(schema: LogSchema, request: SampleRequest) -> int:
    """Expected number of jobs of a sample."""
    if request.jobs is not None:
        return int(request.jobs)
    assert request.days is not None
    return max(1, math.ceil(schema.jobs * request.days * DAY_S / schema.span_s))


class _Sampling:
    """State of one sampling run."""

    def __init__(self, layers: Layers, schema: LogSchema, request: SampleRequest, progress: SampleProgress) -> None:
        self._layers, self._schema, self._request, self._progress = layers, schema, request, progress
        self._sampled = self._matched = 0
        """Number of jobs of the first layer, and of those that match."""
        self._done, self._next_share = 0.0, 1.0
        """Completed share of the sample, and estimated share of the next part."""
        self._expected, self._requested = 0, ""
        """Number of jobs that are expected, and the number requested, as text."""
        self._end_s = math.inf if request.days is None else schema.first_s + request.days * DAY_S

    def pilot(self) -> Columns:
        """Pilot sample: jobs that match the conditions, without changes."""
        max_jobs = min(PILOT_JOBS, max(1000, expected_job_count(self._schema, self._request)))
        parts = list(self.cut(JobWeights(), 1.0, max_jobs, resized=False))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def rate(self, rows: Columns, weights: JobWeights) -> float:
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
                f"the requested jobs have no {self._request.work} or no run time, so that their load is always 0"
            )
        return work / span_s

    def _work(self, rows: Columns) -> Floats:
        if self._request.work not in rows:
            raise InputError(f"these jobs have no column {self._request.work!r}, so they have no such load")
        work: Floats = rows[self._request.work] * rows["runtime_s"]
        return work

    # -- streams -----------------------------------------------------------------------------------

    def cut(self, weights: JobWeights, density: float, jobs: int | None, *, resized: bool = True) -> Iterator[Columns]:
        """Jobs at a density, up to a number of jobs or the horizon, with scores."""
        count = math.ceil(density * weights.most)
        if count > MAX_LAYERS:
            raise InputError(
                f"this needs {count:,} superposed copies of the workload, and the maximum is {MAX_LAYERS}; "
                "use smaller factors or a lower load"
            )
        self._sampled = self._matched = yielded = 0
        max_jobs = math.inf if jobs is None else jobs
        self._requested = "" if jobs is None else f", and {jobs:,} are requested"
        expected_jobs = expected_job_count(self._schema, self._request) if jobs is None else jobs
        self._expected = expected_jobs
        self._done, self._next_share = 0.0, 1.0
        layers = [self._layer(number, weights, density, resized) for number in range(max(count, 1))]
        for part, complete_until_s in merged(layers):
            taken = int(min(max_jobs - yielded, (part["submit_s"] < self._end_s).sum()))
            if taken:
                yielded += taken
                yield _select(part, slice(taken))
            self._next_share = max(0.0, min(yielded / expected_jobs - self._done, 1 - yielded / expected_jobs))
            self._done = min(1.0, yielded / expected_jobs)
            self._progress("sampling jobs", self._done)
            if yielded >= max_jobs or complete_until_s >= self._end_s:
                break
        if not yielded:
            raise InputError(f"{self._match_count_text()} in {self._request.days:g} days; {self._remedy()}")

    def _part_progress(self, what: str, share: float) -> None:
        """Report progress within a part, which is about as large as the previous one."""
        self._progress(what, self._done + share * self._next_share)

    def _match_count_text(self) -> str:
        conditions = ", ".join(filter(None, [str(self._request.conditions), str(self._request.changes)]))
        counts = f"{self._matched:,} of {self._sampled:,} sampled jobs match them all"
        return f"conditions {conditions or '(none)'}: {counts}"

    def _remedy(self) -> str:
        return "such jobs are too rare in the workload: widen the conditions"

    def _layer(self, number: int, weights: JobWeights, density: float, resized: bool) -> Iterator[SamplePart]:
        rng = stream(self._request.seed, f"synth.layer.{number}")
        schema, changes = self._schema, self._request.changes
        for part, until_s in self._layers(number, self._part_progress):
            limit_s = part["estimate_s"] + schema.most_over_s
            part["runtime_s"] = np.minimum(part["runtime_s"], limit_s)
            if schema.exact_requests:
                part["estimate_s"] = part["runtime_s"]
            rows = _select(part, self._request.conditions.met(part))
            weight = weights.of(rows)
            with np.errstate(divide="ignore"):
                rows[SCORE_COLUMN] = (number + rng.random(len(weight))) / weight
            rows = _select(rows, rows[SCORE_COLUMN] < density)
            if number == 0:
                # Also without a number of jobs: the times of a workload may not advance.
                if self._sampled >= MAX_SAMPLED * self._expected + 2 * schema.jobs:
                    raise InputError(f"{self._match_count_text()}{self._requested}; {self._remedy()}")
                self._sampled += len(limit_s)
                self._matched += len(rows[SCORE_COLUMN])
            yield (changes.resized(rows) if resized else rows), until_s

    # -- load --------------------------------------------------------------------------------------

    def at_rate(self, weights: JobWeights, target_rate: float, density: float) -> Iterator[Columns]:
        """Jobs at the density that gives `target_rate` work per second.

        Jobs are oversampled into files, and then selected.
        """
        jobs = self._request.jobs
        with TemporaryDirectory(prefix="kilowait-") as folder:
            for attempt in range(ATTEMPTS):
                stored = self._stored(weights, OVERSAMPLING * density, Path(folder))
                chosen_density, direction = stored.density_for(target_rate, jobs, OVERSAMPLING * density)
                if direction == 0 or attempt == ATTEMPTS - 1:
                    yield from stored.parts(stored.select(chosen_density, target_rate, jobs), target_rate)
                    return
                density *= 2.0**direction

    def _stored(self, weights: JobWeights, density: float, folder: Path) -> _StoredJobs:
        """Sample jobs at a density into files, about twice as many as needed."""
        jobs = self._request.jobs
        files: list[Path] = []
        columns: list[tuple[Floats, Floats, Floats]] = []
        for rows in self.cut(weights, density, None if jobs is None else 2 * jobs):
            files.append(folder / f"{len(files)}.npz")
            np.savez(files[-1], allow_pickle=False, **rows)
            columns.append((rows["submit_s"], self._work(rows), rows[SCORE_COLUMN]))
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

    def density_for(self, target_rate: float, jobs: int | None, max_density: float) -> tuple[float, int]:
        """The density with `target_rate` work per second; and 0 if it is within the sample, 1 above, -1 below."""
        if self.rate(max_density, jobs) < target_rate:
            return max_density, 1
        low, high = 0.0, max_density
        if jobs is not None:
            low = math.nextafter(float(np.partition(self.score, jobs - 1)[jobs - 1]), math.inf)
            if self.rate(low, jobs) > target_rate:
                return low, -1
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if self.rate(middle, jobs) > target_rate else (middle, high)
        return high, 0

    def select(self, density: float, target_rate: float, jobs: int | None) -> Ints:
        """Select jobs at a density; a few are exchanged so that the work matches the target.

        The work changes in steps as large as a large job. Without the exchange, time would have to be scaled
        by about one per cent, which shifts the daily cycle after some weeks.
        """
        chosen = np.flatnonzero(self.score < density)[:jobs]
        if not (len(chosen) > 1 and self.submit_s[chosen[-1]] > self.submit_s[chosen[0]]):
            raise InputError(
                f"{len(chosen)} job(s) have no offered load; at least two different submission times are needed"
            )
        missing_work = (
            target_rate * float(self.submit_s[chosen[-1]] - self.submit_s[chosen[0]]) - self.work[chosen].sum()
        )
        unused = np.setdiff1d(np.arange(chosen[0], chosen[-1]), chosen)
        unused = unused[np.argsort(self.work[unused], kind="stable")]
        for _ in range(EXCHANGES):
            if len(chosen) < 3 or not len(unused):
                break
            best_fit = np.searchsorted(self.work[unused], self.work[chosen[1:-1]] + missing_work)
            best_fit = np.minimum(best_fit, len(unused) - 1)
            gain = self.work[unused[best_fit]] - self.work[chosen[1:-1]]
            best = int(np.argmin(np.abs(gain - missing_work)))
            if not abs(gain[best] - missing_work) < abs(missing_work):
                break
            missing_work -= gain[best]
            chosen[1 + best] = unused[best_fit[best]]
            unused = np.delete(unused, best_fit[best])
        return np.sort(chosen)

    def parts(self, chosen: Ints, target_rate: float) -> Iterator[Columns]:
        """Yield the selected jobs; time is scaled so that the work per second is exactly `target_rate`."""
        submit_s, total_work = self.submit_s[chosen], float(self.work[chosen].sum())
        if not total_work > 0:
            raise InputError("the requested jobs have no work, so that their load is always 0; request more jobs")
        time_factor = total_work / target_rate / float(submit_s[-1] - submit_s[0])
        first_row = 0
        for file in self.files:
            with np.load(file, allow_pickle=False) as columns:
                rows = {name: columns[name] for name in columns.files}
            count = len(rows.pop(SCORE_COLUMN))
            low, high = np.searchsorted(chosen, (first_row, first_row + count))
            rows = _select(rows, chosen[low:high] - first_row)
            first_row += count
            if high > low:
                rows["submit_s"] = np.round(submit_s[0] + (rows["submit_s"] - submit_s[0]) * time_factor)
                yield rows


def merged(layers: list[Iterator[SamplePart]]) -> Iterator[SamplePart]:
    """Merge streams in order of submission.

    >>> def layer(*times_s):
    ...     for time_s in times_s:
    ...         yield {"submit_s": np.array([time_s, time_s + 7.0])}, time_s + 5.0
    >>> both = merged([layer(0.0, 5.0), layer(0.0, 5.0)])
    >>> [(part["submit_s"].tolist(), until_s) for part, until_s in both]
    [([0.0, 0.0], 5.0), ([5.0, 5.0, 7.0, 7.0], 10.0)]
    """
    until_s = [-math.inf] * len(layers)
    buffered: list[Columns] = []
    while True:
        number = int(np.argmin(until_s))
        previous_s = until_s[number]
        try:
            rows, until_s[number] = next(layers[number])
        except StopIteration:
            return
        buffered.append(rows)
        complete_until_s = min(until_s)
        if complete_until_s == previous_s:
            continue
        all_rows = {name: np.concatenate([part[name] for part in buffered]) for name in rows}
        order = np.argsort(all_rows["submit_s"], kind="stable")
        count = int(np.searchsorted(all_rows["submit_s"][order], complete_until_s))
        buffered = [_select(all_rows, order[count:])]
        yield _select(all_rows, order[:count]), complete_until_s


def _select(rows: Columns, which: npt.NDArray[Any] | slice) -> Columns:
    return {name: column[which] for name, column in rows.items()}
