"""Logging of the metrics of a training to TensorBoard and Weights & Biases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from kilowait.errors import MissingExtraError

__all__ = ["TrainingLogger"]


class TrainingLogger:
    """Logs to TensorBoard, and to Weights & Biases if requested."""

    def __init__(self, folder: Path, *, wandb: str | None = None, config: Mapping[str, Any] | None = None) -> None:
        """`folder`: for TensorBoard's files, if TensorBoard is installed; `wandb`: a Weights & Biases project."""
        self._folder: Path | None = folder
        self._tensorboard: Any = None
        self._wandb: Any = None
        if wandb is not None:
            try:
                self._wandb = import_module("wandb").init(project=wandb, config=dict(config or {}))
            except ImportError:
                raise MissingExtraError("wandb", "learn") from None

    def __call__(self, update: Any) -> None:
        """Log the metrics of one update."""
        metrics = {
            "episode/return": update.mean_return,
            "episode/metric": update.metric,
            "policy/entropy": update.entropy,
            "policy/kl": update.kl,
            "validation/metric": update.validation,
            "speed/steps_per_s": update.steps_per_s,
            **{f"loss/{name}": value for name, value in update.losses.items()},
        }
        metrics = {name: value for name, value in metrics.items() if not math.isnan(value)}
        self._open()
        if self._tensorboard is not None:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(name, value, update.steps)
        if self._wandb is not None:
            self._wandb.log(metrics, step=update.steps)

    def _open(self) -> None:
        """Create the TensorBoard folder, at the first update so that a training that fails to start leaves none."""
        if self._folder is None:
            return
        try:
            from kilowait.agents.rl.tensorboard import tensorboard_writer

            self._tensorboard = tensorboard_writer(self._folder)
        except ImportError:
            pass
        self._folder = None

    def close(self) -> None:
        """Flush and close the loggers."""
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()
