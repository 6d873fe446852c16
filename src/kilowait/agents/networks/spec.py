"""Observation spec and size of a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from kilowait.errors import InputError, UnknownNameError


class ObservationSpecProtocol(Protocol):
    """Observation and actions of an environment, as in ``vec.spec_of_observation``.

    An observation is a dict: ``jobs`` float32 (slots, features), zero rows where there is no job; ``summary`` float32;
    ``mask`` int8 (actions), 1 where the action may be taken; with a graph also ``edges`` uint8 (slots, slots).
    Action ``slot * choices + choice`` starts the job of a slot with one of several choices; then the extra actions.
    """

    @property
    def features(self) -> tuple[str, ...]:
        """Names of a job's features, in the order of its row."""

    @property
    def summary(self) -> tuple[str, ...]:
        """Names of the numbers in the summary."""

    @property
    def slots(self) -> int:
        """Number of jobs that can be observed at a time."""

    @property
    def choices(self) -> int:
        """Number of choices for starting a job."""

    @property
    def extra(self) -> int:
        """Number of actions that start no job."""

    @property
    def graph(self) -> bool:
        """Whether observations have edges."""


@dataclass(frozen=True)
class LoadedSpec:
    """The observation spec of a file."""

    features: tuple[str, ...]
    summary: tuple[str, ...]
    slots: int
    choices: int
    extra: int
    graph: bool


def spec_to_dict(spec: ObservationSpecProtocol) -> dict[str, Any]:
    """The spec as plain data, for a file.

    >>> spec_to_dict(LoadedSpec(("wait",), (), 4, 1, 0, False))["slots"]
    4
    """
    return {
        "features": list(spec.features),
        "summary": list(spec.summary),
        "slots": int(spec.slots),
        "choices": int(spec.choices),
        "extra": int(spec.extra),
        "graph": bool(spec.graph),
    }


def spec_from_dict(description: Mapping[str, Any]) -> LoadedSpec:
    """The spec of a file; the inverse of `spec_to_dict`."""
    names = {name: tuple(description[name]) for name in ("features", "summary")}
    return LoadedSpec(**{**description, **names})


@dataclass(frozen=True)
class NetworkSizes:
    """Size of a network.

    >>> NetworkSizes(width=32).heads
    4
    """

    width: int = 64
    """Length of a job's vector inside the network."""
    depth: int = 2
    """Layers: of the kernel, or of attention."""
    heads: int = 4
    """Attention heads, width / heads numbers each; the kernel network has none."""

    def __post_init__(self) -> None:
        if min(self.width, self.depth, self.heads) < 1:
            raise InputError(f"the sizes of the network are {asdict(self)}; each must be at least 1")
        if self.width % self.heads:
            raise InputError(
                f"the width {self.width} is not divisible by {self.heads} heads; take a multiple of {self.heads}"
            )


def network_sizes(sizes: Mapping[str, int]) -> NetworkSizes:
    """Sizes by name; an unknown name is an error.

    >>> network_sizes({"widht": 32})
    Traceback (most recent call last):
    ...
    kilowait.errors.UnknownNameError: unknown size 'widht'; did you mean 'width'? known: depth, heads, width
    """
    known = [field.name for field in fields(NetworkSizes)]
    for name in sizes:
        if name not in known:
            raise UnknownNameError("size", name, known)
    return NetworkSizes(**sizes)
