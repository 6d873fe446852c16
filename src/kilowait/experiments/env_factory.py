"""Environments to train and validate networks in: batch systems, GPU clusters and clusters with power."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.agents.training_data import SyntheticMix, TrainingTable
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.experiments.train_power import PowerTraining, power_config
from kilowait.jobs import JobTable

if TYPE_CHECKING:
    from kilowait.experiments.train_rl import RLTraining

__all__ = ["LoadCurriculum", "SyntheticCurriculum", "EnvFactory", "env_factory_for"]

GPU_SETTINGS: dict[str, Any] = {"gpu_type_order": "fastest", "placement": "best", "migrate": True}
GPU_DECISION_SETTINGS: dict[str, Any] = {"by_type": False, "preempt": True, "max_preemptions": 16}
"""GPU and decision settings of networks on GPU clusters: the network decides which jobs start and which are preempted;
a job takes the fastest free type, and migrates to a faster one when it can, as under the best policies."""


class EnvFactory(NamedTuple):
    """Creates the environments of a training, and the agent of the trained network."""

    name: str
    envs: Callable[[JobTable, int, int, bool], Any]
    """(log, sub-environments, jobs in an episode, whether observations are new arrays)"""
    agent: Callable[[Any], Any]
    decision_settings: dict[str, Any]
    """Decision settings as plain data."""
    provenance: Mapping[str, Any] = MappingProxyType({})
    """Further entries of the agent's provenance."""


def env_factory_for(cluster: Cluster, how: RLTraining, power: PowerTraining | None = None) -> EnvFactory:
    """The environments for training networks on this cluster."""
    if power is not None:
        return _energy_factory(cluster, how, power)
    return _gpu_factory(cluster, how) if cluster.node_level else _batch_factory(cluster, how)


def _decision_settings(how: RLTraining) -> dict[str, Any]:
    """Decision settings of networks on batch systems and clusters with power."""
    return {
        "queue_window": how.queue_window,
        "backfill": how.backfill,
        "backfill_order": how.backfill_order,
        "max_wait_s": _bound_s(how),
        "graph": how.network == "gat",
        "prediction_features": how.prediction_features,
    }


def _bound_s(how: RLTraining) -> float:
    return math.inf if how.max_wait_s is None else how.max_wait_s


def _batch_factory(cluster: Cluster, how: RLTraining) -> EnvFactory:
    from kilowait.agents.network_policies.batch import NetworkAgent, settings_to_dict
    from kilowait.envs.batched_sim import DecisionSettings
    from kilowait.envs.vector_env import BatchVectorEnv

    decision_settings = DecisionSettings(**_decision_settings(how))

    def envs(jobs: JobTable, copies: int, episode_jobs: int, copied: bool) -> Any:
        return BatchVectorEnv(
            copies, jobs=jobs, cluster=cluster, episode_jobs=episode_jobs, reward=how.reward, sla_s=how.sla_s,
            autoreset_mode="SameStep", copy=copied, threads=how.env_threads, **vars(decision_settings),
        )  # fmt: skip

    return EnvFactory(
        "kilowait/Batch-v0",
        envs,
        lambda network: NetworkAgent(network, decision_settings),
        settings_to_dict(decision_settings),
    )


def _gpu_factory(cluster: Cluster, how: RLTraining) -> EnvFactory:
    from kilowait.agents.network_policies.gpu import GpuNetworkAgent, gpu_settings_to_dict
    from kilowait.engine.gpu.settings import GpuSettings
    from kilowait.envs.gpu.batched_sim import GpuDecisionSettings
    from kilowait.envs.gpu.vector_env import GpuVectorEnv
    from kilowait.experiments.gpu_settings import run_speeds

    if how.prediction_features:
        raise InputError(
            f"prediction features are not observed on GPU clusters such as {cluster.name!r}; leave "
            "--prediction-features out"
        )
    decision_settings = GpuDecisionSettings(
        queue_window=how.queue_window,
        max_wait_s=_bound_s(how),
        graph=how.network == "gat",
        **GPU_DECISION_SETTINGS,
    )
    placing = GpuSettings(head_of_line_blocking=False, **GPU_SETTINGS)

    def envs(jobs: JobTable, copies: int, episode_jobs: int, copied: bool) -> Any:
        return GpuVectorEnv(
            copies, jobs=jobs, cluster=cluster, speeds=run_speeds("auto", jobs, cluster), gpu_settings=placing,
            episode_jobs=episode_jobs, reward=how.reward, sla_s=how.sla_s, autoreset_mode="SameStep", copy=copied,
            threads=how.env_threads, **vars(decision_settings),
        )  # fmt: skip

    return EnvFactory(
        "kilowait/Gpu-v0", envs, lambda network: GpuNetworkAgent(network, decision_settings),
        gpu_settings_to_dict(decision_settings), {"gpu_settings": GPU_SETTINGS},
    )  # fmt: skip


