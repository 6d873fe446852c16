"""Training windows of consecutive jobs: their first jobs, and the user history a `LinearAgent` knows before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear_batch.agent import OVERRUN, USER_HISTORY_WEIGHT
from kilowait.agents.linear_batch.score import FEATURE_COUNT, compiled_agent_score
from kilowait.agents.training_data import SyntheticMix
from kilowait.agents.user_history import UserHistory, parameters_for, user_histories
from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["random_starts", "even_starts", "WindowSampler", "LogPart", "TrainingWindow"]

Floats = npt.NDArray[np.float64]


def even_starts(jobs: JobTable, windows: int, window_jobs: int) -> list[int]:
    """First jobs of `windows` equally spaced windows, the first at the beginning and the last at the end.

    They overlap if there are more of them than fit side by side.

    >>> jobs = JobTable(job_id=range(10), submit_s=range(10), runtime_s=[1] * 10, nodes=[1] * 10)
    >>> even_starts(jobs, 3, 4)
    [0, 3, 6]
    """
    starts: list[int] = np.linspace(0, _last_start(jobs, windows, window_jobs), windows).astype(np.int64).tolist()
    return starts


def random_starts(jobs: JobTable, windows: int, window_jobs: int, random: np.random.Generator) -> list[int]:
    """First jobs of `windows` windows at random places."""
    starts: list[int] = random.integers(0, _last_start(jobs, windows, window_jobs) + 1, windows).tolist()
    return starts


def _last_start(jobs: JobTable, windows: int, window_jobs: int) -> int:
    if windows < 1 or window_jobs < 1:
        raise InputError(f"{windows} windows of {window_jobs} jobs; ask for at least one of at least one job")
    if window_jobs > len(jobs):
        raise InputError(
            f"a window of {window_jobs:,} jobs is longer than the {len(jobs):,} jobs available; "
            "take shorter windows or a longer log"
        )
    return len(jobs) - window_jobs


SNAPSHOTS = 32
"""Times of the training jobs at which snapshots of the user history are taken."""


@dataclass(frozen=True, eq=False)
class TrainingWindow:
    """Jobs to schedule, and the agent's parameters with the user history before the first of them."""

    jobs: JobTable
    parameters: Floats

    def policy(self, candidate: Floats | str) -> PriorityPolicy | str:
        """The policy of candidate weights as the engine takes it; a policy name is returned unchanged."""
        if isinstance(candidate, str):
            return candidate
        return PriorityPolicy(
            "candidate",
            compiled_agent_score(),
            np.concatenate([candidate, self.parameters[FEATURE_COUNT:]]),
            time_dependent=True,
            observes_jobs=True,
            overrun=OVERRUN,
        )


