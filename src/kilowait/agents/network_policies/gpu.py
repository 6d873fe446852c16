"""A network trained on `kilowait/Gpu-v0` as a policy for node-level GPU clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.preference import PreferenceConditioned
from kilowait.agents.networks.spec import spec_to_dict
from kilowait.agents.rl.device import use_device
from kilowait.agents.rl.distributions import greedy_actions
from kilowait.engine.policy import RunInputs, gpu_settings_of
from kilowait.envs.gpu.batched_sim import GpuDecisionSettings
from kilowait.envs.gpu.rollout import run_gpu_policy
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog

__all__ = ["GpuNetworkAgent", "gpu_settings_to_dict", "gpu_settings_from_dict"]


@dataclass(frozen=True, eq=False)
class GpuNetworkAgent(PreferenceConditioned):
    """A network and its decision settings; ``kilowait.simulate(jobs, cluster, agent)`` on node-level GPU clusters."""

    network: ActorCritic | DuelingQ
    decision_settings: GpuDecisionSettings
    name: str = "agent"

    @property
    def provenance(self) -> dict[str, Any]:
        """Origin of the network."""
        return getattr(self.network, "provenance", {})

    skips = True
    """Whether a job that does not fit is skipped, so that it does not block the others."""

    @property
    def gpu_settings(self) -> tuple[tuple[str, Any], ...]:
        """GPU settings of the training, in the form that policies declare them."""
        return tuple(self.provenance.get("gpu_settings", {}).items())

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under its greedy decisions."""
        self.check_preference_fixed()
        cluster, gpu_settings = inputs.cluster, gpu_settings_of(inputs, self.name)
        observed = spec_to_dict(self.decision_settings.observation_spec(cluster))
        if observed != spec_to_dict(self.network.spec):
            raise InputError(
                f"agent {self.name!r} was trained on other GPU types than {cluster.name!r} has; train one on it"
            )
        with use_device("cpu", 1):
            return run_gpu_policy(
                inputs.jobs,
                cluster,
                lambda observation: greedy_actions(self.network, observation),
                decision_settings=self.decision_settings,
                gpu_settings=gpu_settings,
                speeds=inputs.speeds,
                preference=inputs.preference,
                name=self.name,
            )


def gpu_settings_to_dict(decision_settings: GpuDecisionSettings) -> dict[str, Any]:
    """The decision settings as plain data, for the file."""
    saved = asdict(decision_settings)
    saved["placements"] = list(decision_settings.placements)
    saved["max_wait_s"] = None if np.isinf(decision_settings.max_wait_s) else decision_settings.max_wait_s
    return saved


def gpu_settings_from_dict(saved: dict[str, Any]) -> GpuDecisionSettings:
    """The inverse of `gpu_settings_to_dict`."""
    return GpuDecisionSettings(
        **{**saved, "placements": tuple(saved["placements"]), "max_wait_s": float(saved.get("max_wait_s") or np.inf)}
    )
