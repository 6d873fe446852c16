"""One-cycle learning-rate schedule: rises in the first tenth of the training, then falls.

L. N. Smith, N. Topin, "Super-convergence: very fast training of neural networks using large learning rates", 2019.
"""

from __future__ import annotations

import torch
from torch.optim.lr_scheduler import OneCycleLR

__all__ = ["one_cycle_schedule"]

WARMUP_SHARE = 0.1
"""Share of the steps in which the learning rate rises."""


def one_cycle_schedule(optimizer: torch.optim.Optimizer, max_rate: float, steps: int) -> OneCycleLR:
    """One-cycle schedule over `steps` steps."""
    total = steps + 1
    # torch ends the rise at step `WARMUP_SHARE * total - 1` and divides by that.
    share = WARMUP_SHARE if WARMUP_SHARE * total != 1 else 1.1 * WARMUP_SHARE
    return OneCycleLR(optimizer, max_rate, total_steps=total, pct_start=share)
