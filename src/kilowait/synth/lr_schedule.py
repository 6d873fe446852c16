"""One-cycle learning-rate schedule: rises in the first tenth of the training, then falls.

L. N. Smith, N. Topin, "Super-convergence: very fast training of neural networks using large learning rates", 2019.
"""

from __future__ import annotations

import torch
from torch.optim.lr_scheduler import OneCycleLR

__all__ = ["rates_of"]

RISING = 0.1
"""Share of the steps in which the learning rate rises."""


def rates_of(optimizer: torch.optim.Optimizer, highest: float, steps: int) -> OneCycleLR:
    """One-cycle schedule over `steps` steps."""
    total = steps + 1
    # torch ends the rise at step `RISING * total - 1` and divides by that.
    rising = RISING if RISING * total != 1 else 1.1 * RISING
    return OneCycleLR(optimizer, highest, total_steps=total, pct_start=rising)
