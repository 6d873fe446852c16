"""Go's math/rand: the random numbers that a Go program draws from a seed.

An additive lagged Fibonacci generator, x[n] = x[n - 607] + x[n - 273] modulo 2^64. A seed is mixed with a state that
Go keeps as a table of 607 numbers: that of the same recurrence after 7.8e12 steps. Here those steps are taken at once,
as a power of x modulo x^607 - x^334 - 1, so no table is needed.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["GoRandom"]

LENGTH, TAP = 607, 273
FIRST = LENGTH - TAP
STEPS_TO_MIX = 7_800_000_000_000
MASK = 2**64 - 1
Polynomial = NDArray[np.uint64]


class GoRandom:
    """A generator like Go's ``rand.New(rand.NewSource(seed))``.

    >>> result = GoRandom(1)
    >>> [result.below(100) for _ in range(6)]
    [81, 87, 47, 59, 81, 18]
    """

    def __init__(self, seed: int) -> None:
        self._state = [word ^ mixed for word, mixed in zip(_words(seed, 40, 20), _mixed(), strict=True)]
        self._tap, self._feed = 0, FIRST

    def word(self) -> int:
        """63 random bits."""
        self._tap = (self._tap - 1) % LENGTH
        self._feed = (self._feed - 1) % LENGTH
        draw = (self._state[self._feed] + self._state[self._tap]) & MASK
        self._state[self._feed] = draw
        return draw & (MASK >> 1)

    def below(self, limit: int) -> int:
        """Go's ``Intn``: 0 to `limit` - 1, for limits below 2^31."""
        fair = 2**31 - 2**31 % limit
        while (draw := self.word() >> 32) >= fair:
            pass
        return draw % limit

    def shuffle(self, values: list[int]) -> None:
        """Go's ``Shuffle``, in place."""
        for last in range(len(values) - 1, 0, -1):
            other = self._scaled(last + 1)
            values[last], values[other] = values[other], values[last]

    def permutation(self, length: int) -> list[int]:
        """Go's ``Perm``."""
        result: list[int] = []
        for index in range(length):
            other = self.below(index + 1)
            result.append(index)
            result[index], result[other] = result[other], index
        return result

    def _scaled(self, limit: int) -> int:
        """Go's unexported int31n: the upper half of a product, redrawn where the result would be biased."""
        unfair = 2**32 % limit
        while (product := (self.word() >> 31) * limit) & (2**32 - 1) < unfair:
            pass
        return product >> 32


def _words(seed: int, high: int, low: int) -> list[int]:
    """607 words, each of three draws of Lehmer's generator (48271, modulo 2^31 - 1) shifted over one another."""
    prime = 2**31 - 1
    x = seed % prime or 89_482_311
    draws = []
    for _ in range(20 + 3 * LENGTH):
        x = 48_271 * x % prime
        draws.append(x)
    usable = iter(draws[20:])
    return [(a << high) ^ (b << low) ^ c for a, b, c in zip(usable, usable, usable, strict=True)]


@cache
def _mixed() -> tuple[int, ...]:
    """The state after `STEPS_TO_MIX` steps from Go's seed 1."""
    # In order of time: the state is filled from index 333 downwards, one index a step.
    places = (FIRST - 1 - np.arange(LENGTH)) % LENGTH
    history = np.array(_words(1, 20, 10), np.uint64)[places]
    ahead = np.concatenate([history, np.zeros(LENGTH, np.uint64)])
    state = np.zeros(LENGTH, np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is intended
        for n in range(LENGTH, 2 * LENGTH):
            ahead[n] = ahead[n - LENGTH] + ahead[n - TAP]
        jump = _power_of_x(STEPS_TO_MIX)
        later = [np.sum(jump * ahead[n : n + LENGTH], dtype=np.uint64) for n in range(LENGTH)]
    state[(places - STEPS_TO_MIX) % LENGTH] = later
    return tuple(int(word) for word in state)


def _power_of_x(exponent: int) -> Polynomial:
    result, square = np.zeros(LENGTH, np.uint64), np.zeros(LENGTH, np.uint64)
    result[0] = square[1] = 1
    while exponent:
        if exponent & 1:
            result = _times(result, square)
        square = _times(square, square)
        exponent >>= 1
    return result


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    product = np.zeros(2 * LENGTH, np.uint64)
    for degree in np.flatnonzero(left).tolist():
        product[degree : degree + LENGTH] += left[degree] * right
    for degree in range(2 * LENGTH - 1, LENGTH - 1, -1):
        product[degree - LENGTH] += product[degree]
        product[degree - TAP] += product[degree]
    return product[:LENGTH]
