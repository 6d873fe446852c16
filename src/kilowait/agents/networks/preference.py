"""Networks conditioned on a preference between reward terms, and fixing a preference after training.

In training the preference weights are the last numbers of the summary (`kilowait.envs.preferences`). For evaluation
they are fixed; every feature extractor multiplies the summary by one matrix, so a fixed preference becomes part of that
layer's bias. The result is an ordinary network without preference input, which can run inside the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from kilowait.agents.networks.factory import network_from_config
from kilowait.agents.networks.heads import ActorCritic, DuelingQ, greedy_actions
from kilowait.agents.networks.spec import LoadedSpec, ObservationSpecProtocol, spec_from_dict, spec_to_dict
from kilowait.envs.observation_spec import PREFERENCE_PREFIX
from kilowait.envs.preferences import preference_text, weights_from
from kilowait.errors import InputError


def preference_terms(spec: ObservationSpecProtocol) -> tuple[str, ...]:
    """The terms of the preference that a network of this spec takes as input; empty if it takes none.

    >>> preference_terms(LoadedSpec(("wait",), ("free", "prefers_sla", "prefers_wait"), 4, 1, 0, False))
    ('sla', 'wait')
    """
    return tuple(name.removeprefix(PREFERENCE_PREFIX) for name in spec.summary if name.startswith(PREFERENCE_PREFIX))


def plain_spec(spec: ObservationSpecProtocol) -> LoadedSpec:
    """The same spec without the preference."""
    description = spec_to_dict(spec)
    summary = [name for name in description["summary"] if not name.startswith(PREFERENCE_PREFIX)]
    return spec_from_dict({**description, "summary": summary})


def with_fixed_preference(
    network: ActorCritic | DuelingQ, preference: dict[str, float], *, name: str = "agent"
) -> ActorCritic | DuelingQ:
    """The network with this preference fixed, as a network without preference input.

    Weights are normalized to a sum of 1; terms that are not named have 0.

    >>> from kilowait.agents.networks import network
    >>> net = network(LoadedSpec(("wait",), ("free", "prefers_sla", "prefers_wait"), 4, 1, 0, False))
    >>> with_fixed_preference(net, {"sla": 1, "wait": 3}).spec.summary
    ('free',)
    """
    spec = network.spec
    terms = preference_terms(spec)
    if not terms:
        raise InputError(
            f"{name} takes no preference: it was trained for one reward, or its preference is already fixed"
        )
    weights = weights_from(preference, terms)
    columns = [column for column, feature in enumerate(spec.summary) if feature.startswith(PREFERENCE_PREFIX)]
    other_columns = [column for column, feature in enumerate(spec.summary) if not feature.startswith(PREFERENCE_PREFIX)]
    state = dict(network.state_dict())
    matrix = state["body.summary.weight"]
    weights_tensor = torch.from_numpy(weights).to(matrix)
    state["body.summary.bias"] = state["body.summary.bias"] + matrix[:, columns] @ weights_tensor
    state["body.summary.weight"] = matrix[:, other_columns]
    fixed_network = network_from_config(spec_to_dict(plain_spec(spec)), network.config).to(matrix.device)
    fixed_network.load_state_dict(state)
    provenance = dict(getattr(network, "provenance", {}))
    fixed_network.provenance = {**provenance, "preference": dict(zip(terms, weights.tolist(), strict=True))}
    return fixed_network.eval()


class PreferenceConditioned:
    """Base class of agents with a network, which may need a preference before they run."""

    network: ActorCritic | DuelingQ
    name: str

    @property
    def provenance(self) -> dict[str, Any]:
        """Origin of the network."""
        return getattr(self.network, "provenance", {})

    def decide(self, observation: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
        """(B,) the greedy actions of the network."""
        return greedy_actions(self.network, observation)

    @property
    def preferences(self) -> tuple[str, ...]:
        """The terms of the preference it needs; empty if it needs none."""
        return preference_terms(self.network.spec)

    def prefer(self, **weights: float) -> Self:
        """The agent with this preference: ``agent.prefer(slowdown=0.3, energy=0.7)``.

        Weights are normalized to a sum of 1; terms that are not named have 0.
        """
        this: Any = self
        network = with_fixed_preference(self.network, weights, name=f"agent {self.name!r}")
        return replace(this, network=network, name=f"{self.name} {preference_text(weights)}")  # type: ignore[no-any-return]

    def untrained(self, seed: int = 0) -> Self:
        """The agent with initial weights drawn from `seed` instead of the trained ones: a control in comparisons.

        An environment already backfills in a good order, so that even an untrained network may have short waits.
        """
        this: Any = self
        network = network_from_config(spec_to_dict(self.network.spec), self.network.config, seed=seed).eval()
        network.provenance = {**getattr(self.network, "provenance", {}), "untrained": seed}
        return replace(this, network=network, name=f"{self.name} untrained")  # type: ignore[no-any-return]

    def check_preference_fixed(self) -> None:
        """Raise an error if the network needs a preference and has none."""
        terms = self.preferences
        if terms:
            even = {term: round(1 / len(terms), 2) for term in terms}
            python = ", ".join(f"{term}={weight:g}" for term, weight in even.items())
            raise InputError(
                f"agent {self.name!r} needs a preference between {' and '.join(terms)}, and none is set; use "
                f"agent.prefer({python}), on the command line agent:PATH:prefer={preference_text(even)}"
            )
