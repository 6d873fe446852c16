"""Block bootstrap generator: blocks of whole days of the log, sampled with replacement and concatenated.

Every job is a copy of one in the log, so it gives no privacy. It is the baseline: a learned generator should reach the
same fidelity without copying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kilowait.errors import InputError
from kilowait.rng import stream
from kilowait.synth.generator import Generator, Part, SampleProgress, State
from kilowait.synth.log_schema import DAY_S, Columns

__all__ = ["BootstrapGenerator", "BootstrapSettings"]


@dataclass(frozen=True)
class BootstrapSettings:
    """Settings of the block bootstrap."""

    days: int = 7
    """Length of a block. A block keeps its first weekday of the log."""

    def __post_init__(self) -> None:
        if not self.days >= 1:
            raise InputError(f"blocks of {self.days} days; days must be at least 1")


class BootstrapGenerator(Generator):
    """Generator that resamples blocks of days of the log."""

    name = "bootstrap"
    settings_type = BootstrapSettings
    personal_data = "whole weeks of jobs of the log, copied, under new numbers of users and accounts"
    _rows: Columns

    def _learn(self, rows: Columns, progress: SampleProgress) -> None:
        self._rows = rows

    def _stream(self, jobs: int, seed: int, layer: int, progress: SampleProgress) -> Iterator[Part]:
        rows, days = self._rows, self.settings.days
        zero_s = self.schema.zero_s
        day = ((rows["submit_s"] + zero_s) // DAY_S).astype(np.int64)
        first = int(day[0])
        # A block may begin on any day from which it lies within the log; a log shorter than one is one block.
        starts = np.arange(first, max(int(day[-1]) + 2 - days, first + 1))
        low, high = np.searchsorted(day, starts), np.searchsorted(day, starts + days)
        rng = stream(seed, f"synth.bootstrap.{layer}")
        place = first
        while True:
            alike = np.flatnonzero((starts - place) % 7 == 0)
            block = int(rng.choice(alike if len(alike) else np.arange(len(starts))))
            drawn = {name: column[low[block] : high[block]] for name, column in rows.items()}
            drawn["submit_s"] = drawn["submit_s"] + (place - int(starts[block])) * DAY_S
            place += days
            # The log begins in the middle of a day; blocks begin with one.
            since = drawn["submit_s"] >= self.schema.first_s
            yield {name: column[since] for name, column in drawn.items()}, place * DAY_S - zero_s

    def _state(self) -> State:
        return dict(self._rows)

    def _restore(self, state: State) -> None:
        self._rows = {name: state[name] for name in ("submit_s", *self.schema.columns)}
