"""Linear agent for clusters with power: job order, DVFS states, node sleep and load shifting from weighted sums.

A job's score is a weighted sum of its features, in fixed units. Further weighted sums set how much longer a job may run
to save energy, how long nodes stay idle before they sleep, how many idle nodes are kept awake, and how long a job is
shifted for cleaner or cheaper power. All of them are evaluated inside the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.io import LINEAR_POWER_FORMAT, LinearWeights, check_agent_fields, weights_in_order, write_agent
from kilowait.cluster import Cluster
from kilowait.engine.policy import RunInputs, settings_of
from kilowait.envs.energy_env import EnergyDecisionSettings, run_energy_policy
from kilowait.envs.kernels.linear_power_policy import SYSTEM_FEATURES, PowerPolicyWeights, power_policy_weights
from kilowait.envs.power_setup import PowerConfig, PowerSetup
from kilowait.errors import InputError
from kilowait.files.fields import Either, Null, Text
from kilowait.jobs import ExecutionLog, JobTable

Floats = npt.NDArray[np.float64]

JOB_FEATURES: dict[str, str] = {
    "length": "ln(estimate / 1 h) / 3",
    "width": "ln(nodes) / ln(1 + nodes of the machine)",
    "length_squared": "length x length",
    "width_squared": "width x width",
    "length_width": "length x width",
    "share": "nodes / nodes of the machine",
    "length_share": "length x share",
    "root_days": "square root of estimate / 1 day",
}
"""The features, in order."""


def job_features(estimate_s: npt.ArrayLike, nodes: npt.ArrayLike, machine_nodes: int) -> Floats:
    """Features of jobs, one job a row; estimates in seconds, those below 1 s count as 1 s.

    >>> dict(zip(JOB_FEATURES, job_features([3600], [8], 16)[0].tolist()))["share"]
    0.5
    """
    estimate = np.maximum(np.asarray(estimate_s, np.float64), 1.0)
    size = np.asarray(nodes, np.float64)
    length = np.log(estimate / 3600.0) / 3.0
    width = np.log(size) / np.log(1.0 + machine_nodes)
    share = size / machine_nodes
    columns = (
        length, width, length**2, width**2, length * width, share, length * share, np.sqrt(estimate / 86400.0),
    )  # fmt: skip
    return np.stack(columns, axis=1)


def saf_order_weights(machine_nodes: int) -> dict[str, float]:
    """Weights of the order of smallest area first: ln(estimate) + ln(nodes); their squares sum to 1.

    >>> {name: round(weight, 2) for name, weight in saf_order_weights(255).items()}
    {'length': 0.48, 'width': 0.88}
    """
    weights = np.array([3.0, np.log(1.0 + machine_nodes)])
    length, width = (weights / np.sqrt((weights**2).sum())).tolist()
    return {"length": length, "width": width}


VERSION = 2
_FIELDS = {"power_controls": Text(), "signal": Either(Null(), Text(("carbon", "price")))}

WEIGHT_MEANINGS: dict[str, str] = {
    **{name: f"order: per {meaning}" for name, meaning in JOB_FEATURES.items()},
    "slowdown": "largest relative increase of a job's run time by DVFS",
    "slowdown_length": "added to it, per ln(estimate / 1 h) / 3",
    "slowdown_width": "added to it, per ln(nodes) / ln(1 + nodes of the machine)",
    **SYSTEM_FEATURES,
}
"""Meaning of each weight, in order."""

NEVER_LN_S = 20.0


@dataclass(frozen=True, eq=False)
class LinearPowerAgent(LinearWeights):
    """Weights of the power controls and the job order; see `WEIGHT_MEANINGS`.

    >>> agent = agent_from_controls(255, slowdown=0.1, timeout_s=600)  # the order of SAF, dvfs=1.1, sleep=timeout:600
    >>> agent.explain()[0]
    ('timeout', 6.396929655216146)
    """

    weights: Floats
    power_controls: str = "all"
    """Power controls it was trained with, as on the command line: allowed DVFS states, and node sleep."""
    signal: str | None = None
    """Signal in its features: carbon, price, or None."""
    name: str = "agent"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    power: PowerConfig | None = None
    """Power model, signals and controls of a run; None: not bound yet, see `bind_power`."""

    weight_names = tuple(WEIGHT_MEANINGS)

    def __post_init__(self) -> None:
        self.check_weights()

    def bind_power(self, power: PowerConfig) -> LinearPowerAgent:
        """The agent on a machine with this power model, these signals and power controls."""
        return replace(self, power=power)

    def policy_weights(self, jobs: JobTable, cluster: Cluster, power_setup: PowerSetup) -> PowerPolicyWeights:
        """Weights and per-job terms for the jobs of a log, sorted by submission."""
        features = job_features(jobs["estimate_s"], jobs.size, cluster.size)
        count = len(JOB_FEATURES)
        base, slopes = self.weights[count], self.weights[count + 1 : count + 3]
        return power_policy_weights(
            power_setup,
            features @ self.weights[:count],
            base + features[:, :2] @ slopes,
            self.weights[count + 3 :],
            self.signal,
        )

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under this agent; DVFS states and sleep settings are those of its own power controls."""
        settings, jobs, cluster = settings_of(inputs, self.name), inputs.jobs, inputs.cluster
        if self.power is None:
            raise InputError(
                f"agent {self.name!r} was trained on kilowait/Energy-v0 and needs a power model and power controls; "
                f"give --power and --power-controls {self.power_controls}"
            )
        decision_settings = EnergyDecisionSettings(
            backfill=settings.backfill,
            at_limit=settings.at_limit,
            placement=settings.placement,
            overrun=settings.overrun,
            max_wait_s=settings.max_wait_s,
        )
        return run_energy_policy(
            jobs,
            cluster,
            self,
            power=self.power,
            decision_settings=decision_settings,
            settings=settings,
            name=self.name,
        )

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the agent to a JSON file; `load_agent` restores it exactly."""
        data = {
            "format": LINEAR_POWER_FORMAT,
            "version": VERSION,
            "name": self.name,
            "power_controls": self.power_controls,
            "signal": self.signal,
            "weights": self.weights_by_name(),
            "provenance": dict(self.provenance),
        }
        return write_agent(path, data)


def agent_from_controls(
    machine_nodes: int,
    *,
    order: Mapping[str, float] | None = None,
    slowdown: float = 0.0,
    when_crowded: bool = False,
    timeout_s: float | None = None,
    reserve: float = 0.0,
    power_controls: str = "all",
    signal: str | None = None,
) -> LinearPowerAgent:
    """Hand-tuned power controls as weights.

    Args:
        machine_nodes: nodes of the machine.
        order: weights of `JOB_FEATURES`, age and patience, 0 for those not named; None: smallest area
            first.
        slowdown: largest relative increase of the run time, to save energy (dvfs=1.1: 0.1).
        when_crowded: whether also where more nodes are requested than are free.
        timeout_s: idle seconds after which nodes sleep; None: they do not.
        reserve: idle nodes that are kept awake, as a share of the machine's.
        power_controls: allowed power controls.
        signal: carbon, price or None.
    """
    weights = dict.fromkeys(WEIGHT_MEANINGS, 0.0)
    weights |= saf_order_weights(machine_nodes) if order is None else order
    weights["slowdown"], weights["crowded"] = slowdown, 0.0 if when_crowded else -slowdown
    weights["timeout"] = NEVER_LN_S if timeout_s is None else log(max(timeout_s, 1.0))
    weights["spare"] = reserve
    return LinearPowerAgent(np.array([weights[name] for name in WEIGHT_MEANINGS]), power_controls, signal)


def power_agent_from_dict(data: Mapping[str, Any], source: Path) -> LinearPowerAgent:
    """The agent of a file's content; InputError if it is damaged."""
    check_agent_fields(data, VERSION, _FIELDS, source)
    values = weights_in_order(data["weights"], WEIGHT_MEANINGS, source)
    return LinearPowerAgent(values, data["power_controls"], data["signal"], data["name"], data["provenance"])
