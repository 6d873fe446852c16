"""Architecture of a saved network: checked before the network is built, which takes memory and time by its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from kilowait.agents.networks.factory import FEATURE_EXTRACTORS, network_from_config
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.errors import InputError, KilowaitError
from kilowait.files.fields import Flag, Items, Number, Record, Text, check_fields

__all__ = ["MAX_QUEUE_WINDOW", "network_from_saved"]

MAX_QUEUE_WINDOW = 16_384
"""Maximum number of slots: edges between jobs need memory for the square of it."""
MAX_ACTIONS = 4_000_000
MAX_NAMES = 4_096
"""Maximum number of features of a job, or of numbers in the summary."""

_NAMES = Items(Text(), minimum=1, maximum=MAX_NAMES)
_SPEC = Record(
    {
        "features": _NAMES,
        "summary": Items(Text(), maximum=MAX_NAMES),
        "slots": Number(1, MAX_QUEUE_WINDOW, whole=True),
        "choices": Number(1, MAX_NAMES, whole=True),
        "extra": Number(0, MAX_NAMES, whole=True),
        "graph": Flag(),
    }
)
_CONFIG: dict[str, Any] = {
    "head": Text(("actor-critic", "dueling")),
    "kind": Text(tuple(FEATURE_EXTRACTORS)),
    "sizes": Record(
        {
            "width": Number(1, 8_192, whole=True),
            "depth": Number(1, 64, whole=True),
            "heads": Number(1, 8_192, whole=True),
        }
    ),
}
_DUELING = {
    "noisy": Flag(),
    "atoms": Number(1, 10_000, whole=True),
    "span": Items(Number(-1e30, 1e30), minimum=2, maximum=2),
}


def network_from_saved(spec: Any, config: Any, weights: Any, source: str | PathLike[str]) -> ActorCritic | DuelingQ:
    """The network of a saved spec, architecture and weights; InputError if they are invalid or do not fit together.

    The weights become those of the network without a copy; initial weights are not computed.

    Args:
        spec: as `spec_to_dict` gives it.
        config: of a network, such as ``network.config``.
        weights: tensors by name.
        source: the file, for errors.
    """
    check_fields({"spec": spec, "config": config}, Record({"spec": _SPEC, "config": Record(_CONFIG)}), source)
    dueling = config["head"] == "dueling"
    expected = {**_CONFIG, **(_DUELING if dueling else {})}
    check_fields({"config": config}, Record({"config": Record(expected)}), source)
    for name, found, known in (
        ("spec", spec, _SPEC.required), ("config", config, expected), ("config.sizes", config["sizes"], _SIZES)
    ):  # fmt: skip
        unknown = [field for field in found if field not in known]
        if unknown:
            raise InputError(f"{source}: {name} has the unknown field {str(unknown[0])[:60]!r}")
    actions = spec["slots"] * spec["choices"] + spec["extra"]
    if actions > MAX_ACTIONS:
        raise InputError(f"{source}: spec has {actions:,} actions; at most {MAX_ACTIONS:,} are read")
    if dueling and config["span"][0] > config["span"][1]:
        raise InputError(f"{source}: config.span is {config['span']}; its first number must not be above its second")
    try:
        with torch.device("meta"):  # without memory and initial weights
            network = network_from_config(spec, config)
    except KilowaitError as problem:
        raise InputError(f"{source} contains no network that this kilowait can build: {problem}") from None
    _check_weights(network.state_dict(), weights, source)
    network.load_state_dict(weights, assign=True)
    if isinstance(network, DuelingQ):
        network.support = torch.linspace(config["span"][0], config["span"][1], config["atoms"])
    return network.eval()


_SIZES = ("width", "depth", "heads")


def _check_weights(expected: Mapping[str, Tensor], weights: Any, source: str | PathLike[str]) -> None:
    """Check names, types and shapes of the weights, and that they are finite."""
    if not isinstance(weights, dict) or set(weights) != set(expected):
        found = weights if isinstance(weights, dict) else {}
        differing = sorted(set(map(str, found)) ^ set(expected))
        raise InputError(f"{source}: weights has other names than the network, such as {', '.join(differing)[:100]}")
    for name, tensor in expected.items():
        found = weights[name]
        if not isinstance(found, Tensor) or found.dtype != tensor.dtype or found.shape != tensor.shape:
            shown = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"{source}: weights.{name} is {shown}; the network needs {tensor.dtype} {tuple(tensor.shape)}"
            )
        if not found.isfinite().all():
            raise InputError(f"{source}: weights.{name} has values that are not finite; train again")
