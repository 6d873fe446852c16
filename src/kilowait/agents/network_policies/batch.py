"""A trained network as a policy for batch systems: it receives the observations of the environments.

Small networks that score jobs one by one (kind "kernel") run inside the engine, at compiled speed; all others are
called from Python, one observation at a time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import numpy as np

from kilowait.agents.network_policies.gpu import GpuNetworkAgent, gpu_settings_from_dict
from kilowait.agents.network_policies.power import (
    EnergyNetworkAgent,
    energy_settings_from_dict,
    without_default_features,
)
from kilowait.agents.network_policies.saved_settings import check_provenance
from kilowait.agents.networks.feature_extractor import KernelExtractor
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.preference import PreferenceConditioned, plain_spec
from kilowait.agents.networks.spec import spec_to_dict
from kilowait.agents.rl.agent_file import load_network
from kilowait.agents.rl.device import use_device
from kilowait.agents.rl.distributions import greedy_actions
from kilowait.engine.policy import RunInputs
from kilowait.envs.batched_sim import DecisionSettings
from kilowait.envs.kernels.network_inference import NetworkWeights
from kilowait.envs.rollout import ObservationPolicy
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog
from kilowait.policies import resolve

__all__ = ["NetworkAgent", "engine_weights", "network_agent"]


@dataclass(frozen=True, eq=False)
class NetworkAgent(PreferenceConditioned):
    """A network and its decision settings; ``kilowait.simulate(jobs, cluster, agent, "easy")``."""

    network: ActorCritic | DuelingQ
    decision_settings: DecisionSettings
    """Decision settings of the training: queue window, backfill order, hold action, graph."""
    name: str = "agent"

    @property
    def provenance(self) -> dict[str, Any]:
        """Origin of the network."""
        return getattr(self.network, "provenance", {})

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under its greedy decisions."""
        self.check_preference_fixed()
        weights = engine_weights(self.network)
        decide = (lambda observation: greedy_actions(self.network, observation)) if weights is None else weights
        with use_device("cpu", 1):
            return ObservationPolicy(self.name, decide, self.decision_settings).run(inputs)


def engine_weights(network: ActorCritic | DuelingQ) -> NetworkWeights | None:
    """The weights as the engine takes them; None for a network that the engine cannot run.

    Of a dueling network only the advantages are taken: the state value is the same for all actions.
    """
    body = network.body
    if (
        not isinstance(body, KernelExtractor)
        or network.spec.extra
        or network.spec.choices > 1
        or network.outputs.numbers > 1
        or network.config.get("noisy")
    ):
        return None

    def array(tensor: Any) -> Any:
        return np.ascontiguousarray(tensor.detach().cpu().numpy(), np.float32)

    width, inner = body.width, list(body.layers)
    return NetworkWeights(
        job=array(body.job.weight.T),
        summary=array(body.summary.weight.T),
        bias=array(body.job.bias + body.summary.bias),
        hidden=np.stack([array(layer.weight.T) for layer in inner])
        if inner
        else np.zeros((0, width, width), np.float32),
        hidden_bias=np.stack([array(layer.bias) for layer in inner]) if inner else np.zeros((0, width), np.float32),
        out=array(network.outputs.job.weight[0]),
    )


def network_agent(
    path: str | PathLike[str], *, name: str = "agent"
) -> NetworkAgent | GpuNetworkAgent | EnergyNetworkAgent:
    """The agent in an ``agent.pt``, with the decision settings of its training."""
    network = load_network(path)
    saved = network.provenance.get("decision_settings")
    if saved is None:
        raise InputError(
            f"{path} contains a network without its decision settings; train it with kilowait train, or create a "
            "NetworkAgent(network, DecisionSettings(...))"
        )
    check_provenance(network.provenance, path)
    try:
        return _agent(network, saved, path, name)
    except InputError as problem:
        raise problem if str(path) in str(problem) else InputError(f"{path}: {problem}; train it again") from None
    except UnknownNameError as problem:
        raise InputError(f"{path}: {problem}; train it again") from None


def _agent(
    network: ActorCritic | DuelingQ, saved: dict[str, Any], path: str | PathLike[str], name: str
) -> NetworkAgent | GpuNetworkAgent | EnergyNetworkAgent:
    """The agent of a network whose provenance is checked."""
    if network.provenance.get("env") == "kilowait/Gpu-v0":
        return GpuNetworkAgent(network, gpu_settings_from_dict(saved), name)
    if network.provenance.get("env") == "kilowait/Energy-v0":
        return EnergyNetworkAgent(network, energy_settings_from_dict(saved), network.provenance["power_controls"], name)
    decision_settings = DecisionSettings(**{**saved, "max_wait_s": float(saved.get("max_wait_s") or np.inf)})
    if decision_settings.backfill_order != "agent":
        resolve(decision_settings.backfill_order)
    if spec_to_dict(decision_settings.observation_spec) != spec_to_dict(plain_spec(network.spec)):
        raise InputError(
            f"{path} was trained by another version: it needs {spec_to_dict(network.spec)}, and this kilowait observes "
            f"{spec_to_dict(decision_settings.observation_spec)}; train it again"
        )
    return NetworkAgent(network, decision_settings, name)


def settings_to_dict(decision_settings: DecisionSettings) -> dict[str, Any]:
    """The decision settings as plain data, for the file."""
    saved = asdict(decision_settings)
    order = saved["backfill_order"]
    saved["backfill_order"] = order if isinstance(order, str) else decision_settings.backfill_order.name  # type: ignore[union-attr]
    saved["max_wait_s"] = None if np.isinf(decision_settings.max_wait_s) else decision_settings.max_wait_s
    return without_default_features(saved)
