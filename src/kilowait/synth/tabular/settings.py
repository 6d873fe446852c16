"""Hyperparameters of the tabular generators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kilowait.errors import InputError

__all__ = ["CopulaGANSettings", "CtganSettings", "DiffusionSettings", "TvaeSettings"]


@dataclass(frozen=True)
class TabularSettings:
    """Hyperparameters shared by all tabular generators."""

    LEAST: ClassVar[Mapping[str, int]] = {"steps": 1, "batch": 10, "width": 8, "kinds": 2}
    MOST: ClassVar[Mapping[str, int]] = {"width": 16_384, "latent": 16_384, "layers": 100, "draw_steps": 1000}
    ABOVE_0: ClassVar[tuple[str, ...]] = ("rate",)

    steps: int = 3000
    """Number of training steps, independent of the length of the log."""
    batch: int = 500
    """Batch size: rows per step."""
    width: int = 128
    """Width of the hidden layers."""
    rate: float = 2e-3
    """Learning rate."""
    kinds: int = 100
    """Maximum values of a column that are categories of their own: users, or numbers with no more values."""

    def __post_init__(self) -> None:
        for name, least in self.LEAST.items():
            if not getattr(self, name) >= least:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        for name, most in self.MOST.items():
            if hasattr(self, name) and not getattr(self, name) <= most:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at most {most:,}")
        for name in self.ABOVE_0:
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0")


@dataclass(frozen=True)
class CtganSettings(TabularSettings):
    """Hyperparameters of CTGAN. A step is several times as expensive as in the others, so there are fewer."""

    steps: int = 1000
    rate: float = 5e-4
    kinds: int = 50


@dataclass(frozen=True)
class CopulaGANSettings(CtganSettings):
    """Hyperparameters of this generator."""


@dataclass(frozen=True)
class TvaeSettings(TabularSettings):
    """Hyperparameters of this generator."""

    LEAST: ClassVar[Mapping[str, int]] = {**TabularSettings.LEAST, "latent": 1}
    ABOVE_0 = ("rate", "likeness")

    latent: int = 32
    """Dimension of the latent space."""
    likeness: float = 2.0
    """Weight of the reconstruction loss relative to the KL divergence."""


@dataclass(frozen=True)
class DiffusionSettings(TabularSettings):
    """Hyperparameters of this generator."""

    LEAST: ClassVar[Mapping[str, int]] = {**TabularSettings.LEAST, "layers": 1, "draw_steps": 1}

    batch: int = 256
    width: int = 192
    layers: int = 3
    draw_steps: int = 20
    """Number of sampling steps from noise to data."""
