"""The bootstrap: blocks of whole days of the log, drawn with replacement and set one after another.

Every job is a copy of one in the log, so nobody is hidden by it. It is the baseline: a learned generator should
look as real without copying.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.seeding import stream
from kilowait.synth.facts import DAY_S, Columns
from kilowait.synth.generator import Generator, State, Told

__all__ = ["Bootstrap", "BootstrapSettings"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BootstrapSettings:
    """What one can set."""

    days: int = 7
    """Length of a block. A block begins on the weekday on which it begins in the log."""

    def __post_init__(self) -> None:
        if not self.days >= 1:
            raise InputError(f"blocks of {self.days} days; they must have at least 1")


class Bootstrap(Generator):
    """Blocks of days, drawn again."""

    name = "bootstrap"
    settings_type = BootstrapSettings
    holds = "whole weeks of jobs of the log, copied, under new numbers of users and accounts"
    _rows: Columns

    def _learn(self, rows: Columns, told: Told) -> None:
        self._rows = rows

    def _draw(self, jobs: int, seed: int, told: Told) -> Columns:
        rows, days = self._rows, self.settings.days
        zero_s = self.facts.zero_s
        day = ((rows["submit_s"] + zero_s) // DAY_S).astype(np.int64)
        first = int(day[0])
        # A block may begin on any day from which it lies within the log; a log shorter than one is one block.
        starts = np.arange(first, max(int(day[-1]) + 2 - days, first + 1))
        low, high = np.searchsorted(day, starts), np.searchsorted(day, starts + days)
        rng = stream(seed, "synth.bootstrap")
        picked: list[Ints] = []
        moved: list[npt.NDArray[np.float64]] = []
        found = 0
        place = first
        while found < jobs:
            alike = np.flatnonzero((starts - place) % 7 == 0)
            block = int(rng.choice(alike if len(alike) else np.arange(len(starts))))
            chosen = np.arange(low[block], high[block])
            picked.append(chosen)
            moved.append(np.full(len(chosen), (place - int(starts[block])) * DAY_S))
            found += len(chosen)
            place += days
            told("drawing", found / jobs)
        chosen = np.concatenate(picked)
        drawn = {name: column[chosen] for name, column in rows.items()}
        drawn["submit_s"] = drawn["submit_s"] + np.concatenate(moved)
        return drawn

    def _state(self) -> State:
        return dict(self._rows)

    def _restore(self, state: State) -> None:
        self._rows = {name: state[name] for name in ("submit_s", *self.facts.columns)}
