"""What a network is built for, and how big it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from kilowait.errors import InputError, UnknownNameError

__all__ = ["ObservationSpecProtocol", "Sizes", "described", "seen_from", "sizes_of"]


class ObservationSpecProtocol(Protocol):
    """What an environment shows and takes, as ``vec.spec_of_observation`` gives it.

    An observation is a dict: ``jobs`` float32 (slots, features), zero rows where there is no job; ``summary`` float32;
    ``mask`` int8 (actions), 1 where the action may be taken; with a graph also ``edges`` uint8 (slots, slots).
    Action ``slot * choices + choice`` starts the job of a slot in one of several ways; then come the extra actions.
    """

    @property
    def features(self) -> tuple[str, ...]:
        """Names of what is known of a job, in the order of its row."""

    @property
    def summary(self) -> tuple[str, ...]:
        """Names of what is known of everything else."""

    @property
    def slots(self) -> int:
        """Jobs that can be seen at a time."""

    @property
    def choices(self) -> int:
        """Ways to start a job."""

    @property
    def extra(self) -> int:
        """Actions that start no job."""

    @property
    def graph(self) -> bool:
        """Whether observations have edges."""


@dataclass(frozen=True)
class LoadedSpec:
    """What was seen, read back from a file."""

    features: tuple[str, ...]
    summary: tuple[str, ...]
    slots: int
    choices: int
    extra: int
    graph: bool


def described(spec: ObservationSpecProtocol) -> dict[str, Any]:
    """The spec in words and numbers, for a file.

    >>> described(LoadedSpec(("wait",), (), 4, 1, 0, False))["slots"]
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


def seen_from(description: Mapping[str, Any]) -> LoadedSpec:
    """The spec a file describes; the inverse of `described`."""
    words = {name: tuple(description[name]) for name in ("features", "summary")}
    return LoadedSpec(**{**description, **words})


@dataclass(frozen=True)
class Sizes:
    """How big a network is.

    >>> Sizes(width=32).heads
    4
    """

    width: int = 64
    """Numbers a job is described by inside the network."""
    depth: int = 2
    """Layers: of the kernel, or of attention."""
    heads: int = 4
    """Heads of attention, width / heads numbers each; the kernel has none."""

    def __post_init__(self) -> None:
        if min(self.width, self.depth, self.heads) < 1:
            raise InputError(f"the sizes of the network are {asdict(self)}; each must be at least 1")
        if self.width % self.heads:
            raise InputError(
                f"the width {self.width} cannot be shared by {self.heads} heads; take a multiple of {self.heads}"
            )


def sizes_of(given: Mapping[str, int]) -> Sizes:
    """Sizes by name; a misspelt one is an error.

    >>> sizes_of({"widht": 32})
    Traceback (most recent call last):
    ...
    kilowait.errors.UnknownNameError: unknown size 'widht'; did you mean 'width'? known: depth, heads, width
    """
    known = [field.name for field in fields(Sizes)]
    for name in given:
        if name not in known:
            raise UnknownNameError("size", name, known)
    return Sizes(**given)
