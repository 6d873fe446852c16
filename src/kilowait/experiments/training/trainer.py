"""Trainers of agents: all check the log, train, test on later jobs, and save the agent's folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from kilowait.agents.training_data import SyntheticMix
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.comparison import Windows, cut_windows, split
from kilowait.evaluation.storage import results_writer, save_folder
from kilowait.experiments.power import PowerTraining
from kilowait.experiments.training.evaluate import evaluate_gpu_agent
from kilowait.experiments.training.power_evaluation import evaluate_power_agent
from kilowait.files import locks_output
from kilowait.jobs import JobTable

BASELINES = ("fcfs", "sjf", "saf", "f1", "wfp3")
"""Policies that a trained agent is compared with."""


@dataclass(frozen=True)
class TrainingRun:
    """Name of the log, folder and progress of one run of a trainer."""

    trace: str
    folder: Path | None = None
    """Folder of the checkpoints, which are written after every generation or update; None: none are written."""
    resume: bool = False
    """Whether to continue exactly from the checkpoint in the folder."""
    progress: Callable[[Any], None] | None = None
    """Called with every generation or update."""
    mixture: SyntheticMix | None = None
    """Synthetic jobs that are added to the training."""


@dataclass(frozen=True)
class Trainer(ABC):
    """Trains agents of one kind on the first 60 % of a log, selects on the next 20 % and tests on the last 20 %."""

    settings: Any
    power: PowerTraining | None = None
    """Power model and controls of agents that use power controls; they are known once the log has been read."""

    takes_power: ClassVar[bool] = False

    @property
    def backfill(self) -> str | int:
        """Backfilling in the training and in the test."""
        backfill: str | int = self.settings.backfill
        return backfill

    @property
    def steps(self) -> int:
        """Number of generations or updates, for the progress."""
        return int(self.settings.generations)

    @property
    def record(self) -> dict[str, Any]:
        """The settings as plain data, for scenario.toml."""
        return {"algo": "cma-es", **vars(self.settings)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the training."""
        return ()

    def progress_text(self, done: Any) -> tuple[str, bool, int]:
        """Text of a finished generation or update, whether it is shown without a terminal, and its number."""
        return self._generation_text(done), done.number % 10 == 0, done.number

    def _generation_text(self, done: Any) -> str:
        raise NotImplementedError

    def logger(self, folder: Path, trace: str, wandb: str | None) -> AbstractContextManager[Callable[[Any], None]]:
        """A function that logs every generation or update to TensorBoard, and to a Weights & Biases project."""
        return nullcontext(lambda done: None)

    @property
    def reward_terms(self) -> Mapping[str, float]:
        """Terms of the reward and the constraint; some need a power model."""
        return {}

    def check(self, jobs: JobTable, cluster: Cluster) -> None:
        """Raise an InputError, before the training, if the log is too short to test the agent."""
        later_windows(jobs, self.settings.window_jobs)

    @locks_output("run", inside=True)
    def train(self, jobs: JobTable, cluster: Cluster, run: TrainingRun) -> tuple[Any, list[Any]]:
        """An agent, trained on the first 60 % of a log and selected on the next 20 %; and its training history."""
        parts = split(jobs)
        return self._train(parts.train, parts.validation, cluster, run)

    @abstractmethod
    def _train(
        self, training: JobTable, validation: JobTable, cluster: Cluster, run: TrainingRun
    ) -> tuple[Any, list[Any]]: ...

    def evaluate(self, agent: Any, jobs: JobTable, cluster: Cluster, trace: str) -> dict[str, Any]:
        """Test results on the last 20 % of the log, as plain data."""
        windows = later_windows(jobs, self.settings.window_jobs)
        if self.power is None:
            return evaluate_gpu_agent(agent, windows, cluster, seed=self.settings.seed)
        return evaluate_power_agent(
            agent, windows, self.power, backfill=self.backfill, objective=self._objective, seed=self.settings.seed
        )

    @property
    def _objective(self) -> str:
        return str(self.settings.objective)

    def front(self, agent: Any, jobs: JobTable, cluster: Cluster) -> dict[str, Any] | None:
        """Test results under every preference; None for an agent without several objectives."""
        return None

    def search_outcome(self, agent: Any) -> str | None:
        """How the search of the agent ended, as a sentence; None for an agent that was not searched."""
        return None

    def objective_record(self, cluster: Cluster) -> dict[str, str]:
        """The objective of the training for reports, unless it is in the file of the agent."""
        return {}

    def write(self, agent: Any, folder: Path) -> None:
        """Write the file of the agent, unless the training has done it."""
        provenance = {name: value for name, value in agent.provenance.items() if name != "explained"}
        replace(agent, provenance=provenance).save(folder / "agent.json")

    def save(
        self,
        out: str | PathLike[str],
        agent: Any,
        history: Sequence[Any],
        *,
        scenario: Mapping[str, Any],
        results: Mapping[str, Any],
        manifest: Mapping[str, Any],
        force: bool = False,
    ) -> Path:
        """Write the folder of the agent: its file, the scenario, the history of the training and the results."""
        content = {"training": [asdict(item) for item in history], **self._content(agent, Path(out)), **results}

        def fill(folder: Path) -> None:
            self._write_agent(agent, Path(out), folder)
            results_writer({**scenario, "training": self.record}, content)(folder)

        return save_folder(out, fill, kind="agent", manifest=manifest, force=force)

    def _content(self, agent: Any, out: Path) -> dict[str, Any]:
        """Results of the training, besides its history."""
        meanings = self._meanings
        explained = {"explained": agent.provenance["explained"]} if "explained" in agent.provenance else {}
        return {
            "objective": agent.provenance.get("objective"),
            "search_outcome": self.search_outcome(agent),
            "weights": [[name, weight, meanings[name]] for name, weight in agent.explain()],
            **explained,
        }

    @property
    def _meanings(self) -> Mapping[str, str]:
        """Meanings of the weights of a linear agent."""
        raise NotImplementedError

    def _write_agent(self, agent: Any, out: Path, folder: Path) -> None:
        """Write the file of the agent into the folder that becomes `out`."""
        self.write(agent, folder)


def later_windows(jobs: JobTable, window_jobs: int) -> Windows:
    """The last 20 % of a log, cut into consecutive windows.

    >>> log = JobTable(job_id=range(20), submit_s=range(20), runtime_s=[1] * 20, nodes=[1] * 20)
    >>> [window.size for window in later_windows(log, 2)]
    [2, 2]
    """
    later = split(jobs).test
    count = len(later) // window_jobs
    if count == 0:
        raise InputError(
            f"the {len(later):,} test jobs, the last 20 % of the log, are fewer than one window of {window_jobs:,} "
            "jobs; choose a shorter --window"
        )
    first = window_jobs * np.arange(count)
    return Windows(later, first, np.full(count, window_jobs), np.zeros(count, np.int64), "consecutive windows")


def windows_of_test_split(jobs: JobTable, window_jobs: int, *, seed: int) -> Windows:
    """As many windows without overlap as fit into the last 20 % of a log."""
    within = split(jobs).row_range("test")
    test_jobs = within[1] - within[0]
    if test_jobs < window_jobs:
        raise InputError(
            f"the last 20 % of the log, {test_jobs:,} jobs, are fewer than a window of {window_jobs:,}; "
            "use shorter windows"
        )
    return cut_windows(jobs, test_jobs // window_jobs, window_jobs=window_jobs, seed=seed, within=within)
