"""A trained network in a file: ``agent.pt``.

It holds the weights and what is needed to build the network again, and to refuse an environment it was not built for.
In spite of its usual name it is a safetensors file with JSON in its header, not a pickle: opening one from a stranger
is safe. The content decides, so any name will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.agents.networks.factory import from_config
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.spec import ObservationSpecProtocol, described
from kilowait.agents.rl.checkpoint import read_state, write_state
from kilowait.errors import InputError, KilowaitError

__all__ = ["check_spec", "load_network", "save_network"]

FORMAT = "kilowait network"


def save_network(
    network: ActorCritic | DuelingQ,
    path: str | PathLike[str],
    *,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write a network, and where it comes from: algorithm, settings, seed, trace …, as numbers and words."""
    state = {
        "spec": described(network.spec),
        "made": network.made,
        "weights": network.state_dict(),
        "provenance": dict(provenance or {}),
    }
    return write_state(Path(path), FORMAT, state)


def load_network(
    path: str | PathLike[str], spec: ObservationSpecProtocol | None = None
) -> ActorCritic | DuelingQ:
    """The network a file holds, on the CPU and ready to act; its provenance is ``network.provenance``.

    Args:
        path: a file that `save_network` wrote.
        spec: what the environment shows that it is for; another one than it was trained on is an error.
    """
    state = read_state(Path(path), FORMAT)
    if spec is not None:
        check_spec(state["spec"], spec, path)
    try:
        network = from_config(state["spec"], state["made"])
        network.load_state_dict(state["weights"])
    except (KilowaitError, KeyError, TypeError, RuntimeError) as problem:
        raise InputError(f"{path} holds no network that this kilowait can build: {problem}") from None
    network.provenance = state["provenance"]
    return network.eval()


def check_spec(before: Mapping[str, Any], spec: ObservationSpecProtocol, path: str | PathLike[str]) -> None:
    """Refuse a file that was made for an environment that shows or takes something else, naming the difference."""
    now = described(spec)
    for name, value in now.items():
        if before.get(name) != value:
            raise InputError(
                f"{path} was trained on an environment with {name} {_short(before.get(name))}; "
                f"this one has {_short(value)}: make the environment as it was, or train again"
            )


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
