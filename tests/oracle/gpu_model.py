"""Inputs and results of the GPU reference simulator; written from docs/gpu-engine.md alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

BUILT_IN_INTERFERENCE = ((750, 1.0), (1000, 0.97), (1250, 0.93), (1500, 0.84), (1750, 0.75), (math.inf, 0.70))
"""The interference table that is built in: (up to, value), the last row for all above."""


@dataclass(frozen=True)
class GpuCase:
    """Inputs of one simulation: machine, jobs and settings, as plain values."""

    seed: int
    groups: list[dict[str, Any]]
    """name, nodes, cores, memory_gb, gpus, gpu_type"""
    layout: list[int] | None
    """The group of every node; None: the groups one after another."""
    jobs: dict[str, list[Any]]
    """Columns by name; a column may be missing. gpu_types holds labels ("P100|T4") or None. `drawn` is the
    score of the rule "random" and no column of a table."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from DEFAULTS."""
    rule: str = "fcfs"
    queues: dict[str, list[str]] = field(default_factory=dict)
    """The groups that jobs of a queue may use, by name; jobs of other queues, or of none, may use all."""


DEFAULTS: dict[str, Any] = {
    "at_limit": "extend",
    "placement": "first",
    "gpu_type_order": "any",  # or "fastest"
    "seed": 0,  # of the placement "random"
    "head_of_line_blocking": True,
    "preemption": False,
    "migration": False,
    "min_run_before_preempt": 0.0,
    "grace": 0.0,
    "checkpoint_write": 0.0,
    "checkpoint_load": 0.0,
    "checkpoint": 0.0,
    "round_interval": 0.0,
    "rounds": False,
    "interference": None,  # or a table such as BUILT_IN_INTERFERENCE
    "speed": None,  # or by gpu_type, in the order of `names_of`, a list over the jobs in the order of their columns
    "factor": None,  # the same
}

MISSING: dict[str, Any] = {
    "memory_mb": 0.0,
    "gpus": 0,
    "cpu_milli": -1,
    "gpu_milli": 1000,
    "gpu_types": None,
    "gpus_may_span_nodes": 0,
    "priority": 0.0,
    "checkpoint_s": math.nan,
    "checkpoint_load_s": math.nan,
    "begin_s": -math.inf,
    "cancel_s": math.inf,
    "limit_s": math.nan,
    "gpu_utilization": math.nan,
    "drawn": 0.0,
    "cores": 0,
    "queue": None,
}
"""Value of a missing column."""


class Piece(NamedTuple):
    """What a segment holds on one node; `gpus` as bits, `gpu_milli` thousandths of each of them (no GPUs: 0)."""

    node: int
    gpus: int
    gpu_milli: int


class Segment(NamedTuple):
    """A segment of a job, from start to end."""

    job: int
    start: float
    end: float
    outcome: str
    """completed, killed, preempted or migrated"""
    work: float
    lost: float
    pieces: tuple[Piece, ...]
    """One a node, in the order in which the nodes were taken."""


class JobResult(NamedTuple):
    """Time at which a job was eligible, and its outcome: completed, killed, cancelled, rejected or unstarted."""

    eligible: float
    outcome: str


class GpuRun(NamedTuple):
    """Segments in order of start; jobs by number."""

    segments: list[Segment]
    jobs: list[JobResult]
    notes: dict[str, int]
    """Counts of claims, preemptions and other occurrences, for checks of the test coverage."""


class PiecePlace(NamedTuple):
    """Where a piece lies: a node and the numbers of its GPUs."""

    node: int
    gpus: tuple[int, ...]


@dataclass(eq=False)
class GpuReferenceJob:
    """State of a job in the GPU reference simulator. `gpu_milli`: thousandths of each of its GPUs; 0 without GPUs."""

    number: int
    arrival: float
    cancel: float
    e: float
    run: float
    too_long: bool
    """Whether it is killed at its limit or estimate."""
    pieces: int
    k: int
    gpu_milli: int
    cpu: int
    memory: int
    """bytes"""
    gpus: int
    spread: bool
    label: str | None
    types: set[int]
    """The types it may use."""
    speed: list[float]
    factor: list[float]
    rank: list[int]
    load: int
    """Thousandths by which it loads a GPU that it shares."""
    gpu_share: float
    priority: float
    drawn: float
    checkpoint: float
    checkpoint_load: float

    state: str = "to come"
    """to come, waiting, running, ending or gone"""
    outcome: str = "unstarted"
    score: float = 0.0
    attained: float = 0.0
    """Seconds of its earlier segments."""
    done: float = 0.0
    place: list[PiecePlace] = field(default_factory=list)
    starts: int = 0
    segment: int = -1
    """Of the place it holds or held last; below 0: it has never run."""
    start: float = math.nan
    base: float = 0.0
    """Work it had kept when this segment began."""
    since: float = math.nan
    rate: float = math.nan
    stop: float = math.nan
    release: float = math.nan

    @property
    def part(self) -> bool:
        """It takes a part of a GPU."""
        return 0 < self.gpu_milli < 1000

    def finish(self) -> float:
        """When it finishes, if nothing changes. Rounding may have put `done` a hair above `run`."""
        return self.since + max(self.run - self.done, 0.0) / self.rate

    def done_at(self, time: float) -> float:
        """Work done up to a time."""
        return self.done + (time - self.since) * self.rate if time > self.since else self.done

    def kept_of(self, done: float) -> float:
        """What is kept of this work if its place is taken from it."""
        if self.checkpoint == 0.0:
            return done
        return 0.0 if math.isinf(self.checkpoint) else math.floor(done / self.checkpoint) * self.checkpoint