def _energy_factory(cluster: Cluster, how: RLTraining, power: PowerTraining) -> EnvFactory:
    from kilowait.agents.network_policies.power import EnergyNetworkAgent, energy_settings_to_dict
    from kilowait.envs.power.batched_sim import EnergyDecisionSettings
    from kilowait.envs.power.vector_env import EnergyVectorEnv

    decision_settings = EnergyDecisionSettings(**_decision_settings(how))
    config = power_config(power.meter, power.power_controls)

    def envs(jobs: JobTable, copies: int, episode_jobs: int, copied: bool) -> Any:
        options: dict[str, Any] = {"autoreset_mode": "SameStep", **vars(config), **vars(decision_settings)}
        return EnergyVectorEnv(
            copies, jobs=jobs, cluster=cluster, episode_jobs=episode_jobs, reward=how.reward, sla_s=how.sla_s,
            copy=copied, threads=how.env_threads, **options,
        )  # fmt: skip

    def agent(network: Any) -> Any:
        return EnergyNetworkAgent(network, decision_settings, power.power_controls)

    return EnvFactory(
        "kilowait/Energy-v0", envs, agent, energy_settings_to_dict(decision_settings), power.record
    )


class LoadCurriculum:
    """A vector environment whose arrival rate goes linearly from a multiple of the log's to that of the log."""

    def __init__(self, vec: Any, rate: float, steps: int) -> None:
        self._vec, self._rate, self._until = vec, rate, max(1, steps // 2)
        self._done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vec, name)

    def _set(self) -> None:
        share = min(1.0, self._done / self._until)
        self._vec.set_arrival_rate(self._rate + (1.0 - self._rate) * share)

    def reset(self, **options: Any) -> Any:
        """Reset the environments, at the current arrival rate."""
        self._set()
        return self._vec.reset(**options)

    def step(self, actions: npt.NDArray[np.int64]) -> Any:
        """Step the environments, after updating the arrival rate."""
        self._done += len(actions)
        self._set()
        return self._vec.step(actions)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Snapshot of the environments, with the number of steps."""
        return {**self._vec.snapshot(), "eased": np.array([self._done])}

    def restore(self, kept: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Restore a snapshot."""
        self._done = int(kept["eased"][0])
        return self._vec.restore({name: array for name, array in kept.items() if name != "eased"})


class SyntheticCurriculum:
    """A vector environment that starts with episodes of synthetic jobs only."""

    def __init__(self, vec: Any, laid: TrainingTable, mixture: SyntheticMix, steps: int) -> None:
        self._vec, self._laid, self._mixture, self._steps = vec, laid, mixture, max(1, steps)
        self._done = 0
        self._share = math.nan
        self._set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vec, name)

    def _set(self) -> None:
        share = self._mixture.share_at(self._done / self._steps)
        if share != self._share:
            self._share = share
            self._vec.set_episode_ranges(self._laid.parts, self._laid.weights(share))

    def step(self, actions: npt.NDArray[np.int64]) -> Any:
        """Step the environments; new episodes use the current share of synthetic jobs."""
        self._done += len(actions)
        self._set()
        return self._vec.step(actions)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Snapshot of the environments, with the number of steps."""
        return {**self._vec.snapshot(), "synthetic_first": np.array([self._done])}

    def restore(self, kept: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Restore a snapshot."""
        self._done = int(kept["synthetic_first"][0])
        self._set()  # first, as it samples; the sampled state is overwritten by the snapshot
        return self._vec.restore({name: array for name, array in kept.items() if name != "synthetic_first"})
