"""What-if changes of a workload: another load, another job mix, growing groups, another machine.

They work on the samples of any generator. Each job has a weight, its frequency relative to the log; `sampler`
superposes samples of the same workload and thins them by weight. So hours and weekdays are kept, and added jobs are
sampled like all others, not copied.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.synth.conditions import Conditions
from kilowait.synth.log_schema import NUMBERED, Columns, LogSchema
from kilowait.synth.rescale import check_load

__all__ = ["MOST_LOAD", "Changes", "Weights", "WhatIf", "new_sizes", "parse_changes"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST_LOAD = 1.5
"""Maximum load. Above 1 the queue grows as long as the workload lasts."""
GROWING = (*NUMBERED, "queue")
"""Columns whose groups can grow."""
Value = float | str | tuple[float, float]
"""Value of a column: one, or minimum and maximum."""
Kinds = Mapping[str, Mapping[Any, float | str]]
"""By column and value (one, or a pair of minimum and maximum): a factor, or a share such as "30%"."""


@dataclass(frozen=True)
class WhatIf:
    """Changes to a workload; by default none.

    >>> WhatIf(load=0.9, mix={"nodes": {(1, 4): 0.5, (64, 128): 2}}, grow={"queue": {"long": 3}}).load
    0.9
    """

    load: float | None = None
    """Offered load, up to `MOST_LOAD`."""
    mix: Kinds = field(default_factory=dict)
    """Frequency of such jobs relative to the log, ``{"nodes": {(1, 4): 0.5}}``, or their share of all jobs,
    ``{"nodes": {(1, 4): "30%"}}``. The first matching entry applies."""
    grow: Kinds = field(default_factory=dict)
    """Frequency of jobs of a queue, user or account relative to the log: ``{"queue": {"long": 3}}``. Users and
    accounts are named as in the log where names were kept; otherwise by rank: 1 has the most node-seconds."""
    nodes: int | None = None
    """Nodes of another machine: sizes are scaled (`new_sizes`) and the load is kept, or is `load`."""

    def __post_init__(self) -> None:
        if self.load is not None:
            _check_load(self.load)
        if self.nodes is not None and not (self.nodes >= 1 and self.nodes == int(self.nodes)):
            raise InputError(f"the machine's nodes are {self.nodes:g}; give a whole number of at least 1")


@dataclass(frozen=True)
class _Kinds:
    """Kinds of job and the weight of each; the first match applies."""

    tests: tuple[Callable[[Columns], Bools], ...]
    factors: tuple[float, ...]
    rest: float = 1.0
    """Weight of all other jobs."""

    def weights(self, rows: Columns) -> Floats:
        met = [test(rows) for test in self.tests]
        return np.select(met, self.factors, self.rest)

    @property
    def most(self) -> float:
        return max(*self.factors, self.rest)


@dataclass(frozen=True)
class Weights:
    """Weight (relative frequency) of each sampled job."""

    kinds: tuple[_Kinds, ...] = ()

    def of(self, rows: Columns) -> Floats:
        """The weight of each job."""
        ones = np.ones(len(rows["submit_s"]))
        return reduce(lambda weights, kinds: weights * kinds.weights(rows), self.kinds, ones)

    @property
    def most(self) -> float:
        """Maximum weight."""
        return math.prod(kinds.most for kinds in self.kinds)


class Changes:
    """What-if changes, validated against the log's schema."""

    def __init__(self, what: WhatIf, facts: LogSchema) -> None:
        self.load, self.nodes = what.load, what.nodes
        self._facts = facts
        self._words: list[str] = []
        self._factors: list[_Kinds] = []
        self._shares: tuple[list[Conditions], list[float]] | None = None
        for column, kinds in what.mix.items():
            self._mix(column, kinds)
        for column, kinds in what.grow.items():
            self._grow(column, kinds)
        seen = facts.seen["nodes"]
        self._sizes = seen if self.nodes is None else new_sizes(seen, facts.machine, int(self.nodes))

    def __str__(self) -> str:
        return ", ".join(self._words)

    @property
    def looks_ahead(self) -> bool:
        """Whether a pilot sample without changes is needed."""
        return self._shares is not None or self.load is not None or self.nodes is not None

    def weights(self, ahead: Columns | None) -> Weights:
        """Weights that give the factors and shares; shares need the pilot sample."""
        factors = Weights(tuple(self._factors))
        if self._shares is None or ahead is None:
            return factors
        tests, wanted = self._shares
        weight = factors.of(ahead)
        left = np.ones(len(weight), np.bool_)
        found = []
        for test in tests:
            met = test.met(ahead) & left
            left &= ~met
            found.append(float(weight[met].sum() / weight.sum()))
            if not found[-1] > 0:
                raise InputError(
                    f"mix {test}: none of {len(weight):,} sampled jobs matches, so it cannot get a share"
                )
        rest, others = 1.0 - sum(wanted), float(weight[left].sum() / weight.sum())
        if others == 0 and rest > 1e-9:
            raise InputError(
                f"the shares of the mix sum to {sum(wanted):.0%} and there are no other jobs; they must sum to 100%"
            )
        scaled = [share / has for share, has in zip(wanted, found, strict=True)]
        shares = _Kinds(
            tuple(test.met for test in tests), tuple(scaled), max(rest, 0.0) / others if others else 0.0
        )
        return Weights((*factors.kinds, shares))

    def resized(self, rows: Columns) -> Columns:
        """The jobs scaled to the other machine; GPUs and energy scale with the nodes."""
        if self.nodes is None:
            return rows
        nodes = self._sizes[np.searchsorted(self._facts.seen["nodes"], rows["nodes"])]
        ratio = nodes / rows["nodes"]
        changed = {**rows, "nodes": nodes}
        if "gpus" in rows:
            changed["gpus"] = np.where(rows["gpus"] > 0, np.maximum(1, np.round(rows["gpus"] * ratio)), 0)
            changed["gpus"] = changed["gpus"].astype(np.int64)
        if "energy_j" in rows:
            changed["energy_j"] = rows["energy_j"] * ratio
        return changed

    def meta(self) -> dict[str, Any]:
        """Metadata of the machine for samples."""
        if self.nodes is None:
            return {}
        said = {"max_procs": int(self.nodes)}
        if "max_nodes" in self._facts.meta:
            before = self._facts.meta["max_nodes"]
            said["max_nodes"] = max(1, round(before * self.nodes / self._facts.machine))
        return said

    def _mix(self, column: str, kinds: Mapping[Any, float | str]) -> None:
        tests = [Conditions({column: value}, self._facts, what="mix") for value in kinds]
        shares = [isinstance(wanted, str) for wanted in kinds.values()]
        if not any(shares):
            factors = [
                _factor(f"mix {test}", wanted) for test, wanted in zip(tests, kinds.values(), strict=True)
            ]
            self._factors.append(_Kinds(tuple(test.met for test in tests), tuple(factors)))
        elif not all(shares) or self._shares is not None:
            raise InputError(
                "shares of the mix must be of one column, for all of its kinds; use factors otherwise"
            )
        else:
            found = [
                _share(f"mix {test}", wanted) for test, wanted in zip(tests, kinds.values(), strict=True)
            ]
            if sum(found) > 1 + 1e-9:
                raise InputError(f"the shares of the mix sum to {sum(found):.0%}; they must be 100% at most")
            self._shares = tests, found
        self._words += [f"mix {test}" for test in tests]

    def _grow(self, column: str, kinds: Mapping[Any, float | str]) -> None:
        if column not in GROWING:
            raise UnknownNameError("column for growth (use a mix for others)", column, GROWING)
        tests: list[Callable[[Columns], Bools]] = []
        for value in kinds:
            if column == "queue":
                tests.append(Conditions({column: value}, self._facts, what="growth").met)
            else:
                tests.append(_group(column, value, self._facts))
            self._words.append(f"growth {column}={value}")
        factors = [_factor(f"growth {column}={value}", wanted) for value, wanted in kinds.items()]
        self._factors.append(_Kinds(tuple(tests), tuple(factors)))


