"""Training of neural networks by reinforcement learning on the earlier part of a log, resumable after a crash."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

from kilowait import agents
from kilowait.agents.training_data import SyntheticMix, joined_table
from kilowait.cluster import Cluster
from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.evaluation.comparison import split
from kilowait.evaluation.storage import plain_json
from kilowait.evaluation.storage.folder import read_json
from kilowait.experiments.power import PowerTraining
from kilowait.experiments.power_controls import power_objective
from kilowait.experiments.training.environments import TrainingEnvs, env_factory_for, warm_start
from kilowait.experiments.training.evaluate import preference_front
from kilowait.experiments.training.linear import BatchTrainer, BatchTraining
from kilowait.experiments.training.resume_checks import check_identity, check_memory, training_folder, training_identity
from kilowait.experiments.training.rl_settings import RLTraining, plain_settings, training_updates, warm_start_updates
from kilowait.experiments.training.synthetic import check_synthetic_supported
from kilowait.experiments.training.trainer import Trainer, TrainingRun, later_windows, windows_of_test_split
from kilowait.files import locks_output, write_text
from kilowait.jobs import JobTable

WARM_START_FILE = "warm.json"
"""File in the training folder with the history of the warm start (behavior cloning)."""


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
    from kilowait.agents.rl.training_state import LAST_CHECKPOINT_FILE

    path = Path(folder)
    parts = {"training": jobs, "validation": validation}
    joined = None
    if mixture is not None:
        check_synthetic_supported(cluster, has_power=power is not None)
        joined = joined_table(jobs, mixture)
        parts |= mixture.tables
    factory, settings = env_factory_for(cluster, training, power), training.algorithm_settings()
    _check_start(parts, jobs if joined is None else joined.jobs, cluster, training, power)
    envs = TrainingEnvs(factory, training, jobs, validation, joined, mixture)
    off_policy = training.algo in ("d3qn", "sac")  # replay buffers need observations in new arrays
    vec = envs.with_curricula(copy_observations=off_policy)
    resumed = resume and (path / LAST_CHECKPOINT_FILE).exists()
    warm = None
    if training.expert is not None:
        warm = warm_start(
            training.expert, training.expert_steps, lambda: envs.training_envs(copy_observations=False), cluster,
            settings, folder=path, resume=resume, progress=progress,
        )  # fmt: skip
    record = {**factory.provenance, **({} if mixture is None else mixture.record)}
    identity = training_identity(factory.name, factory.decision_settings, parts, cluster, training)
    check_identity(path, {**identity, **({} if power is None else power.identity), **record}, resume=resume)
    best = BestModel(envs.validation_metric, training.time_limit_s, progress)
    trained = best.run(
        getattr(agents, f"train_{training.algo}"),
        vec,
        settings,
        seed=training.seed,
        device=training.device,
        threads=training.threads,
        checkpoint_dir=path,
        resume=path if resumed else None,
        validate=best.validate,
        progress=best.progress,
        warm=warm,
    )
    trained.network.provenance = {
        "env": factory.name,
        "decision_settings": factory.decision_settings,
        "training": plain_settings(training),
        "cluster": cluster.name,
        **factory.provenance,
        **({"units": envs.units} if envs.units else {}),
        **({} if mixture is None else mixture.record),
    }
    _save(path, trained.network, envs, cluster)
    return factory.agent(trained.network), trained.history


def _save(folder: Path, network: Any, envs: TrainingEnvs, cluster: Cluster) -> None:
    """Write the network, and the explanation of its decisions on the validation jobs with equal preferences."""
    from kilowait.agents.integrated_gradients import explain_network
    from kilowait.agents.network_policies import with_fixed_preference
    from kilowait.agents.networks.factory import save_network

    save_network(network, folder / "agent.pt", provenance=network.provenance)
    fixed_network = with_fixed_preference(network, dict.fromkeys(envs.units, 1.0)) if envs.units else network
    explanation = explain_network(fixed_network, envs.validation_envs, envs.first, cluster)
    explained = {} if explanation is None else explanation.to_dict()
    write_text(folder / "explained.json", plain_json(explained) + "\n")


def _check_start(
    parts: Mapping[str, JobTable], jobs: JobTable, cluster: Cluster, training: RLTraining, power: PowerTraining | None
) -> None:
    """Raise, before anything is written, for too few jobs, an unavailable device, and too little memory."""
    from kilowait.agents.rl.device import use_device

    for name, part in parts.items():
        if name != "validation" and len(part) < training.episode_jobs:
            raise InputError(
                f"there are {len(part):,} {name} jobs, but an episode has {training.episode_jobs:,}; use shorter "
                "episodes (--episode-jobs) or a longer log"
            )
    settings = training.algorithm_settings()
    with use_device(training.device, None):
        pass
    probe = env_factory_for(cluster, replace(training, queue_window=1), power).envs(jobs, 1, min(len(jobs), 2), False)
    stored = getattr(settings, "buffer_size", agents.steps_per_update(settings) * training.num_envs)
    observation_spec = probe.spec_of_observation
    observation_spec = replace(observation_spec, slots=observation_spec.slots - 1 + training.queue_window)
    check_memory(observation_spec, envs=training.num_envs + training.windows, stored=stored, settings=settings)
    probe.close()


class _TimeLimitReached(Exception):
    """The time limit of the training is reached."""


class BestModel:
    """The network with the best validation metric so far, and the history of the training."""

    def __init__(
        self, evaluate: Callable[[Any], float], seconds: float, callback: Callable[[Any], None] | None = None
    ) -> None:
        """`evaluate`: validation metric, smaller is better; `seconds`: time limit; `callback` gets every update."""
        self._evaluate, self._deadline, self._callback = evaluate, perf_counter() + seconds, callback
        self._best_value, self._best_network = math.inf, None
        self._history: list[Any] = []

    def validate(self, network: Any) -> float:
        """Validation metric of the network; a copy of the best network is stored."""
        value = self._evaluate(network)
        if value < self._best_value or self._best_network is None:
            self._best_value, self._best_network = value, deepcopy(network)
        return value

    def progress(self, update: Any) -> None:
        """Record an update; stop the training after the time limit, once a network has been validated."""
        self._history.append(update)
        if self._callback is not None:
            self._callback(update)
        if perf_counter() > self._deadline and self._best_network is not None:
            raise _TimeLimitReached

    def run(self, train: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Result of the training or, after the time limit, the best `network` so far and the `history`."""
        try:
            return train(*args, **options)
        except _TimeLimitReached:
            return SimpleNamespace(network=self._best_network, history=self._history)


