"""Options of trainings, as texts of the command line.

The module imports no NumPy: the command line takes its options from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kilowait.engine.settings import Settings
from kilowait.experiments.settings import BackfillDepth, OptionalTrace, TestFraction, Window
from kilowait.settings import Option


@dataclass(frozen=True)
class SearchOptions:
    """Options of the evolution strategy."""

    max_slowdown_ratio: Annotated[
        float,
        Option(
            "RATIO", "cma-es with --power: the mean slowdown may be at most F times that of SAF without power controls."
        ),
    ] = 1.1
    generations: Annotated[
        int | None, Option("N", "cma-es: generations; by default 40, on GPU clusters 80, with --power 60.", min=1)
    ] = None
    population: Annotated[int, Option("N", "cma-es: candidates per generation.", min=4)] = 16


@dataclass(frozen=True)
class NetworkOptions:
    """Options of the training of networks."""

    network: Annotated[str, Option("NAME", "Network architecture: kernel, attention or gat.")] = "kernel"
    total_timesteps: Annotated[int, Option("N", "Networks: training steps (decisions).", min=1)] = 1_000_000
    num_envs: Annotated[int, Option("N", "Networks: environments that run in parallel.", min=1)] = 32
    episode_jobs: Annotated[int, Option("N", "Networks: jobs per episode.", min=1)] = 256
    queue_window: Annotated[int, Option("N", "Networks: number of waiting jobs in the observation.", min=1)] = 64
    objectives: Annotated[
        str | None,
        Option(
            "T,...",
            "Networks, instead of --objective: train one agent for all preferences between these reward terms, "
            "e.g. slowdown,fairness. The preference is chosen when the agent is used.",
        ),
    ] = None
    constraint: Annotated[
        str | None, Option("T=X", "ppo: constraint, upper bound of the mean of a reward term, e.g. sla=0.05.")
    ] = None
    sla: Annotated[
        str, Option("SPAN", "Networks: wait above which the reward term sla counts a job.", "--sla-wait")
    ] = "4h"
    load_curriculum: Annotated[
        float,
        Option(
            "FACTOR",
            "Networks: arrival rate at the start of the training, as a multiple of the log's; it changes to the "
            "rate of the log in the first half of the training.",
            "--initial-load-factor",
        ),
    ] = 1.0
    expert: Annotated[
        str | None,
        Option(
            "POLICY",
            "Networks: begin with behavior cloning of this policy, e.g. saf or lookahead:base=saf:width=8:depth=32.",
        ),
    ] = None
    expert_steps: Annotated[int, Option("N", "Networks: demonstrations (decisions) of the expert.", min=1)] = 50_000
    device: Annotated[str, Option("DEVICE", "Networks: device, cpu or cuda.")] = "cpu"
    hyperparameters: Annotated[
        Path | None,
        Option("FILE", "Networks: hyperparameters and layer sizes from a TOML file, as written by kilowait tune."),
    ] = None
    wandb: Annotated[str | None, Option("PROJECT", "Networks: also log to Weights & Biases, if installed.")] = None
    prediction_features: Annotated[
        bool,
        Option(
            None,
            "Networks, with --runtime-predictor: add prediction features to the observation: safe upper bound, "
            "expected inverse run time, share of the estimate.",
        ),
    ] = False
    request_features: Annotated[
        bool,
        Option(
            None,
            "Networks: add memory, priority, queue and account of the jobs to the observation, where the log has them.",
        ),
    ] = False


@dataclass(frozen=True)
class SyntheticOptions:
    """Options of the synthetic jobs that are added to a training."""

    synthetic: Annotated[
        str | None,
        Option(
            "DIR,...",
            "Also train on jobs of these generators (folders written by kilowait synth fit); validation and test use "
            "real jobs.",
        ),
    ] = None
    synthetic_share: Annotated[
        float | None,
        Option(
            "FRACTION",
            "With --synthetic: share of the training windows or episodes that contain synthetic jobs; by default 0.5; "
            "1: synthetic only.",
        ),
    ] = None
    synthetic_curriculum: Annotated[
        str | None,
        Option(
            "ORDER",
            "With --synthetic: mixed (the default), or synthetic-first: only synthetic jobs in the first part of the "
            "training, as long as their share.",
        ),
    ] = None
    synthetic_jobs: Annotated[
        int | None,
        Option(
            "N", "With --synthetic: jobs sampled from each generator; by default as many as the training jobs.", min=1
        ),
    ] = None


@dataclass(frozen=True)
class TrainingOptions:
    """Options of every training."""

    trace: OptionalTrace = None
    out: Annotated[
        Path | None, Option("DIR", "Folder for the agent and results.json; by default runs/ALGO-LOG-seedN.", "-o")
    ] = None
    algo: Annotated[
        str,
        Option(
            "NAME",
            "Training algorithm: cma-es (an evolution strategy that searches the weights of a linear priority "
            "score), or, for neural networks, ppo, a2c, d3qn, sac.",
        ),
    ] = "cma-es"
    seed: Annotated[int, Option("N", "Random seed; the same seed gives the same agent.")] = 0
    objective: Annotated[
        str | None,
        Option(
            "O|O=W,...",
            "Objective to minimize. For cma-es a metric: mean_bsld or mean_wait_s (default: mean_bsld); on GPU "
            "clusters also mean_jct_s (default there); on a cluster with a power model energy, co2 or cost (default "
            "there: energy). For networks the weights of reward terms, e.g. slowdown=1,sla=10; on GPU clusters e.g. "
            "jct=1; with a power model e.g. energy=1,slowdown=0.1, also co2 and cost.",
        ),
    ] = None
    backfill: BackfillDepth = Settings.backfill
    windows: Annotated[
        int | None,
        Option(
            "N",
            "Number of windows on which each candidate is evaluated. Default: 48; on GPU clusters, with --power "
            "and for networks: 16.",
            "-w",
            min=1,
        ),
    ] = None
    window: Window = 1024
    max_wait: Annotated[
        str | None, Option("SPAN", "A job that has waited longer, e.g. 12h or 3d, is scheduled first.")
    ] = None
    resume: Annotated[
        bool,
        Option(
            None,
            "Resume an interrupted training from its folder, or continue with more --generations or --total-timesteps.",
        ),
    ] = False
    power_controls: Annotated[
        str,
        Option(
            "CONTROLS",
            "With --power: power controls that the agent may use, joined by +: sleep=break-even, dvfs=1.3 (the "
            "slowest state it may choose), budget=80%; all: every control that the cluster supports.",
        ),
    ] = "all"


@dataclass(frozen=True)
class TuningOptions:
    """Options of a search for hyperparameters."""

    algo: Annotated[str, Option("NAME", "Training algorithm: ppo, a2c, d3qn or sac.")] = "ppo"
    network: Annotated[str, Option("NAME", "Network architecture: kernel, attention or gat.")] = "kernel"
    trials: Annotated[int, Option("N", "Number of trials, including those before --resume.", min=1)] = 20
    total_timesteps: Annotated[int, Option("N", "Training steps (decisions) per trial.", min=1)] = 200_000
    seed: Annotated[int, Option("N", "Random seed; the same seed gives the same trials.")] = 0
    backfill: BackfillDepth = Settings.backfill
    num_envs: Annotated[int, Option("N", "Environments that run in parallel.", min=1)] = 32
    episode_jobs: Annotated[int, Option("N", "Jobs per episode.", min=1)] = 256
    queue_window: Annotated[int, Option("N", "Number of waiting jobs in the observation.", min=1)] = 64
    objective: Annotated[
        str | None,
        Option("O=W,...", "What to minimize: weights of reward terms, e.g. slowdown=1,sla=10; on GPU clusters jct=1."),
    ] = None
    sla: Annotated[str, Option("SPAN", "Wait above which the reward term sla counts a job.", "--sla-wait")] = "4h"
    max_wait: Annotated[
        str | None, Option("SPAN", "A job that has waited longer, e.g. 12h or 3d, is scheduled first.")
    ] = None
    windows: Annotated[int, Option("N", "Validation windows that rank the trials.", "-w", min=1)] = 16
    window: Window = 1024
    device: Annotated[str, Option("DEVICE", "Device: cpu or cuda.")] = "cpu"
    resume: Annotated[bool, Option(None, "Resume the search in this folder, interrupted or finished.")] = False


AgentPowerControls = Annotated[
    str | None,
    Option("CONTROLS", "With --power: power controls that the agent may use; by default those it was trained with."),
]


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of the test of an agent."""

    preference: Annotated[
        str,
        Option(
            "T=W+...", "Weights of the objectives, for an agent that was trained with several: slowdown=0.3+energy=0.7."
        ),
    ] = ""
    policies: Annotated[
        str, Option("P,...", "Comma-separated policies to compare with, as in kilowait compare.", "-p")
    ] = "fcfs,sjf,saf,f1,f2,f3,f4,wfp3,unicef"
    backfill: BackfillDepth = Settings.backfill
    test_fraction: TestFraction = 0.2
    windows: Annotated[int, Option("N", "Number of windows sampled from the test jobs.", "-w", min=1)] = 60
    window: Window = 1024
    seed: Annotated[int, Option("N", "Random seed of the windows.")] = 0
    power_controls: AgentPowerControls = None


@dataclass(frozen=True)
class FrontOptions:
    """Options of the Pareto front of an agent."""

    test_fraction: TestFraction = 0.2
    windows: Annotated[
        int | None,
        Option("N", "Number of evenly spaced test windows; by default as many as fit without overlap.", "-w", min=1),
    ] = None
    window: Window = 1024
    grid_steps: Annotated[
        int | None,
        Option(
            "N",
            "Grid of preferences: weights are multiples of 1/N. Default: 10 for two objectives, 4 for three, 2 "
            "for more.",
            min=1,
        ),
    ] = None
    seed: Annotated[int, Option("N", "Random seed of the confidence intervals.")] = 0
    power_controls: AgentPowerControls = None
