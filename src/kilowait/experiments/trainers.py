"""Trainers: one for every kind of agent, all with the same steps: check the log, train, test on later jobs, save."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from kilowait.agents import FEATURES
from kilowait.agents.training_data import SyntheticMix
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.comparison import split
from kilowait.evaluation.storage.folder import read_json
from kilowait.experiments import train_batch, train_gpu, train_power, train_rl
from kilowait.experiments.agent_folder import save_agent_folder
from kilowait.experiments.comparison_results import summarize_comparison
from kilowait.experiments.evaluate_gpu import evaluate_gpu_agent
from kilowait.experiments.evaluate_power import evaluate_power_agent
from kilowait.experiments.pareto import preference_front
from kilowait.experiments.resume_checks import training_folder
from kilowait.jobs import JobTable

__all__ = [
    "BASELINES",
    "BatchTrainer",
    "GpuTrainer",
    "NetworkTrainer",
    "PowerTrainer",
    "Trainer",
    "evaluate_with_power",
]

BASELINES = ("fcfs", "sjf", "saf", "f1", "wfp3")
"""Policies that a trained agent is compared with."""


@dataclass(frozen=True)
class Trainer(ABC):
    """Trains agents of one kind on the first 60 % of a log, selects on the next 20 % and tests on the last 20 %."""

    settings: Any
    power: train_power.PowerTraining | None = None
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

    def check(self, jobs: JobTable, cluster: Cluster) -> None:
        """Raise an InputError, before the training, if the log is too short to test the agent."""
        later_windows(jobs, self.settings.window_jobs)

    def train(
        self,
        jobs: JobTable,
        cluster: Cluster,
        *,
        trace: str,
        folder: Path,
        resume: bool = False,
        progress: Callable[[Any], None] | None = None,
        mixture: SyntheticMix | None = None,
    ) -> tuple[Any, list[Any]]:
        """An agent and the history of its training; the checkpoints are in `folder`.

        `progress` is called with every generation or update.
        """
        common: dict[str, Any] = {"folder": folder, "resume": resume, "progress": progress}
        return self._train(jobs, cluster, trace, mixture, common)

    @abstractmethod
    def _train(
        self, jobs: JobTable, cluster: Cluster, trace: str, mixture: SyntheticMix | None, common: dict[str, Any]
    ) -> tuple[Any, list[Any]]: ...

    def evaluate(self, agent: Any, jobs: JobTable, cluster: Cluster, trace: str) -> dict[str, Any]:
        """Test results on the last 20 % of the log, as plain data."""
        windows = later_windows(jobs, self.settings.window_jobs)
        if self.power is None:
            return evaluate_gpu_agent(agent, windows, cluster, seed=self.settings.seed)
        return evaluate_with_power(
            agent, windows, cluster, self.power, self.backfill, objective=self._objective, seed=self.settings.seed
        )

    @property
    def _objective(self) -> str:
        return str(self.settings.objective)

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
        return save_agent_folder(
            out,
            lambda folder: self._fill(agent, Path(out), folder),
            content,
            scenario={**scenario, "training": self.record},
            manifest=manifest,
            force=force,
        )

    def _content(self, agent: Any, out: Path) -> dict[str, Any]:
        """Results of the training, besides its history."""
        meanings = self._meanings
        explained = {"explained": agent.provenance["explained"]} if "explained" in agent.provenance else {}
        return {
            "objective": agent.provenance.get("objective"),
            "weights": [[name, weight, meanings[name]] for name, weight in agent.explain()],
            **explained,
        }

    @property
    def _meanings(self) -> Mapping[str, str]:
        """Meanings of the weights of a linear agent."""
        raise NotImplementedError

    def _fill(self, agent: Any, out: Path, folder: Path) -> None:
        self.write(agent, folder)


class BatchTrainer(Trainer):
    """Linear agents for batch clusters; `settings` are `BatchTraining`."""

    _meanings = FEATURES

    def check(self, jobs: JobTable, cluster: Cluster) -> None:
        """Raise an InputError, before the training, if the log is too short to test the agent."""
        train_batch.windows_of_test_split(jobs, self.settings.window_jobs, seed=self.settings.seed)

    def _train(
        self, jobs: JobTable, cluster: Cluster, trace: str, mixture: SyntheticMix | None, common: dict[str, Any]
    ) -> tuple[Any, list[Any]]:
        return train_batch.train_linear_agent(jobs, cluster, self.settings, trace=trace, mixture=mixture, **common)

    def evaluate(self, agent: Any, jobs: JobTable, cluster: Cluster, trace: str) -> dict[str, Any]:
        """Test results on the last 20 % of the log, as plain data."""
        comparison = train_batch.compare_agent(
            agent, BASELINES, jobs, cluster, self.settings, trace=trace, clairvoyant=True
        )
        return summarize_comparison(comparison, self.settings.objective, seed=self.settings.seed)


class GpuTrainer(Trainer):
    """Linear agents for GPU clusters; `settings` are `GpuTraining`."""

    backfill = "skip"
    _meanings = train_gpu.MEANINGS

    def _train(
        self, jobs: JobTable, cluster: Cluster, trace: str, mixture: SyntheticMix | None, common: dict[str, Any]
    ) -> tuple[Any, list[Any]]:
        return train_gpu.train_gpu_agent(jobs, cluster, self.settings, trace=trace, **common)


class PowerTrainer(Trainer):
    """Linear agents that use power controls; `settings` are `PowerSearchSettings`."""

    takes_power = True

    @property
    def _meanings(self) -> Mapping[str, str]:
        meanings: Mapping[str, str] = import_module("kilowait.agents.linear_power.agent").WEIGHT_MEANINGS
        return meanings

    def _train(
        self, jobs: JobTable, cluster: Cluster, trace: str, mixture: SyntheticMix | None, common: dict[str, Any]
    ) -> tuple[Any, list[Any]]:
        assert self.power is not None
        parts = split(jobs)
        return train_power.train_power_agent(
            parts.train, parts.validation, cluster, self.power, trace=trace, **common, **vars(self.settings)
        )


class NetworkTrainer(Trainer):
    """Neural networks, for every kind of cluster; `settings` are `RLTraining`."""

    takes_power = True

    @property
    def warm_start_updates(self) -> int:
        """Number of updates of the behavior cloning."""
        return train_rl.warm_start_updates(self.settings)

    @property
    def steps(self) -> int:
        """Number of updates, those of the behavior cloning included."""
        return self.warm_start_updates + train_rl.training_updates(self.settings)

    @property
    def record(self) -> dict[str, Any]:
        """The settings as plain data, for scenario.toml."""
        return {name: value for name, value in train_rl.plain_settings(self.settings).items() if value not in ({}, [])}

    def check_reward(self, *, has_power: bool) -> None:
        """Raise an InputError if a term of the reward or the constraint needs a power model, and there is none."""
        settings = self.settings
        terms = {**(settings.reward or {}), **dict.fromkeys(settings.objectives, 1.0), **settings.constraint}
        train_power.check_reward(terms, has_power)

    def check(self, jobs: JobTable, cluster: Cluster) -> None:
        """Raise an InputError, before the training, if the log is too short to test the agent."""
        if cluster.node_level:
            later_windows(jobs, self.settings.window_jobs)
        else:
            train_batch.windows_of_test_split(jobs, self.settings.window_jobs, seed=self.settings.seed)

    def _train(
        self, jobs: JobTable, cluster: Cluster, trace: str, mixture: SyntheticMix | None, common: dict[str, Any]
    ) -> tuple[Any, list[Any]]:
        parts = split(jobs)
        return train_rl.train_network(
            parts.train, parts.validation, cluster, self.settings, power=self.power, mixture=mixture, **common
        )

    def front(self, agent: Any, jobs: JobTable, cluster: Cluster) -> dict[str, Any] | None:
        """Test results under every preference; None for an agent without several objectives."""
        if not self.settings.objectives:
            return None
        window_jobs, seed = self.settings.window_jobs, self.settings.seed
        return preference_front(agent, split(jobs).test, cluster, window_jobs=window_jobs, seed=seed, power=self.power)

    def evaluate(self, agent: Any, jobs: JobTable, cluster: Cluster, trace: str) -> dict[str, Any]:
        """Test results on the last 20 % of the log; an agent with several objectives has equal weights."""
        settings = self.settings
        agent = agent.prefer(**dict.fromkeys(settings.objectives, 1.0)) if settings.objectives else agent
        if self.power is not None or cluster.node_level:
            return super().evaluate(agent, jobs, cluster, trace)
        test = train_batch.BatchTraining(
            seed=settings.seed, backfill=settings.backfill, window_jobs=settings.window_jobs
        )
        return BatchTrainer(test).evaluate(agent, jobs, cluster, trace)

    @property
    def _objective(self) -> str:
        return train_power.power_objective(dict.fromkeys(self.settings.objectives, 1.0) or self.settings.reward)

    def objective_text(self, cluster: Cluster) -> str:
        """The objective of the training, for reports."""
        if self.settings.objectives:
            return " against ".join(self.settings.objectives)
        if self.settings.reward:
            return ",".join(f"{term}={weight:g}" for term, weight in self.settings.reward.items())
        if self.power is not None:
            return "turnaround=1,energy=1"
        return "jct=1" if cluster.node_level else "slowdown=1"

    def write(self, agent: Any, folder: Path) -> None:
        """Write nothing: the training has written the file of the agent."""

    def _content(self, agent: Any, out: Path) -> dict[str, Any]:
        state, warm_start = training_folder(out), train_rl.WARM_START_FILE
        return {
            "explained": read_json(state / "explained.json", state),
            **({"warm_start": read_json(state / warm_start, state)} if (state / warm_start).exists() else {}),
        }

    def _fill(self, agent: Any, out: Path, folder: Path) -> None:
        shutil.copyfile(training_folder(out) / "agent.pt", folder / "agent.pt")


def evaluate_with_power(
    agent: Any,
    windows: Sequence[JobTable],
    cluster: Cluster,
    power: train_power.PowerTraining,
    backfill: str | int,
    *,
    objective: str = "energy",
    seed: int,
) -> dict[str, Any]:
    """Test an agent that uses power controls against policies with hand-tuned power controls."""
    return evaluate_power_agent(
        train_power.bind_agent_power(agent, power.context, power.power_controls),
        windows,
        cluster,
        power.context,
        power_controls=power.power_controls,
        backfill=backfill,
        objective=objective,
        seed=seed,
    )


def later_windows(jobs: JobTable, window_jobs: int) -> list[JobTable]:
    """The last 20 % of a log, cut into consecutive windows.

    >>> log = JobTable(job_id=range(20), submit_s=range(20), runtime_s=[1] * 20, nodes=[1] * 20)
    >>> [len(window) for window in later_windows(log, 2)]
    [2, 2]
    """
    later = split(jobs).test
    count = len(later) // window_jobs
    if count == 0:
        raise InputError(
            f"the {len(later):,} test jobs, the last 20 % of the log, are fewer than one window of {window_jobs:,} "
            "jobs; choose a shorter --window"
        )
    return [later[i * window_jobs : (i + 1) * window_jobs] for i in range(count)]
