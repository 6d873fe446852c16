"""A training that the clock may stop: what validated best so far is what it came to."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from time import perf_counter
from types import SimpleNamespace
from typing import Any

__all__ = ["BestModel"]


class _TimeUp(Exception):
    """The training has lasted as long as it may."""


class BestModel:
    """The network that validated best so far, and how the training went until then."""

    def __init__(
        self, judge: Callable[[Any], float], seconds: float, told: Callable[[Any], None] | None = None
    ) -> None:
        """`judge`: of a network, smaller is better; `seconds`: from now on; `told` hears of every update."""
        self._judge, self._ends, self._told = judge, perf_counter() + seconds, told
        self._value, self._network = math.inf, None
        self._history: list[Any] = []

    def validate(self, network: Any) -> float:
        """What the network is worth; the best is kept."""
        value = self._judge(network)
        if value < self._value or self._network is None:
            self._value, self._network = value, deepcopy(network)
        return value

    def progress(self, update: Any) -> None:
        """Hear of an update; where time is up and some network has been validated, it was the last."""
        self._history.append(update)
        if self._told is not None:
            self._told(update)
        if perf_counter() > self._ends and self._network is not None:
            raise _TimeUp

    def of(self, train: Callable[..., Any], *asked: Any, **how: Any) -> Any:
        """What the training came to, or had come to when its time was up: `network` and `history`."""
        try:
            return train(*asked, **how)
        except _TimeUp:
            return SimpleNamespace(network=self._network, history=self._history)