class LogPart:
    """Jobs of a log, with snapshots of the user history at several times."""

    def __init__(self, jobs: JobTable, cluster: Cluster, window_jobs: int, max_wait_s: float = np.inf) -> None:
        self._jobs, self._nodes, self._window_jobs, self._max_wait_s = (jobs, cluster.nodes, window_jobs, max_wait_s)
        self._snapshot_jobs = np.unique(np.linspace(0, len(jobs), SNAPSHOTS + 1).astype(np.int64))
        self._snapshots = user_histories(jobs, self._snapshot_jobs.tolist())

    @property
    def final_history(self) -> UserHistory:
        """User history after all its jobs."""
        return self._snapshots[len(self._jobs)]

    def sample(self, count: int, random: np.random.Generator) -> list[TrainingWindow]:
        """Windows with random starts, each with the user history of a random earlier time."""
        starts = random_starts(self._jobs, count, self._window_jobs, random)
        return [self.lagged_window(first, int(random.integers(0, len(self._jobs) // 2 + 1))) for first in starts]

    def lagged_window(self, first: int, lag: int) -> TrainingWindow:
        """The window from job `first` on, with the latest snapshot of the history at least `lag` jobs before it."""
        cut = self._snapshot_jobs[np.searchsorted(self._snapshot_jobs, max(first - lag, 0), side="right") - 1]
        return self.window(first, self._snapshots[int(cut)])

    def window(self, first: int, user_history: UserHistory) -> TrainingWindow:
        """The window from job `first` on."""
        jobs = self._jobs[first : first + self._window_jobs]
        return TrainingWindow(
            jobs,
            parameters_for(
                np.zeros(FEATURE_COUNT), jobs, self._nodes, user_history, USER_HISTORY_WEIGHT, self._max_wait_s
            ),
        )


class WindowSampler:
    """Samples training windows from the log's training jobs, from synthetic jobs, or from both.

    Users of synthetic jobs are not users of the log: their history is separate, except for the statistics of all users.
    """

    def __init__(
        self,
        jobs: JobTable,
        synthetic_mix: SyntheticMix | None,
        cluster: Cluster,
        window_jobs: int,
        max_wait_s: float,
        *,
        until_s: float,
    ) -> None:
        """`until_s`: submission time of the first validation job; later jobs are not used for training."""
        self._synthetic_mix = synthetic_mix
        synthetic = () if synthetic_mix is None else synthetic_mix.generated
        self._log = None
        if synthetic_mix is None or not synthetic_mix.alone:
            self._log = LogPart(jobs.sorted(), cluster, window_jobs, max_wait_s)
        self._synthetic = [LogPart(table.sorted(), cluster, window_jobs, max_wait_s) for table in synthetic]
        self._training_tables = (
            [jobs] if self._log is not None else [without_users(table, until_s) for table in synthetic]
        )

    def sample(self, count: int, random: np.random.Generator, share: float | None = None) -> list[TrainingWindow]:
        """Random windows; this share of them (None: the share of the mix) consists of synthetic jobs."""
        if self._synthetic_mix is None:
            assert self._log is not None
            return self._log.sample(count, random)
        share = self._synthetic_mix.share if share is None else share
        windows = []
        for synthetic in (random.random(count) < share).tolist():
            log_part = self._synthetic[int(random.integers(len(self._synthetic)))] if synthetic else self._log
            assert log_part is not None  # the share is 1 where there are no log jobs
            windows += log_part.sample(1, random)
        return windows

    @property
    def final_history(self) -> UserHistory:
        """User history after the training jobs."""
        return self._log.final_history if self._log is not None else user_history_of(self._training_tables)

    def history_with(self, validation: JobTable) -> UserHistory:
        """User history after the training jobs and the validation jobs, which are always of the log."""
        return user_history_of([*self._training_tables, validation])


def without_users(jobs: JobTable, until_s: float) -> JobTable:
    """The same jobs without users, shifted in time so that the last is submitted just before `until_s`."""
    columns = {name: jobs[name] for name in ("job_id", "runtime_s", "estimate_s", "nodes")}
    return JobTable(submit_s=jobs["submit_s"] - jobs["submit_s"].max() + until_s - 1.0, **columns)


def user_history_of(tables: Sequence[JobTable]) -> UserHistory:
    """User history after these jobs, taken in order of submission.

    >>> one = JobTable(job_id=[1], submit_s=[9], runtime_s=[60], nodes=[1], user=[3])
    >>> user_history = user_history_of([without_users(one, until_s=9), one])
    >>> list(user_history.users), float(user_history.all_users[:, 0].sum()) > 1.5
    (['3'], True)
    """
    tables = [table.sorted() for table in tables]
    columns: dict[str, Any] = {
        name: np.concatenate([table.column(name) for table in tables])
        for name in ("submit_s", "runtime_s", "estimate_s", "nodes", "user")
    }
    labels = {"user": tables[-1].labels["user"]} if "user" in tables[-1].labels else {}
    joined = JobTable(job_id=np.arange(1, len(columns["nodes"]) + 1), labels=labels, **columns)
    return user_histories(joined, [len(joined)])[len(joined)]
