"""Inputs and results of the reference simulator: jobs, groups, capacity changes, results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias, TypeVar


@dataclass(frozen=True)
class ReferenceJob:
    """A job of the table; None: no such column, or no value."""

    job_id: int
    submit: float
    runtime: float
    estimate: float
    nodes: int
    cores: int | None = None
    memory_mb: float | None = None
    gpus: int | None = None
    queue: str | None = None
    user: int | None = None
    after: int | None = None
    think: float = 0.0
    begin: float | None = None
    cancel: float | None = None
    hold: float | None = None
    planned: float | None = None
    limit: float | None = None
    overrun_planned: float | None = None
    size: int = 0
    """Its nodes, or its cores where all groups are shared; `sized` sets it."""


@dataclass(frozen=True)
class ReferenceGroup:
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


Steps = tuple[tuple[float, int], ...]
"""A step function of time: (from this time on, this value), rising; the first from -inf on."""


def value_at(steps: Steps, time: float) -> int:
    """The value of a step function."""
    return [value for begin, value in steps if begin <= time][-1]


@dataclass(frozen=True)
class ReferenceSleep:
    """How the nodes of a group sleep."""

    timeout: float
    shutdown: float = 0.0
    wake: float = 0.0
    reserve: Steps = ((-math.inf, 0),)
    wake_ahead: bool = False


N = TypeVar("N", int, float)
Table: TypeAlias = tuple[tuple[tuple[N, ...], ...], ...]
"""[plain group][job, in the order given][level]"""


@dataclass(frozen=True)
class ReferencePowerControls:
    """The power controls of a run; each may be missing."""

    sleep: Mapping[str, ReferenceSleep] = field(default_factory=dict)
    """By name of the group."""
    factor: Table[float] | None = None
    watts: Table[int] | None = None
    preferred_level: tuple[int, ...] | None = None
    full_speed_backlog_nodes: int = -1
    budget: Steps | None = None

    @property
    def levels(self) -> int:
        """Number of DVFS levels."""
        tables = [table for table in (self.factor, self.watts) if table is not None]
        return len(tables[0][0][0]) if tables else 1


class Result(NamedTuple):
    """Result of a job; `group` is a number, with the groups of reservations after the plain ones."""

    eligible: float | None
    start: float | None
    end: float | None
    group: int | None
    outcome: str
    level: int = 0
    """0 also where it never started."""


class JobReservation(NamedTuple):
    """A reservation made at the pass number `at_pass`; `head`: it is the pass's first."""

    at_pass: int
    time: float
    job_id: int
    group: int
    start: float
    head: bool


class NodeStep(NamedTuple):
    """Numbers of a group's nodes by state from `time` on, including nodes allocated to jobs."""

    time: float
    shutting_down: int
    asleep: int
    waking: int


class Count(NamedTuple):
    """Nodes by state of a group with node sleep, after an instant."""

    time: float
    group: int
    held: int
    idle: int
    shutting_down: int
    asleep: int
    waking: int
    out: int


@dataclass
class Run:
    """Results in the order of the given jobs; ids of the jobs started, in start order; reservations made."""

    results: list[Result]
    segments: list[int]
    job_reservations: list[JobReservation]
    states: dict[int, list[NodeStep]] = field(default_factory=dict)
    """Of each group that can sleep: a step wherever a number changed."""
    taken: dict[int, float] = field(default_factory=dict)
    """By job id: time of its allocation; the job starts when all its nodes are awake."""
    counts: list[Count] = field(default_factory=list)
    end: float = math.nan
    """The time of the last instant; what nodes do after it is not simulated."""


@dataclass(eq=False)
class State:
    """State of a job in the reference simulator."""

    job: ReferenceJob
    number: int
    planned: float
    """P in docs/engine.md."""
    limit: float | None
    """L in docs/engine.md."""
    run: float
    need: dict[int, tuple[int, ...]]
    """By group it may use, in order of preference."""
    factor: dict[int, tuple[float, ...]]
    """By group and level: factor on the run time."""
    watts: dict[int, tuple[int, ...]]
    """By group and level: power that counts against the budget, W."""
    preferred_level: int = 0
    level: int = 0
    taken: float = math.nan
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    expected_end: float = math.nan
    group: int | None = None
    outcome: str = "unstarted"
    scores: list[float] = field(default_factory=list)


Rule = Callable[[ReferenceJob, float, float], float]
"""(job, now, eligible) -> score; a smaller score goes first."""


def pools_per_node(group: ReferenceGroup) -> tuple[int, ...]:
    """Amount that one node adds to each pool of its group."""
    if not group.shared:
        return (1,)
    memory = (math.floor(group.memory_gb * 1000),) if group.memory_gb > 0 else ()
    gpus = (group.gpus,) if group.gpus > 0 else ()
    return (group.cores, *memory, *gpus)


def need_of(job: ReferenceJob, group: ReferenceGroup) -> tuple[int, ...]:
    """What the job needs of each pool of the group."""
    if not group.shared:
        return (job.nodes,)
    cores = job.nodes * group.cores if job.cores is None else max(job.cores, 1)
    memory = (math.ceil(job.memory_mb or 0),) if group.memory_gb > 0 else ()
    gpus = (job.gpus or 0,) if group.gpus > 0 else ()
    return (cores, *memory, *gpus)


def sized(job: ReferenceJob, groups: Sequence[ReferenceGroup]) -> ReferenceJob:
    """The job with its size on these groups; where all are shared, also with its cores."""
    if not all(group.shared for group in groups):
        return replace(job, size=job.nodes)
    cores = job.nodes * min(group.cores for group in groups) if job.cores is None else max(job.cores, 1)
    return replace(job, size=cores, cores=cores)


def all_groups(groups: Sequence[ReferenceGroup], reservations: Iterable[Reservation]) -> list[ReferenceGroup]:
    """The plain groups, then one group per reservation, with nodes like those of its parent group."""
    plain = {group.name: group for group in groups}
    cut = [(r, plain[r.group]) for r in reservations]
    return [*groups] + [ReferenceGroup(r.name, r.nodes, g.cores, g.memory_gb, g.gpus, g.shared) for r, g in cut]


def groups_of(
    job: ReferenceJob,
    groups: Sequence[ReferenceGroup],
    queues: Mapping[str, Sequence[str]],
    reservations: Sequence[Reservation],
) -> list[int]:
    """Numbers of the groups that the job may use and fits when they are empty, in order of preference."""
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


def levels_of(
    table: Table[N] | None,
    levels: int,
    default: N,
    groups: Sequence[ReferenceGroup],
    reservations: Sequence[Reservation],
    g: int,
    row: int,
) -> tuple[N, ...]:
    """Values of a table for a job on a group, by level; a reservation has those of its parent group."""
    if table is None:
        return (default,) * levels
    names = [group.name for group in groups]
    plain = g if g < len(groups) else names.index(reservations[g - len(groups)].group)
    return table[plain][row]


class Change(NamedTuple):
    """`nodes` more (or, negative, fewer) in a group from `time` on."""

    time: float
    group: int
    nodes: int
    announced: float


def changes_of(
    groups: Sequence[ReferenceGroup], outages: Iterable[Outage], reservations: Iterable[Reservation]
) -> list[Change]:
    """Capacity changes by (time, order of listing); those at infinity are left out."""
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
