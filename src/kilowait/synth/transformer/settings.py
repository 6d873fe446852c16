"""Hyperparameters of the transformer generator, and their limits."""

from __future__ import annotations

from dataclasses import dataclass

from kilowait.errors import InputError

__all__ = ["TransformerSettings"]


@dataclass(frozen=True)
class TransformerSettings:
    """Hyperparameters of the transformer generator."""

    passes: float | None = None
    """Passes (epochs) over the log; None: about 1.2 million jobs in total, but 4 to 40 passes."""
    width: int | None = None
    """Width of the network, a multiple of 8; None: 64, or 16 for a private fit, as noise dominates a large network."""
    layers: int | None = None
    """Number of layers; None: 2, or 1 for a private fit."""
    frequent_jobs: int = 6
    """Frequent job shapes stored per user and week. Fewer copy less of the log, and match its weeks less
    closely."""
    session_s: float = 1800.0
    """The maximum time between jobs of a session, seconds."""
    draws: int = 4
    """Samples of each user's week, of which one is selected to match the work of the log; 1: no
    selection."""
    dp_epsilon: float | None = None
    """Epsilon of user-level differential privacy of the folder; None: no guarantee. With it, passes, frequent_jobs and
    draws have no effect."""
    dp_delta: float = 1e-5
    """Delta of the guarantee; it should be well below 1 / users."""
    dp_steps: int = 300
    """Number of steps of a private training. More steps need more noise per step."""
    dp_rate: float = 0.1
    """Probability that a user is sampled in a step."""

    def __post_init__(self) -> None:
        least = {"width": 8, "layers": 1, "frequent_jobs": 1, "session_s": 1.0, "draws": 1, "dp_steps": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not value >= low:
                raise InputError(f"{name} is {value}; it must be at least {low:g}")
        most = {"width": 4096, "layers": 100, "frequent_jobs": 1000, "draws": 1000}
        for name, high in most.items():
            value = getattr(self, name)
            if value is not None and not value <= high:
                raise InputError(f"{name} is {value}; it must be at most {high:,}")
        if self.width is not None and self.width % 8:
            raise InputError(f"width is {self.width}; it must be a multiple of 8")
        if self.passes is not None and not self.passes > 0:
            raise InputError(f"passes is {self.passes}; it must be above 0")
        if not 0 < self.dp_rate <= 1:
            raise InputError(f"dp_rate is {self.dp_rate}; it must be above 0 and at most 1")

    @property
    def private(self) -> bool:
        """Whether the fit is differentially private."""
        return self.dp_epsilon is not None
