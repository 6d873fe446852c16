"""Generators of rows that know nothing of one another but the time between them: drawn in groups, one after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from kilowait.rng import stream
from kilowait.synth.generator import Generator
from kilowait.synth.log_schema import Columns
from kilowait.synth.sampler import Part, SampleProgress

__all__ = ["GROUP", "RowGenerator"]

GROUP = 50_000
"""Jobs of a group at most. It is part of what a seed means: other groups are other jobs."""


class RowGenerator(Generator):
    """A generator that draws groups of rows."""

    @abstractmethod
    def _group(self, jobs: int, first_s: float, rng: np.random.Generator, told: SampleProgress) -> Columns:
        """`jobs` rows in order of submission, the first of them at `first_s` on the log's clock."""

    def _stream(self, jobs: int, seed: int, layer: int, told: SampleProgress) -> Iterator[Part]:
        now_s, number = self.facts.first_s, 0
        while True:
            rng = stream(seed, f"synth.{self.name}.draw.{layer}.{number}")
            again = int(number > 0)  # its first row stands for the last one of the group before
            rows = self._group(min(jobs, GROUP) + again, now_s, rng, told)
            rows = {name: column[again:] for name, column in rows.items()}
            now_s = float(rows["submit_s"][-1])
            number += 1
            yield rows, now_s
