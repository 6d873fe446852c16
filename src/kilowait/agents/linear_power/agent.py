"""An agent of a few weights for a cluster with power: the order of jobs, their levels, sleeping nodes and holds.

A job's score is a weighted sum of numbers known of it, in fixed units. Beside it stand sums that say how much longer a
job may be made to save energy, how long nodes stay idle before they sleep, how many are kept awake, and how long a job
is held for cleaner or cheaper power. All of them are evaluated inside the engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.io import STEERING
from kilowait.agents.linear_power.job_features import STANDING, saf_order, standing
from kilowait.cluster import Cluster, PowerControls
from kilowait.engine.settings import Settings
from kilowait.envs.kernels.linear_power_policy import MOMENT, PowerPolicyWeights, steering_of
from kilowait.envs.power.batched_sim import EnergyDecisionSettings
from kilowait.envs.power.power_setup import PowerConfig, PowerSetup
from kilowait.envs.power.rollout import play
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable

__all__ = ["WEIGHTS", "LinearPowerAgent", "from_controls", "steered_agent"]

Floats = npt.NDArray[np.float64]

VERSION = 1

WEIGHTS: dict[str, str] = {
    **{name: f"order: per {meaning}" for name, meaning in STANDING.items()},
    "longer": "how many times as long a job may be made, less 1",
    "longer_length": "to be added to that, per ln(estimate / 1 h) / 3",
    "longer_width": "to be added to that, per ln(nodes) / ln(1 + nodes of the machine)",
    **MOMENT,
}
"""What each weight does, in their order."""

NEVER_LN_S = 20.0


@dataclass(frozen=True, eq=False)
class LinearPowerAgent:
    """Weights that steer a run with power; see `WEIGHTS`.

    >>> agent = from_controls(
    ...     255, longer=0.1, timeout_s=600
    ... )  # the order of SAF, levels=1.1, sleep=timeout:600
    >>> agent.explain()[0]
    ('timeout', 6.396929655216146)
    """

    weights: Floats
    levers: str = "all"
    """What it was trained with, as on the command line: levels it may choose, and that nodes may sleep."""
    signal: str | None = None
    """What it looks at: carbon, price, or None."""
    name: str = "agent"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    power: PowerConfig | None = None
    """What it runs with; None: yet to be said, by `powered`."""

    def __post_init__(self) -> None:
        weights = np.array(self.weights, np.float64)
        if weights.shape != (len(WEIGHTS),) or not np.isfinite(weights).all():
            raise InputError(
                f"the weights are {self.weights!r}; give {len(WEIGHTS)} finite numbers, one for each of "
                f"{', '.join(WEIGHTS)}"
            )
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    def bind_power(self, power: PowerConfig) -> LinearPowerAgent:
        """The agent on a machine with this power, these signals and levers."""
        return replace(self, power=power)

    def steering(self, jobs: JobTable, cluster: Cluster, powered: PowerSetup) -> PowerPolicyWeights:
        """Its numbers for the jobs of a log, which is sorted."""
        known = standing(jobs["estimate_s"], jobs["nodes"], cluster.nodes)
        still = len(STANDING)
        base, per = self.weights[still], self.weights[still + 1 : still + 3]
        return steering_of(
            powered,
            known @ self.weights[:still],
            base + known[:, :2] @ per,
            self.weights[still + 3 :],
            self.signal,
        )

    def played(
        self, jobs: JobTable, cluster: Cluster, settings: Settings, levers: PowerControls | None = None
    ) -> ExecutionLog:
        """The run under its decisions; levels and sleep are those of its own levers."""
        if self.power is None:
            raise InputError(
                f"agent {self.name!r} was trained on kilowait/Energy-v0 and needs a power model and levers; give "
                f"--power and --power-controls {self.levers}"
            )
        asking = EnergyDecisionSettings(
            backfill=settings.backfill,
            at_limit=settings.at_limit,
            placement=settings.placement,
            overrun=settings.overrun,
        )
        return play(jobs, cluster, self, power=self.power, asking=asking, settings=settings, name=self.name)

    def explain(self) -> list[tuple[str, float]]:
        """Names and weights, the weightiest first."""
        pairs = zip(WEIGHTS, self.weights.tolist(), strict=True)
        return sorted(pairs, key=lambda pair: -abs(pair[1]))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the agent to a JSON file that `load_agent` reads back to the bit."""
        data = {
            "format": STEERING,
            "version": VERSION,
            "name": self.name,
            "levers": self.levers,
            "signal": self.signal,
            "weights": dict(zip(WEIGHTS, self.weights.tolist(), strict=True)),
            "provenance": dict(self.provenance),
        }
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        except OSError as problem:
            raise InputError(f"cannot write the agent to {target}: {problem.strerror or problem}") from None
        return target


def from_controls(
    machine_nodes: int,
    *,
    order: Mapping[str, float] | None = None,
    longer: float = 0.0,
    always: bool = False,
    timeout_s: float | None = None,
    reserve: float = 0.0,
    levers: str = "all",
    signal: str | None = None,
) -> LinearPowerAgent:
    """Levers as they are written by hand, as weights.

    Args:
        machine_nodes: nodes of the machine.
        order: weights of `standing.STANDING`, age and patience, those not named 0; None: smallest area first.
        longer: jobs run at most so much longer, to save energy (levels=1.1: 0.1).
        always: whether also where more nodes are asked for than are free.
        timeout_s: idle seconds after which nodes sleep; None: they do not.
        reserve: idle nodes that are kept awake, as a share of the machine's.
        levers: what may be pulled.
        signal: carbon, price or None.
    """
    found = dict.fromkeys(WEIGHTS, 0.0)
    found |= saf_order(machine_nodes) if order is None else order
    found["longer"], found["crowded"] = longer, 0.0 if always else -longer
    found["timeout"] = NEVER_LN_S if timeout_s is None else log(max(timeout_s, 1.0))
    found["spare"] = reserve
    return LinearPowerAgent(np.array([found[name] for name in WEIGHTS]), levers, signal)


def steered_agent(data: Mapping[str, Any], source: Path) -> LinearPowerAgent:
    """The agent that a file's content describes; InputError where it is damaged."""
    if data.get("version") != VERSION:
        raise InputError(
            f"{source} is an agent of version {data.get('version')!r}; this kilowait reads version {VERSION}: "
            "train it again"
        )
    weights = data.get("weights")
    if not isinstance(weights, dict) or set(weights) != set(WEIGHTS):
        names = ", ".join(map(str, weights)) if isinstance(weights, dict) else repr(weights)
        raise InputError(f"{source} has weights for {names}; this agent needs {', '.join(WEIGHTS)}")
    try:
        values = np.array([weights[name] for name in WEIGHTS], np.float64)
        return LinearPowerAgent(
            values, str(data["levers"]), data["signal"], str(data["name"]), dict(data["provenance"])
        )
    except (KeyError, TypeError, ValueError, InputError) as problem:
        raise InputError(f"{source} is damaged ({problem}); train it again") from None
