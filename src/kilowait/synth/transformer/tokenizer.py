"""Tokenizers of columns: common values have codes of their own, other values fall into quantile bins.

Common values such as 1 h, 12 h or 64 nodes have codes of their own (atoms) and are reproduced exactly. The other values
have a long tail and fall into bins; a bin is decoded to one of the log's values or, for measured quantities (run times,
gaps, watts), to a value between two of them, so that rare values of single jobs are not reproduced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kilowait.files.array_file import StoredArrays
from kilowait.synth.log_schema import Bools, Columns, Floats, Ints, StoredRecord, stored
from kilowait.synth.transformer.calendar import by_user, session_starts

LARGEST = 1e18
"""Largest absolute value of a column."""
MAX_CODES = 2**15 - 2
"""Maximum number of codes of a column; sampled codes are stored as int16."""
MAX_BIN_VALUES = 64
"""Maximum number of stored values of a bin, evenly spaced by rank."""
MIN_SHARE = 1 / 2000
"""Minimum share of the jobs for a value to have a code of its own, where there are too many values."""
NEAR_S, NEAR_SHARE = 120.0, 0.9
"""A run time this close to its request, in seconds and as a share of it, is coded by the difference: the job ended at
its limit."""


@dataclass(frozen=True)
class Tokenizer(StoredRecord):
    """Tokenizer of one column."""

    atoms: Floats = stored("floats", None, minimum=-LARGEST, maximum=LARGEST, ascending=True)
    """Values with codes of their own, ascending; the code is the index."""
    edges: Floats = stored("floats", None, ascending=True)
    """Edges between the bins; the codes of bins follow those of atoms."""
    kept: Floats = stored("floats", None, minimum=-LARGEST, maximum=LARGEST, ascending=True)
    """Values of all bins, ascending."""
    ends: Ints = stored("floats", None, minimum=0, maximum="kept.0", least=1, ascending=True)
    """Start of each bin's values in `kept`, and the end of the last."""

    @property
    def size(self) -> int:
        """Number of codes."""
        return len(self.atoms) + len(self.ends) - 1

    def encode(self, values: Floats) -> Ints:
        """The code of each value; unknown values get the code of their bin or of the nearest atom above."""
        bins = np.searchsorted(self.edges, values, side="right") + len(self.atoms)
        if not len(self.atoms):
            return bins
        atom = np.minimum(np.searchsorted(self.atoms, values), len(self.atoms) - 1)
        if len(self.ends) == 1:
            return atom
        return np.where(self.atoms[atom] == values, atom, bins)

    def decode(
        self, codes: Ints, rng: np.random.Generator, *, between: bool = False, upper_bound: Floats | None = None
    ) -> Floats:
        """Decode each code to its atom, or to a random value of its bin.

        Args:
            codes: codes to decode.
            rng: for the choice within bins.
            between: interpolate between consecutive values of the bin; integer where all of them are.
            upper_bound: upper bound of the values, where the bin has any below; for `between`.
        """
        is_atom = codes < len(self.atoms)
        bins = np.where(is_atom, 0, codes - len(self.atoms))
        uniforms = rng.random(len(codes))
        if len(self.ends) == 1:
            atom_values: Floats = self.atoms[codes]
            return atom_values
        low, high = self.ends[bins], self.ends[bins + 1]
        values: Floats
        if between:
            positions = np.arange(len(self.kept))
            last = high - 1.0
            if upper_bound is not None:
                last = np.clip(np.interp(upper_bound, self.kept, positions), low, last)
            values = np.interp(low + uniforms * (last - low), positions, self.kept)
            if (self.kept % 1 == 0).all():
                values = np.round(values)
        else:
            values = self.kept[(low + uniforms * (high - low)).astype(np.int64)]
        if len(self.atoms):
            values = np.where(is_atom, self.atoms[np.where(is_atom, codes, 0)], values)
        return values

    def least(self) -> Floats:
        """The minimum value of each code."""
        return np.concatenate((self.atoms, self.kept[self.ends[:-1]]))

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The tokenizer as arrays of floats."""
        return {**super().state(), "ends": self.ends.astype(np.float64)}

    @classmethod
    def read(cls, state: StoredArrays, **known: float) -> Self:
        """The tokenizer in a state."""
        codes = super().read(state, **known)
        ends, atoms, bins = codes.ends, len(codes.atoms), len(codes.ends) - 1
        if ends[0] != 0 or ends[-1] != len(codes.kept) or (np.diff(ends) < 1).any() or (ends != np.floor(ends)).any():
            raise state.refuse("ends", "does not divide the kept values among the bins")
        if not 1 <= atoms + bins <= MAX_CODES:
            raise state.refuse("atoms", f"and bins give {atoms + bins:,} codes; there are 1 to {MAX_CODES:,}")
        if len(codes.edges) != max(bins - 1, 0):
            raise state.refuse("edges", f"has {len(codes.edges):,} values for {bins:,} bins")
        return replace(codes, ends=ends.astype(np.int64))


def fit_tokenizer(values: Floats, *, atoms: int, bins: int) -> Tokenizer:
    """Fit a tokenizer to a column: at most `atoms` atoms, and about `bins` bins for the rest.

    >>> codes = fit_tokenizer(np.array([60.0, 60, 60, 3600, 3600, 17, 23, 31, 99]), atoms=2, bins=2)
    >>> codes.encode(np.array([3600.0, 23, 99])).tolist(), codes.size
    ([1, 2, 3], 4)
    >>> codes.decode(np.array([0, 1, 3]), np.random.default_rng(0)).tolist()
    [60.0, 3600.0, 31.0]
    """
    distinct, counts = np.unique(values, return_counts=True)
    atom_values = distinct
    if len(distinct) > atoms:
        common = np.argsort(-counts, kind="stable")[:atoms]
        atom_values = np.sort(distinct[common[counts[common] >= max(2.0, MIN_SHARE * len(values))]])
    rest = np.sort(values[~np.isin(values, atom_values)])
    if not len(rest):
        return Tokenizer(atom_values, np.empty(0), np.empty(0), np.zeros(1, np.int64))
    edges = np.unique(rest[(np.arange(1, bins) * len(rest)) // bins])
    edges = edges[edges > rest[0]]
    ends = np.concatenate(([0], np.searchsorted(rest, edges), [len(rest)]))
    bin_values, bin_ends = [], [0]
    for low, high in pairwise(ends):
        ranks = np.linspace(low, high - 1, min(MAX_BIN_VALUES, high - low)).round().astype(np.int64)
        bin_values.append(rest[ranks])
        bin_ends.append(bin_ends[-1] + len(ranks))
    return Tokenizer(atom_values, edges, np.concatenate(bin_values), np.array(bin_ends))


@dataclass(frozen=True)
class RuntimeTokenizer:
    """Tokenizer of run times: those below their request are coded by time, the others by the difference to it."""

    below: Tokenizer
    near: Tokenizer | None
    """Codes of run time minus request, for jobs that reached or exceeded their limit; None where there are none."""
    of_request: bool = False
    """Whether run times below their request are coded as shares of it."""

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.below.size + (0 if self.near is None else self.near.size)

    def encode(self, runtime_s: Floats, request_s: Floats) -> Ints:
        """The code of each run time, given its request."""
        codes = self.below.encode(runtime_s / np.maximum(request_s, 1.0) if self.of_request else runtime_s)
        if self.near is None:
            return codes
        near = _near(runtime_s, request_s)
        return np.where(near, self.below.size + self.near.encode(runtime_s - request_s), codes)

    def decode(self, codes: Ints, request_s: Floats, rng: np.random.Generator) -> Floats:
        """Decode each code, given its request; a run time coded as below the request is not above it."""
        near = codes >= self.below.size
        upper_bound = np.ones(len(codes)) if self.of_request else request_s
        below = self.below.decode(np.where(near, 0, codes), rng, between=True, upper_bound=upper_bound)
        values = np.minimum(np.ceil(below * request_s) if self.of_request else below, request_s)
        if self.near is not None:
            near_runtime = request_s + self.near.decode(np.where(near, codes - self.below.size, 0), rng)
            values = np.where(near, np.maximum(near_runtime, 0.0), values)
        return values

    def least_s(self) -> Floats:
        """The minimum run time of each code; 0 for codes that are relative to the request."""
        if self.of_request:
            return np.zeros(self.size)
        return np.concatenate((self.below.least(), np.zeros(self.size - self.below.size)))


def fit_runtime_tokenizer(runtime_s: Floats, request_s: Floats, *, atoms: int, bins: int) -> RuntimeTokenizer:
    """Fit a tokenizer to the run times of a log.

    >>> codes = fit_runtime_tokenizer(
    ...     np.array([30.0, 600.0, 3630.0]), np.array([60.0, 3600.0, 3600.0]), atoms=8, bins=4
    ... )
    >>> codes.encode(np.array([600.0, 7230.0]), np.array([3600.0, 7200.0])).tolist()
    [1, 2]
    """
    is_near = _near(runtime_s, request_s)
    below = runtime_s[~is_near] if not is_near.all() else runtime_s
    near_tokenizer = (
        fit_tokenizer((runtime_s - request_s)[is_near], atoms=atoms // 2, bins=bins // 3) if is_near.any() else None
    )
    return RuntimeTokenizer(fit_tokenizer(below, atoms=atoms, bins=bins), near_tokenizer)


def _near(runtime_s: Floats, request_s: Floats) -> Bools:
    remaining_s = request_s - runtime_s
    return (remaining_s <= 0) | ((remaining_s <= NEAR_S) & (runtime_s >= NEAR_SHARE * request_s))


# -- the columns of a log -------------------------------------------------------------------------


COPIED = ("account", "queue", "gpus", "nodes", "estimate_s")
"""Columns that users repeat, copied from an earlier job or from the frequent-jobs list by pointing."""
NO_LIMIT_S = 1e12
"""A request longer than any run time."""
_CODE_LIMITS = {"gap_s": {"atoms": 32, "bins": 64}, "power_w": {"atoms": 16, "bins": 64}}
"""Maximum numbers of codes of a column; others have at most 1,000 atoms and 48 bins."""


def column_values(rows: Columns, session_s: float, *, exact: bool) -> dict[str, Floats]:
    """The generated columns as numbers, sorted by user; -1 for missing values.

    Where requests equal the run times (`exact`), one unreachable request replaces all of them: otherwise run times
    would enter the frequent-jobs lists as requests and be copied.
    """
    order, user = by_user(rows)
    gap_s = np.diff(rows["submit_s"][order], prepend=0.0)
    starts = session_starts(rows["submit_s"][order], user, session_s)[1]
    values = {"gap_s": np.where(starts, -1.0, gap_s)}
    for name in (*COPIED, "runtime_s", "status"):
        if name in rows:
            values[name] = rows[name][order].astype(np.float64)
    if exact:
        values["estimate_s"] = np.full(len(order), NO_LIMIT_S)
    if "energy_j" in rows:
        node_seconds = np.maximum(rows["nodes"] * rows["runtime_s"], 1e-9)
        values["power_w"] = np.nan_to_num((rows["energy_j"] / node_seconds)[order], nan=-1.0)
    return values


def fit_column_tokenizer(name: str, values: Floats) -> Tokenizer:
    """Fit the tokenizer of a generated column other than the run time."""
    if name == "gap_s" and (values >= 0).any():
        values = values[values >= 0]
    return fit_tokenizer(values, **_CODE_LIMITS.get(name, {"atoms": 1000, "bins": 48}))
