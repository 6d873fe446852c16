"""Results of training: the record of an update, the trained network, and the error of a failed training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.errors import KilowaitError

__all__ = ["TrainingResult", "TrainingError", "Update"]


class TrainingError(KilowaitError, RuntimeError):
    """Training failed: names the update, the cause and the last good checkpoint."""


@dataclass(frozen=True)
class Update:
    """Statistics of one update."""

    number: int
    of: int
    steps: int
    """Environment steps of all environments together, since the start."""
    mean_return: float
    """Mean return of the episodes that ended in this update; NaN where none ended."""
    metric: float
    """Mean objective of these episodes; NaN where none ended or the environment has none."""
    losses: dict[str, float]
    """By name, means over the update's minibatches; includes other statistics of the algorithm."""
    entropy: float
    """Entropy of the policy, nats; NaN where there is no policy."""
    kl: float
    """KL divergence from the policy of the rollout, nats; NaN where it is not estimated."""
    validation: float
    """Validation metric, smaller is better; NaN in updates without validation."""
    best: float
    """Smallest validation metric so far; NaN before the first."""
    steps_per_s: float
    """Environment steps of all environments together, learning time included, in this update."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of training: the best validated network, or the last one without validation."""

    network: ActorCritic | DuelingQ
    settings: Any
    history: list[Update] = field(repr=False)
