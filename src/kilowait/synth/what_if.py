"""What-ifs: a workload at another load, with another mix of jobs, with groups that grow, on another machine.

They work on drawn jobs, whatever kind of generator drew them. Each job has a weight, how often such jobs are wanted
for one that the log has; `drawing` lays draws of the same workload over one another and thins them out by weight. So
hours and weekdays stay what they are, and added jobs are drawn like all others, not copied.
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
"""The highest load that is drawn. Above 1 the queue grows as long as the workload lasts."""
GROWING = (*NUMBERED, "queue")
"""Columns whose groups can grow."""
Value = float | str | tuple[float, float]
"""Of a column: one, or least and most."""
Kinds = Mapping[str, Mapping[Any, float | str]]
"""By column and value (one, or a pair of least and most): a factor, or a share such as "30%"."""


@dataclass(frozen=True)
class WhatIf:
    """Changes to a workload; none of them given, none made.

    >>> WhatIf(load=0.9, mix={"nodes": {(1, 4): 0.5, (64, 128): 2}}, grow={"queue": {"long": 3}}).load
    0.9
    """

    load: float | None = None
    """Offered load, up to `MOST_LOAD`."""
    mix: Kinds = field(default_factory=dict)
    """How often such jobs come for one in the log, ``{"nodes": {(1, 4): 0.5}}``, or which share of all jobs they are,
    ``{"nodes": {(1, 4): "30%"}}``. A job counts for the first that fits."""
    grow: Kinds = field(default_factory=dict)
    """How often jobs of a queue, user or account come for one in the log: ``{"queue": {"long": 3}}``. Users and
    accounts are named as in the log where names were kept; otherwise by rank: 1 used most node-seconds."""
    nodes: int | None = None
    """Nodes of another machine: sizes are scaled (`new_sizes`) and the load is kept, or is `load`."""

    def __post_init__(self) -> None:
        if self.load is not None:
            _check_load(self.load)
        if self.nodes is not None and not (self.nodes >= 1 and self.nodes == int(self.nodes)):
            raise InputError(
                f"the machine is to have {self.nodes:g} nodes; it needs a whole number of at least 1"
            )


@dataclass(frozen=True)
class _Kinds:
    """Kinds of job and the weight of each; the first that fits counts."""

    tests: tuple[Callable[[Columns], Bools], ...]
    factors: tuple[float, ...]
    rest: float = 1.0
    """Of all other jobs."""

    def weights(self, rows: Columns) -> Floats:
        met = [test(rows) for test in self.tests]
        return np.select(met, self.factors, self.rest)

    @property
    def most(self) -> float:
        return max(*self.factors, self.rest)


@dataclass(frozen=True)
class Weights:
    """How often each job is wanted for one that was drawn."""

    kinds: tuple[_Kinds, ...] = ()

    def of(self, rows: Columns) -> Floats:
        """The weight of each job."""
        ones = np.ones(len(rows["submit_s"]))
        return reduce(lambda weights, kinds: weights * kinds.weights(rows), self.kinds, ones)

    @property
    def most(self) -> float:
        """No job weighs more."""
        return math.prod(kinds.most for kinds in self.kinds)


class Changes:
    """What-ifs that were checked against the log's facts."""

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
        """Whether some jobs must be drawn first to know what the workload is like without changes."""
        return self._shares is not None or self.load is not None or self.nodes is not None

    def weights(self, ahead: Columns | None) -> Weights:
        """Weights that bring about factors and shares; the latter by what the jobs drawn ahead are like."""
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
                    f"mix {test}: none of {len(weight):,} drawn jobs is like that, too few to make a share of them"
                )
        rest, others = 1.0 - sum(wanted), float(weight[left].sum() / weight.sum())
        if others == 0 and rest > 1e-9:
            raise InputError(
                f"the shares of the mix come to {sum(wanted):.0%} and there are no other jobs; they must come to 100%"
            )
        scaled = [share / has for share, has in zip(wanted, found, strict=True)]
        shares = _Kinds(
            tuple(test.met for test in tests), tuple(scaled), max(rest, 0.0) / others if others else 0.0
        )
        return Weights((*factors.kinds, shares))

    def resized(self, rows: Columns) -> Columns:
        """The jobs on the other machine; GPUs and energy go with the nodes."""
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
        """What samples say of the machine."""
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
                "shares of the mix are of one column, and of all its kinds; write factors otherwise"
            )
        else:
            found = [
                _share(f"mix {test}", wanted) for test, wanted in zip(tests, kinds.values(), strict=True)
            ]
            if sum(found) > 1 + 1e-9:
                raise InputError(f"the shares of the mix come to {sum(found):.0%}; they must be 100% at most")
            self._shares = tests, found
        self._words += [f"mix {test}" for test in tests]

    def _grow(self, column: str, kinds: Mapping[Any, float | str]) -> None:
        if column not in GROWING:
            raise UnknownNameError("column that grows (of others there is a mix)", column, GROWING)
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
    """Sizes of jobs on a machine of `new` nodes for ascending ones that a log has on one of `old`.

    On a scale of octaves sizes keep their place between the smallest and the machine. Serial jobs stay serial; where
    there are none, the smallest size is the same part of either machine. A job of the whole machine stays one, and
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
    """A mix or growth as people write it: ``nodes=1:4*0.5,64:128*2``, ``nodes=1:4=30%``, ``queue=long*3``.

    >>> parse_changes("nodes=1:4*0.5,64:128*2", "mix")
    {'nodes': {(1.0, 4.0): 0.5, (64.0, 128.0): 2.0}}
    >>> parse_changes("queue=long*3,user=1*2", "grow"), parse_changes("nodes=1=30%", "mix")
    ({'queue': {'long': 3.0}, 'user': {'1': 2.0}}, {'nodes': {'1': '30%'}})
    """
    usage = {
        "mix": "column=value*factor or column=value=share%, value may be least:most: nodes=1:4*0.5,64:128*2",
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
            f"a load of {load:g} is {load:g} times what the machine can do, so that the queue would grow without end; "
            f"ask for {MOST_LOAD:g} at most"
        )
    if load > 1:
        warnings.warn(
            f"a load of {load:g} is more than the machine can do: the queue grows as long as the workload lasts",
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
    """Whether jobs are those of one user or account."""
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
            raise InputError(f"growth {column}={value}: no job of the log is of that {column}")
        place = int(places[0])
    else:
        place = number - 1
        if not 0 <= place < count:
            raise InputError(
                f"growth {column}={value}: names were not kept, so that a {column} is named by rank, 1 (who used most "
                f"node-seconds) to {count}; fit with names to name them as the log does"
            )
    return lambda rows: rows[column] == place
