"""Construction of networks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from kilowait.agents.networks.feature_extractor import AttentionExtractor, FeatureExtractor, KernelExtractor
from kilowait.agents.networks.gat import GraphExtractor
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.spec import NetworkSizes, ObservationSpecProtocol, network_sizes, spec_from_dict
from kilowait.errors import UnknownNameError

__all__ = ["FEATURE_EXTRACTORS", "network", "q_network", "network_from_config"]

FEATURE_EXTRACTORS: dict[str, Callable[[ObservationSpecProtocol, NetworkSizes], FeatureExtractor]] = {
    "kernel": KernelExtractor,
    "attention": AttentionExtractor,
    "gat": GraphExtractor,
}
"""Feature extractors by name: jobs one by one, self-attention, attention along the edges of the jobs' graph."""


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


def network_from_config(spec: dict[str, Any], config: dict[str, Any], *, seed: int = 0) -> ActorCritic | DuelingQ:
    """A new network of the architecture ``spec_to_dict(net.spec)`` and ``net.config``, with initial weights."""
    options = {name: value for name, value in config.items() if name not in ("head", "kind", "sizes")}
    if "span" in options:
        options["span"] = tuple(options["span"])
    builders: dict[str, Callable[..., ActorCritic | DuelingQ]] = {"actor-critic": network, "dueling": q_network}
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