def new_sizes(sizes: npt.ArrayLike, old: int, new: int) -> Ints:
    """Scale ascending job sizes from a machine of `old` nodes to one of `new` nodes.

    On a log2 scale sizes keep their relative position between the smallest and the machine. Serial jobs stay serial;
    where there are none, the smallest size is the same part of either machine. A job of the full machine stays one, and
    powers of two become powers of two.

    >>> new_sizes([1, 2, 4, 8, 12, 64, 128], 128, 512).tolist()
    [1, 2, 8, 16, 24, 256, 512]
    >>> new_sizes([512, 1024, 49152], 49152, 24576).tolist()
    [256, 512, 24576]
    """
    before = np.minimum(np.asarray(sizes, np.float64), old)
    if new == old:
        return before.astype(np.int64)
    least = float(before[0])
    smallest = least if least == 1 else max(1.0, least * new / old)
    wide = math.log2(old / least)
    place = np.log2(before / least) / wide if wide else np.ones(len(before))
    octaves = math.log2(smallest) + place * math.log2(new / smallest)
    power = np.log2(before) % 1 == 0
    rounded = np.minimum(np.round(octaves), math.floor(math.log2(new)))
    found = np.where(power, 2.0**rounded, np.round(2.0**octaves))
    limited = np.clip(np.where(before == old, new, found), 1, new)
    return limited.astype(np.int64)


