"""Environments for the training of networks: factories, curricula, and experts for behavior cloning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.agents.training_data import SyntheticMix, TrainingTable
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.experiments.power import PowerTraining
from kilowait.experiments.power_controls import power_config
from kilowait.jobs import JobTable
from kilowait.policies import resolve

if TYPE_CHECKING:
    from kilowait.agents.rl.behavior_cloning import BehaviorCloning
    from kilowait.experiments.training.rl_settings import RLTraining

GPU_SETTINGS: dict[str, Any] = {"gpu_type_order": "fastest", "placement": "best", "migrate": True}
GPU_DECISION_SETTINGS: dict[str, Any] = {"by_type": False, "preempt": True, "max_preemptions": 16}
"""GPU settings and decision settings of networks on GPU clusters. The network decides which jobs start and which are
preempted. A job takes the fastest free GPU type and migrates to a faster one when possible, as under the best
policies."""


class EnvFactory(NamedTuple):
    """Creates the environments of a training, and the agent from the trained network."""

    name: str
    envs: Callable[[JobTable, int, int, bool], Any]
    """(log, number of sub-environments, jobs per episode, whether each step returns observations as new arrays)"""
    agent: Callable[[Any], Any]
    decision_settings: dict[str, Any]
    """Decision settings as plain data."""
    provenance: Mapping[str, Any] = MappingProxyType({})
    """Further entries of the agent's provenance."""


def env_factory_for(cluster: Cluster, training: RLTraining, power: PowerTraining | None = None) -> EnvFactory:
    """The environments for training networks on this cluster."""
    if power is not None:
        return _energy_factory(cluster, training, power)
    return _gpu_factory(cluster, training) if cluster.node_level else _batch_factory(cluster, training)


def _decision_settings(training: RLTraining) -> dict[str, Any]:
    """Decision settings of networks on batch systems and clusters with power."""
    return {
        "queue_window": training.queue_window,
        "backfill": training.backfill,
        "backfill_order": training.backfill_order,
        "max_wait_s": _max_wait_s(training),
        "graph": training.network == "gat",
        "prediction_features": training.prediction_features,
        "request_features": training.request_features,
    }


def _max_wait_s(training: RLTraining) -> float:
    return math.inf if training.max_wait_s is None else training.max_wait_s


def _batch_factory(cluster: Cluster, training: RLTraining) -> EnvFactory:
    from kilowait.agents.network_policies import NetworkAgent, settings_to_dict
    from kilowait.envs.batch_env import BatchVectorEnv, DecisionSettings

    decision_settings = DecisionSettings(**_decision_settings(training))

    def envs(jobs: JobTable, num_envs: int, episode_jobs: int, copy_observations: bool) -> Any:
        return BatchVectorEnv(
            num_envs, jobs=jobs, cluster=cluster, episode_jobs=episode_jobs, reward=training.reward,
            sla_s=training.sla_s, autoreset_mode="SameStep", copy=copy_observations, threads=training.env_threads,
            **vars(decision_settings),
        )  # fmt: skip

    return EnvFactory(
        "kilowait/Batch-v0",
        envs,
        lambda network: NetworkAgent(network, decision_settings),
        settings_to_dict(decision_settings),
    )


def _gpu_factory(cluster: Cluster, training: RLTraining) -> EnvFactory:
    from kilowait.agents.network_policies import GpuNetworkAgent, settings_to_dict
    from kilowait.engine.gpu.settings import GpuSettings
    from kilowait.envs.gpu_env import GpuDecisionSettings, GpuVectorEnv
    from kilowait.experiments.gpu_options import run_speeds

    if training.prediction_features:
        raise InputError(
            f"environments of GPU clusters such as {cluster.name!r} have no prediction features; leave "
            "--prediction-features out"
        )
    if training.request_features:
        raise InputError(
            f"environments of GPU clusters such as {cluster.name!r} have no request features; leave --request-features "
            "out"
        )
    decision_settings = GpuDecisionSettings(
        queue_window=training.queue_window,
        max_wait_s=_max_wait_s(training),
        graph=training.network == "gat",
        **GPU_DECISION_SETTINGS,
    )
    gpu_settings = GpuSettings(head_of_line_blocking=False, **GPU_SETTINGS)

    def envs(jobs: JobTable, num_envs: int, episode_jobs: int, copy_observations: bool) -> Any:
        return GpuVectorEnv(
            num_envs, jobs=jobs, cluster=cluster, speeds=run_speeds("auto", jobs, cluster), gpu_settings=gpu_settings,
            episode_jobs=episode_jobs, reward=training.reward, sla_s=training.sla_s, autoreset_mode="SameStep",
            copy=copy_observations, threads=training.env_threads, **vars(decision_settings),
        )  # fmt: skip

    return EnvFactory(
        "kilowait/Gpu-v0", envs, lambda network: GpuNetworkAgent(network, decision_settings),
        settings_to_dict(decision_settings), {"gpu_settings": GPU_SETTINGS},
    )  # fmt: skip


