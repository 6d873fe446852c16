"""What the slow twin is told and what it answers: jobs, groups, capacity changes, results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class TwinJob:
    """A job as the table has it; None: no such column, or no such wish."""

    job_id: int
    submit: float
    runtime: float
    estimate: float
    nodes: int
    cores: int | None = None
    memory_mb: float | None = None
    gpus: int | None = None
    queue: str | None = None
    after: int | None = None
    think: float = 0.0
    begin: float | None = None
    cancel: float | None = None


@dataclass(frozen=True)
class TwinGroup:
    """Nodes of one kind; cores, memory and GPUs are per node."""

    name: str
    nodes: int
    cores: int = 1
    memory_gb: float = 0.0
    gpus: int = 0
    shared: bool = False


class Outage(NamedTuple):
    group: str
    nodes: int
    start: float
    end: float
    announced: float


class Reservation(NamedTuple):
    name: str
    group: str
    nodes: int
    start: float
    end: float
    announced: float


class Result(NamedTuple):
    """What became of a job; `group` is a number, reservations' groups after the plain ones."""

    eligible: float | None
    start: float | None
    end: float | None
    group: int | None
    outcome: str


class Promise(NamedTuple):
    """A reservation made at the pass number `at_pass`; `head`: it is the pass's first."""

    at_pass: int
    time: float
    job_id: int
    group: int
    start: float
    head: bool


@dataclass
class Run:
    """Results in the order of the given jobs; ids of the jobs started, in start order; reservations made."""

    results: list[Result]
    segments: list[int]
    promises: list[Promise]


@dataclass(eq=False)
class State:
    """A job on its way through the clock."""

    job: TwinJob
    number: int
    e: float
    run: float
    need: dict[int, tuple[int, ...]]
    """By group it may use; the keys stand in order of preference."""
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    believed_end: float = math.nan
    group: int | None = None
    outcome: str = "unstarted"
    scores: list[float] = field(default_factory=list)


Rule = Callable[[TwinJob, float, float], float]
"""(job, now, eligible) -> score; a smaller score goes first."""


def pools_per_node(group: TwinGroup) -> tuple[int, ...]:
    """What one node puts into each pool of its group."""
    if not group.shared:
        return (1,)
    memory = (math.floor(group.memory_gb * 1000),) if group.memory_gb > 0 else ()
    gpus = (group.gpus,) if group.gpus > 0 else ()
    return (group.cores, *memory, *gpus)


def need_of(job: TwinJob, group: TwinGroup) -> tuple[int, ...]:
    """What the job needs of each pool of the group."""
    if not group.shared:
        return (job.nodes,)
    cores = job.nodes * group.cores if job.cores is None else max(job.cores, 1)
    memory = (math.ceil(job.memory_mb or 0),) if group.memory_gb > 0 else ()
    gpus = (job.gpus or 0,) if group.gpus > 0 else ()
    return (cores, *memory, *gpus)


def all_groups(groups: Sequence[TwinGroup], reservations: Iterable[Reservation]) -> list[TwinGroup]:
    """The plain groups, then one per reservation: like the group it is cut from, of the size it holds."""
    plain = {group.name: group for group in groups}
    cut = [(r, plain[r.group]) for r in reservations]
    return [*groups] + [TwinGroup(r.name, r.nodes, g.cores, g.memory_gb, g.gpus, g.shared) for r, g in cut]


def groups_of(
    job: TwinJob,
    groups: Sequence[TwinGroup],
    queues: Mapping[str, Sequence[str]],
    reservations: Sequence[Reservation],
) -> list[int]:
    """Numbers of the groups the job may use and would fit if they were empty, in order of preference."""
    whole = all_groups(groups, reservations)
    names = [group.name for group in whole]
    wanted = list(range(len(groups)))
    if job.queue is not None and job.queue in queues:
        wanted = [names.index(name) for name in queues[job.queue]]
    if job.queue in [r.name for r in reservations]:
        wanted = [len(groups) + [r.name for r in reservations].index(job.queue)]
    full = [tuple(group.nodes * one for one in pools_per_node(group)) for group in whole]
    if (job.gpus or 0) > 0:
        wanted = [g for g in wanted if not whole[g].shared or whole[g].gpus > 0]
    return [g for g in wanted if all(n <= c for n, c in zip(need_of(job, whole[g]), full[g], strict=True))]


class Change(NamedTuple):
    """`nodes` more (or, negative, fewer) in a group from `time` on."""

    time: float
    group: int
    nodes: int
    announced: float


def changes_of(
    groups: Sequence[TwinGroup], outages: Iterable[Outage], reservations: Iterable[Reservation]
) -> list[Change]:
    """Capacity changes by (time, order of listing); what happens at infinity never happens."""
    names = [group.name for group in groups]
    listed = []
    for away in outages:
        g = names.index(away.group)
        listed.append(Change(away.start, g, -away.nodes, away.announced))
        listed.append(Change(away.end, g, away.nodes, away.announced))
    for own, kept in enumerate(reservations, start=len(names)):
        g = names.index(kept.group)
        listed.append(Change(kept.start, g, -kept.nodes, kept.announced))
        listed.append(Change(kept.start, own, kept.nodes, kept.announced))
        listed.append(Change(kept.end, own, -kept.nodes, kept.announced))
        listed.append(Change(kept.end, g, kept.nodes, kept.announced))
    return sorted((c for c in listed if c.time < math.inf), key=lambda c: c.time)
