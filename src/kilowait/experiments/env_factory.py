"""Where networks are trained and tried: plain queues, placed nodes, or a machine with power."""

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
from kilowait.experiments.train_power import PowerTraining, power_of
from kilowait.jobs import JobTable

if TYPE_CHECKING:
    from kilowait.experiments.train_rl import RLTraining

__all__ = ["LoadCurriculum", "SyntheticCurriculum", "EnvFactory", "world_for"]

GPU_PLACING: dict[str, Any] = {"types": "fastest", "placement": "best", "migrate": True}
GPU_ASKING: dict[str, Any] = {"by_type": False, "preempt": True, "restarts": 16}
"""How networks are trained and play on placed nodes: they say who starts and who makes room; a job takes the fastest
type that is free, and moves to a faster one when it can, as it does under the best rules."""


class EnvFactory(NamedTuple):
    """Where a network is trained: how environments are made, and what plays with it afterwards."""

    name: str
    envs: Callable[[JobTable, int, int, bool], Any]
    """(log, copies, jobs in an episode, whether observations are new arrays)"""
    agent: Callable[[Any], Any]
    asked: dict[str, Any]
    more: Mapping[str, Any] = MappingProxyType({})
    """What else it is, and belongs into the file of the agent."""


def world_for(cluster: Cluster, how: RLTraining, power: PowerTraining | None = None) -> EnvFactory:
    """Where networks for this machine are trained and tried."""
    if power is not None:
        return _energy_world(cluster, how, power)
    return _gpu_world(cluster, how) if cluster.node_level else _batch_world(cluster, how)


def _asked(how: RLTraining) -> dict[str, Any]:
    """How networks are asked where nodes are alike."""
    return {
        "slots": how.slots,
        "backfill": how.backfill,
        "backfill_order": how.backfill_order,
        "max_wait_s": _bound_s(how),
        "graph": how.net == "gat",
        "prediction_features": how.prediction_features,
    }


def _bound_s(how: RLTraining) -> float:
    return math.inf if how.max_wait_s is None else how.max_wait_s


def _batch_world(cluster: Cluster, how: RLTraining) -> EnvFactory:
    from kilowait.agents.network_policies.batch import NetworkAgent, settings_to_dict
    from kilowait.envs.batched_sim import DecisionSettings
    from kilowait.envs.vector_env import BatchVectorEnv

    asking = DecisionSettings(**_asked(how))

    def envs(jobs: JobTable, copies: int, episode_jobs: int, copied: bool) -> Any:
        return BatchVectorEnv(
            copies, jobs=jobs, cluster=cluster, episode_jobs=episode_jobs, reward=how.reward, sla_s=how.sla_s,
            autoreset_mode="SameStep", copy=copied, threads=how.env_threads, **vars(asking),
        )  # fmt: skip

    return EnvFactory(
        "kilowait/Batch-v0", envs, lambda network: NetworkAgent(network, asking), settings_to_dict(asking)
    )


def _gpu_world(cluster: Cluster, how: RLTraining) -> EnvFactory:
    from kilowait.agents.network_policies.gpu import GpuNetworkAgent, gpu_asked_as
    from kilowait.engine.gpu.settings import GpuSettings
    from kilowait.envs.gpu.batched_sim import GpuDecisionSettings
    from kilowait.envs.gpu.vector_env import GpuVectorEnv
    from kilowait.experiments.gpu_settings import run_speeds

    if how.prediction_features:
        raise InputError(
            f"what predictions know is not shown on placed nodes, which {cluster.name!r} has; "
            "leave --prediction-features out"
        )
    asking = GpuDecisionSettings(
        slots=how.slots, max_wait_s=_bound_s(how), graph=how.net == "gat", **GPU_ASKING
    )
    placing = GpuSettings(head_of_line_blocking=False, **GPU_PLACING)

    def envs(jobs: JobTable, copies: int, episode_jobs: int, copied: bool) -> Any:
        return GpuVectorEnv(
            copies, jobs=jobs, cluster=cluster, speeds=run_speeds("auto", jobs, cluster), placing=placing,
            episode_jobs=episode_jobs, reward=how.reward, sla_s=how.sla_s, autoreset_mode="SameStep", copy=copied,
            threads=how.env_threads, **vars(asking),
        )  # fmt: skip

    return EnvFactory(
        "kilowait/Gpu-v0", envs, lambda network: GpuNetworkAgent(network, asking),
        gpu_asked_as(asking), {"placing": GPU_PLACING},
    )  # fmt: skip


def _energy_world(cluster: Cluster, how: RLTraining, power: PowerTraining) -> EnvFactory:
    from kilowait.agents.network_policies.power import EnergyNetworkAgent, energy_asked_as
    from kilowait.envs.power.batched_sim import EnergyDecisionSettings
    from kilowait.envs.power.vector_env import EnergyVectorEnv

    asking = EnergyDecisionSettings(**_asked(how))
    drawn = power_of(power.meter, power.levers)

    def envs(jobs: JobTable, copies: int, episode_jobs: int, copied: bool) -> Any:
        given: dict[str, Any] = {"autoreset_mode": "SameStep", **vars(drawn), **vars(asking)}
        return EnergyVectorEnv(
            copies, jobs=jobs, cluster=cluster, episode_jobs=episode_jobs, reward=how.reward, sla_s=how.sla_s,
            copy=copied, threads=how.env_threads, **given,
        )  # fmt: skip

    def agent(network: Any) -> Any:
        return EnergyNetworkAgent(network, asking, power.levers)

    return EnvFactory("kilowait/Energy-v0", envs, agent, energy_asked_as(asking), power.words)


class LoadCurriculum:
    """A vector env whose arrivals come faster, or slower, at first; its count of steps is kept with it."""

    def __init__(self, vec: Any, ease: float, steps: int) -> None:
        self._vec, self._ease, self._until = vec, ease, max(1, steps // 2)
        self._done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vec, name)

    def _set(self) -> None:
        way = min(1.0, self._done / self._until)
        self._vec.set_arrival_rate(self._ease + (1.0 - self._ease) * way)

    def reset(self, **how: Any) -> Any:
        """As of the environments, at the pace of the moment."""
        self._set()
        return self._vec.reset(**how)

    def step(self, actions: npt.NDArray[np.int64]) -> Any:
        """As of the environments, each a little nearer to the log."""
        self._done += len(actions)
        self._set()
        return self._vec.step(actions)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Everything, and how far it has come."""
        return {**self._vec.snapshot(), "eased": np.array([self._done])}

    def restore(self, kept: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Go on from a snapshot."""
        self._done = int(kept["eased"][0])
        return self._vec.restore({name: array for name, array in kept.items() if name != "eased"})


class SyntheticCurriculum:
    """A vector env that plays generated jobs at first; its count of steps is kept with it."""

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
        """As of the environments; whoever begins an episode, begins it where it is time for."""
        self._done += len(actions)
        self._set()
        return self._vec.step(actions)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Everything, and how far it has come."""
        return {**self._vec.snapshot(), "synthetic_first": np.array([self._done])}

    def restore(self, kept: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Go on from a snapshot."""
        self._done = int(kept["synthetic_first"][0])
        self._set()  # before all else, as it draws; what was drawn is in the snapshot
        return self._vec.restore({name: array for name, array in kept.items() if name != "synthetic_first"})
