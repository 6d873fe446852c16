"""Predictions through time: fitted on schedule on jobs that had ended by then, and asked about the next days' jobs.

Every job is predicted by a model that knows nothing of what ended after the model's date, from features that know
nothing of what happened after the job's submission. So the whole log can be predicted and replayed, and nobody has
looked ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.predict.features import Features

__all__ = ["RefitSchedule", "Refit", "WalkForwardResult", "walk_forward"]

Floats = npt.NDArray[np.float64]

Learned = Callable[[Floats], npt.NDArray[Any]]
"""(n, features) in, (n, width) out."""
Learn = Callable[[Floats, Floats], Learned]
"""Rows of features and what came out, ln(value) less the anchor; gives what was learned."""


@dataclass(frozen=True)
class RefitSchedule:
    """How a predictor is kept up to date."""

    every_s: float = 7 * 86400.0
    """Between fits, seconds."""
    jobs: int = 12_000
    """Ended jobs a fit learns from at most, the latest."""
    least: int = 200
    """Ended jobs before the first fit; until then the anchor is the prediction."""
    calibrate: int = 2_000
    """Ended jobs the levels of quantiles are calibrated on at most, the latest."""

    def __post_init__(self) -> None:
        if not (self.every_s > 0 and self.jobs >= self.least >= 2 and self.calibrate >= 1):
            raise InputError(
                f"fits every {self.every_s:g} s on {self.least} to {self.jobs} jobs, calibrated on {self.calibrate}; "
                "the time must be above 0, and the jobs at least 2 and in order"
            )


@dataclass(frozen=True)
class Refit:
    """One fit that was made."""

    number: int
    of: int
    jobs: int
    """It learned from."""


@dataclass(frozen=True, eq=False)
class WalkForwardResult:
    """What the models said of all jobs."""

    values: npt.NDArray[Any]
    """(n, width); rows of jobs before the first fit are 0."""
    fit: npt.NDArray[np.int64]
    """(n,) which fit said it, -1: none yet."""
    known: tuple[npt.NDArray[np.int64], ...]
    """Of each fit: the jobs of which the truth was known by its date, the latest last."""


def walk_forward(
    features: Features,
    difference: Floats,
    submit_s: Floats,
    known_s: Floats,
    learn: Learn,
    width: int,
    how: RefitSchedule | None = None,
    *,
    since: int = 0,
    threads: int = 1,
    progress: Callable[[Refit], None] | None = None,
) -> WalkForwardResult:
    """Let every job be predicted by the latest model before its submission.

    Args:
        features: of the jobs, in order of submission.
        difference: what came out, ln(value) less the anchor; NaN: not known, not learned from. It is looked at only of
            jobs of which it was known by the date of a fit.
        submit_s: of the jobs, seconds.
        known_s: since when it is known of each, seconds.
        learn: makes a model.
        width: numbers a model says of a job.
        how: see `Online`.
        since: the first row that is asked of; fits for earlier rows alone are left out, which changes no later one.
        threads: fits at a time; they do not change the result.
        progress: hears of every fit.
    """
    how = how or RefitSchedule()
    jobs = len(features)
    values = np.zeros((jobs, width), np.float32)
    fit = np.full(jobs, -1, np.int64)
    by_end = np.argsort(known_s, kind="stable")
    by_end = by_end[np.isfinite(difference[by_end])]
    plan = [one for one in _plan(submit_s, known_s[by_end], how) if one[1] > since]

    def asked(one: tuple[int, int, int]) -> npt.NDArray[Any]:
        begin, end, known = one
        rows = by_end[max(0, known - how.jobs) : known]
        return learn(features.values[rows], difference[rows])(features.values[begin:end])

    with ThreadPoolExecutor(threads) as pool:
        for number, ((begin, end, known), said) in enumerate(zip(plan, pool.map(asked, plan), strict=True)):
            values[begin:end] = said
            fit[begin:end] = number
            if progress is not None:
                progress(Refit(number + 1, len(plan), min(known, how.jobs)))
    return WalkForwardResult(
        values, fit, tuple(by_end[max(0, known - how.calibrate) : known] for _, _, known in plan)
    )


def _plan(submit_s: Floats, ends: Floats, how: RefitSchedule) -> Iterator[tuple[int, int, int]]:
    """For every fit: the jobs it is asked of (from, to), and how many had ended by its date."""
    if len(submit_s) == 0:
        return
    date = submit_s[0] + how.every_s
    while date <= submit_s[-1]:
        begin, end = np.searchsorted(submit_s, [date, date + how.every_s])
        known = int(np.searchsorted(ends, date))
        if known >= how.least and end > begin:
            yield int(begin), int(end), known
        date += how.every_s
