"""Early stopping by wall-clock time: the result is the network that validated best so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from time import perf_counter
from types import SimpleNamespace
from typing import Any

__all__ = ["BestModel"]


class _TimeUp(Exception):
    """The time limit of the training is reached."""


class BestModel:
    """Keeps the network that validated best so far, and the history of the training."""

    def __init__(
        self,
        evaluate: Callable[[Any], float],
        seconds: float,
        callback: Callable[[Any], None] | None = None,
    ) -> None:
        """`evaluate`: validation metric, smaller is better; `seconds`: time limit; `callback` gets every update."""
        self._evaluate, self._ends, self._callback = evaluate, perf_counter() + seconds, callback
        self._value, self._network = math.inf, None
        self._history: list[Any] = []

    def validate(self, network: Any) -> float:
        """Evaluate the network; keep a copy of the best."""
        value = self._evaluate(network)
        if value < self._value or self._network is None:
            self._value, self._network = value, deepcopy(network)
        return value

    def progress(self, update: Any) -> None:
        """Record an update; stop the training if the time is up and a network has been validated."""
        self._history.append(update)
        if self._callback is not None:
            self._callback(update)
        if perf_counter() > self._ends and self._network is not None:
            raise _TimeUp

    def of(self, train: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run the training; its result, or, after the time limit, the best network so far: `network` and `history`."""
        try:
            return train(*args, **options)
        except _TimeUp:
            return SimpleNamespace(network=self._network, history=self._history)
