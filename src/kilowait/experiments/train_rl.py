"""Training of neural networks by reinforcement learning on the earlier part of a log, resumable after a crash."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait import agents
from kilowait.agents.training_data import SyntheticMix, joined_table
from kilowait.cluster import Cluster
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import plain_json
from kilowait.experiments.early_stopping import BestModel
from kilowait.experiments.env_factory import EnvFactory, LoadCurriculum, SyntheticCurriculum, env_factory_for
from kilowait.experiments.resume_checks import check_identity, check_memory, training_identity
from kilowait.experiments.synthetic_training import check_synthetic_supported
from kilowait.experiments.train_power import PowerTraining
from kilowait.files import locks_output, write_text
from kilowait.jobs import JobTable

__all__ = [
    "ALGORITHMS",
    "WARM_START_FILE",
    "RLTraining",
    "plain_settings",
    "train_network",
    "training_updates",
    "warm_start_updates",
]

ALGORITHMS = {
    "ppo": "proximal policy optimisation",
    "a2c": "advantage actor-critic",
    "d3qn": "dueling double deep Q-network, prioritized replay",
    "sac": "discrete soft actor-critic",
}
"""RL algorithms by name, with their full names."""

WARM_START_FILE = "warm.json"
"""File in the training folder with the history of the warm start (behavior cloning)."""


@dataclass(frozen=True)
class RLTraining:
    """Settings of the training of a network."""

    algo: str = "ppo"
    network: str = "kernel"
    """kernel, attention or gat."""
    seed: int = 0
    total_timesteps: int = 1_000_000
    """Environment steps (decisions) of all environments together."""
    num_envs: int = 32
    """Number of parallel environments."""
    episode_jobs: int = 256
    """Jobs in an episode."""
    queue_window: int = 64
    """Queue window: maximum number of waiting jobs in an observation."""
    backfill: str | int = Settings.backfill
    backfill_order: str = "agent"
    """Policy that orders the backfill candidates, or "agent": the network orders these too."""
    prediction_features: bool = False
    """Whether observations contain prediction features besides the estimate; the jobs must have them. Not supported on
    GPU clusters."""
    reward: Mapping[str, float] | None = None
    """Weights of the reward terms; None: slowdown, on GPU clusters mean completion time."""
    objectives: tuple[str, ...] = ()
    """Instead of a reward: terms whose weights are sampled for every episode and are part of the observation, so that
    the network learns all trade-offs between them. Their units are the means of SAF on windows of the training jobs."""
    sla_s: float = 4 * 3600.0
    """Wait above which a job violates the SLA (reward term sla), seconds."""
    constraint: Mapping[str, float] = field(default_factory=dict)
    """PPO only: one reward term with its upper limit, such as {"sla": 0.05}: at most 5 % of the jobs may wait longer
    than sla_s. The reward is optimized subject to it, with a Lagrange multiplier on the term."""
    max_wait_s: float | None = None
    """Maximum wait: jobs that have waited longer have priority; None: no maximum."""
    load_curriculum: float = 1.0
    """Load curriculum: initial arrival rate as a multiple of the log's; it changes linearly to the log's rate by the
    middle of the training. Below 1 the machine is less busy at first."""
    windows: int = 16
    """Number of windows of validation jobs, on which the best weights are selected."""
    window_jobs: int = 1024
    """Jobs in a validation window."""
    time_limit_s: float = math.inf
    """Time limit after which training stops; the network that validated best so far becomes the agent."""
    device: str = "cpu"
    precision: str = "float32"
    threads: int = 1
    """CPU threads of torch; beside other processes two threads can be a hundred times slower than one."""
    env_threads: int | None = None
    """CPU threads of the environments; None: one per core. With several trainings on a machine 1 is best. The results
    do not depend on it."""
    expert: str | None = None
    """Expert of the behavior cloning before RL: a policy's name or a look-ahead; None: no warm start."""
    expert_steps: int = 50_000
    """Number of expert decisions for the behavior cloning."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Further hyperparameters of the algorithm, such as learning_rate; sizes of the network are a nested mapping."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise UnknownNameError("algorithm", self.algo, (*ALGORITHMS, "cma-es"))
        if self.constraint and (self.algo != "ppo" or len(self.constraint) > 1):
            raise InputError(
                f"constraint {dict(self.constraint)} for {self.algo}; only ppo supports a constraint, and only one"
            )
        if self.objectives and self.reward is not None:
            raise InputError(
                f"objectives {', '.join(self.objectives)} and a reward; the weights are sampled: leave the reward out"
            )
        if not (math.isfinite(self.load_curriculum) and self.load_curriculum > 0):
            raise InputError(
                f"the load curriculum begins at {self.load_curriculum} times the arrival rate; give a number above 0"
            )

    def algorithm_settings(self) -> Any:
        """The hyperparameters of the algorithm, as its dataclass."""
        settings_class = getattr(agents, f"{self.algo.upper()}Settings")
        names = [item.name for item in fields(settings_class)]
        for name in self.hyperparameters:
            if name not in names:
                raise UnknownNameError(f"hyperparameter of {self.algo}", name, names)
        return settings_class(
            **{
                "total_timesteps": self.total_timesteps,
                "network": self.network,
                "precision": self.precision,
                **(
                    {"exploration_fraction": 0.0} if self.expert and self.algo == "d3qn" else {}
                ),  # a pretrained network needs no random actions
                **dict(zip(("cost", "cost_limit"), next(iter(self.constraint.items()), ()), strict=False)),
                **_with_sizes(self.hyperparameters),
            }
        )


@locks_output("folder", inside=True)
def train_network(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    training: RLTraining,
    *,
    folder: str | PathLike[str],
    resume: bool = False,
    progress: Callable[[Any], None] | None = None,
    power: PowerTraining | None = None,
    mixture: SyntheticMix | None = None,
) -> tuple[Any, list[Any]]:
    """An agent whose network is trained on `jobs` and selected on `validation`, later jobs of the log; and its history.

    The folder contains ``last.safetensors``, from which `resume` continues exactly, ``agent.pt``, and
    ``explained.json``, the explanation of the network's decisions on the validation jobs. With `power` the training
    uses kilowait/Energy-v0. A `mixture` adds synthetic jobs to the training; with a share of 1 `jobs` are not used.
    """
    from kilowait.agents.networks.preference import with_fixed_preference
    from kilowait.agents.pareto import weighted_metric
    from kilowait.agents.rl.agent_file import save_network
    from kilowait.agents.rl.device import use_device
    from kilowait.agents.rl.integrated_gradients import explain_network
    from kilowait.agents.rl.training_state import LAST_CHECKPOINT_FILE
    from kilowait.agents.rl.validation import weighted_metrics
    from kilowait.experiments.experts import warm_start

    window_jobs = min(training.window_jobs, len(validation))
    parts = {"training": jobs, "validation": validation}
    joined = None
    if mixture is not None:
        check_synthetic_supported(cluster, has_power=power is not None)
        joined = joined_table(jobs, mixture)
        parts |= mixture.tables
        jobs = joined.jobs
    for name, part in parts.items():
        if name != "validation" and len(part) < training.episode_jobs:
            raise InputError(
                f"there are {len(part):,} {name} jobs, but an episode has {training.episode_jobs:,}; use shorter "
                "episodes (--episode-jobs) or a longer log"
            )
    factory = env_factory_for(cluster, training, power)
    settings = training.algorithm_settings()
    with use_device(training.device, None):
        pass  # raise the error of an unavailable device before anything is written
    probe = env_factory_for(cluster, replace(training, queue_window=1), power).envs(jobs, 1, min(len(jobs), 2), False)
    stored = getattr(settings, "buffer_size", agents.steps_per_update(settings) * training.num_envs)
    observation_spec = probe.spec_of_observation
    observation_spec = replace(observation_spec, slots=observation_spec.slots - 1 + training.queue_window)
    check_memory(observation_spec, envs=training.num_envs + training.windows, stored=stored, settings=settings)
    probe.close()
    validation_envs = factory.envs(validation, training.windows, window_jobs, False)
    first = np.linspace(0, len(validation) - window_jobs, training.windows).astype(np.int64)
    units = _units(factory, jobs if joined is None else jobs[: joined.parts[0][1]], training)

    def training_envs(*, copy_observations: bool) -> Any:
        """Environments of the training, and of the expert's demonstrations."""
        vec = factory.envs(jobs, training.num_envs, training.episode_jobs, copy_observations)
        if units:
            vec.draw_preferences(units)
        if joined is not None and mixture is not None:
            vec.set_episode_ranges(joined.parts, joined.weights(mixture.share))
        return vec

    off_policy = training.algo in ("d3qn", "sac")  # replay buffers need observations in new arrays
    vec = training_envs(copy_observations=off_policy)
    if joined is not None and mixture is not None and mixture.curriculum == "synthetic-first":
        vec = SyntheticCurriculum(vec, joined, mixture, training.total_timesteps)
    if training.load_curriculum != 1.0:
        vec = LoadCurriculum(vec, training.load_curriculum, training.total_timesteps)
    train = getattr(agents, f"train_{training.algo}")
    resumed = resume and (Path(folder) / LAST_CHECKPOINT_FILE).exists()
    warm = None
    if training.expert is not None:
        warm = warm_start(
            training.expert, training.expert_steps, lambda: training_envs(copy_observations=False), cluster, settings,
            folder=folder, resume=resume, progress=progress,
        )  # fmt: skip
    identity = training_identity(factory.name, factory.decision_settings, parts, cluster, training)
    power_identity = {} if power is None else power.identity
    synthetic_record = {} if mixture is None else mixture.record
    check_identity(
        Path(folder), {**identity, **factory.provenance, **power_identity, **synthetic_record}, resume=resume
    )

    def evaluate(network: Any) -> float:
        """Validation metric of the network, smaller is better."""
        if units:
            return weighted_metric(network, validation_envs, first, units)
        return float(weighted_metrics(network, validation_envs, first).mean())

    best = BestModel(evaluate, training.time_limit_s, progress)
    trained = best.run(
        train,
        vec,
        settings,
        seed=training.seed,
        device=training.device,
        threads=training.threads,
        checkpoint_dir=folder,
        resume=folder if resumed else None,
        validate=best.validate,
        progress=best.progress,
        warm=warm,
    )
    provenance = {
        "env": factory.name,
        "decision_settings": factory.decision_settings,
        "training": plain_settings(training),
        "cluster": cluster.name,
    }
    provenance |= {**factory.provenance, **({"units": units} if units else {}), **synthetic_record}
    save_network(trained.network, Path(folder) / "agent.pt", provenance=provenance)
    trained.network.provenance = provenance
    fixed_network = with_fixed_preference(trained.network, dict.fromkeys(units, 1.0)) if units else trained.network
    explanation = explain_network(fixed_network, validation_envs, first, cluster)
    explanation_data = {} if explanation is None else explanation.to_dict()
    write_text(Path(folder) / "explained.json", plain_json(explanation_data) + "\n")
    return factory.agent(trained.network), trained.history