class TrainingLogger:
    """Logs to TensorBoard, and to Weights & Biases if requested."""

    def __init__(self, folder: Path, *, wandb: str | None = None, config: Mapping[str, Any] | None = None) -> None:
        """`folder`: for TensorBoard's files, if TensorBoard is installed; `wandb`: a Weights & Biases project."""
        self._folder: Path | None = folder
        self._tensorboard: Any = None
        self._wandb: Any = None
        if wandb is not None:
            try:
                self._wandb = import_module("wandb").init(project=wandb, config=dict(config or {}))
            except ImportError:
                raise MissingExtraError("wandb", None) from None

    def __call__(self, update: Any) -> None:
        """Log the metrics of one update."""
        metrics = {
            "episode/return": update.mean_return,
            "episode/metric": update.metric,
            "policy/entropy": update.entropy,
            "policy/kl": update.kl,
            "validation/metric": update.validation,
            "speed/steps_per_s": update.steps_per_s,
            **{f"loss/{name}": value for name, value in update.losses.items()},
        }
        metrics = {name: value for name, value in metrics.items() if not math.isnan(value)}
        self._open()
        if self._tensorboard is not None:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(name, value, update.steps)
        if self._wandb is not None:
            self._wandb.log(metrics, step=update.steps)

    def _open(self) -> None:
        """Create the TensorBoard folder, at the first update so that a training that fails to start leaves none."""
        if self._folder is None:
            return
        try:
            from kilowait.agents.rl.learner import tensorboard_writer

            self._tensorboard = tensorboard_writer(self._folder)
        except ImportError:
            pass
        self._folder = None

    def close(self) -> None:
        """Flush and close the loggers."""
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()


