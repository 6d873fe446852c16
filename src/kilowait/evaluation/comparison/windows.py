"""Train/validation/test split of a log, and evaluation windows.

All policies schedule the same windows. A window begins on an empty machine or, with a warm-up, with earlier
jobs of the log, which load the machine and are not evaluated. All jobs of the window are evaluated,
however long they wait; time averages (utilization, backlog) cover the time in which the window's
jobs are submitted, which does not depend on the policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.series import Ints
from kilowait.units import format_duration


@dataclass(frozen=True)
class Split:
    """A chronological split of a log into training, validation and test jobs."""

    train: JobTable
    """The earliest jobs, for training."""
    validation: JobTable
    """The next jobs, for model selection."""
    test: JobTable
    """The latest jobs, for evaluation only."""

    def row_range(self, part: str) -> tuple[int, int]:
        """Begin and end row of a part in the log sorted by submission: train, validation, test, or all.

        >>> jobs = JobTable(job_id=range(10), submit_s=range(10), runtime_s=[1] * 10, nodes=[1] * 10)
        >>> split(jobs).row_range("test")
        (8, 10)
        """
        first = len(self.train)
        second = first + len(self.validation)
        last = second + len(self.test)
        parts = {"train": (0, first), "validation": (first, second), "test": (second, last), "all": (0, last)}
        if part not in parts:
            raise UnknownNameError("part of the log", part, parts)
        return parts[part]


def split(jobs: JobTable, *, train: float = 0.6, validation: float = 0.2) -> Split:
    """Split the log by submission: the first fraction `train` of the jobs, the next `validation`, and the rest.

    >>> jobs = JobTable(job_id=range(10), submit_s=range(10), runtime_s=[1] * 10, nodes=[1] * 10)
    >>> parts = split(jobs)
    >>> len(parts.train), len(parts.validation), parts.test["job_id"].tolist()
    (6, 2, [8, 9])
    """
    if not (train > 0 and validation > 0 and train + validation < 1):
        raise InputError(
            f"fractions of {train} for training and {validation} for validation; both must be above 0 and their sum "
            "below 1"
        )
    ordered = jobs.sorted()
    first = int(len(jobs) * train)
    second = int(len(jobs) * (train + validation) + 1e-9)
    parts = Split(ordered[:first], ordered[first:second], ordered[second:])
    if not (len(parts.train) and len(parts.validation) and len(parts.test)):
        raise InputError(f"{len(jobs)} job(s) are too few to be split into three parts; give at least 10")
    return parts


@dataclass(frozen=True, eq=False)
class Window:
    """Consecutive jobs of a log: warm-up jobs, then the evaluated jobs."""

    jobs: JobTable
    """By submission; the first `warmup` of them are warm-up jobs."""
    first: int
    """Row of the first evaluated job in the log sorted by submission."""
    warmup: int = 0

    @property
    def evaluated(self) -> npt.NDArray[np.bool_]:
        """Mask of the evaluated jobs."""
        return np.arange(len(self.jobs)) >= self.warmup

    @property
    def size(self) -> int:
        """Number of evaluated jobs."""
        return len(self.jobs) - self.warmup

    @property
    def horizon(self) -> tuple[float, float] | None:
        """First and last submission of the evaluated jobs, seconds; None if they are the same instant."""
        submit = self.jobs["submit_s"]
        first, last = float(submit[self.warmup]), float(submit[-1])
        return (first, last) if last > first else None


@dataclass(frozen=True, eq=False)
class Windows(Sequence[Window]):
    """Windows of one log, in the order of time."""

    jobs: JobTable
    """The log, by submission."""
    first: Ints
    """Per window: row of the first evaluated job."""
    size: Ints
    """Per window: number of evaluated jobs."""
    warmup: Ints
    """Per window: number of warm-up jobs before them."""
    description: str = "the whole log"
    """Description of the windows."""

    def __len__(self) -> int:
        return len(self.first)

    @overload
    def __getitem__(self, index: int) -> Window: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Window]: ...
    def __getitem__(self, index: int | slice) -> Window | Sequence[Window]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        first, size, warmup = int(self.first[index]), int(self.size[index]), int(self.warmup[index])
        return Window(self.jobs[first - warmup : first + size], first, warmup)

    def __iter__(self) -> Iterator[Window]:
        return (self[number] for number in range(len(self)))

    @cached_property
    def overlap(self) -> float:
        """Mean number of windows in which an evaluated job is evaluated: 1 if no windows overlap."""
        change = np.zeros(len(self.jobs) + 1, np.int64)
        np.add.at(change, self.first, 1)
        np.subtract.at(change, self.first + self.size, 1)
        times = np.cumsum(change)
        return float(times.sum() / max(np.count_nonzero(times), 1))


def single_window(jobs: JobTable, *, within: tuple[int, int] | None = None) -> Windows:
    """The log, or its jobs in the row range `within`, as one window on an empty machine.

    >>> jobs = JobTable(job_id=range(3), submit_s=range(3), runtime_s=[1] * 3, nodes=[1] * 3)
    >>> single_window(jobs)[0].size
    3
    """
    if not len(jobs):
        raise InputError("the log has no jobs, so no policies can be compared on it")
    first, last = (0, len(jobs)) if within is None else within
    description = "the whole log" if last - first == len(jobs) else f"jobs {first:,} to {last:,} of the log"
    return Windows(
        jobs.sorted(), np.array([first]), np.array([last - first]), np.array([0]), f"{description}, on an empty machine"
    )


def cut_windows(
    jobs: JobTable,
    count: int,
    *,
    seed: int,
    window_jobs: int | None = None,
    window_s: float | None = None,
    warmup_jobs: int = 0,
    warmup_s: float = 0.0,
    within: tuple[int, int] | None = None,
) -> Windows:
    """Sample `count` windows of `window_jobs` jobs, or of `window_s` seconds, at random positions.

    With `within`, the evaluated jobs lie in this row range of the log (see `Split.row_range`); the warm-up may come
    from before it.

    The windows are disjoint, with gaps of random length between them. If they do not fit, they are spaced evenly with
    minimal overlap (see `Windows.overlap`). The warm-up is a number of earlier jobs or the jobs of
    the `warmup_s` seconds before; without one every window begins on an empty machine. Windows in seconds
    in which no job was submitted are left out.

    >>> jobs = JobTable(job_id=range(10), submit_s=range(10), runtime_s=[1] * 10, nodes=[1] * 10)
    >>> cut = cut_windows(jobs, 3, window_jobs=3, warmup_jobs=1, seed=0)
    >>> [window.jobs["job_id"].tolist() for window in cut], cut.overlap
    ([[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]], 1.0)
    """
    if count < 1:
        raise InputError(f"{count} windows; give at least 1")
    if (window_jobs is None) == (window_s is None):
        raise InputError("give the length of the windows either in jobs or in seconds")
    if warmup_jobs < 0 or not (math.isfinite(warmup_s) and warmup_s >= 0) or (warmup_jobs and warmup_s):
        raise InputError(
            f"a warm-up of {warmup_jobs} jobs and {warmup_s:g} s; give only one of them, 0 or more, or neither"
        )
    ordered = jobs.sorted()
    submit = ordered["submit_s"]
    random = stream(seed, "evaluation.windows")
    from_, to = (0, len(jobs)) if within is None else within
    low = max(from_, warmup_jobs if not warmup_s else _after(submit, warmup_s))
    if window_jobs is not None:
        first, size = _by_count(low, to, count, window_jobs, random)
        length = f"{window_jobs:,} jobs"
    else:
        assert window_s is not None
        first, size = _by_time(submit[:to], low, count, window_s, random)
        length = format_duration(window_s)
    before = np.minimum(warmup_jobs, first)
    if warmup_s:
        before = first - np.searchsorted(submit, submit[first] - warmup_s, side="left")
    start = "each on an empty machine"
    if warmup_jobs or warmup_s:
        start = f"each after {f'{warmup_jobs:,} jobs' if warmup_jobs else format_duration(warmup_s)} of warm-up"
    count_text = f"{len(first)} window{'' if len(first) == 1 else 's'}"
    return Windows(ordered, first, size, before, f"{count_text} of {length} drawn with seed {seed}, {start}")


def _after(submit: npt.NDArray[np.float64], span_s: float) -> int:
    """Row of the first job submitted at least `span_s` after the start of the log."""
    return int(np.searchsorted(submit, submit[0] + span_s, side="left")) if len(submit) else 0


def _by_count(low: int, high: int, count: int, window_jobs: int, random: np.random.Generator) -> tuple[Ints, Ints]:
    if window_jobs < 1:
        raise InputError(f"windows of {window_jobs} jobs; they need at least 1")
    last_start = high - low - window_jobs
    if last_start < 0:
        raise InputError(
            f"a window of {window_jobs:,} jobs does not fit into the {max(high - low, 0):,} available jobs "
            "(warm-up subtracted); use shorter windows, less warm-up or a longer log"
        )
    slack = last_start - (count - 1) * window_jobs
    if slack >= 0:
        first = low + np.sort(random.integers(0, slack + 1, count)) + np.arange(count) * window_jobs
    else:
        first = low + np.linspace(0, last_start, count).astype(np.int64)
    return first, np.full(count, window_jobs)


def _by_time(
    submit: npt.NDArray[np.float64], low: int, count: int, window_s: float, random: np.random.Generator
) -> tuple[Ints, Ints]:
    if not (math.isfinite(window_s) and window_s > 0):
        raise InputError(f"windows of {window_s:g} s; they need a length above 0")
    span = float(submit[-1] - submit[low]) if low < len(submit) else -1.0
    if span < window_s:
        raise InputError(
            f"a window of {format_duration(window_s)} does not fit into the "
            f"{format_duration(max(span, 0.0))} in which jobs are submitted "
            "(warm-up subtracted); use shorter windows, less warm-up or a longer log"
        )
    slack = span - count * window_s
    if slack >= 0:
        start = np.sort(random.random(count)) * slack + np.arange(count) * window_s
    else:
        start = np.linspace(0, span - window_s, count)
    start = submit[low] + start
    first = np.searchsorted(submit, start, side="left")
    size = np.searchsorted(submit, start + window_s, side="left") - first
    nonempty = size > 0
    if not nonempty.any():
        raise InputError(
            f"no job was submitted in any of {count} windows of {format_duration(window_s)}; use longer windows"
        )
    return first[nonempty], size[nonempty]
