"""What-if changes of a workload: another load, another job mix, scaled groups, another machine.

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
from kilowait.synth.log_schema import PERSON_COLUMNS, Bools, Columns, Floats, Ints, LogSchema
from kilowait.synth.rescale import check_load

MAX_LOAD = 1.5
"""Maximum load. Above 1 the queue grows as long as the workload lasts."""
SCALABLE_COLUMNS = (*PERSON_COLUMNS, "queue")
"""Columns whose groups can be scaled."""
Value = float | str | tuple[float, float]
"""Value of a column: one, or minimum and maximum."""
GroupFactors = Mapping[str, Mapping[Any, float | str]]
"""By column and value (one, or a pair of minimum and maximum): a factor, or a share such as "30%"."""


@dataclass(frozen=True)
class WhatIf:
    """Changes to a workload; by default none.

    >>> WhatIf(load=0.9, job_mix={"nodes": {(1, 4): 0.5, (64, 128): 2}}, scale_jobs={"queue": {"long": 3}}).load
    0.9
    """

    load: float | None = None
    """Offered load, up to `MAX_LOAD`."""
    job_mix: GroupFactors = field(default_factory=dict)
    """Frequency of such jobs relative to the log, ``{"nodes": {(1, 4): 0.5}}``, or their share of all jobs,
    ``{"nodes": {(1, 4): "30%"}}``. The first matching entry applies."""
    scale_jobs: GroupFactors = field(default_factory=dict)
    """Frequency of jobs of a queue, user or account relative to the log: ``{"queue": {"long": 3}}``. Users and
    accounts are named as in the log where names were kept; otherwise by rank: 1 has the most node-seconds."""
    nodes: int | None = None
    """Nodes of another machine: sizes are scaled (`scaled_job_sizes`) and the load is kept, or is `load`."""

    def __post_init__(self) -> None:
        if self.load is not None:
            _check_load(self.load)
        if self.nodes is not None and not (self.nodes >= 1 and self.nodes == int(self.nodes)):
            raise InputError(f"the machine's nodes are {self.nodes:g}; give a whole number of at least 1")


@dataclass(frozen=True)
class _GroupWeights:
    """Groups of jobs and the weight of each; the first match applies."""

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
class JobWeights:
    """Weight (relative frequency) of each sampled job."""

    kinds: tuple[_GroupWeights, ...] = ()

    def of(self, rows: Columns) -> Floats:
        """The weight of each job."""
        ones = np.ones(len(rows["submit_s"]))
        return reduce(lambda weights, kinds: weights * kinds.weights(rows), self.kinds, ones)

    @property
    def most(self) -> float:
        """Maximum weight."""
        return math.prod(kinds.most for kinds in self.kinds)


class WorkloadChanges:
    """What-if changes, validated against the log's schema."""

    def __init__(self, what_if: WhatIf, schema: LogSchema) -> None:
        self.load, self.nodes = what_if.load, what_if.nodes
        self._schema = schema
        self._texts: list[str] = []
        self._factors: list[_GroupWeights] = []
        self._shares: tuple[list[Conditions], list[float]] | None = None
        for column, groups in what_if.job_mix.items():
            self._add_mix(column, groups)
        for column, groups in what_if.scale_jobs.items():
            self._add_scaling(column, groups)
        seen = schema.seen["nodes"]
        self._sizes = seen if self.nodes is None else scaled_job_sizes(seen, schema.machine, int(self.nodes))

    def __str__(self) -> str:
        return ", ".join(self._texts)

    @property
    def needs_pilot(self) -> bool:
        """Whether a pilot sample without changes is needed."""
        return self._shares is not None or self.load is not None or self.nodes is not None

    def weights(self, pilot: Columns | None) -> JobWeights:
        """Weights that give the factors and shares; shares need the pilot sample."""
        factors = JobWeights(tuple(self._factors))
        if self._shares is None or pilot is None:
            return factors
        tests, target_shares = self._shares
        weight = factors.of(pilot)
        unmatched = np.ones(len(weight), np.bool_)
        shares_found = []
        for test in tests:
            met = test.met(pilot) & unmatched
            unmatched &= ~met
            shares_found.append(float(weight[met].sum() / weight.sum()))
            if not shares_found[-1] > 0:
                raise InputError(
                    f"job mix {test}: none of {len(weight):,} sampled jobs matches, so it cannot get a share"
                )
        other_target, other_share = 1.0 - sum(target_shares), float(weight[unmatched].sum() / weight.sum())
        if other_share == 0 and other_target > 1e-9:
            raise InputError(
                f"the shares of the job mix sum to {sum(target_shares):.0%} and there are no other jobs; "
                "they must sum to 100%"
            )
        scaled = [share / present for share, present in zip(target_shares, shares_found, strict=True)]
        shares = _GroupWeights(
            tuple(test.met for test in tests),
            tuple(scaled),
            max(other_target, 0.0) / other_share if other_share else 0.0,
        )
        return JobWeights((*factors.kinds, shares))

    def resized(self, rows: Columns) -> Columns:
        """The jobs scaled to the other machine; GPUs and energy scale with the nodes."""
        if self.nodes is None:
            return rows
        nodes = self._sizes[np.searchsorted(self._schema.seen["nodes"], rows["nodes"])]
        ratio = nodes / rows["nodes"]
        columns = {**rows, "nodes": nodes}
        if "gpus" in rows:
            columns["gpus"] = np.where(rows["gpus"] > 0, np.maximum(1, np.round(rows["gpus"] * ratio)), 0)
            columns["gpus"] = columns["gpus"].astype(np.int64)
        if "energy_j" in rows:
            columns["energy_j"] = rows["energy_j"] * ratio
        return columns

    def meta(self) -> dict[str, Any]:
        """Metadata of the machine for samples."""
        if self.nodes is None:
            return {}
        machine = {"max_procs": int(self.nodes)}
        if self._schema.unit == "node" and "max_nodes" in self._schema.meta:
            machine["max_nodes"] = int(self.nodes)
        elif "max_nodes" in self._schema.meta:
            max_nodes = self._schema.meta["max_nodes"]
            machine["max_nodes"] = max(1, round(max_nodes * self.nodes / self._schema.machine))
        return machine

    def _add_mix(self, column: str, groups: Mapping[Any, float | str]) -> None:
        tests = [Conditions({column: value}, self._schema, what="job mix") for value in groups]
        shares = [isinstance(factor, str) for factor in groups.values()]
        if not any(shares):
            factors = [_factor(f"job mix {test}", factor) for test, factor in zip(tests, groups.values(), strict=True)]
            self._factors.append(_GroupWeights(tuple(test.met for test in tests), tuple(factors)))
        elif not all(shares) or self._shares is not None:
            raise InputError(
                "shares of the job mix must be of one column, for all of its groups; use factors otherwise"
            )
        else:
            found = [_share(f"job mix {test}", factor) for test, factor in zip(tests, groups.values(), strict=True)]
            if sum(found) > 1 + 1e-9:
                raise InputError(f"the shares of the job mix sum to {sum(found):.0%}; they must be 100% at most")
            self._shares = tests, found
        self._texts += [f"job mix {test}" for test in tests]

    def _add_scaling(self, column: str, groups: Mapping[Any, float | str]) -> None:
        if column not in SCALABLE_COLUMNS:
            raise UnknownNameError("column of group scaling (use a job mix for others)", column, SCALABLE_COLUMNS)
        tests: list[Callable[[Columns], Bools]] = []
        for value in groups:
            if column == "queue":
                tests.append(Conditions({column: value}, self._schema, what="group scaling").met)
            else:
                tests.append(_group(column, value, self._schema))
            self._texts.append(f"group scaling {column}={value}")
        factors = [_factor(f"group scaling {column}={value}", factor) for value, factor in groups.items()]
        self._factors.append(_GroupWeights(tuple(tests), tuple(factors)))


