"""Training of linear GPU agents by CMA-ES on the first part of a log."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from kilowait.agents.evolution.checkpoint import Generation
from kilowait.agents.linear_gpu.agent import FEATURES, GPU_TYPE_FEATURES, LinearGpuAgent
from kilowait.agents.linear_gpu.train import OBJECTIVES, train_linear_gpu
from kilowait.cluster import Cluster
from kilowait.errors import UnknownNameError
from kilowait.evaluation.comparison import split
from kilowait.experiments.gpu_options import run_speeds
from kilowait.experiments.resume_checks import search_checkpoint_dir
from kilowait.files import locks_output
from kilowait.jobs import JobTable

__all__ = ["GpuTraining", "MEANINGS", "start_description", "train_gpu_agent"]

MEANINGS = {**FEATURES, **GPU_TYPE_FEATURES}
"""Descriptions of the features of a linear GPU agent."""


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
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective on a GPU cluster", self.objective, OBJECTIVES)


@locks_output("folder", inside=True)
def train_gpu_agent(
    jobs: JobTable,
    cluster: Cluster,
    training: GpuTraining,
    *,
    trace: str,
    progress: Callable[[Generation], None] | None = None,
    folder: Path | None = None,
    resume: bool = False,
) -> tuple[LinearGpuAgent, list[Generation]]:
    """Train on the first 60 % of a log and select on the next 20 %; the last 20 % are not used.

    The checkpoint in `folder` is written after every generation, and `resume` continues exactly from it.
    """
    parts = split(jobs)
    return train_linear_gpu(
        parts.train,
        parts.validation,
        cluster,
        speeds=lambda window: run_speeds("auto", window, cluster),
        trace=trace,
        threads=min(2, os.cpu_count() or 1),
        progress=progress,
        checkpoint_dir=search_checkpoint_dir(
            folder, {"training": parts.train, "validation": parts.validation}, cluster, resume=resume
        ),
        **asdict(training),
    )


def start_description(agent: LinearGpuAgent) -> str:
    """Text that describes the policy from which a search started.

    >>> from kilowait.agents.linear_gpu.agent import agent_equal_to_policy
    >>> start = dict(agent_equal_to_policy("srtf", 8, gpu_type_order="fastest", migrate=True).provenance)
    >>> start_description(LinearGpuAgent([0.0] * 17, provenance={"start": start}))
    'srtf, fastest, migration, placement first'
    """
    start = agent.provenance["start"]
    parts = [start["policy"]]
    parts += ["fastest"] if start["gpu_type_order"] == "fastest" else []
    parts += ["migration"] if start["migrate"] else []
    return ", ".join([*parts, f"placement {start['placement']}"])