def _energy_factory(cluster: Cluster, training: RLTraining, power: PowerTraining) -> EnvFactory:
    from kilowait.agents.network_policies import EnergyNetworkAgent, settings_to_dict
    from kilowait.envs.energy_env import EnergyDecisionSettings, EnergyVectorEnv

    decision_settings = EnergyDecisionSettings(**_decision_settings(training))
    config = power_config(power.context, power.power_controls)

    def envs(jobs: JobTable, num_envs: int, episode_jobs: int, copy_observations: bool) -> Any:
        options: dict[str, Any] = {"autoreset_mode": "SameStep", **vars(config), **vars(decision_settings)}
        return EnergyVectorEnv(
            num_envs, jobs=jobs, cluster=cluster, episode_jobs=episode_jobs, reward=training.reward,
            sla_s=training.sla_s, copy=copy_observations, threads=training.env_threads, **options,
        )  # fmt: skip

    def agent(network: Any) -> Any:
        return EnergyNetworkAgent(network, decision_settings, power.power_controls)

    return EnvFactory("kilowait/Energy-v0", envs, agent, settings_to_dict(decision_settings), power.record)


class TrainingEnvs:
    """The environments of a training and of its validation."""

    def __init__(
        self,
        factory: EnvFactory,
        training: RLTraining,
        jobs: JobTable,
        validation: JobTable,
        joined: TrainingTable | None = None,
        mixture: SyntheticMix | None = None,
    ) -> None:
        """`joined`: the training jobs with the synthetic jobs of `mixture`; None: there are none."""
        from kilowait.agents.validation import term_units

        self.factory, self.training = factory, training
        self._jobs = jobs if joined is None else joined.jobs
        self._joined, self._mixture = joined, mixture
        self.validation_envs, self.first = self._windows(validation)
        self.units: dict[str, float] = {}
        """Units of the objectives: their means on windows of the real training jobs; empty without objectives."""
        if training.objectives:
            real = jobs if joined is None else joined.jobs[: joined.parts[0][1]]
            self.units = term_units(*self._windows(real), training.objectives)

    def _windows(self, jobs: JobTable) -> tuple[Any, npt.NDArray[np.int64]]:
        """Environments of evenly spaced windows of the jobs, and the first row of each."""
        windows, window_jobs = self.training.windows, min(self.training.window_jobs, len(jobs))
        first = np.linspace(0, len(jobs) - window_jobs, windows).astype(np.int64)
        return self.factory.envs(jobs, windows, window_jobs, False), first

    def training_envs(self, *, copy_observations: bool) -> Any:
        """Environments of the training, and of the expert's demonstrations."""
        training = self.training
        vec = self.factory.envs(self._jobs, training.num_envs, training.episode_jobs, copy_observations)
        if self.units:
            vec.draw_preferences(self.units)
        if self._joined is not None and self._mixture is not None:
            vec.set_episode_ranges(self._joined.parts, self._joined.weights(self._mixture.share))
        return vec

    def with_curricula(self, *, copy_observations: bool) -> Any:
        """Environments of the training with the curricula of synthetic jobs and of the load."""
        vec, steps = self.training_envs(copy_observations=copy_observations), self.training.total_timesteps
        if self._joined is not None and self._mixture is not None and self._mixture.curriculum == "synthetic-first":
            vec = SyntheticCurriculum(vec, self._joined, self._mixture, steps)
        if self.training.load_curriculum != 1.0:
            vec = LoadCurriculum(vec, self.training.load_curriculum, steps)
        return vec

    def validation_metric(self, network: Any) -> float:
        """Validation metric of the network, smaller is better."""
        from kilowait.agents.validation import weighted_metric, weighted_metrics

        if self.units:
            return weighted_metric(network, self.validation_envs, self.first, self.units)
        return float(weighted_metrics(network, self.validation_envs, self.first).mean())


