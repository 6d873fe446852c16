"""What training tells while it runs, what it gives in the end, and how it fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.errors import KilowaitError

__all__ = ["TrainingResult", "TrainingError", "Update"]


class TrainingError(KilowaitError, RuntimeError):
    """Training went wrong: names the update, what happened and the last good checkpoint."""


@dataclass(frozen=True)
class Update:
    """What one update did."""

    number: int
    of: int
    steps: int
    """Of all environments together, since the beginning."""
    mean_return: float
    """Of the episodes that ended in this update, as the environment counts; NaN where none ended."""
    metric: float
    """Mean of their objective; NaN where none ended or the environment names none."""
    losses: dict[str, float]
    """By name, means over the update's minibatches; other figures of the algorithm are here too."""
    entropy: float
    """Of the policy, nats; NaN where there is no policy."""
    kl: float
    """Divergence of the policy from that of the rollout, nats; NaN where it is not estimated."""
    validation: float
    """Smaller is better; NaN in updates that were not validated."""
    best: float
    """The least validation so far; NaN before the first."""
    steps_per_s: float
    """Of all environments together, learning included, in this update."""


@dataclass(frozen=True)
class TrainingResult:
    """What training gives: the best validated network, or the last one where nothing was validated."""

    network: ActorCritic | DuelingQ
    settings: Any
    history: list[Update] = field(repr=False)
