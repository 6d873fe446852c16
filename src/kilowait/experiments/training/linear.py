"""Training of linear agents by CMA-ES: for batch clusters, for GPU clusters, and agents that use power controls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import Any, ClassVar

from kilowait import agents
from kilowait.agents.evolution.batch import OBJECTIVES, BatchObjective, BatchSearchSettings
from kilowait.agents.evolution.gpu import OBJECTIVES as GPU_OBJECTIVES
from kilowait.agents.evolution.gpu import GpuObjective, GpuSearchSettings
from kilowait.agents.evolution.search import train_linear_agent
from kilowait.agents.explanations import explain_linear_agent
from kilowait.agents.linear_gpu import FEATURES as GPU_FEATURES
from kilowait.agents.linear_gpu import GPU_TYPE_FEATURES, LinearGpuAgent
from kilowait.cluster import Cluster
from kilowait.engine.settings import Settings
from kilowait.errors import UnknownNameError
from kilowait.evaluation.comparison import Comparison
from kilowait.evaluation.comparison.conclusions import search_outcome
from kilowait.experiments.comparison.compare import compare
from kilowait.experiments.comparison.results import summarize_comparison
from kilowait.experiments.gpu_options import run_speeds
from kilowait.experiments.power_controls import POWER_TERMS, power_config
from kilowait.experiments.training.resume_checks import search_checkpoint_dir
from kilowait.experiments.training.trainer import BASELINES, Trainer, TrainingRun, windows_of_test_split
from kilowait.jobs import JobTable

ALGORITHMS = {"cma-es": "linear agent with twelve weights, optimized by an evolution strategy (CMA-ES)"}


@dataclass(frozen=True)
class BatchTraining:
    """Settings of the training of a linear batch agent."""

    algo: str = "cma-es"
    seed: int = 0
    objective: str = "mean_bsld"
    backfill: str | int = Settings.backfill
    generations: int = 40
    population: int = 16
    windows: int = 48
    window_jobs: int = 1024
    max_wait_s: float | None = None
    """Maximum wait: jobs that have waited longer have priority; None: no maximum."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise UnknownNameError("algorithm", self.algo, ALGORITHMS)
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective", self.objective, OBJECTIVES)


@dataclass(frozen=True)
class GpuTraining:
    """Settings of the training of a linear GPU agent."""

    seed: int = 0
    objective: str = "mean_jct_s"
    generations: int = 80
    population: int = 16
    windows: int = 16
    window_jobs: int = 1024

    def __post_init__(self) -> None:
        if self.objective not in GPU_OBJECTIVES:
            raise UnknownNameError("objective on a GPU cluster", self.objective, GPU_OBJECTIVES)


@dataclass(frozen=True)
class PowerAgentTraining:
    """Settings of the training of a linear power agent."""

    seed: int = 0
    objective: str = "energy"
    max_slowdown_ratio: float = 1.1
    """Limit of the mean slowdown, relative to that of `policy` without power controls."""
    policy: str = "saf"
    backfill: str | int = Settings.backfill
    generations: int = 60
    population: int = 16
    windows: int = 16
    window_jobs: int = 1024

    def __post_init__(self) -> None:
        if self.objective not in POWER_TERMS:
            raise UnknownNameError("objective", self.objective, POWER_TERMS)


class _LinearTrainer(Trainer):
    """Trains linear agents; the checkpoint in the folder is written after every generation."""

    def _search(
        self, objective: Any, cluster: Cluster, run: TrainingRun, parts: Mapping[str, JobTable], **record: Any
    ) -> tuple[Any, list[Any]]:
        """Search the weights for an objective; `record` is part of the identity of the checkpoints."""
        checkpoint_dir = search_checkpoint_dir(run.folder, parts, cluster, resume=run.resume, extra=record)
        return train_linear_agent(objective, progress=run.progress, checkpoint_dir=checkpoint_dir)