class _Curriculum:
    """A vector environment that changes with the number of steps; snapshots contain this number."""

    counter: ClassVar[str]
    """Name of the number of steps in snapshots."""

    def __init__(self, vec: Any) -> None:
        self._vec = vec
        self._steps_done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vec, name)

    def _update(self) -> None:
        raise NotImplementedError

    def reset(self, **options: Any) -> Any:
        """Reset the environments."""
        self._update()
        return self._vec.reset(**options)

    def step(self, actions: npt.NDArray[np.int64]) -> Any:
        """Step the environments, after the change."""
        self._steps_done += len(actions)
        self._update()
        return self._vec.step(actions)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Snapshot of the environments, with the number of steps."""
        return {**self._vec.snapshot(), self.counter: np.array([self._steps_done])}

    def restore(self, snapshot: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Restore a snapshot."""
        self._steps_done = int(snapshot[self.counter][0])
        self._update()  # before the restore, which overwrites the sampled state
        return self._vec.restore({name: array for name, array in snapshot.items() if name != self.counter})


class LoadCurriculum(_Curriculum):
    """A vector environment whose arrival rate changes linearly from a multiple of the log's rate to the log's rate."""

    counter = "load_curriculum_steps"

    def __init__(self, vec: Any, rate: float, steps: int) -> None:
        super().__init__(vec)
        self._rate, self._ramp_steps = rate, max(1, steps // 2)

    def _update(self) -> None:
        share = min(1.0, self._steps_done / self._ramp_steps)
        self._vec.set_arrival_rate(self._rate + (1.0 - self._rate) * share)


class SyntheticCurriculum(_Curriculum):
    """A vector environment that begins with episodes of synthetic jobs only and later mixes in real ones."""

    counter = "synthetic_curriculum_steps"

    def __init__(self, vec: Any, table: TrainingTable, mixture: SyntheticMix, steps: int) -> None:
        super().__init__(vec)
        self._table, self._mixture, self._steps = table, mixture, max(1, steps)
        self._share = math.nan
        self._update()

    def _update(self) -> None:
        share = self._mixture.share_at(self._steps_done / self._steps)
        if share != self._share:
            self._share = share
            self._vec.set_episode_ranges(self._table.parts, self._table.weights(share))


class _LookAheadExpertEnv:
    """A vector environment with a look-ahead expert; a priority policy is look-ahead of width 1."""

    def __init__(self, text: str, vec: Any, cluster: Cluster) -> None:
        from kilowait.envs.expert import LookAheadExpert
        from kilowait.envs.lookahead import LOOKAHEAD, LookAhead

        is_lookahead = text.partition(":")[0] == LOOKAHEAD
        lookahead = LookAhead.from_text(text) if is_lookahead else LookAhead(resolve(text), width=1)
        self.vec = vec
        self._expert = LookAheadExpert(lookahead, vec.simulator, vec.jobs, cluster)

    def choose(self) -> npt.NDArray[np.int64]:
        """The expert's actions."""
        return self._expert.choose()

    def close(self) -> None:
        """Close the environments."""
        self._expert.close()
        self.vec.close()


def make_expert_env(text: str, vec: Any, cluster: Cluster) -> Any:
    """An expert for these environments: a policy's name, or look-ahead in the syntax of the command line."""
    from kilowait.envs.batch_env import BatchVectorEnv
    from kilowait.envs.expert import GpuPolicyExpert
    from kilowait.envs.gpu_env import GpuVectorEnv

    if isinstance(vec, GpuVectorEnv):
        if text.startswith("lookahead"):
            raise InputError(
                f"the expert is {text!r}, but look-ahead does not support GPU clusters; use a policy such as srtf"
            )
        return GpuPolicyExpert(resolve(text), vec)
    if type(vec) is not BatchVectorEnv:
        raise InputError(
            f"the expert is {text!r}, but {type(vec).__name__} does not support experts; leave --expert out"
        )
    return _LookAheadExpertEnv(text, vec, cluster)


def warm_start(
    text: str,
    steps: int,
    envs: Callable[[], Any],
    cluster: Cluster,
    settings: Any,
    *,
    folder: str | PathLike[str],
    resume: bool,
    progress: Callable[[Any], None] | None,
) -> BehaviorCloning:
    """Behavior cloning from `steps` expert decisions in new environments; `settings` are those of the RL algorithm."""
    from kilowait.agents.rl.behavior_cloning import BehaviorCloning, BehaviorCloningSettings

    first = envs()
    make_expert_env(text, first, cluster).close()  # raise errors of the expert before anything is written
    return BehaviorCloning(
        BehaviorCloningSettings(text, steps, gamma=settings.gamma, normalize_rewards=settings.normalize_rewards),
        lambda: make_expert_env(text, envs(), cluster),
        Path(folder),
        resume,
        progress,
    )