def scaled_job_sizes(sizes: npt.ArrayLike, old: int, new: int) -> Ints:
    """Scale ascending job sizes from a machine of `old` nodes to one of `new` nodes.

    On a log2 scale sizes keep their relative position between the smallest and the machine. Serial jobs stay serial;
    where there are none, the smallest size is the same part of either machine. A job of the full machine stays one, and
    powers of two become powers of two.

    >>> scaled_job_sizes([1, 2, 4, 8, 12, 64, 128], 128, 512).tolist()
    [1, 2, 8, 16, 24, 256, 512]
    >>> scaled_job_sizes([512, 1024, 49152], 49152, 24576).tolist()
    [256, 512, 24576]
    """
    old_sizes = np.minimum(np.asarray(sizes, np.float64), old)
    if new == old:
        return old_sizes.astype(np.int64)
    old_smallest = float(old_sizes[0])
    new_smallest = old_smallest if old_smallest == 1 else max(1.0, old_smallest * new / old)
    octave_span = math.log2(old / old_smallest)
    position = np.log2(old_sizes / old_smallest) / octave_span if octave_span else np.ones(len(old_sizes))
    log2_size = math.log2(new_smallest) + position * math.log2(new / new_smallest)
    power_of_two = np.log2(old_sizes) % 1 == 0
    rounded = np.minimum(np.round(log2_size), math.floor(math.log2(new)))
    scaled = np.where(power_of_two, 2.0**rounded, np.round(2.0**log2_size))
    limited = np.clip(np.where(old_sizes == old, new, scaled), 1, new)
    return limited.astype(np.int64)


