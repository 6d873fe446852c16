"""Mixing synthetic jobs with a log's own jobs in training: their share, and when they are used.

Agents are validated and tested on jobs of the log, whatever they were trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

CURRICULA = {
    "mixed": "mixed at random during the whole training",
    "synthetic-first": "only synthetic jobs at first, for their share of the training; then only log jobs",
}
"""When synthetic jobs are used, by name."""

WEEK_S = 7 * 86400.0
USER_COLUMNS = ("user", "account")
"""Columns that each generator numbers from 0; an episode lies within one part, so numbers of two parts never mix."""
REQUEST_COLUMNS = ("runtime_s", "estimate_s", "nodes", "cores", "memory_mb", "gpus", "queue")
"""Columns of the run time and the request of a job; those that not all parts have are left out."""


@dataclass(frozen=True, eq=False)
class SyntheticMix:
    """Synthetic jobs to train on.

    >>> synthetic = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1])
    >>> [SyntheticMix((synthetic,), 0.25, "synthetic-first").share_at(done) for done in (0.0, 0.2, 0.25, 0.9)]
    [1.0, 1.0, 0.0, 0.0]
    """

    generated: tuple[JobTable, ...]
    """One table a generator; all are sampled equally often."""
    share: float = 0.5
    """Share of synthetic training windows (of episodes for networks): 0 is none, 1 is synthetic jobs only."""
    curriculum: str = "mixed"
    """A name of `CURRICULA`."""

    def __post_init__(self) -> None:
        if not self.generated:
            raise InputError("there are no synthetic jobs to mix in; give at least one table of them")
        if not 0.0 <= self.share <= 1.0:  # excludes NaN
            raise InputError(
                f"the share of synthetic jobs is {self.share}; it must be from 0 (log jobs only) to 1 (synthetic only)"
            )
        if self.curriculum not in CURRICULA:
            raise UnknownNameError("curriculum", self.curriculum, CURRICULA)

    @property
    def alone(self) -> bool:
        """Whether only synthetic jobs are trained on."""
        return self.share == 1.0

    @property
    def tables(self) -> dict[str, JobTable]:
        """The synthetic job tables by name, for messages."""
        return {f"generated ({number})": table for number, table in enumerate(self.generated, 1)}

    def share_at(self, done: float) -> float:
        """The share of synthetic jobs after this share, 0 to 1, of the training."""
        if self.curriculum == "mixed":
            return self.share
        return 1.0 if done < self.share else 0.0

    @property
    def record(self) -> dict[str, Any]:
        """The mix as plain data, for the provenance."""
        return {
            "generated_jobs": [len(table) for table in self.generated],
            "synthetic_share": self.share,
            "synthetic_curriculum": self.curriculum,
        }


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Log jobs and synthetic jobs one after another in one table, as environments have one table."""

    jobs: JobTable
    parts: tuple[tuple[int, int], ...]
    """First row of each part, and the row after its last; an episode stays within one part."""
    has_log_jobs: bool
    """Whether the first part contains the log's jobs."""

    def weights(self, share: float) -> list[float]:
        """Sampling probability of each part at this share of synthetic jobs."""
        if not self.has_log_jobs:
            return [1.0 / len(self.parts)] * len(self.parts)
        synthetic = len(self.parts) - 1
        return [1.0 - share, *([share / synthetic] * synthetic)]


def joined_table(jobs: JobTable, synthetic_mix: SyntheticMix) -> TrainingTable:
    """Log jobs (unless only synthetic jobs are trained on), followed by those of each generator.

    Synthetic jobs are shifted by whole weeks, which keeps hours and weekdays.

    >>> has_log_jobs = JobTable(job_id=[7, 8], submit_s=[0, 60], runtime_s=[9, 9], nodes=[1, 1])
    >>> synthetic = JobTable(job_id=[1], submit_s=[30], runtime_s=[5], nodes=[2])
    >>> table = joined_table(has_log_jobs, SyntheticMix((synthetic,), 0.5))
    >>> table.parts, table.jobs["submit_s"].tolist()
    (((0, 2), (2, 3)), [0.0, 60.0, 604830.0])
    >>> table.weights(0.2)
    [0.8, 0.2]
    """
    has_log_jobs = not synthetic_mix.alone
    tables = [_plain(table) for table in ([jobs] if has_log_jobs else []) + list(synthetic_mix.generated)]
    submits, parts, row, last_submit_s = [], [], 0, -np.inf
    for table in tables:
        submit = table["submit_s"]
        weeks = 0.0 if last_submit_s == -np.inf else np.floor((last_submit_s - submit[0]) / WEEK_S) + 1
        submits.append(submit + weeks * WEEK_S)
        parts.append((row, row + len(table)))
        row, last_submit_s = row + len(table), float(submits[-1][-1])
    queues = tables[0].labels.get("queue")
    shared_columns = [name for name in REQUEST_COLUMNS if all(name in table for table in tables)]
    if any(table.labels.get("queue") != queues for table in tables):
        shared_columns = [
            name for name in shared_columns if name != "queue"
        ]  # the numbers mean other queues in the other table
    columns: dict[str, Any] = {
        name: np.concatenate([table.column(name) for table in tables]) for name in (*shared_columns, *USER_COLUMNS)
    }
    labels = {"queue": queues} if "queue" in shared_columns and queues is not None else {}
    joined = JobTable(
        job_id=np.arange(1, row + 1), submit_s=np.concatenate(submits), labels=labels, meta=jobs.meta, **columns
    )
    return TrainingTable(joined, tuple(parts), has_log_jobs)


def _plain(table: JobTable) -> JobTable:
    """Jobs sorted by submission, or by their earliest start where that is later, as environments take them."""
    if "begin_s" in table:
        table = table.with_columns(submit_s=np.maximum(table["submit_s"], table["begin_s"]), begin_s=None)
    return table.sorted()
