"""A network trained on `kilowait/Energy-v0` as a policy on clusters with power."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.preference import PreferenceConditioned
from kilowait.agents.networks.spec import described
from kilowait.agents.rl.device import use_device
from kilowait.agents.rl.inference import greedy_actions
from kilowait.cluster import Cluster, PowerControls
from kilowait.engine.settings import Settings
from kilowait.envs.power.batched_sim import EnergyDecisionSettings
from kilowait.envs.power.power_setup import PowerConfig
from kilowait.envs.power.rollout import play
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable

__all__ = ["EnergyNetworkAgent", "energy_asked_as", "energy_asking_from", "without_told"]


@dataclass(frozen=True, eq=False)
class EnergyNetworkAgent(PreferenceConditioned):
    """A network and the way it is asked; ``kilowait.simulate(jobs, cluster, agent.powered(Power(...)), "easy")``."""

    network: ActorCritic | DuelingQ
    asking: EnergyDecisionSettings
    levers: str
    """What it was trained with, as on the command line."""
    name: str = "agent"
    power: PowerConfig | None = None
    """What it runs with; None: yet to be said, by `powered`."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Where it comes from."""
        return getattr(self.network, "provenance", {})

    def bind_power(self, power: PowerConfig) -> EnergyNetworkAgent:
        """The agent on a machine with this power, these signals and levers."""
        return replace(self, power=power)

    def played(
        self, jobs: JobTable, cluster: Cluster, settings: Settings, levers: PowerControls | None = None
    ) -> ExecutionLog:
        """The run under its decisions, greedily; levels and sleep are those of its own levers."""
        self.check_preferred()
        if self.power is None:
            raise InputError(
                f"agent {self.name!r} was trained on kilowait/Energy-v0 and needs a power model and levers; give "
                f"--power and --power-controls {self.levers}"
            )
        asking = replace(
            self.asking,
            backfill=settings.backfill,
            at_limit=settings.at_limit,
            placement=settings.placement,
            overrun=settings.overrun,
        )
        shown = described(asking.shown(self.power.of(jobs.sorted(), cluster, len(jobs))))
        wanted = described(self.network.spec)
        if shown != wanted:
            what = next(name for name in shown if shown[name] != wanted.get(name))
            raise InputError(
                f"agent {self.name!r} was trained with other levels, signals or ways to sleep ({what} differ); give "
                f"the machine, the signals and --power-controls {self.levers} as they were in training"
            )
        with use_device("cpu", 1):
            return play(
                jobs,
                cluster,
                lambda seen: greedy_actions(self.network, seen),
                power=self.power,
                asking=asking,
                settings=settings,
                name=self.name,
            )


def energy_asked_as(asking: EnergyDecisionSettings) -> dict[str, Any]:
    """The way of asking in words and numbers, for the file."""
    bound_s = None if np.isinf(asking.max_wait_s) else asking.max_wait_s
    return without_told({**asdict(asking), "max_wait_s": bound_s})


def without_told(asked: dict[str, Any]) -> dict[str, Any]:
    """The same without word of predictions where none are shown: as files said before they could be."""
    return {name: value for name, value in asked.items() if name != "prediction_features" or value}


def energy_asking_from(told: dict[str, Any]) -> EnergyDecisionSettings:
    """The inverse of `energy_asked_as`."""
    return EnergyDecisionSettings(**{**told, "max_wait_s": float(told.get("max_wait_s") or np.inf)})
