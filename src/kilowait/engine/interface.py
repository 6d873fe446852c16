"""Interface between the engine and schedulers: job records, priority policies, views and choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

JOB = np.dtype(
    [
        ("submit_s", np.float64),  # arrival in the queue
        ("since_first_s", np.float64),  # the same, since the first submission of the log
        ("estimate_s", np.float64),  # at least 1: used by priority policies
        ("planned_s", np.float64),  # at least 1: used for reservations and backfilling
        ("limit_s", np.float64),  # walltime limit; infinite: unknown
        ("overrun_planned_s", np.float64),  # expected run time once planned_s is exceeded; 0: unknown
        ("expected_inverse_runtime", np.float64),  # expected value of 10 s / run time, at most 1
        ("units", np.int64),  # its size on this machine, in its unit ("size" is an attribute of NumPy)
        ("nodes", np.int64),
        ("cores", np.int64),
        ("memory_mb", np.float64),
        ("gpus", np.int64),
        ("priority", np.float64),  # larger is more important; 0: unknown
        ("number", np.int64),  # by (submit, id)
        ("usage_share", np.float64),  # its user's share of recent usage, 0..1, if the policy has a half-life
        ("user", np.int32),
        ("account", np.int32),
        ("queue", np.int32),
        ("qos", np.int32),
        ("ran_s", np.float64),  # 0 while it waits; otherwise see PriorityPolicy.observes_jobs
    ],
    align=True,
)
"""Fields of a waiting job that policies may read. The true run time is not included."""

Score = Callable[[Any, float, Any], float]


@dataclass(frozen=True)
class PriorityPolicy:
    """A priority order of waiting jobs: ``score(job, now, parameters)``, smaller first, ties by (submit, id).

    A time-dependent policy is scored at every pass, any other once, when the job arrives. `compiled` says
    whether `score` is a Numba function of the engine's signature; if not, the run goes through Python.
    `kilowait.policy` creates one from a function.

    >>> import kilowait as kw
    >>> widest = PriorityPolicy("widest", lambda job, now, parameters: -job.nodes, compiled=False)
    >>> jobs = kw.JobTable(job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[60] * 3, nodes=[4, 1, 3])
    >>> kw.simulate(jobs, kw.Cluster.from_nodes(4), widest, "none").jobs()["start_s"].tolist()
    [0.0, 60.0, 60.0]
    """

    name: str
    score: Score
    parameters: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    time_dependent: bool = False
    half_life_s: float = 0.0
    """Half-life of the usage behind `job.usage_share`, seconds; 0: usage is not tracked."""
    compiled: bool = True
    observes_jobs: bool = False
    """Whether the policy learns during the run: `score` is also called for every job that has started (``job.ran_s``
    below 0) and every job that has ended (``job.ran_s``: its run time, above 0). The value returned then is
    ignored; what it writes into `parameters` persists until the end of the run."""
    predicts: bool = False
    """Whether it predicts run times: it is scored when a job arrives, and may write `job.estimate_s` and
    `job.planned_s`, seconds, whenever it is scored (``job.ran_s`` is 0). Without a column `limit_s`, the estimates
    of the table are the limits. It must be compiled."""
    monotone: bool = False
    """Of a time-dependent policy: whether the score of a waiting job never rises with time, and never falls with its
    `usage_share`. Then most jobs need not be scored at every pass, which is faster for long queues; the schedule is the
    same."""
    overrun: str | None = None
    """Overrun rule (double, steps or quantile) of the policy; the run's settings take precedence."""
    backfill_order: PriorityPolicy | None = None
    """Priority of backfill candidates; the run's settings take precedence."""
    placement: str | None = None
    """Placement (first or balance) of the policy; None: the run's settings."""
    node_level: bool = False
    """Whether it reads fields of the GPU engine (attained_s, remaining_s, ...)."""
    gpu_settings: tuple[tuple[str, Any], ...] = ()
    """Recommended `GpuSettings` that differ from the defaults: (("preempt", True),)."""
    fixed_gpu_settings: tuple[tuple[str, Any], ...] = ()
    """`GpuSettings` that the policy has in every run, whatever the settings of the run say: (("preempt", False),)."""
    prepare: Callable[[Any, Any], npt.NDArray[np.float64]] | None = None
    """Computes `parameters` from (jobs, cluster)."""

    def run(self, inputs: Any) -> Any:
        """Simulate a run in this order of jobs; see `kilowait.engine.policy`."""
        from kilowait.engine.policy import run_priority_policy

        return run_priority_policy(self, inputs)


