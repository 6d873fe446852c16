"""Saving and loading a trained network: ``agent.pt``.

The file contains the weights, what is needed to build the network again, and the observation spec it was built for.
In spite of its usual name it is a safetensors file with JSON in its header, not a pickle: loading an untrusted file is
safe. The format is recognized by content, so any file name will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.saved_config import network_from_saved
from kilowait.agents.networks.spec import ObservationSpecProtocol, spec_to_dict
from kilowait.agents.rl.state_file import read_state, write_state
from kilowait.errors import InputError
from kilowait.files.fields import Anything, Record, Values, check_fields

__all__ = ["check_spec", "load_network", "save_network"]

FORMAT = "kilowait network"
MAX_HEADER_BYTES = 2**23
"""Maximum size of everything but weights in a file, bytes."""
_STATE = Record({"spec": Values(Anything()), "provenance": Values(Anything())})


def save_network(
    network: ActorCritic | DuelingQ, path: str | PathLike[str], *, provenance: Mapping[str, Any] | None = None
) -> Path:
    """Write a network and its provenance (algorithm, settings, seed, trace …) as plain data."""
    state = {
        "spec": spec_to_dict(network.spec),
        "config": network.config,
        "weights": network.state_dict(),
        "provenance": dict(provenance or {}),
    }
    return write_state(Path(path), FORMAT, state)


def load_network(path: str | PathLike[str], spec: ObservationSpecProtocol | None = None) -> ActorCritic | DuelingQ:
    """The network of a file, on the CPU and in evaluation mode; its provenance is ``network.provenance``.

    Args:
        path: a file that `save_network` wrote.
        spec: the observation of the environment to act in; it must equal that of the training.
    """
    state = read_state(Path(path), FORMAT, max_header_bytes=MAX_HEADER_BYTES)
    check_fields({name: state.get(name) for name in ("spec", "provenance")}, _STATE, path)
    if spec is not None:
        check_spec(state["spec"], spec, path)
    network = network_from_saved(state["spec"], state.get("config"), state.get("weights"), path)
    network.provenance = state["provenance"]
    return network


def check_spec(trained: Mapping[str, Any], spec: ObservationSpecProtocol, path: str | PathLike[str]) -> None:
    """Raise an error that names the difference if a file was written for another observation or other actions."""
    current = spec_to_dict(spec)
    for name, value in current.items():
        if trained.get(name) != value:
            raise InputError(
                f"{path} was trained on an environment with {name} {_short(trained.get(name))}; "
                f"this one has {_short(value)}: create the environment as in training, or train again"
            )


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
