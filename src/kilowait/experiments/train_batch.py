"""Training of linear batch agents on the first 60 % of a log, comparison on the last 20 %, and the agent's folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kilowait import agents
from kilowait.agents import Generation, LinearAgent
from kilowait.agents.evolution.search import OBJECTIVES
from kilowait.agents.explanations import explain_linear_agent
from kilowait.agents.training_data import SyntheticMix
from kilowait.cluster import Cluster
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import Comparison, Windows, cut_windows, split
from kilowait.experiments.compare import compare
from kilowait.experiments.resume_checks import search_checkpoint_dir
from kilowait.experiments.scenario_inputs import Workload
from kilowait.files import locks_output
from kilowait.jobs import JobTable

__all__ = ["BatchTraining", "compare_agent", "with_test_predictions", "windows_of_test_split", "train_linear_agent"]

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


@locks_output("folder", inside=True)
def train_linear_agent(
    jobs: JobTable,
    cluster: Cluster,
    training: BatchTraining,
    *,
    trace: str,
    progress: Callable[[Generation], None] | None = None,
    folder: Path | None = None,
    resume: bool = False,
    mixture: SyntheticMix | None = None,
) -> tuple[LinearAgent, list[Generation]]:
    """Train on the first 60 % of a log and select on the next 20 %; the last 20 % are not used.

    The checkpoint in `folder` is written after every generation, and `resume` continues exactly from it. The
    explanation of the agent on the validation jobs is ``agent.provenance["explained"]``. A `mixture` adds
    synthetic jobs to the training.
    """
    parts = split(jobs)
    synthetic = {} if mixture is None else mixture.tables
    agent, history = agents.train_linear_batch(
        parts.train,
        parts.validation,
        cluster,
        seed=training.seed,
        generations=training.generations,
        population=training.population,
        windows=training.windows,
        window_jobs=training.window_jobs,
        backfill=training.backfill,
        objective=training.objective,
        max_wait_s=float("inf") if training.max_wait_s is None else training.max_wait_s,
        trace=trace,
        threads=min(2, os.cpu_count() or 1),
        progress=progress,
        checkpoint_dir=search_checkpoint_dir(
            folder,
            {"training": parts.train, "validation": parts.validation, **synthetic},
            cluster,
            resume=resume,
            extra={} if mixture is None else mixture.record,
        ),
        synthetic_mix=mixture,
    )
    explanation = explain_linear_agent(agent, parts.validation, cluster, training.backfill)
    explained = {} if explanation is None else explanation.to_dict()
    return replace(agent, provenance={**agent.provenance, "explained": explained}), history


def with_test_predictions(workload: Workload) -> Workload:
    """The workload with its last 20 % marked as test jobs for its predictors."""
    return workload.evaluated_from(split(workload.jobs).row_range("test")[0]) if workload.predictors else workload


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
