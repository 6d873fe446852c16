"""Training of agents that control power: their settings, and binding them to a power model in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.experiments.power import PowerSettings, make_power_context
from kilowait.experiments.power_context import PowerContext
from kilowait.experiments.resume import search_checkpoint_dir
from kilowait.jobs import JobTable

__all__ = [
    "DEFAULT_CONTROLS",
    "PowerAgent",
    "PowerTraining",
    "bind_agent_power",
    "check_reward",
    "power_config",
    "power_objective",
    "train_power_agent",
]

DEFAULT_CONTROLS = "all"
"""Default power controls of an agent."""
SPENT = ("energy", "co2", "cost")
"""Reward terms that need a power model."""


@runtime_checkable
class PowerAgent(Protocol):
    """An agent with power controls of its own, which needs a power model to run."""

    power_controls: str

    def bind_power(self, power: Any) -> Any:
        """The agent on a machine with this power model."""


@dataclass(frozen=True)
class PowerTraining:
    """Power model, signals and power controls of a training."""

    meter: PowerContext
    power_controls: str = DEFAULT_CONTROLS
    settings: PowerSettings = field(default_factory=PowerSettings)

    @classmethod
    def of(
        cls, settings: PowerSettings, power_controls: str, jobs: JobTable, cluster: Cluster
    ) -> PowerTraining:
        """Read the files that the settings name, aligned with the times of the log."""
        return cls(make_power_context(settings, jobs, cluster), power_controls, settings)

    @property
    def record(self) -> dict[str, Any]:
        """Power controls and power settings as plain data, for the provenance."""
        return {"power_controls": self.power_controls, "power": self.settings.to_dict()}

    @property
    def identity(self) -> dict[str, Any]:
        """The same with a digest of the files' content: a training is resumed only with equal content."""
        return {**self.record, "content of power and signals": f"digest {self.meter.digest[:12]}"}


def power_config(meter: PowerContext, power_controls: str) -> Any:
    """The power settings of `kilowait/Energy-v0`, without load shifting, as the agent decides when jobs start."""
    from kilowait.envs.power.power_setup import PowerConfig

    shifting = "shift"
    controls = [part for part in power_controls.split("+") if not part.strip().startswith(shifting)]
    return PowerConfig(
        meter.model,
        meter.carbon,
        meter.price,
        "+".join(controls) or "none",
        meter.forecast,
        meter.utilization,
        repeat_signals=meter.repeat_signals,
    )


def bind_agent_power(policy: Any, meter: PowerContext | None, power_controls: str) -> Any:
    """The policy of a run: an agent that controls power is bound to the power model; others are returned unchanged."""
    if not isinstance(policy, PowerAgent):
        return policy
    if meter is None:
        raise InputError(
            "this agent was trained on kilowait/Energy-v0: it needs a power model and power controls; give --power and "
            f"--power-controls {policy.power_controls}"
        )
    if power_controls.strip() == "none":
        raise InputError(
            "this agent uses power controls, and none are given; take those of its training: "
            f"--power-controls {policy.power_controls}"
        )
    return policy.bind_power(power_config(meter, power_controls))


def check_reward(terms: Mapping[str, float], powered: bool) -> None:
    """Raise an error for a reward term that needs a power model where there is none."""
    lacking = [name for name in terms if name in SPENT]
    if lacking and not powered:
        raise InputError(
            f"the term {lacking[0]!r} needs a power model; name one with --power, or use --power auto"
        )


def power_objective(reward: Mapping[str, float] | None) -> str:
    """The power term of a reward with the largest weight; energy if it has none.

    >>> power_objective({"slowdown": 1.0, "co2": 0.5})
    'co2'
    """
    named = {name: weight for name, weight in (reward or {}).items() if name in SPENT}
    return max(named, key=lambda name: abs(named[name])) if named else "energy"


def train_power_agent(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    powering: PowerTraining,
    *,
    spent: str,
    times: float,
    rule: str,
    progress: Callable[[Any], None] | None = None,
    folder: Path | None = None,
    resume: bool = False,
    **how: Any,
) -> tuple[Any, list[Any]]:
    """Train a linear power agent by CMA-ES; the slowdown is limited to `times` that of `rule`.

    The checkpoint in `folder` is written after every generation, and `resume` continues exactly from it.
    """
    from kilowait.agents.linear_power.train import SlowdownLimit, train_linear_power

    return train_linear_power(
        jobs,
        validation,
        cluster,
        power_config(powering.meter, powering.power_controls),
        spent=spent,
        sla=SlowdownLimit(times, rule),
        progress=progress,
        checkpoint_dir=search_checkpoint_dir(
            folder,
            {"training": jobs, "validation": validation},
            cluster,
            resume=resume,
            more=powering.identity,
        ),
        **how,
    )