def settings_of(case: GpuCase) -> dict[str, Any]:
    """All settings; a name that is none is a mistake."""
    assert set(case.settings) <= set(DEFAULTS), set(case.settings) - set(DEFAULTS)
    return {**DEFAULTS, **case.settings}


def name_of(group: dict[str, Any]) -> str:
    """The gpu_type of the group's nodes."""
    return str(group["gpu_type"]) if group["gpus"] > 0 else ""


def names_of(groups: Sequence[dict[str, Any]]) -> list[str]:
    """Every gpu_type, in the order in which groups first name them."""
    return list(dict.fromkeys(name_of(group) for group in groups))


Type = tuple[str, frozenset[str]]
"""A gpu_type and the queues that may use it: groups of different queues are of different types."""


def type_of(case: GpuCase, group: dict[str, Any]) -> Type:
    """The type of the group's nodes."""
    return name_of(group), frozenset(q for q, names in case.queues.items() if group["name"] in names)


def types_of(case: GpuCase) -> list[Type]:
    """The types by number: in the order in which groups first name them."""
    return list(dict.fromkeys(type_of(case, group) for group in case.groups))


def rows_of(case: GpuCase) -> list[int]:
    """The rows of the columns in the order of the jobs' numbers."""
    submit, ids = case.jobs["submit_s"], case.jobs["job_id"]
    return sorted(range(len(ids)), key=lambda row: (submit[row], ids[row]))


def jobs_of(case: GpuCase) -> list[GpuReferenceJob]:
    """The jobs by number, none of them arrived yet."""
    return [_job(case, number, row) for number, row in enumerate(rows_of(case))]


def _job(case: GpuCase, number: int, row: int) -> GpuReferenceJob:
    settings, types, names = settings_of(case), types_of(case), names_of(case.groups)
    has = {name: case.jobs[name][row] if name in case.jobs else MISSING[name] for name in MISSING}
    has |= {name: case.jobs[name][row] for name in ("submit_s", "runtime_s", "estimate_s", "nodes")}
    e = max(has["estimate_s"], 1.0)
    allowed = e if math.isnan(has["limit_s"]) else max(has["limit_s"], 1.0)
    kill = settings["at_limit"] == "kill"
    gpus = has["gpus"]
    spread = has["gpus_may_span_nodes"] == 1 and gpus >= 1
    pieces = gpus if spread else has["nodes"]
    assert gpus % pieces == 0, f"job {number}: {gpus} GPUs on {pieces} nodes"
    assert has["gpu_milli"] == 1000 or gpus == 1, f"job {number}: a part of {gpus} GPUs"
    cpu = has["cpu_milli"] if has["cpu_milli"] >= 0 else has["cores"] * 1000
    speed, factor = (
        [1.0 if settings[table] is None or gpus == 0 else settings[table][names.index(name)][row] for name, _ in types]
        for table in ("speed", "factor")
    )
    values = sorted(set(speed), reverse=True)
    used = has["gpu_utilization"]
    return GpuReferenceJob(
        number=number,
        arrival=max(has["submit_s"], has["begin_s"]),
        cancel=has["cancel_s"],
        e=e,
        run=min(has["runtime_s"], allowed) if kill else has["runtime_s"],
        too_long=kill and has["runtime_s"] > allowed,
        pieces=pieces,
        k=gpus // pieces,
        gpu_milli=has["gpu_milli"] if gpus > 0 else 0,
        cpu=-(-cpu // pieces),
        memory=-(-round(has["memory_mb"] * 10**6) // pieces),
        gpus=gpus,
        spread=spread,
        label=has["gpu_types"],
        types={
            t
            for t, (name, queues) in enumerate(types)
            if speed[t] > 0
            and _may_use(gpus, has["gpu_types"], name)
            and (has["queue"] not in case.queues or has["queue"] in queues)
        },
        speed=speed,
        factor=factor,
        rank=[values.index(s) if settings["gpu_type_order"] == "fastest" else 0 for s in speed],
        load=has["gpu_milli"] if math.isnan(used) else round(used * 1000),
        gpu_share=gpus * has["gpu_milli"] / 1000,
        priority=has["priority"],
        drawn=has["drawn"],
        checkpoint=settings["checkpoint"] if math.isnan(has["checkpoint_s"]) else has["checkpoint_s"],
        checkpoint_load=settings["checkpoint_load"]
        if math.isnan(has["checkpoint_load_s"])
        else has["checkpoint_load_s"],
    )


def _may_use(gpus: int, label: str | None, name: str) -> bool:
    if gpus == 0:
        return True
    return name != "" and (label is None or name in label.split("|"))
