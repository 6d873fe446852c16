"""Learning where power is drawn: what agents are trained with, and how they enter runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.experiments.power import PowerSettings, meter_for
from kilowait.experiments.power_context import PowerContext
from kilowait.experiments.resume import search_in
from kilowait.jobs import JobTable

__all__ = [
    "LEVERS",
    "PowerAgent",
    "PowerTraining",
    "bind_agent_power",
    "check_reward",
    "power_of",
    "spent_in",
    "train_es",
]

LEVERS = "all"
"""What an agent may pull unless told."""
SPENT = ("energy", "co2", "cost")
"""Terms of a reward that draw on power."""


@runtime_checkable
class PowerAgent(Protocol):
    """An agent that needs to know what power is drawn with, and pulls levers of its own."""

    levers: str

    def bind_power(self, power: Any) -> Any:
        """The agent on a machine with this power."""


@dataclass(frozen=True)
class PowerTraining:
    """What an agent is trained with besides jobs and nodes."""

    meter: PowerContext
    levers: str = LEVERS
    settings: PowerSettings = field(default_factory=PowerSettings)

    @classmethod
    def of(cls, settings: PowerSettings, levers: str, jobs: JobTable, cluster: Cluster) -> PowerTraining:
        """Everything the settings name, read and laid on the log's clock."""
        return cls(meter_for(settings, jobs, cluster), levers, settings)

    @property
    def words(self) -> dict[str, Any]:
        """What is pulled and what is drawn, for the record."""
        return {"levers": self.levers, "power": self.settings.to_dict()}

    @property
    def world(self) -> dict[str, Any]:
        """The same with what the files of power and signals hold: a training goes on with no other."""
        return {**self.words, "content of power and signals": f"digest {self.meter.digest[:12]}"}


def power_of(meter: PowerContext, levers: str) -> Any:
    """The power of a meter as `kilowait/Energy-v0` takes it; jobs are held by whoever decides, so hold is left out."""
    from kilowait.envs.power.power_setup import PowerConfig

    kept = [part for part in levers.split("+") if not part.strip().startswith("hold")]
    return PowerConfig(
        meter.model,
        meter.carbon,
        meter.price,
        "+".join(kept) or "none",
        meter.forecast,
        meter.profile,
        wrap=meter.wrap,
    )


def bind_agent_power(policy: Any, meter: PowerContext | None, levers: str) -> Any:
    """A policy as it enters a run: an agent that steers power is told of it; all others are as they were."""
    if not isinstance(policy, PowerAgent):
        return policy
    if meter is None:
        raise InputError(
            "this agent was trained on kilowait/Energy-v0: it needs a power model and levers; give --power and "
            f"--power-controls {policy.levers}"
        )
    if levers.strip() == "none":
        raise InputError(
            f"this agent pulls levers, and none are given; take those it was trained with: "
            f"--power-controls {policy.levers}"
        )
    return policy.bind_power(power_of(meter, levers))


def check_reward(terms: Mapping[str, float], powered: bool) -> None:
    """Raise where a term is asked for that only a power model can tell."""
    lacking = [name for name in terms if name in SPENT]
    if lacking and not powered:
        raise InputError(
            f"the term {lacking[0]!r} is known only with a power model; name one with --power, or --power auto"
        )


def spent_in(reward: Mapping[str, float] | None) -> str:
    """What a reward makes small first of all: the term of power that weighs most; energy where none is in it.

    >>> spent_in({"slowdown": 1.0, "co2": 0.5})
    'co2'
    """
    named = {name: weight for name, weight in (reward or {}).items() if name in SPENT}
    return max(named, key=lambda name: abs(named[name])) if named else "energy"


def train_es(
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
    """Weights that steer power, by an evolution strategy; `times` the slowdown of `rule` is what users are promised.

    In `folder` the search is kept after every generation, and `resume` goes on from there, exactly.
    """
    from kilowait.agents.linear_power.train import SlowdownLimit, train_steered

    return train_steered(
        jobs,
        validation,
        cluster,
        power_of(powering.meter, powering.levers),
        spent=spent,
        sla=SlowdownLimit(times, rule),
        progress=progress,
        keeping=search_in(
            folder,
            {"training": jobs, "validation": validation},
            cluster,
            resume=resume,
            more=powering.world,
        ),
        **how,
    )