@dataclass(frozen=True, eq=False)
class View:
    """State of the simulation at an instant. Jobs are numbered by (submit, id).

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[3, 2])
    >>> view = kw.Simulator(jobs, kw.Cluster.from_nodes(4)).advance()
    >>> view.now_s, view.waiting["nodes"].tolist(), view.free.tolist()
    (0.0, [3], [4])
    """

    now_s: float
    waiting: npt.NDArray[Any]
    """JOB records of the waiting jobs, in queue order."""
    running_job: npt.NDArray[np.int64]
    running_end_s: npt.NDArray[np.float64]
    """Expected ends, earliest first."""
    free: npt.NDArray[np.int64]
    """Free amount of each pool (an exclusive group has one: nodes)."""
    capacity: npt.NDArray[np.int64]
    reserved_s: npt.NDArray[np.float64]
    """Conservative backfilling: reserved start of each waiting job; NaN: none."""
    freed: bool
    """Conservative: whether resources were freed since the last pass, so that reservations may move earlier."""
    awake: npt.NDArray[np.int64] | None = None
    """Free nodes of each group that are awake; this and the next three are None without node sleep."""
    shutting_down: npt.NDArray[np.int64] | None = None
    asleep: npt.NDArray[np.int64] | None = None
    waking: npt.NDArray[np.int64] | None = None


class ChoiceKind(Enum):
    """Kinds of scheduling decisions."""

    START = "start"
    RESERVE = "reserve"
    BACKFILL = "backfill"
    HOLD = "hold"
    WAKE = "wake"
    SLEEP = "sleep"
    PASS = "pass"


@dataclass(frozen=True)
class Choice:
    """One scheduling decision. Create it with `start`, `reserve`, `backfill`, `hold`, `wake`, `sleep` or `noop`.

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
        """Start waiting job `job` now on `group` (-1: by placement) at `level` (-1: by the power controls)."""
        return cls(ChoiceKind.START, job, group, level=level)

    @classmethod
    def reserve(cls, job: int) -> Choice:
        """Reserve the earliest start of `job`; later starts of this pass may not delay it."""
        return cls(ChoiceKind.RESERVE, job)

    @classmethod
    def backfill(cls, scores: npt.NDArray[np.float64] | None = None) -> Choice:
        """Start every job that fits without delaying reservations, smallest score first (by number if None)."""
        return cls(ChoiceKind.BACKFILL, scores=scores)

    @classmethod
    def hold(cls, job: int, until_s: float) -> Choice:
        """Remove `job` from the queue until `until_s`."""
        return cls(ChoiceKind.HOLD, job, until_s=until_s)

    @classmethod
    def wake(cls, group: int, nodes: int) -> Choice:
        """Wake `nodes` sleeping nodes of `group`, or all if fewer sleep."""
        return cls(ChoiceKind.WAKE, group=group, nodes=nodes)

    @classmethod
    def sleep(cls, group: int, nodes: int) -> Choice:
        """Put `nodes` idle nodes of `group` to sleep, or all if fewer are idle."""
        return cls(ChoiceKind.SLEEP, group=group, nodes=nodes)

    @classmethod
    def noop(cls) -> Choice:
        """Make no further decision at this instant."""
        return cls(ChoiceKind.PASS)