def _units(factory: EnvFactory, jobs: JobTable, training: RLTraining) -> dict[str, float]:
    """Units of the objectives: their means on windows of the training jobs."""
    from kilowait.agents.pareto import term_units

    if not training.objectives:
        return {}
    window_jobs = min(training.window_jobs, len(jobs))
    first = np.linspace(0, len(jobs) - window_jobs, training.windows).astype(np.int64)
    return term_units(factory.envs(jobs, training.windows, window_jobs, False), first, training.objectives)


def training_updates(training: RLTraining) -> int:
    """Number of updates of the training, without those of the warm start."""
    steps_per_update = agents.steps_per_update(training.algorithm_settings())
    return max(1, training.total_timesteps // (steps_per_update * training.num_envs))


def warm_start_updates(training: RLTraining) -> int:
    """Number of updates of the warm start, 0 without an expert."""
    if training.expert is None:
        return 0
    from kilowait.agents.rl.behavior_cloning import BehaviorCloningSettings

    return BehaviorCloningSettings(training.expert, training.expert_steps).updates(training.num_envs)


def _with_sizes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters as arguments of the algorithm's settings, with the sizes of the network as `Sizes`."""
    if "sizes" not in settings:
        return dict(settings)
    sizes = import_module("kilowait.agents.networks.spec").network_sizes(settings["sizes"])
    return {**settings, "sizes": sizes}


def plain_settings(training: RLTraining) -> dict[str, Any]:
    """The settings as plain data."""
    return {item.name: _plain_value(getattr(training, item.name)) for item in fields(training)}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
