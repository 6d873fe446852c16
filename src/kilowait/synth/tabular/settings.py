"""What one can set of each table network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kilowait.errors import InputError

__all__ = ["CopulaGANSettings", "CtganSettings", "DiffusionSettings", "TabularSettings", "TvaeSettings"]


@dataclass(frozen=True)
class TabularSettings:
    """What one can set of all of them."""

    LEAST: ClassVar[Mapping[str, int]] = {"steps": 1, "batch": 10, "width": 8, "kinds": 2}
    ABOVE_0: ClassVar[tuple[str, ...]] = ("rate",)

    steps: int = 3000
    """Steps of learning, whatever the length of the log."""
    batch: int = 500
    """Rows of a step."""
    width: int = 128
    """Of the hidden layers."""
    rate: float = 2e-3
    """How far a step goes."""
    kinds: int = 100
    """Values of a column that are kinds of their own: users, or numbers where there are no more of them."""

    def __post_init__(self) -> None:
        for name, least in self.LEAST.items():
            if not getattr(self, name) >= least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        for name in self.ABOVE_0:
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0")


@dataclass(frozen=True)
class CtganSettings(TabularSettings):
    """What one can set. A step costs several times what it costs the others, so there are fewer."""

    steps: int = 1000
    rate: float = 5e-4
    kinds: int = 50


@dataclass(frozen=True)
class CopulaGANSettings(CtganSettings):
    """What one can set."""


@dataclass(frozen=True)
class TvaeSettings(TabularSettings):
    """What one can set."""

    LEAST: ClassVar[Mapping[str, int]] = {**TabularSettings.LEAST, "latent": 1}
    ABOVE_0 = ("rate", "likeness")

    latent: int = 32
    """Numbers a row is squeezed through."""
    likeness: float = 2.0
    """Weight of making rows again as they were, against what the numbers in between may know."""


@dataclass(frozen=True)
class DiffusionSettings(TabularSettings):
    """What one can set."""

    LEAST: ClassVar[Mapping[str, int]] = {**TabularSettings.LEAST, "layers": 1, "draw_steps": 1}

    batch: int = 256
    width: int = 192
    layers: int = 3
    draw_steps: int = 20
    """Steps from noise to a row."""
