"""Block bootstrap generator: blocks of whole days of the log, sampled with replacement and concatenated.

Every job is a copy of one in the log, so it gives no privacy. It is the baseline: a learned generator should reach the
same fidelity without copying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kilowait.errors import InputError
from kilowait.files.array_file import StoredArrays
from kilowait.rng import stream
from kilowait.synth.generator import Generator, State
from kilowait.synth.log_schema import DAY_S, Columns, check_length, modeled_column
from kilowait.synth.sampler import SamplePart, SampleProgress


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
    personal_data = "copies of the jobs of the log, in blocks of days, with new numbers of users and accounts"
    _rows: Columns

    def _learn(self, rows: Columns, progress: SampleProgress) -> None:
        self._rows = rows

    def _stream(self, jobs: int, seed: int, layer: int, progress: SampleProgress) -> Iterator[SamplePart]:
        rows, days = self._rows, self.settings.days
        zero_s = self.schema.zero_s
        day = ((rows["submit_s"] + zero_s) // DAY_S).astype(np.int64)
        first_day = int(day[0])
        # A block begins on any day from which it fits into the log; a log shorter than a block is one block.
        starts = np.arange(first_day, max(int(day[-1]) + 2 - days, first_day + 1))
        begin, end = np.searchsorted(day, starts), np.searchsorted(day, starts + days)
        rng = stream(seed, f"synth.bootstrap.{layer}")
        next_day = first_day
        while True:
            same_weekday = np.flatnonzero((starts - next_day) % 7 == 0)
            index = int(rng.choice(same_weekday if len(same_weekday) else np.arange(len(starts))))
            block_rows = {name: column[begin[index] : end[index]] for name, column in rows.items()}
            block_rows["submit_s"] = block_rows["submit_s"] + (next_day - int(starts[index])) * DAY_S
            next_day += days
            # The log may begin in the middle of a day; blocks begin at midnight.
            in_log = block_rows["submit_s"] >= self.schema.first_s
            yield {name: column[in_log] for name, column in block_rows.items()}, next_day * DAY_S - zero_s

    def _state(self) -> State:
        return dict(self._rows)

    def _restore(self, state: StoredArrays) -> None:
        schema = self.schema
        # Rounding: log times can be large.
        tolerance_s = 1.0 + 1e-9 * abs(schema.first_s)
        submit_s = state.floats(
            "submit_s",
            None,
            minimum=schema.first_s - tolerance_s,
            maximum=schema.first_s + schema.span_s + tolerance_s,
            ascending=True,
        )
        check_length(state, "submit_s", submit_s)
        self._rows = {"submit_s": submit_s}
        for name in schema.columns:
            highest = schema.numbered[name] - 1 if name in schema.numbered else None
            self._rows[name] = modeled_column(state, name, name, len(submit_s), highest=highest)
