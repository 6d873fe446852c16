"""A network trained on `kilowait/Energy-v0` as a policy for clusters with power."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.preference import PreferenceConditioned
from kilowait.agents.networks.spec import spec_to_dict
from kilowait.agents.rl.device import use_device
from kilowait.agents.rl.distributions import greedy_actions
from kilowait.engine.policy import RunInputs, settings_of
from kilowait.envs.power.batched_sim import EnergyDecisionSettings
from kilowait.envs.power.power_setup import PowerConfig
from kilowait.envs.power.rollout import run_energy_policy
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog

__all__ = ["EnergyNetworkAgent", "energy_settings_to_dict", "energy_settings_from_dict", "without_default_features"]


@dataclass(frozen=True, eq=False)
class EnergyNetworkAgent(PreferenceConditioned):
    """A network and its decision settings.

    Run it with ``kilowait.simulate(jobs, cluster, agent.bind_power(PowerConfig(...)), "easy")``.
    """

    network: ActorCritic | DuelingQ
    decision_settings: EnergyDecisionSettings
    power_controls: str
    """Power controls it was trained with, as on the command line."""
    name: str = "agent"
    power: PowerConfig | None = None
    """Power model, signals and controls of a run; None: not bound yet, see `bind_power`."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Origin of the network."""
        return getattr(self.network, "provenance", {})

    def bind_power(self, power: PowerConfig) -> EnergyNetworkAgent:
        """The agent on a machine with this power model, these signals and power controls."""
        return replace(self, power=power)

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under its greedy decisions; DVFS states and sleep settings are those of its own controls."""
        settings, jobs, cluster = settings_of(inputs, self.name), inputs.jobs, inputs.cluster
        self.check_preference_fixed()
        if self.power is None:
            raise InputError(
                f"agent {self.name!r} was trained on kilowait/Energy-v0 and needs a power model and power controls; "
                f"give --power and --power-controls {self.power_controls}"
            )
        decision_settings = replace(
            self.decision_settings,
            backfill=settings.backfill,
            at_limit=settings.at_limit,
            placement=settings.placement,
            overrun=settings.overrun,
        )
        observed = spec_to_dict(
            decision_settings.observation_spec_for(self.power.setup(jobs.sorted(), cluster, len(jobs)))
        )
        expected = spec_to_dict(self.network.spec)
        if observed != expected:
            differing = next(name for name in observed if observed[name] != expected.get(name))
            raise InputError(
                f"agent {self.name!r} was trained with other DVFS states, signals or sleep settings ({differing} "
                f"differ); "
                f"give the machine, the signals and --power-controls {self.power_controls} of the training"
            )
        with use_device("cpu", 1):
            return run_energy_policy(
                jobs,
                cluster,
                lambda observation: greedy_actions(self.network, observation),
                power=self.power,
                decision_settings=decision_settings,
                settings=settings,
                name=self.name,
            )


def energy_settings_to_dict(decision_settings: EnergyDecisionSettings) -> dict[str, Any]:
    """The decision settings as plain data, for the file."""
    bound_s = None if np.isinf(decision_settings.max_wait_s) else decision_settings.max_wait_s
    return without_default_features({**asdict(decision_settings), "max_wait_s": bound_s})


def without_default_features(saved: dict[str, Any]) -> dict[str, Any]:
    """The settings without `prediction_features` where that is False, as older files have no such field."""
    return {name: value for name, value in saved.items() if name != "prediction_features" or value}


def energy_settings_from_dict(saved: dict[str, Any]) -> EnergyDecisionSettings:
    """The inverse of `energy_settings_to_dict`."""
    return EnergyDecisionSettings(**{**saved, "max_wait_s": float(saved.get("max_wait_s") or np.inf)})
