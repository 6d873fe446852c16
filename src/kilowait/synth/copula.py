"""Gaussian copula generator: marginal distributions of the log, and the rank correlations of its columns.

Jobs are sampled independently. The distribution of interarrival times is right, but daily cycles, sessions and repeated
jobs are missing, as in any generic table model. (R. B. Nelsen, An Introduction to Copulas, 2006.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from kilowait.errors import InputError
from kilowait.files.array_file import StoredArrays
from kilowait.rng import stream
from kilowait.synth.generator import Generator, State
from kilowait.synth.log_schema import LIMITS, TIME_COLUMNS, Columns, Floats, check_length, prefixed, whole_floats
from kilowait.synth.sampler import SamplePart, SampleProgress

GAP_COLUMN = "gap_s"
"""Time since the previous submission of any user."""
GROUP_JOBS = 50_000
"""Maximum number of jobs sampled at a time."""


@dataclass(frozen=True)
class CopulaSettings:
    """Settings of the Gaussian copula."""

    margin: int = 20_000
    """Maximum number of values stored per column, evenly spaced by rank."""

    def __post_init__(self) -> None:
        if not self.margin >= 2:
            raise InputError(f"margin is {self.margin}; it must be at least 2 values")


class CopulaGenerator(Generator):
    """Generator with the log's marginal distributions and rank correlations."""

    name = "copula"
    settings_type = CopulaSettings
    personal_data = "the values of every column, rare ones included, but not which values belong to one job"
    _margins: dict[str, Floats]
    _root: Floats
    """A square root of the correlation of the normal scores."""

    def _learn(self, rows: Columns, progress: SampleProgress) -> None:
        columns = {GAP_COLUMN: np.diff(rows["submit_s"])} | {
            name: rows[name][1:].astype(np.float64) for name in self.schema.columns
        }
        rng = stream(self.seed, "synth.copula")
        scores = []
        self._margins = {}
        for index, (name, values) in enumerate(columns.items()):
            progress("ranking columns", index / len(columns))
            # Ties get their ranks in random order, so that the scores remain normal.
            ranks = np.empty(len(values))
            ranks[np.lexsort((rng.random(len(values)), values))] = np.arange(len(values))
            scores.append(ndtri((ranks + 0.5) / len(values)))
            stored = np.linspace(0, len(values) - 1, min(len(values), self.settings.margin)).round().astype(np.int64)
            self._margins[name] = np.sort(values)[stored]
        weight, vectors = np.linalg.eigh(np.corrcoef(np.stack(scores)))
        self._root = vectors * np.sqrt(np.maximum(weight, 0.0))

    def _stream(self, jobs: int, seed: int, layer: int, progress: SampleProgress) -> Iterator[SamplePart]:
        rng = stream(seed, f"synth.copula.draw.{layer}")
        last_s, at_start = self.schema.first_s, True
        while True:
            uniforms = ndtr(rng.standard_normal((min(jobs, GROUP_JOBS), len(self._root))) @ self._root.T)
            rows: Columns = {}
            for index, (name, margin) in enumerate(self._margins.items()):
                values = margin[np.minimum((uniforms[:, index] * len(margin)).astype(np.int64), len(margin) - 1)]
                floating = name in (GAP_COLUMN, "estimate_s", "runtime_s", "energy_j")
                rows[name] = values if floating else values.astype(np.int64)
            gaps = rows.pop(GAP_COLUMN)
            submit = last_s + np.cumsum(gaps) - (gaps[0] if at_start else 0.0)
            last_s, at_start = float(submit[-1]), False
            yield {"submit_s": submit, **rows}, last_s

    def _state(self) -> State:
        return {"root": self._root} | prefixed("margin", self._margins)

    def _restore(self, state: StoredArrays) -> None:
        columns = 1 + len(self.schema.columns)
        self._root = state.floats("root", columns, columns, minimum=-1e3, maximum=1e3)
        self._margins = {}
        for name in (GAP_COLUMN, *self.schema.columns):
            stored_name = f"margin.{name}"
            low, high = LIMITS.get(name, (0.0, self.schema.span_s))
            if name in self.schema.numbered:
                low, high = 0, self.schema.numbered[name] - 1
            margin = state.floats(stored_name, None, minimum=low, maximum=high, nan=name == "energy_j", ascending=True)
            if name != GAP_COLUMN and name not in TIME_COLUMNS:
                whole_floats(state, stored_name, margin)
            self._margins[name] = check_length(state, stored_name, margin)
