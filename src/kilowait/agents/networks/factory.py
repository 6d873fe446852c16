"""Construction of networks by name, and their files: ``agent.pt``.

The file of a network contains the weights, what is needed to build the network again, and the observation spec it was
built for. In spite of its usual name it is a safetensors file with JSON in its header, not a pickle: loading an
untrusted file is safe. The format is recognized by content, so any file name will do. The architecture in a file is
checked before the network is built, which takes memory and time by its sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kilowait.agents.networks.feature_extractor import (
    AttentionExtractor,
    FeatureExtractor,
    GraphExtractor,
    KernelExtractor,
)
from kilowait.agents.networks.heads import ActorCritic, DuelingQ, Network
from kilowait.agents.networks.spec import (
    NetworkSizes,
    ObservationSpecProtocol,
    network_sizes,
    spec_from_dict,
    spec_to_dict,
)
from kilowait.checkpoint import StateFormat
from kilowait.errors import InputError, KilowaitError, UnknownNameError
from kilowait.files.fields import Anything, Flag, Items, Number, Record, Text, Values, check_fields

FEATURE_EXTRACTORS: dict[str, Callable[[ObservationSpecProtocol, NetworkSizes], FeatureExtractor]] = {
    "kernel": KernelExtractor,
    "attention": AttentionExtractor,
    "gat": GraphExtractor,
}
"""Feature extractors by name: jobs one by one, self-attention, attention along the edges of the jobs' graph."""

FORMAT = StateFormat(
    "kilowait network", version=2, remedy="train again, or take an earlier file", max_header_bytes=2**23
)
_STATE = Record({"spec": Values(Anything()), "provenance": Values(Anything())})
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


def network(spec: ObservationSpecProtocol, kind: str = "kernel", *, seed: int = 0, **sizes: int) -> ActorCritic:
    """An actor-critic network.

    Args:
        spec: the observation of the environment, ``vec.spec_of_observation``.
        kind: a name of `FEATURE_EXTRACTORS`.
        seed: of the initial weights; torch's global random state is unchanged.
        sizes: as in `NetworkSizes`.

    >>> from kilowait.agents.networks.spec import LoadedSpec
    >>> spec = LoadedSpec(("length", "wait"), ("hour",), slots=3, choices=1, extra=1, graph=False)
    >>> agent = network(spec, "kernel", width=16)
    >>> jobs = torch.tensor([[[1.0, 0.5], [2.0, 0.1], [0.0, 0.0]]])
    >>> observation = {"jobs": jobs, "summary": torch.zeros(1, 1), "mask": torch.tensor([[1, 0, 0, 1]])}
    >>> logits, value = agent(observation)
    >>> torch.isfinite(logits).tolist(), tuple(value.shape)
    ([[True, False, False, True]], (1,))
    """
    with _seeded(seed):
        body, config = _body(spec, kind, sizes)
        return ActorCritic(spec, body, {"head": "actor-critic", **config})


def q_network(
    spec: ObservationSpecProtocol,
    kind: str = "kernel",
    *,
    seed: int = 0,
    noisy: bool = False,
    atoms: int = 1,
    span: tuple[float, float] = (-10.0, 10.0),
    **sizes: int,
) -> DuelingQ:
    """A dueling Q network; the arguments are those of `network` and of `DuelingQ`."""
    with _seeded(seed):
        body, config = _body(spec, kind, sizes)
        config = {"head": "dueling", **config, "noisy": noisy, "atoms": atoms, "span": list(span)}
        return DuelingQ(spec, body, config, noisy=noisy, atoms=atoms, span=span)


def network_from_config(spec: dict[str, Any], config: dict[str, Any], *, seed: int = 0) -> Network:
    """A new network of the architecture ``spec_to_dict(net.spec)`` and ``net.config``, with initial weights."""
    options = {name: value for name, value in config.items() if name not in ("head", "kind", "sizes")}
    if "span" in options:
        options["span"] = tuple(options["span"])
    builders: dict[str, Callable[..., Network]] = {"actor-critic": network, "dueling": q_network}
    return builders[config["head"]](spec_from_dict(spec), config["kind"], seed=seed, **options, **config["sizes"])


def _body(spec: ObservationSpecProtocol, kind: str, sizes: dict[str, int]) -> tuple[FeatureExtractor, dict[str, Any]]:
    if kind not in FEATURE_EXTRACTORS:
        raise UnknownNameError("network", kind, FEATURE_EXTRACTORS)
    chosen = network_sizes(sizes)
    return FEATURE_EXTRACTORS[kind](spec, chosen), {"kind": kind, "sizes": asdict(chosen)}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Initialize weights from the seed; torch's global random state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def save_network(network: Network, path: str | PathLike[str], *, provenance: Mapping[str, Any] | None = None) -> Path:
    """Write a network and its provenance (algorithm, settings, seed, trace …) as plain data."""
    state = {
        "spec": spec_to_dict(network.spec),
        "config": network.config,
        "weights": network.state_dict(),
        "provenance": dict(provenance or {}),
    }
    return FORMAT.write(Path(path), state)


def load_network(path: str | PathLike[str], spec: ObservationSpecProtocol | None = None) -> Network:
    """The network of a file, on the CPU and in evaluation mode; its provenance is ``network.provenance``.

    Args:
        path: a file that `save_network` wrote.
        spec: the observation of the environment to act in; it must equal that of the training.
    """
    state = FORMAT.read(Path(path))
    check_fields({name: state.get(name) for name in ("spec", "provenance")}, _STATE, path)
    if spec is not None:
        check_spec(state["spec"], spec, path)
    network = _network_from_saved(state["spec"], state.get("config"), state.get("weights"), path)
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


def _network_from_saved(spec: Any, config: Any, weights: Any, source: str | PathLike[str]) -> Network:
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
