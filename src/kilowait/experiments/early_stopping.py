"""Early stopping of a training by a wall-clock time limit, with the best validated network as the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from time import perf_counter
from types import SimpleNamespace
from typing import Any

__all__ = ["BestModel"]


class _TimeLimitReached(Exception):
    """The time limit of the training is reached."""


class BestModel:
    """The network with the best validation metric so far, and the history of the training."""

    def __init__(
        self, evaluate: Callable[[Any], float], seconds: float, callback: Callable[[Any], None] | None = None
    ) -> None:
        """`evaluate`: validation metric, smaller is better; `seconds`: time limit; `callback` gets every update."""
        self._evaluate, self._deadline, self._callback = evaluate, perf_counter() + seconds, callback
        self._best_value, self._best_network = math.inf, None
        self._history: list[Any] = []

    def validate(self, network: Any) -> float:
        """Validation metric of the network; a copy of the best network is stored."""
        value = self._evaluate(network)
        if value < self._best_value or self._best_network is None:
            self._best_value, self._best_network = value, deepcopy(network)
        return value

    def progress(self, update: Any) -> None:
        """Record an update; stop the training after the time limit, once a network has been validated."""
        self._history.append(update)
        if self._callback is not None:
            self._callback(update)
        if perf_counter() > self._deadline and self._best_network is not None:
            raise _TimeLimitReached

    def run(self, train: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Result of the training or, after the time limit, the best `network` so far and the `history`."""
        try:
            return train(*args, **options)
        except _TimeLimitReached:
            return SimpleNamespace(network=self._best_network, history=self._history)
