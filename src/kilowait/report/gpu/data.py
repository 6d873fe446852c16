"""What GPUs had of each contender: side by side, by type, by priority, over time, and in sentences.

Every number is the evaluation's. What needs the speeds of the run (fairness, work lost) is taken from the record that
was kept of it; the rest is measured again here, over the same windows as everything else on the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.gpu import by_priority, by_type, fragmentation, gpu_metrics, gpu_timeline
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.format import count, number, share
from kilowait.series import Series

__all__ = ["GpuData", "GpuSeries", "lacking", "sentences"]

Row = dict[str, Any]
PANELS = 7
"""Types that are drawn over time by themselves; the smaller ones are put together."""
BY_SPEED = ("mean_rho", "max_rho", "unfair_share", "jain_rho", "lost_gpu_hours", "work_utilization")
"""Metrics that cannot be taken without the speeds of the run."""


def lacking(found: ComparisonData) -> str | None:
    """Why nothing can be said of the GPUs of runs on placed nodes; None where it can, or no node is placed."""
    lies = found.log(found.shown[0]).pieces is not None
    if found.placed == lies:
        return None
    if lies:
        return (
            "These jobs were placed on single nodes, but the folder does not say what nodes there are (its scenario "
            "has no cluster), so nothing is said of GPUs here. Run it again with this kilowait."
        )
    return (
        "This machine gives out single GPUs, but the folder does not say where jobs lay (it has no pieces.parquet), so "
        "nothing is said of GPUs here. Run it again with this kilowait."
    )


@dataclass(frozen=True, eq=False)
class GpuSeries:
    """One contender in the window that is drawn, as steps of time: shares from 0 to 1."""

    held: dict[str, Series]
    """By type of GPU, the most GPUs first."""
    fragments: Series


class GpuData:
    """The GPUs of a contest."""

    def __init__(self, found: ComparisonData, machine: Cluster) -> None:
        self.found, self.contest, self.machine = found, found.contest, machine

    @classmethod
    def of(cls, found: ComparisonData) -> GpuData | None:
        """None where no node is placed, there are no GPUs, or the folder lacks what is needed (see `lacking`)."""
        machine = found.contest.machine
        if machine is None or not any(group.nodes * group.gpus for group in machine.groups):
            return None
        return None if lacking(found) is not None else cls(found, machine)

    @property
    def order(self) -> tuple[int, ...]:
        """Contenders as in the table of all, best first."""
        return (*self.found.real, *self.found.of_kind("clairvoyant"))

    @cached_property
    def table(self) -> dict[int, dict[str, float]]:
        """GPU metrics of every contender, each the mean over the windows that have it; NaN where nobody knows."""
        found = {}
        for who in self.order:
            rows = [
                gpu_metrics(
                    self.contest.logs(who, number),
                    self.machine,
                    counted=window.evaluated,
                    horizon_s=window.horizon,
                )
                for number, window in enumerate(self.contest.windows)
            ]
            merged = {name: _mean([row[name] for row in rows]) for name in rows[0]}
            kept = self.contest.gpus.get(self.contest.labels[who], {})
            found[who] = merged | {name: kept.get(name, math.nan) for name in BY_SPEED}
        return found

    def any(self, *names: str) -> bool:
        """Whether somebody has more than nothing of one of them."""
        return any(row[name] > 0 for row in self.table.values() for name in names)

    def known(self, name: str) -> bool:
        """Whether it is known of somebody."""
        return any(not math.isnan(row[name]) for row in self.table.values())

    @cached_property
    def types(self) -> dict[int, list[Row]]:
        """Of each contender that is drawn: rows of `by_type`; windows added up, shares their means."""
        return {
            who: _merged(
                [
                    by_type(self.contest.logs(who, number), self.machine, horizon_s=window.horizon)
                    for number, window in enumerate(self.contest.windows)
                ],
                key="type",
                added=("jobs", "gpu_hours", "preemptions", "migrations"),
            )
            for who in self.found.shown
        }

    @cached_property
    def priorities(self) -> dict[int, list[Row]]:
        """Of each contender that is drawn: rows of `by_priority`, the most important first; windows added up, times
        their means."""
        return {
            who: _merged(
                [
                    by_priority(self.contest.logs(who, number), counted=window.evaluated)
                    for number, window in enumerate(self.contest.windows)
                ],
                key="priority",
                added=("jobs", "finished", "preemptions", "gpu_hours"),
            )
            for who in self.found.shown
        }

    @cached_property
    def sizes(self) -> dict[str, int]:
        """GPUs of each type that is drawn, the most first; the smaller types together."""
        found: dict[str, int] = {}
        for group in self.machine.groups:
            if group.nodes * group.gpus:
                found[group.gpu_type] = found.get(group.gpu_type, 0) + group.nodes * group.gpus
        ordered = dict(sorted(found.items(), key=lambda pair: -pair[1]))
        if len(ordered) <= PANELS:
            return ordered
        first = dict(list(ordered.items())[: PANELS - 1])
        return first | {
            f"{len(ordered) - len(first)} other types": sum(ordered.values()) - sum(first.values())
        }

    @cached_property
    def lines(self) -> dict[int, GpuSeries]:
        """By contender that is drawn; without those under whom nothing ran for any time."""
        found = {}
        for who in self.found.shown:
            log = self.found.log(who)
            try:
                used = gpu_timeline(log, self.machine)
            except InputError:  # nothing ran for any time
                continue
            held = {
                name: _share([used[own] for own in self._members(name)], gpus)
                for name, gpus in self.sizes.items()
            }
            found[who] = GpuSeries(held, fragmentation(log, self.machine))
        return found

    def _members(self, name: str) -> list[str]:
        types = {group.gpu_type for group in self.machine.groups if group.nodes * group.gpus}
        return [name] if name in types else sorted(types - set(self.sizes))


def _share(parts: Sequence[Series], gpus: int) -> Series:
    """Several lines of GPUs in use as one, as a share of so many."""
    if len(parts) == 1:
        return Series(parts[0].edge_s, parts[0].value / gpus)
    edge = sorted({float(at) for part in parts for at in part.edge_s})
    return Series(edge, sum(part.at(edge[:-1]) for part in parts) / gpus)  # type: ignore[arg-type]


def _merged(windows: Sequence[Sequence[Row]], key: str, added: Sequence[str]) -> list[Row]:
    """Rows of several windows as one table: some columns added up, the others the means of those that have them."""
    parts: dict[Any, list[Row]] = {}
    for rows in windows:
        for row in rows:
            parts.setdefault(row[key], []).append(row)
    names = list(parts)
    if key == "priority":
        names.sort(reverse=True)
    return [
        {
            column: value
            if column == key
            else (sum if column in added else _mean)([row[column] for row in parts[name]])
            for column, value in parts[name][0].items()
        }
        for name in names
    ]


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


# -- words -----------------------------------------------------------------------------------------


def sentences(held: GpuData) -> list[str]:
    """What one sees of the GPUs, in words."""
    return [_busy(held), *_by_type(held), *_moved(held), *_fair(held)]


def _label(held: GpuData, who: int) -> str:
    return held.contest.labels[who]


def _busy(held: GpuData) -> str:
    """How full they are and how broken up, from the least to the most."""
    real = [who for who in held.order if who in held.found.real] or list(held.order)
    parts = []
    for name, words in (
        ("gpu_utilization", "of the GPUs are held while jobs arrive"),
        ("mean_fragmentation", "are free but too broken up for the usual job"),
    ):
        ranked = sorted(real, key=lambda who: _last(held.table[who][name]))
        low, high = (held.table[who][name] for who in (ranked[0], ranked[-1]))
        if len(real) == 1 or share(low) == share(high):
            parts.append(f"{share(low)} {words}")
        else:
            parts.append(
                f"{share(low)} (under {_label(held, ranked[0])}) to {share(high)} (under {_label(held, ranked[-1])}) "
                f"{words}"
            )
    return f"{parts[0]}; {parts[1]}."


def _by_type(held: GpuData) -> list[str]:
    """Which type is wanted most and least, under the best that is drawn."""
    who = next((one for one in held.order if one in held.types), None)
    if who is None:
        return []
    rows = [row for row in held.types[who] if row["gpus"] and not math.isnan(row["utilization"])]
    if len(rows) < 2:
        return []
    rows.sort(key=lambda row: -row["utilization"])
    first, last = rows[0], rows[-1]
    if share(first["utilization"]) == share(last["utilization"]):
        return []
    return [
        f"Under {_label(held, who)} the {first['type']} are held most, {share(first['utilization'])} of the time, the "
        f"{last['type']} least, {share(last['utilization'])}."
    ]


def _moved(held: GpuData) -> list[str]:
    """Who preempts and moves, and what is lost by it."""
    told = []
    for who in held.order:
        row = held.table[who]
        if not row["preemptions"] and not row["migrations"]:
            continue
        done = [
            f"{count(row[name])} {words}"
            for name, words in (("preemptions", "preemptions"), ("migrations", "moves"))
            if row[name]
        ]
        lost = row["lost_gpu_hours"]
        cost = (
            ""
            if math.isnan(lost)
            else f", {number(lost)} GPU-hours of work lost"
            if lost
            else ", no work lost"
        )
        told.append(f"{_label(held, who)}: {' and '.join(done)}{cost}")
    if not told:
        return ["No job was preempted or moved."]
    each = "" if held.contest.batched else " in a window, on average"
    return [f"Jobs were put out or moved{each}. {'; '.join(told)}."]


def _fair(held: GpuData) -> list[str]:
    if not held.known("mean_rho"):
        return [
            "Finish-time fairness and work lost need the speeds of the run on each type of GPU, which were not kept "
            "with it."
        ]
    told = [
        f"{_label(held, who)} {share(row['unfair_share'])}"
        for who, row in held.table.items()
        if not math.isnan(row["unfair_share"])
    ]
    return [
        "Jobs that would have been done sooner with a fair share of the cluster alone (rho above 1.05): "
        f"{'; '.join(told)}."
    ]


def _last(value: float) -> float:
    return math.inf if math.isnan(value) else value
