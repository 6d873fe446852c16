"""The door between the clock and whoever decides: what a decider sees, what it may choose, what a rule is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["JOB", "Choice", "ChoiceKind", "PriorityPolicy", "View"]

JOB = np.dtype(
    [
        ("submit_s", np.float64),  # when it joined the queue
        ("since_first_s", np.float64),  # the same, since the first submission of the log
        ("estimate_s", np.float64),  # at least 1: what rules order by
        ("planned_s", np.float64),  # at least 1: what planners reserve and backfill with
        ("limit_s", np.float64),  # infinite: none is known
        ("overrun_planned_s", np.float64),  # believed once planned_s is overrun; 0: not known
        (
            "expected_inverse_runtime",
            np.float64,
        ),  # expected 10 s / run time, at most 1: what a second of waiting weighs
        ("nodes", np.int64),
        ("cores", np.int64),
        ("memory_mb", np.float64),
        ("gpus", np.int64),
        ("number", np.int64),  # by (submit, id)
        ("usage_share", np.float64),  # its user's share of recent use, 0..1, where the rule keeps usage
        ("user", np.int32),
        ("account", np.int32),
        ("queue", np.int32),
        ("qos", np.int32),
        ("ran_s", np.float64),  # 0 while it waits; otherwise see Rule.remembers
    ],
    align=True,
)
"""What a decider may know of a waiting job. The true run time of a job that has not ended is not here, and never
will be."""

Score = Callable[[Any, float, Any], float]


@dataclass(frozen=True)
class PriorityPolicy:
    """An order of waiting jobs: ``score(job, now, parameters)``, smaller first, ties by (submit, id).

    A *moving* rule is scored at every pass; one that is not is scored once, when the job arrives. `compiled` says
    whether `score` is a Numba function of the engine's signature; if not, the run goes through Python.
    """

    name: str
    score: Score
    parameters: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    time_dependent: bool = False
    half_life_s: float = 0.0
    """Half-life of the usage behind `job.usage_share`, seconds; 0: usage is not kept."""
    compiled: bool = True
    observes_jobs: bool = False
    """Whether it learns while it plays: `score` is called once more for every job that has started (``job.ran_s``
    below 0) and for every one that has ended (``job.ran_s``: how long it ran, above 0). What it returns then is not
    looked at; what it writes into `parameters` stays for the rest of the run, and for that run alone."""
    predicts: bool = False
    """Whether it says how long jobs will take: it is scored once when a job arrives, whether moving or not, and where
    it is scored (``job.ran_s`` is 0) it may write `job.estimate_s` and `job.planned_s`, seconds. Without a column of
    limits, the estimates of the table are the limits then. It must be compiled."""
    overrun: str | None = None
    """double, steps or later, for a rule that brings its own; used unless the run names another."""
    backfill_order: PriorityPolicy | None = None
    """An own order of backfill candidates; used unless the run names another."""
    placement: str | None = None
    """first or balance, for a rule that brings its own; None: as the run's settings say."""
    node_level: bool = False
    """Whether it looks at what only placed nodes know (priority, attained_s, remaining_s, ...)."""
    gpu_settings: tuple[tuple[str, Any], ...] = ()
    """How it is meant to run on placed nodes, as settings that differ from the usual: (("preempt", True),)."""
    prepare: Callable[[Any, Any], npt.NDArray[np.float64]] | None = None
    """Makes `parameters` from (jobs, cluster), where they depend on those."""

    def run(self, inputs: Any) -> Any:
        """Simulate a run in this order of jobs; see `kilowait.engine.policy`."""
        from kilowait.engine.policy import run_priority_policy

        return run_priority_policy(self, inputs)


@dataclass(frozen=True, eq=False)
class View:
    """What a decider sees at an instant. Jobs are numbered by (submit, id)."""

    now_s: float
    waiting: npt.NDArray[Any]
    """JOB records of the waiting jobs, in the order of the queue."""
    running_job: npt.NDArray[np.int64]
    running_end_s: npt.NDArray[np.float64]
    """Estimated ends, soonest first."""
    free: npt.NDArray[np.int64]
    """Free amount of each pool (an exclusive group has one: nodes)."""
    capacity: npt.NDArray[np.int64]
    reserved_s: npt.NDArray[np.float64]
    """Conservative: the start kept for each waiting job since earlier passes; NaN: none."""
    freed: bool
    """Conservative: whether something fell free since the last pass, so that reservations may move forward."""
    awake: npt.NDArray[np.int64] | None = None
    """Free nodes of each group that are awake; None, as the next three, where none sleep."""
    shutting_down: npt.NDArray[np.int64] | None = None
    asleep: npt.NDArray[np.int64] | None = None
    waking: npt.NDArray[np.int64] | None = None


class ChoiceKind(Enum):
    """What a decider may ask for."""

    START = "start"
    RESERVE = "reserve"
    BACKFILL = "backfill"
    HOLD = "hold"
    WAKE = "wake"
    SLEEP = "sleep"
    PASS = "pass"


@dataclass(frozen=True)
class Choice:
    """One decision. Make it with `start`, `reserve`, `backfill`, `hold`, `wake`, `sleep` or `pass_`.

    >>> Choice.start(3, group=0).kind, Choice.hold(3, until_s=60.0).until_s
    (<ChoiceKind.START: 'start'>, 60.0)
    """

    kind: ChoiceKind
    job: int = -1
    group: int = -1
    until_s: float = 0.0
    level: int = -1
    nodes: int = 0
    scores: npt.NDArray[np.float64] | None = None

    @classmethod
    def start(cls, job: int, group: int = -1, level: int = -1) -> Choice:
        """Start waiting job `job` now, on `group` or where placement puts it, at `level` or at its own."""
        return cls(ChoiceKind.START, job, group, level=level)

    @classmethod
    def reserve(cls, job: int) -> Choice:
        """Keep the earliest place for `job`; later starts of this pass may not delay it."""
        return cls(ChoiceKind.RESERVE, job)

    @classmethod
    def backfill(cls, scores: npt.NDArray[np.float64] | None = None) -> Choice:
        """Start whatever else fits behind the reservations, smallest score first (by number if None)."""
        return cls(ChoiceKind.BACKFILL, scores=scores)

    @classmethod
    def hold(cls, job: int, until_s: float) -> Choice:
        """Leave `job` out of the queue until `until_s`."""
        return cls(ChoiceKind.HOLD, job, until_s=until_s)

    @classmethod
    def wake(cls, group: int, nodes: int) -> Choice:
        """Wake `nodes` sleeping nodes of `group`, or as many as sleep."""
        return cls(ChoiceKind.WAKE, group=group, nodes=nodes)

    @classmethod
    def sleep(cls, group: int, nodes: int) -> Choice:
        """Put `nodes` idle nodes of `group` to sleep, or as many as are idle."""
        return cls(ChoiceKind.SLEEP, group=group, nodes=nodes)

    @classmethod
    def noop(cls) -> Choice:
        """No more at this instant."""
        return cls(ChoiceKind.PASS)