class NetworkTrainer(Trainer):
    """Neural networks, for every kind of cluster; `settings` are `RLTraining`."""

    takes_power = True

    @property
    def warm_start_updates(self) -> int:
        """Number of updates of the behavior cloning."""
        return warm_start_updates(self.settings)

    @property
    def steps(self) -> int:
        """Number of updates, those of the behavior cloning included."""
        return self.warm_start_updates + training_updates(self.settings)

    @property
    def record(self) -> dict[str, Any]:
        """The settings as plain data, for scenario.toml."""
        return {name: value for name, value in plain_settings(self.settings).items() if value not in ({}, [])}

    def progress_text(self, done: Any) -> tuple[str, bool, int]:
        """Text of a finished update, whether it is shown without a terminal, and its number."""
        warm = self.warm_start_updates
        if "imitation" in done.losses:
            expert, agreement = self.settings.expert, done.losses["agreement"]
            text = f"behavior cloning of {expert}, {done.steps:,} decisions, {agreement:.1%} agreement"
            return text, done.number % max(1, warm // 10) == 0, done.number
        ended = "" if math.isnan(done.metric) else f", episodes {done.metric:.3f}"
        best = "" if math.isnan(done.best) else f", best so far {done.best:.3f}"
        text = f"update {done.number}, {done.steps:,} steps, {done.steps_per_s:,.0f}/s{ended}{best}"
        return text, done.number % max(1, (self.steps - warm) // 20) == 0, warm + done.number

    @contextmanager
    def logger(self, folder: Path, trace: str, wandb: str | None) -> Iterator[Callable[[Any], None]]:
        """A function that logs every update of the RL algorithm to TensorBoard, and to a Weights & Biases project."""
        logger = TrainingLogger(folder / "tensorboard", wandb=wandb, config={**self.record, "trace": trace})
        yield lambda done: None if "imitation" in done.losses else logger(done)
        logger.close()

    @property
    def reward_terms(self) -> Mapping[str, float]:
        """Terms of the reward and the constraint; some need a power model."""
        settings = self.settings
        return {**(settings.reward or {}), **dict.fromkeys(settings.objectives, 1.0), **settings.constraint}

    def check(self, jobs: JobTable, cluster: Cluster) -> None:
        """Raise an InputError, before the training, if the log is too short to test the agent."""
        if cluster.node_level:
            later_windows(jobs, self.settings.window_jobs)
        else:
            windows_of_test_split(jobs, self.settings.window_jobs, seed=self.settings.seed)

    def _train(
        self, training: JobTable, validation: JobTable, cluster: Cluster, run: TrainingRun
    ) -> tuple[Any, list[Any]]:
        if run.folder is None:
            raise InputError("a network needs a folder for its checkpoints; give one")
        return train_network(
            training, validation, cluster, self.settings,
            folder=run.folder, resume=run.resume, progress=run.progress, power=self.power, mixture=run.mixture,
        )  # fmt: skip

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
        test = BatchTraining(seed=settings.seed, backfill=settings.backfill, window_jobs=settings.window_jobs)
        return BatchTrainer(test).evaluate(agent, jobs, cluster, trace)

    @property
    def _objective(self) -> str:
        return power_objective(dict.fromkeys(self.settings.objectives, 1.0) or self.settings.reward)

    def objective_record(self, cluster: Cluster) -> dict[str, str]:
        """The objective of the training, for reports."""
        text = "jct=1" if cluster.node_level else "slowdown=1"
        if self.settings.objectives:
            text = " against ".join(self.settings.objectives)
        elif self.settings.reward:
            text = ",".join(f"{term}={weight:g}" for term, weight in self.settings.reward.items())
        elif self.power is not None:
            text = "turnaround=1,energy=1"
        return {"objective": text}

    def write(self, agent: Any, folder: Path) -> None:
        """Write nothing: the training has written the file of the agent."""

    def _content(self, agent: Any, out: Path) -> dict[str, Any]:
        state, warm_start = training_folder(out), WARM_START_FILE
        return {
            "explained": read_json(state / "explained.json", state),
            **({"warm_start": read_json(state / warm_start, state)} if (state / warm_start).exists() else {}),
        }

    def _write_agent(self, agent: Any, out: Path, folder: Path) -> None:
        shutil.copyfile(training_folder(out) / "agent.pt", folder / "agent.pt")


EXTENSIONS = {"onnx": "onnx", "torchscript": "ts", "pt2": "pt2"}
"""Formats and their usual file extensions."""


def export_agent(
    agent: str | PathLike[str], *, to: str = "onnx", out: str | PathLike[str] | None = None, force: bool = False
) -> tuple[Path, dict[str, str]]:
    """Write the network of an agent's folder or file; returns the path, and the network's inputs with their shapes.

    Without `out` the file is written beside the agent's folder, with the folder's name.
    An existing file is replaced only with `force`.
    """
    if to not in EXTENSIONS:
        raise UnknownNameError("format of a network", to, EXTENSIONS)
    loaded = agents.load_agent(agent)
    network = getattr(loaded, "network", None)
    if network is None:
        raise InputError(
            f"{agent} is a linear agent, not a network: its weights are in agent.json; "
            "export an agent that was trained with --algo ppo, a2c, d3qn or sac"
        )
    from kilowait.agents.export import export_network

    agent_folder = Path(agent) if Path(agent).is_dir() else Path(agent).absolute().parent
    path = (
        agent_folder.absolute().with_name(f"{agent_folder.absolute().name}.{EXTENSIONS[to]}")
        if out is None
        else Path(out)
    )
    if path.exists() and not force:
        raise InputError(f"{path} already exists; name another file, or replace it with --force")
    return path, export_network(network, path, to=to)