def parse_changes(text: str, option: str) -> dict[str, dict[Any, float | str]]:
    """Parse a mix or growth: ``nodes=1:4*0.5,64:128*2``, ``nodes=1:4=30%``, ``queue=long*3``.

    >>> parse_changes("nodes=1:4*0.5,64:128*2", "mix")
    {'nodes': {(1.0, 4.0): 0.5, (64.0, 128.0): 2.0}}
    >>> parse_changes("queue=long*3,user=1*2", "grow"), parse_changes("nodes=1=30%", "mix")
    ({'queue': {'long': 3.0}, 'user': {'1': 2.0}}, {'nodes': {'1': '30%'}})
    """
    usage = {
        "mix": "column=value*factor or column=value=share%, value may be min:max: nodes=1:4*0.5,64:128*2",
        "grow": "column=name*factor, with commas between: queue=long*3,account=1*2",
    }[option]
    found: dict[str, dict[Any, float | str]] = {}
    column = ""
    for part in text.split(","):
        left, star, number = part.rpartition("*")
        if not star:
            left, _, number = part.rpartition("=")
        name, value = (piece.strip() for piece in left.rpartition("=")[::2])
        column = name or column
        try:
            low, colon, high = value.partition(":")
            kind = (float(low), float(high)) if colon else value
            wanted = float(number) if star else number.strip()
        except ValueError:
            raise InputError(f"the {option} has {part!r}; write {usage}") from None
        if not (column and value and (star or str(wanted).endswith("%"))):
            raise InputError(f"the {option} has {part!r}; write {usage}")
        found.setdefault(column, {})[kind] = wanted
    return found


def _check_load(load: float) -> None:
    check_load(load)
    if load > MOST_LOAD:
        raise InputError(
            f"a load of {load:g} is {load:g} times the machine's capacity, so that the queue would grow without bound; "
            f"use {MOST_LOAD:g} at most"
        )
    if load > 1:
        warnings.warn(
            f"a load of {load:g} exceeds the machine's capacity: the queue grows as long as the workload lasts",
            stacklevel=4,
        )


def _factor(what: str, wanted: Any) -> float:
    try:
        factor = float(wanted)
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor >= 0):
        raise InputError(f"{what}: the factor is {wanted}; it must be a number, 0 or more")
    return factor


def _share(what: str, wanted: Any) -> float:
    try:
        share = float(str(wanted).removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise InputError(f"{what}: the share is {wanted}; write one from 0% to 100%")
    return share


def _group(column: str, value: Any, facts: LogSchema) -> Callable[[Columns], Bools]:
    """Test for jobs of one user or account."""
    if column not in facts.columns:
        raise InputError(f"growth {column}={value}: the log has no column {column}; leave it out")
    count, known = facts.numbered[column], facts.seen.get(column)
    names: Sequence[str] = facts.labels.get(column, ())
    try:
        number = names.index(value) if value in names else int(value)
    except ValueError:
        if names:
            raise UnknownNameError(column, str(value), names) from None
        number = -1
    if known is not None:
        places = np.flatnonzero(known == number)
        if not len(places):
            raise InputError(f"growth {column}={value}: no job of the log has that {column}")
        place = int(places[0])
    else:
        place = number - 1
        if not 0 <= place < count:
            raise InputError(
                f"growth {column}={value}: names were not kept, so that a {column} is named by rank, 1 (the most "
                f"node-seconds) to {count}; fit with names to use the log's names"
            )
    return lambda rows: rows[column] == place