def parse_changes(text: str, option: str) -> dict[str, dict[Any, float | str]]:
    """Parse a job mix or group scaling: ``nodes=1:4*0.5,64:128*2``, ``nodes=1:4=30%``, ``queue=long*3``.

    >>> parse_changes("nodes=1:4*0.5,64:128*2", "job mix")
    {'nodes': {(1.0, 4.0): 0.5, (64.0, 128.0): 2.0}}
    >>> parse_changes("queue=long*3,user=1*2", "group scaling"), parse_changes("nodes=1=30%", "job mix")
    ({'queue': {'long': 3.0}, 'user': {'1': 2.0}}, {'nodes': {'1': '30%'}})
    """
    usage = {
        "job mix": "column=value*factor or column=value=share%, value may be min:max: nodes=1:4*0.5,64:128*2",
        "group scaling": "column=name*factor, separated by commas: queue=long*3,account=1*2",
    }[option]
    changes: dict[str, dict[Any, float | str]] = {}
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
        changes.setdefault(column, {})[kind] = wanted
    return changes


def _check_load(load: float) -> None:
    check_load(load)
    if load > MAX_LOAD:
        raise InputError(
            f"a load of {load:g} is {load:g} times the machine's capacity, so that the queue would grow without bound; "
            f"use {MAX_LOAD:g} at most"
        )
    if load > 1:
        warnings.warn(
            f"a load of {load:g} exceeds the machine's capacity: the queue grows as long as the workload lasts",
            stacklevel=4,
        )


def _factor(what: str, value: Any) -> float:
    try:
        factor = float(value)
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor >= 0):
        raise InputError(f"{what}: the factor is {value}; it must be a number, 0 or more")
    return factor


def _share(what: str, value: Any) -> float:
    try:
        share = float(str(value).removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise InputError(f"{what}: the share is {value}; write one from 0% to 100%")
    return share


def _group(column: str, value: Any, schema: LogSchema) -> Callable[[Columns], Bools]:
    """Test for jobs of one user or account."""
    if column not in schema.columns:
        raise InputError(f"group scaling {column}={value}: the log has no column {column}; leave it out")
    users, known = schema.numbered[column], schema.seen.get(column)
    names: Sequence[str] = schema.labels.get(column, ())
    try:
        number = names.index(value) if value in names else int(value)
    except ValueError:
        if names:
            raise UnknownNameError(column, str(value), names) from None
        number = -1
    if known is not None:
        matches = np.flatnonzero(known == number)
        if not len(matches):
            raise InputError(f"group scaling {column}={value}: no job of the log has that {column}")
        rank = int(matches[0])
    else:
        rank = number - 1
        if not 0 <= rank < users:
            raise InputError(
                f"group scaling {column}={value}: names were not kept, so that a {column} is named by rank, 1 (the "
                f"most node-seconds) to {users}; fit with keep_names to use the log's names"
            )
    return lambda rows: rows[column] == rank
