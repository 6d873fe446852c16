"""Windows that a `LinearAgent` is searched on, each with what is known of its users before the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.window_starts import drawn_starts
from kilowait.agents.linear_batch.agent import OVERRUN, TRUST
from kilowait.agents.linear_batch.score import COUNT, compiled
from kilowait.agents.training_data import SyntheticMix
from kilowait.agents.user_history import UserHistory, memories, parameters_for
from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.jobs import JobTable

__all__ = ["WindowSampler", "LogPart", "TrainingWindow"]

Floats = npt.NDArray[np.float64]

CUTS = 32
"""Moments of the training jobs at which it is known what was known then."""


@dataclass(frozen=True, eq=False)
class TrainingWindow:
    """Jobs to schedule, and what is known of their users before the first of them."""

    jobs: JobTable
    parameters: Floats

    def rule(self, candidate: Floats | str) -> PriorityPolicy | str:
        """Candidate weights as the engine takes them; a rule is its name."""
        if isinstance(candidate, str):
            return candidate
        return PriorityPolicy(
            "candidate",
            compiled(),
            np.concatenate([candidate, self.parameters[COUNT:]]),
            time_dependent=True,
            observes_jobs=True,
            overrun=OVERRUN,
        )


class LogPart:
    """A part of a log, and what was known at several moments of it."""

    def __init__(
        self, jobs: JobTable, cluster: Cluster, window_jobs: int, max_wait_s: float = np.inf
    ) -> None:
        self._jobs, self._nodes, self._length, self._bound = jobs, cluster.nodes, window_jobs, max_wait_s
        self._cuts = np.unique(np.linspace(0, len(jobs), CUTS + 1).astype(np.int64))
        self._known = memories(jobs, self._cuts.tolist())

    @property
    def at_the_end(self) -> UserHistory:
        """What all its jobs taught."""
        return self._known[len(self._jobs)]

    def drawn(self, count: int, random: np.random.Generator) -> list[TrainingWindow]:
        """Windows that begin anywhere, with what was known some time before."""
        starts = drawn_starts(self._jobs, count, self._length, random)
        return [self.lagging(first, int(random.integers(0, len(self._jobs) // 2 + 1))) for first in starts]

    def lagging(self, first: int, lag: int) -> TrainingWindow:
        """The window from job `first` on, with what was known `lag` jobs before it, or somewhat earlier."""
        cut = self._cuts[np.searchsorted(self._cuts, max(first - lag, 0), side="right") - 1]
        return self.window(first, self._known[int(cut)])

    def window(self, first: int, memory: UserHistory) -> TrainingWindow:
        """The window from job `first` on."""
        jobs = self._jobs[first : first + self._length]
        return TrainingWindow(
            jobs, parameters_for(np.zeros(COUNT), jobs, self._nodes, memory, TRUST, self._bound)
        )


class WindowSampler:
    """What windows to learn from are drawn from: a log's training jobs, generated ones beside them, or these alone.

    Users of generated jobs are nobody of the log: what they taught stays among them, except what holds for anybody.
    """

    def __init__(
        self,
        jobs: JobTable,
        mixture: SyntheticMix | None,
        cluster: Cluster,
        window_jobs: int,
        max_wait_s: float,
        *,
        until_s: float,
    ) -> None:
        """`until_s`: when the later jobs begin, which are not learned from."""
        self._mixture = mixture
        made = () if mixture is None else mixture.generated
        self._real = None
        if mixture is None or not mixture.alone:
            self._real = LogPart(jobs.sorted(), cluster, window_jobs, max_wait_s)
        self._made = [LogPart(table.sorted(), cluster, window_jobs, max_wait_s) for table in made]
        self._learned = [jobs] if self._real is not None else [nobodys(table, until_s) for table in made]

    def drawn(
        self, count: int, random: np.random.Generator, share: float | None = None
    ) -> list[TrainingWindow]:
        """Windows, this share of them (None: as the mixture says) of generated jobs."""
        if self._mixture is None:
            assert self._real is not None
            return self._real.drawn(count, random)
        share = self._mixture.share if share is None else share
        found = []
        for generated in (random.random(count) < share).tolist():
            from_ = self._made[int(random.integers(len(self._made)))] if generated else self._real
            assert from_ is not None  # the share is 1 where there are no real jobs
            found += from_.drawn(1, random)
        return found

    @property
    def at_the_end(self) -> UserHistory:
        """What is known after the training jobs."""
        return self._real.at_the_end if self._real is not None else memory_of(self._learned)

    def and_later(self, validation: JobTable) -> UserHistory:
        """What is known after the later jobs too, which are real."""
        return memory_of([*self._learned, validation])


def nobodys(jobs: JobTable, until_s: float) -> JobTable:
    """The same jobs, of users who are not known, the last of them submitted before `until_s`."""
    columns = {name: jobs[name] for name in ("job_id", "runtime_s", "estimate_s", "nodes")}
    return JobTable(submit_s=jobs["submit_s"] - jobs["submit_s"].max() + until_s - 1.0, **columns)


def memory_of(parts: Sequence[JobTable]) -> UserHistory:
    """What these jobs taught, by the time they were submitted.

    >>> one = JobTable(job_id=[1], submit_s=[9], runtime_s=[60], nodes=[1], user=[3])
    >>> memory = memory_of([nobodys(one, until_s=9), one])
    >>> list(memory.users), float(memory.usual[:, 0].sum()) > 1.5
    (['3'], True)
    """
    parts = [part.sorted() for part in parts]
    columns: dict[str, Any] = {
        name: np.concatenate([part.column(name) for part in parts])
        for name in ("submit_s", "runtime_s", "estimate_s", "nodes", "user")
    }
    labels = {"user": parts[-1].labels["user"]} if "user" in parts[-1].labels else {}
    joined = JobTable(job_id=np.arange(1, len(columns["nodes"]) + 1), labels=labels, **columns)
    return memories(joined, [len(joined)])[len(joined)]