class BatchTrainer(_LinearTrainer):
    """Linear agents for batch clusters; `settings` are `BatchTraining`."""

    _meanings = agents.FEATURES

    def _generation_text(self, done: Any) -> str:
        return f"candidates at {done.training:.3f} of the initial objective"

    def search_outcome(self, agent: Any) -> str | None:
        """How the search of the agent ended, as a sentence."""
        return search_outcome(agent.fallback_policy, agent.provenance["start"], agent.provenance["accepted_step"])

    def check(self, jobs: JobTable, cluster: Cluster) -> None:
        """Raise an InputError, before the training, if the log is too short to test the agent."""
        windows_of_test_split(jobs, self.settings.window_jobs, seed=self.settings.seed)

    def _train(
        self, training: JobTable, validation: JobTable, cluster: Cluster, run: TrainingRun
    ) -> tuple[Any, list[Any]]:
        settings, mixture = asdict(self.settings), run.mixture
        del settings["algo"]
        if settings["max_wait_s"] is None:
            settings["max_wait_s"] = float("inf")
        search = BatchSearchSettings(**settings, trace=run.trace, threads=min(2, os.cpu_count() or 1))
        agent, history = self._search(
            BatchObjective(training, validation, cluster, search, synthetic_mix=mixture),
            cluster,
            run,
            {"training": training, "validation": validation, **({} if mixture is None else mixture.tables)},
            **({} if mixture is None else mixture.record),
        )
        explanation = explain_linear_agent(agent, validation, cluster, self.settings.backfill)
        explained = {} if explanation is None else explanation.to_dict()
        return replace(agent, provenance={**agent.provenance, "explained": explained}), history

    def evaluate(self, agent: Any, jobs: JobTable, cluster: Cluster, trace: str) -> dict[str, Any]:
        """Test results on the last 20 % of the log, as plain data."""
        comparison = compare_agent(agent, BASELINES, jobs, cluster, self.settings, trace=trace, clairvoyant=True)
        return summarize_comparison(comparison, self.settings.objective, seed=self.settings.seed)


def compare_agent(
    agent: Any,
    policies: Sequence[str],
    jobs: JobTable,
    cluster: Cluster,
    training: BatchTraining,
    *,
    trace: str,
    clairvoyant: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare the agent and policies on the same windows of test jobs, which are later than all training jobs."""
    return compare(
        windows_of_test_split(jobs, training.window_jobs, seed=training.seed),
        cluster,
        {**{policy: policy for policy in policies}, "agent": agent},
        backfill=training.backfill,
        clairvoyant=clairvoyant,
        trace=trace,
        progress=progress,
    )


class GpuTrainer(_LinearTrainer):
    """Linear agents for GPU clusters; `settings` are `GpuTraining`."""

    backfill = "skip"
    _meanings: ClassVar = {**GPU_FEATURES, **GPU_TYPE_FEATURES}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the training."""
        return ("every policy is run with every placement first; the search starts from the best",)

    def _generation_text(self, done: Any) -> str:
        return f"best so far {done.best:.3f} of the best policy"

    def _train(
        self, training: JobTable, validation: JobTable, cluster: Cluster, run: TrainingRun
    ) -> tuple[Any, list[Any]]:
        search = GpuSearchSettings(
            **asdict(self.settings),
            speeds=lambda window: run_speeds("auto", window, cluster),
            trace=run.trace,
            threads=min(2, os.cpu_count() or 1),
        )
        objective = GpuObjective(training, validation, cluster, search)
        return self._search(objective, cluster, run, {"training": training, "validation": validation})

    def search_outcome(self, agent: Any) -> str | None:
        """How the search of the agent ended, as sentences."""
        best = f"The best policy on the training jobs is {start_description(agent)}."
        if not agent.provenance["policy_kept"]:
            return best
        return f"{best} No candidate of the search is significantly better on the validation jobs: the agent is it."


def start_description(agent: LinearGpuAgent) -> str:
    """Text that describes the policy from which a search started.

    >>> from kilowait.agents.linear_gpu import agent_equal_to_policy
    >>> start = dict(agent_equal_to_policy("srtf", 8, gpu_type_order="fastest", migrate=True).provenance)
    >>> start_description(LinearGpuAgent([0.0] * 17, provenance={"start": start}))
    'srtf, fastest, migration, placement first'
    """
    start = agent.provenance["start"]
    parts = [start["policy"]]
    parts += ["fastest"] if start["gpu_type_order"] == "fastest" else []
    parts += ["migration"] if start["migrate"] else []
    return ", ".join([*parts, f"placement {start['placement']}"])


class PowerTrainer(_LinearTrainer):
    """Linear agents that use power controls; `settings` are `PowerAgentTraining`.

    The mean slowdown is limited to `max_slowdown_ratio` times that of `policy`.
    """

    takes_power = True

    @property
    def _meanings(self) -> Mapping[str, str]:
        meanings: Mapping[str, str] = import_module("kilowait.agents.linear_power").WEIGHT_MEANINGS
        return meanings

    def _generation_text(self, done: Any) -> str:
        return f"best so far {done.best:.3f} of the best hand-tuned policy"

    def _train(
        self, training: JobTable, validation: JobTable, cluster: Cluster, run: TrainingRun
    ) -> tuple[Any, list[Any]]:
        from kilowait.agents.evolution import power

        assert self.power is not None
        settings = asdict(self.settings)
        limit = power.SlowdownLimit(settings.pop("max_slowdown_ratio"), settings.pop("policy"))
        search = power.PowerSearchSettings(**settings, slowdown_limit=limit, trace=run.trace)
        config = power_config(self.power.context, self.power.power_controls)
        objective = power.PowerObjective(training, validation, cluster, config, search)
        parts = {"training": training, "validation": validation}
        return self._search(objective, cluster, run, parts, **self.power.identity)
