"""Daily cycle of arrivals of the Lublin-Feitelson model: conversion of model time to real time.

The model samples interarrival times in a model time without daily cycle. A day of model time is a real day, but its
seconds are distributed over the real day in proportion to the arrivals of each half hour. So an interarrival time at
night is longer in real time.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["DailyCycle"]

Floats = npt.NDArray[np.float64]

DAY_S = 86400.0
BUCKETS = 48
FIRST_BUCKET = 11
"""The fitted day starts with this half hour, 5:00 to 5:30, and goes on past midnight [CYCLIC_DAY_START]."""


def gamma_cdf(x: float, shape: float, scale: float) -> float:
    """Probability that a Gamma variable is at most `x`, by its power series (every term is positive).

    >>> round(gamma_cdf(2.0, 1.0, 2.0), 12) == round(1 - math.exp(-1), 12)
    True
    """
    if x <= 0:
        return 0.0
    x /= scale
    term = total = 1.0 / shape
    step = shape
    while term > total * 1e-17:
        step += 1.0
        term *= x / step
        total += term
    return min(1.0, total * math.exp(shape * math.log(x) - x - math.lgamma(shape)))


class DailyCycle:
    """Converts model time to real time; both start at midnight and count seconds.

    >>> cycle = DailyCycle(8.1737, 3.9631)
    >>> cycle.real_s(np.array([0.0, 86400.0, 3 * 86400.0])).tolist()
    [0.0, 86400.0, 259200.0]
    >>> hours_s = np.diff(cycle.real_s(np.arange(0.0, 86401.0, 3600.0)))  # length of each model hour in real time
    >>> bool(hours_s.max() > 2 * hours_s.min())
    True
    """

    __slots__ = ("_edges_s", "_model_s", "weights")

    weights: Floats
    """Arrivals in each half hour from midnight on, relative to the mean one."""

    def __init__(self, shape: float, scale: float) -> None:
        weights = np.empty(BUCKETS)
        for bucket in range(FIRST_BUCKET, FIRST_BUCKET + BUCKETS):
            share = gamma_cdf(bucket + 0.5, shape, scale) - gamma_cdf(bucket - 0.5, shape, scale)
            weights[(bucket - 1) % BUCKETS] = share
        if weights.sum() <= 0:  # a cycle fitted to another period: no half hour has arrivals
            weights[:] = 1.0
        weights /= weights.mean()
        self.weights = weights
        self._edges_s = np.linspace(0.0, DAY_S, BUCKETS + 1)
        self._model_s = np.concatenate(([0.0], np.cumsum(weights))) * (DAY_S / BUCKETS)
        self._model_s[-1] = DAY_S

    def real_s(self, model_s: Floats) -> Floats:
        """Real times of ascending model times."""
        days = np.floor(model_s / DAY_S) * DAY_S
        return days + np.interp(model_s - days, self._model_s, self._edges_s)
