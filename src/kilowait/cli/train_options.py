"""Options of ``kilowait train`` for networks and for the evolution strategy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["NetworkOptions", "SearchOptions"]


@dataclass(frozen=True)
class SearchOptions:
    """Options of the evolution strategy."""

    max_slowdown_ratio: Annotated[
        float,
        typer.Option(
            "--max-slowdown-ratio",
            metavar="RATIO",
            help="cma-es with --power: the mean slowdown may be at most F times that of SAF without power controls.",
        ),
    ] = 1.1
    generations: Annotated[
        int | None,
        typer.Option(
            "--generations",
            metavar="N",
            min=1,
            help="cma-es: generations; by default 40, on GPU clusters 80, with --power 60.",
            show_default=False,
        ),
    ] = None
    population: Annotated[
        int, typer.Option("--population", metavar="N", min=4, help="cma-es: candidates per generation.")
    ] = 16


@dataclass(frozen=True)
class NetworkOptions:
    """Options of the training of networks."""

    network: Annotated[
        str, typer.Option("--network", metavar="NAME", help="Network architecture: kernel, attention or gat.")
    ] = "kernel"
    total_timesteps: Annotated[
        int, typer.Option("--total-timesteps", metavar="N", min=1, help="Networks: training steps (decisions).")
    ] = 1_000_000
    num_envs: Annotated[
        int, typer.Option("--num-envs", metavar="N", min=1, help="Networks: environments that run in parallel.")
    ] = 32
    episode_jobs: Annotated[
        int, typer.Option("--episode-jobs", metavar="N", min=1, help="Networks: jobs per episode.")
    ] = 256
    queue_window: Annotated[
        int,
        typer.Option("--queue-window", metavar="N", min=1, help="Networks: number of waiting jobs in the observation."),
    ] = 64
    objectives: Annotated[
        str | None,
        typer.Option(
            "--objectives",
            metavar="T,...",
            help="Networks, instead of --objective: train one agent for all preferences between these reward terms, "
            "e.g. slowdown,fairness. The preference is chosen when the agent is used.",
        ),
    ] = None
    constraint: Annotated[
        str | None,
        typer.Option(
            "--constraint",
            metavar="T=X",
            help="ppo: constraint, upper bound of the mean of a reward term, e.g. sla=0.05.",
        ),
    ] = None
    sla: Annotated[
        str,
        typer.Option("--sla-wait", metavar="SPAN", help="Networks: wait above which the reward term sla counts a job."),
    ] = "4h"
    load_curriculum: Annotated[
        float,
        typer.Option(
            "--initial-load-factor",
            metavar="FACTOR",
            help="Networks: arrival rate at the start of the training, as a multiple of the log's; it changes to the "
            "rate of the log in the first half of the training.",
        ),
    ] = 1.0
    expert: Annotated[
        str | None,
        typer.Option(
            "--expert",
            metavar="POLICY",
            help="Networks: begin with behavior cloning of this policy, e.g. saf or "
            "lookahead:base=saf:width=8:depth=32.",
        ),
    ] = None
    expert_steps: Annotated[
        int,
        typer.Option("--expert-steps", metavar="N", min=1, help="Networks: demonstrations (decisions) of the expert."),
    ] = 50_000
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="Networks: device, cpu or cuda.")] = "cpu"
    hyperparameters: Annotated[
        Path | None,
        typer.Option(
            "--hyperparameters",
            metavar="FILE",
            help="Networks: hyperparameters and layer sizes from a TOML file, as written by kilowait tune.",
        ),
    ] = None
    wandb: Annotated[
        str | None,
        typer.Option("--wandb", metavar="PROJECT", help="Networks: also log to Weights & Biases, if installed."),
    ] = None
    prediction_features: Annotated[
        bool,
        typer.Option(
            "--prediction-features",
            help="Networks, with --runtime-predictor: add prediction features to the observation: safe upper bound, "
            "expected inverse run time, share of the estimate.",
        ),
    ] = False
