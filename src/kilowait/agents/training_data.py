"""Generated jobs beside a log's own in a training: which share of what is learned from they are, and when.

An agent is chosen and judged on real jobs, whatever it was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

__all__ = ["CURRICULA", "TrainingTable", "SyntheticMix", "laid_out"]

CURRICULA = {
    "mixed": "all the time, each window by the throw of a coin",
    "synthetic-first": "generated jobs alone in the first part of the training, as long as their share of it",
}
"""When generated jobs are learned from."""

WEEK_S = 7 * 86400.0
PEOPLE = ("user", "account")
"""Numbered anew by each generator; an episode is all of one part, so they need not be told apart between parts."""
TAKEN = ("runtime_s", "estimate_s", "nodes", "cores", "memory_mb", "gpus", "queue")
"""What a job takes; of those beyond run time, estimate and nodes only what all parts know."""


@dataclass(frozen=True, eq=False)
class SyntheticMix:
    """Generated jobs to learn from.

    >>> made = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1])
    >>> [SyntheticMix((made,), 0.25, "synthetic-first").share_at(done) for done in (0.0, 0.2, 0.25, 0.9)]
    [1.0, 1.0, 0.0, 0.0]
    """

    generated: tuple[JobTable, ...]
    """One table a generator; each is drawn from as often as the others."""
    share: float = 0.5
    """Of all windows (episodes of networks) that are learned from: 0 is none of them, 1 is synthetic jobs only."""
    curriculum: str = "mixed"
    """A name of `CURRICULA`."""

    def __post_init__(self) -> None:
        if not self.generated:
            raise InputError("there are no generated jobs to mix in; give at least one table of them")
        if not 0.0 <= self.share <= 1.0:  # NaN is not
            raise InputError(
                f"the share of generated jobs is {self.share}; it must be from 0 (real jobs only) to 1 (synthetic only)"
            )
        if self.curriculum not in CURRICULA:
            raise UnknownNameError("curriculum", self.curriculum, CURRICULA)

    @property
    def alone(self) -> bool:
        """Whether nothing is learned from real jobs."""
        return self.share == 1.0

    @property
    def tables(self) -> dict[str, JobTable]:
        """The generated jobs by a name, for those who tell of them."""
        return {f"generated ({place})": table for place, table in enumerate(self.generated, 1)}

    def share_at(self, done: float) -> float:
        """The share of generated jobs when `done`, 0 to 1, of the training is done."""
        if self.curriculum == "mixed":
            return self.share
        return 1.0 if done < self.share else 0.0

    @property
    def words(self) -> dict[str, Any]:
        """What it is, for the record."""
        return {
            "generated_jobs": [len(table) for table in self.generated],
            "synthetic_share": self.share,
            "synthetic_curriculum": self.curriculum,
        }


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Real and generated jobs one after another in one table, for environments, which have one log."""

    jobs: JobTable
    parts: tuple[tuple[int, int], ...]
    """First row of each part, and the row after its last; an episode is within one of them."""
    real: bool
    """Whether the first part is that of the real jobs."""

    def weights(self, share: float) -> list[float]:
        """How often each part is drawn from at this share of generated jobs."""
        if not self.real:
            return [1.0 / len(self.parts)] * len(self.parts)
        made = len(self.parts) - 1
        return [1.0 - share, *([share / made] * made)]


def laid_out(jobs: JobTable, mixture: SyntheticMix) -> TrainingTable:
    """Real jobs, unless nothing is learned from them, and after them those of each generator.

    Generated jobs are moved by whole weeks, so that hours and weekdays are what they were.

    >>> real = JobTable(job_id=[7, 8], submit_s=[0, 60], runtime_s=[9, 9], nodes=[1, 1])
    >>> made = JobTable(job_id=[1], submit_s=[30], runtime_s=[5], nodes=[2])
    >>> laid = laid_out(real, SyntheticMix((made,), 0.5))
    >>> laid.parts, laid.jobs["submit_s"].tolist()
    (((0, 2), (2, 3)), [0.0, 60.0, 604830.0])
    >>> laid.weights(0.2)
    [0.8, 0.2]
    """
    real = not mixture.alone
    tables = [_plain(table) for table in ([jobs] if real else []) + list(mixture.generated)]
    moved, parts, row, free_s = [], [], 0, -np.inf
    for table in tables:
        submit = table["submit_s"]
        weeks = 0.0 if free_s == -np.inf else np.floor((free_s - submit[0]) / WEEK_S) + 1
        moved.append(submit + weeks * WEEK_S)
        parts.append((row, row + len(table)))
        row, free_s = row + len(table), float(moved[-1][-1])
    queues = tables[0].labels.get("queue")
    known = [name for name in TAKEN if all(name in table for table in tables)]
    if any(table.labels.get("queue") != queues for table in tables):
        known = [name for name in known if name != "queue"]  # the same number is another queue there
    columns: dict[str, Any] = {
        name: np.concatenate([table.column(name) for table in tables]) for name in (*known, *PEOPLE)
    }
    labels = {"queue": queues} if "queue" in known and queues is not None else {}
    made = JobTable(
        job_id=np.arange(1, row + 1), submit_s=np.concatenate(moved), labels=labels, meta=jobs.meta, **columns
    )
    return TrainingTable(made, tuple(parts), real)


def _plain(table: JobTable) -> JobTable:
    """By submission, or by when jobs may begin where that is later, as environments take them."""
    if "begin_s" in table:
        table = table.with_columns(submit_s=np.maximum(table["submit_s"], table["begin_s"]), begin_s=None)
    return table.sorted()
