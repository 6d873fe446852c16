"""Values of a column as numbered codes and back: common values one by one, the rest in bins of equally many jobs.

People type 1 h, 12 h or 64 nodes again and again: such values have codes of their own and come out exactly. What is
left has a long tail and falls into bins; a value of a bin is one of those the log has there or, of what nobody types
(run times, pauses, watts), one between two of them: no single job's number comes out for its being rare.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["Tokenizer", "RuntimeTokenizer", "codes_of", "run_codes_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
State = dict[str, npt.NDArray[np.float64]]

KEPT = 64
"""Values kept of a bin at most, evenly spread by rank."""
LEAST_SHARE = 1 / 2000
"""Of the jobs a value must have for a code of its own, where there are too many values for all to have one."""
NEAR_S, NEAR_SHARE = 120.0, 0.9
"""A run time this near its request, in seconds and as a share of it, is coded by what is missing: the limit ended
it."""


@dataclass(frozen=True)
class Tokenizer:
    """Codes of one column."""

    atoms: Floats
    """Ascending; the value of each code from 0 on."""
    edges: Floats
    """Between the bins; the codes of bins follow those of atoms."""
    kept: Floats
    """Values of all bins, ascending."""
    ends: Ints
    """Where the values of each bin begin in `kept`, and where the last one ends."""

    @property
    def size(self) -> int:
        """How many codes there are."""
        return len(self.atoms) + len(self.ends) - 1

    def encode(self, values: Floats) -> Ints:
        """The code of each value; of one the log does not have, that of its bin or of the nearest atom above."""
        bins = np.searchsorted(self.edges, values, side="right") + len(self.atoms)
        if not len(self.atoms):
            return bins
        place = np.minimum(np.searchsorted(self.atoms, values), len(self.atoms) - 1)
        if len(self.ends) == 1:
            return place
        return np.where(self.atoms[place] == values, place, bins)

    def decode(
        self, codes: Ints, rng: np.random.Generator, *, between: bool = False, most: Floats | None = None
    ) -> Floats:
        """A value for each code: the atom, or one of the bin's at random.

        Args:
            codes: what to decode.
            rng: for the choice within bins.
            between: any value between two of the bin's that follow one another, whole where all of them are.
            most: only values up to this, where the bin has any; for `between`.
        """
        single = codes < len(self.atoms)
        bins = np.where(single, 0, codes - len(self.atoms))
        draws = rng.random(len(codes))
        if len(self.ends) == 1:
            alone: Floats = self.atoms[codes]
            return alone
        low, high = self.ends[bins], self.ends[bins + 1]
        values: Floats
        if between:
            places = np.arange(len(self.kept))
            last = high - 1.0
            if most is not None:
                last = np.clip(np.interp(most, self.kept, places), low, last)
            values = np.interp(low + draws * (last - low), places, self.kept)
            if (self.kept % 1 == 0).all():
                values = np.round(values)
        else:
            values = self.kept[(low + draws * (high - low)).astype(np.int64)]
        if len(self.atoms):
            values = np.where(single, self.atoms[np.where(single, codes, 0)], values)
        return values

    def least(self) -> Floats:
        """The least value of each code."""
        return np.concatenate((self.atoms, self.kept[self.ends[:-1]]))

    def state(self) -> State:
        """As plain arrays."""
        return {
            "atoms": self.atoms,
            "edges": self.edges,
            "kept": self.kept,
            "ends": self.ends.astype(np.float64),
        }

    @classmethod
    def restored(cls, state: State) -> Tokenizer:
        """From `state`."""
        return cls(state["atoms"], state["edges"], state["kept"], state["ends"].astype(np.int64))


def codes_of(values: Floats, *, atoms: int, bins: int) -> Tokenizer:
    """Codes for a column: at most `atoms` values of their own, and about `bins` bins for the rest.

    >>> codes = codes_of(np.array([60.0, 60, 60, 3600, 3600, 17, 23, 31, 99]), atoms=2, bins=2)
    >>> codes.encode(np.array([3600.0, 23, 99])).tolist(), codes.size
    ([1, 2, 3], 4)
    >>> codes.decode(np.array([0, 1, 3]), np.random.default_rng(0)).tolist()
    [60.0, 3600.0, 31.0]
    """
    known, counts = np.unique(values, return_counts=True)
    chosen = known
    if len(known) > atoms:
        common = np.argsort(-counts, kind="stable")[:atoms]
        chosen = np.sort(known[common[counts[common] >= max(2.0, LEAST_SHARE * len(values))]])
    rest = np.sort(values[~np.isin(values, chosen)])
    if not len(rest):
        return Tokenizer(chosen, np.empty(0), np.empty(0), np.zeros(1, np.int64))
    edges = np.unique(rest[(np.arange(1, bins) * len(rest)) // bins])
    edges = edges[edges > rest[0]]
    ends = np.concatenate(([0], np.searchsorted(rest, edges), [len(rest)]))
    kept, places = [], [0]
    for low, high in pairwise(ends):
        spread = np.linspace(low, high - 1, min(KEPT, high - low)).round().astype(np.int64)
        kept.append(rest[spread])
        places.append(places[-1] + len(spread))
    return Tokenizer(chosen, edges, np.concatenate(kept), np.array(places))


@dataclass(frozen=True)
class RuntimeTokenizer:
    """Codes of run times: of those below their request by the time, of the others by the difference to it."""

    below: Tokenizer
    near: Tokenizer | None
    """Of run time minus request, where a job was ended by its limit or ran past it; None where none was."""
    of_request: bool = False
    """Those below their request are coded by their share of it."""

    @property
    def size(self) -> int:
        """How many codes there are."""
        return self.below.size + (0 if self.near is None else self.near.size)

    def encode(self, runtime_s: Floats, request_s: Floats) -> Ints:
        """The code of each run time under its request."""
        codes = self.below.encode(runtime_s / np.maximum(request_s, 1.0) if self.of_request else runtime_s)
        if self.near is None:
            return codes
        near = _near(runtime_s, request_s)
        return np.where(near, self.below.size + self.near.encode(runtime_s - request_s), codes)

    def decode(self, codes: Ints, request_s: Floats, rng: np.random.Generator) -> Floats:
        """A run time for each code and request; one that was to be below the request is not above it."""
        near = codes >= self.below.size
        most = np.ones(len(codes)) if self.of_request else request_s
        below = self.below.decode(np.where(near, 0, codes), rng, between=True, most=most)
        values = np.minimum(np.ceil(below * request_s) if self.of_request else below, request_s)
        if self.near is not None:
            over = request_s + self.near.decode(np.where(near, codes - self.below.size, 0), rng)
            values = np.where(near, np.maximum(over, 0.0), values)
        return values

    def least_s(self) -> Floats:
        """The least run time of each code; 0 of those that go with any request."""
        if self.of_request:
            return np.zeros(self.size)
        return np.concatenate((self.below.least(), np.zeros(self.size - self.below.size)))


def run_codes_of(runtime_s: Floats, request_s: Floats, *, atoms: int, bins: int) -> RuntimeTokenizer:
    """Codes for the run times of a log.

    >>> codes = run_codes_of(
    ...     np.array([30.0, 600.0, 3630.0]), np.array([60.0, 3600.0, 3600.0]), atoms=8, bins=4
    ... )
    >>> codes.encode(np.array([600.0, 7230.0]), np.array([3600.0, 7200.0])).tolist()
    [1, 2]
    """
    near = _near(runtime_s, request_s)
    below = runtime_s[~near] if not near.all() else runtime_s
    beyond = codes_of((runtime_s - request_s)[near], atoms=atoms // 2, bins=bins // 3) if near.any() else None
    return RuntimeTokenizer(codes_of(below, atoms=atoms, bins=bins), beyond)


def _near(runtime_s: Floats, request_s: Floats) -> npt.NDArray[np.bool_]:
    left = request_s - runtime_s
    return (left <= 0) | ((left <= NEAR_S) & (runtime_s >= NEAR_SHARE * request_s))
