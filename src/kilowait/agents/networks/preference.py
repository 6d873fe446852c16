"""Networks that are told a preference between the terms of the reward, and what becomes of one at play.

In training the weights are the last numbers of the summary (`kilowait.envs.preferences`). At play they are fixed; every
body multiplies the summary by one matrix, so a fixed preference is a part of that layer's bias. What is left is a
network like any other, which sees no preference and replays inside the engine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import torch

from kilowait.agents.networks.factory import from_config
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.spec import (
    LoadedSpec,
    ObservationSpecProtocol,
    described,
    seen_from,
)
from kilowait.envs.observation_spec import PREFIX
from kilowait.envs.preferences import preference_text, weights_from
from kilowait.errors import InputError

__all__ = ["PreferenceConditioned", "plain_spec", "preferred", "terms_of"]


def terms_of(spec: ObservationSpecProtocol) -> tuple[str, ...]:
    """The terms between which a network of this spec is told a preference; none: it is told none.

    >>> terms_of(LoadedSpec(("wait",), ("free", "prefers_sla", "prefers_wait"), 4, 1, 0, False))
    ('sla', 'wait')
    """
    return tuple(name.removeprefix(PREFIX) for name in spec.summary if name.startswith(PREFIX))


def plain_spec(spec: ObservationSpecProtocol) -> LoadedSpec:
    """The same without the preference."""
    told = described(spec)
    return seen_from({**told, "summary": [name for name in told["summary"] if not name.startswith(PREFIX)]})


def preferred(
    network: ActorCritic | DuelingQ, preference: dict[str, float], *, name: str = "agent"
) -> ActorCritic | DuelingQ:
    """The network with this preference for good, as one that is told none.

    Weights are brought to a sum of 1; terms that are not named have 0.

    >>> from kilowait.agents.networks import network
    >>> told = network(LoadedSpec(("wait",), ("free", "prefers_sla", "prefers_wait"), 4, 1, 0, False))
    >>> preferred(told, {"sla": 1, "wait": 3}).spec.summary
    ('free',)
    """
    spec = network.spec
    terms = terms_of(spec)
    if not terms:
        raise InputError(
            f"{name} takes no preference: it was trained for one reward, or has been told a preference already"
        )
    weights = weights_from(preference, terms)
    columns = [place for place, shown in enumerate(spec.summary) if shown.startswith(PREFIX)]
    others = [place for place, shown in enumerate(spec.summary) if not shown.startswith(PREFIX)]
    state = dict(network.state_dict())
    matrix = state["body.summary.weight"]
    fixed = torch.from_numpy(weights).to(matrix)
    state["body.summary.bias"] = state["body.summary.bias"] + matrix[:, columns] @ fixed
    state["body.summary.weight"] = matrix[:, others]
    made = from_config(described(plain_spec(spec)), network.made).to(matrix.device)
    made.load_state_dict(state)
    provenance = dict(getattr(network, "provenance", {}))
    made.provenance = {**provenance, "preference": dict(zip(terms, weights.tolist(), strict=True))}
    return made.eval()


class PreferenceConditioned:
    """What agents that hold a network have in common: they may have to be told a preference before they play."""

    network: ActorCritic | DuelingQ
    name: str

    @property
    def preferences(self) -> tuple[str, ...]:
        """The terms between which it must be told a preference; none: it plays as it is."""
        return terms_of(self.network.spec)

    def prefer(self, **weights: float) -> Self:
        """The agent with this preference: ``agent.prefer(slowdown=0.3, energy=0.7)``.

        Weights are brought to a sum of 1; terms that are not named have 0.
        """
        this: Any = self
        network = preferred(self.network, weights, name=f"agent {self.name!r}")
        return replace(this, network=network, name=f"{self.name} {preference_text(weights)}")  # type: ignore[no-any-return]

    def check_preferred(self) -> None:
        """An error if it is asked to play without a preference that it needs."""
        terms = self.preferences
        if terms:
            even = {term: round(1 / len(terms), 2) for term in terms}
            python = ", ".join(f"{term}={weight:g}" for term, weight in even.items())
            raise InputError(
                f"agent {self.name!r} weighs {' and '.join(terms)} as it is told, and has been told nothing: say "
                f"agent.prefer({python}), on the command line agent:PATH:prefer={preference_text(even)}"
            )
