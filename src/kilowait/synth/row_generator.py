"""Base class of generators that sample independent rows in groups, with the time between them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from kilowait.rng import stream
from kilowait.synth.generator import Generator
from kilowait.synth.log_schema import Columns
from kilowait.synth.sampler import SamplePart, SampleProgress

__all__ = ["RowGenerator"]

GROUP_JOBS = 50_000
"""Maximum jobs of a group. A change alters the jobs of a seed."""


class RowGenerator(Generator):
    """A generator that samples groups of rows."""

    @abstractmethod
    def _group(self, jobs: int, first_s: float, rng: np.random.Generator, progress: SampleProgress) -> Columns:
        """`jobs` rows in order of submission, the first of them at `first_s` in log time."""

    def _stream(self, jobs: int, seed: int, layer: int, progress: SampleProgress) -> Iterator[SamplePart]:
        last_s, number = self.schema.first_s, 0
        while True:
            rng = stream(seed, f"synth.{self.name}.draw.{layer}.{number}")
            repeated = int(number > 0)  # its first row repeats the last one of the previous group
            rows = self._group(min(jobs, GROUP_JOBS) + repeated, last_s, rng, progress)
            rows = {name: column[repeated:] for name, column in rows.items()}
            last_s = float(rows["submit_s"][-1])
            number += 1
            yield rows, last_s
