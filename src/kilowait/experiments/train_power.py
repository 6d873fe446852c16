"""Training of linear agents that control power, and binding of such agents to the power model of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kilowait.cluster import Cluster
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.power import PowerSettings, make_power_context
from kilowait.experiments.power_context import PowerContext
from kilowait.experiments.resume_checks import search_checkpoint_dir
from kilowait.files import locks_output
from kilowait.jobs import JobTable

__all__ = [
    "DEFAULT_CONTROLS",
    "PowerAgent",
    "PowerSearchSettings",
    "PowerTraining",
    "bind_agent_power",
    "check_reward",
    "power_config",
    "power_objective",
    "train_power_agent",
]

DEFAULT_CONTROLS = "all"
"""Default power controls of an agent."""
OBJECTIVES = ("energy", "co2", "cost")
"""Objectives of a linear power agent."""
POWER_TERMS = ("energy", "co2", "cost")
"""Reward terms that need a power model."""


@runtime_checkable
class PowerAgent(Protocol):
    """An agent that uses power controls, and needs a power model to run."""

    power_controls: str

    def bind_power(self, power: Any) -> Any:
        """The agent with this power model."""


@dataclass(frozen=True)
class PowerSearchSettings:
    """Settings of the training of a linear power agent."""

    seed: int = 0
    objective: str = "energy"
    max_slowdown_ratio: float = 1.1
    """Limit of the mean slowdown, relative to that of `policy` without power controls."""
    policy: str = "saf"
    backfill: str | int = Settings.backfill
    generations: int = 60
    population: int = 16
    windows: int = 16
    window_jobs: int = 1024

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective", self.objective, OBJECTIVES)


@dataclass(frozen=True)
class PowerTraining:
    """Power model, signals and power controls of a training."""

    context: PowerContext
    power_controls: str = DEFAULT_CONTROLS
    settings: PowerSettings = field(default_factory=PowerSettings)

    @classmethod
    def of(cls, settings: PowerSettings, power_controls: str, jobs: JobTable, cluster: Cluster) -> PowerTraining:
        """From settings; reads the files they name, and aligns their signals with the times of the log."""
        return cls(make_power_context(settings, jobs, cluster), power_controls, settings)

    @property
    def record(self) -> dict[str, Any]:
        """Power controls and power settings as plain data, for the provenance."""
        return {"power_controls": self.power_controls, "power": self.settings.to_dict()}

    @property
    def identity(self) -> dict[str, Any]:
        """`record` with a digest of the content of all files, as a training is resumed only with equal content."""
        return {**self.record, "content of power and signals": f"digest {self.context.digest[:12]}"}


def power_config(power_context: PowerContext, power_controls: str) -> Any:
    """Power settings of `kilowait/Energy-v0`. Load shifting is left out, as the agent decides when jobs start."""
    from kilowait.envs.power.power_setup import PowerConfig

    controls = [part for part in power_controls.split("+") if not part.strip().startswith("shift")]
    return PowerConfig(
        power_context.model,
        power_context.carbon,
        power_context.price,
        "+".join(controls) or "none",
        power_context.forecast,
        power_context.utilization,
        repeat_signals=power_context.repeat_signals,
    )


def bind_agent_power(policy: Any, power_context: PowerContext | None, power_controls: str) -> Any:
    """The policy of a run: an agent that controls power is bound to the power model; others are unchanged."""
    if not isinstance(policy, PowerAgent):
        return policy
    if power_context is None:
        raise InputError(
            "this agent was trained on kilowait/Energy-v0: it needs a power model and power controls; give --power and "
            f"--power-controls {policy.power_controls}"
        )
    if power_controls.strip() == "none":
        raise InputError(
            "this agent uses power controls, but none are given; use those of its training: "
            f"--power-controls {policy.power_controls}"
        )
    return policy.bind_power(power_config(power_context, power_controls))


def check_reward(terms: Mapping[str, float], has_power: bool) -> None:
    """Raise an error if a reward term needs a power model and there is none."""
    needing_power = [name for name in terms if name in POWER_TERMS]
    if needing_power and not has_power:
        raise InputError(
            f"the term {needing_power[0]!r} needs a power model; name one with --power, or use --power auto"
        )


def power_objective(reward: Mapping[str, float] | None) -> str:
    """The power term of a reward with the largest weight; energy if it has none.

    >>> power_objective({"slowdown": 1.0, "co2": 0.5})
    'co2'
    """
    named = {name: weight for name, weight in (reward or {}).items() if name in POWER_TERMS}
    return max(named, key=lambda name: abs(named[name])) if named else "energy"


@locks_output("folder", inside=True)
def train_power_agent(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    power_training: PowerTraining,
    *,
    objective: str,
    max_slowdown_ratio: float,
    policy: str,
    progress: Callable[[Any], None] | None = None,
    folder: Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> tuple[Any, list[Any]]:
    """Train a linear power agent by CMA-ES; its slowdown is limited to `max_slowdown_ratio` times that of `policy`.

    The checkpoint in `folder` is written after every generation, and `resume` continues exactly from it.
    """
    from kilowait.agents.linear_power.train import SlowdownLimit, train_linear_power

    return train_linear_power(
        jobs,
        validation,
        cluster,
        power_config(power_training.context, power_training.power_controls),
        spent=objective,
        sla=SlowdownLimit(max_slowdown_ratio, policy),
        progress=progress,
        checkpoint_dir=search_checkpoint_dir(
            folder, {"training": jobs, "validation": validation}, cluster, resume=resume, extra=power_training.identity
        ),
        **settings,
    )
