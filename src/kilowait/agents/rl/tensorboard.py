"""TensorBoard writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["tensorboard_writer"]


def tensorboard_writer(folder: Path) -> Any:
    """A TensorBoard writer for the folder; ImportError where TensorBoard is not installed."""
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter
    return writer(str(folder))
