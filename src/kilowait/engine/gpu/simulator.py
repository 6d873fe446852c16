"""GPU-cluster simulator: run a whole simulation, or step through it with an external scheduler."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.demand import feasible_types, node_types, request_text
from kilowait.engine.gpu.event_loop import (
    ALL_JOBS_ENDED,
    BUFFER_FULL,
    MAX_FRUITLESS_STARTS,
    MAX_IDLE_ROUNDS,
    compiled_gpu_kernel,
    compiled_gpu_score,
    most_fruitless,
)
from kilowait.engine.gpu.initial_state import build_gpu_state, with_larger_buffers
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.state import CANCELLED, DONE, ENDING, REJECTED, RUNNING, WAITING
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.run_monitor import reported_run
from kilowait.errors import ChoiceError, InputError, NoProgressError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import Allocations, Outcome

_OUTCOME = np.zeros(8, np.int8)
_OUTCOME[DONE] = Outcome.COMPLETED
_OUTCOME[CANCELLED] = Outcome.CANCELLED
_OUTCOME[REJECTED] = Outcome.REJECTED


def run_gpu_simulation(
    jobs: JobTable,
    cluster: Cluster,
    policy: PriorityPolicy,
    settings: GpuSettings,
    speeds: Speeds | None = None,
    preference: npt.NDArray[np.float64] | None = None,
) -> ExecutionLog:
    """Simulate the jobs on a node-level cluster under a priority policy, in compiled code.

    `speeds` and `preference` (types of the cluster, jobs; smaller first, with gpu_type_order="given") have the rows of
    `jobs`.
    """
    simulator = GpuSimulator(jobs, cluster, settings, policy=policy, speeds=speeds, preference=preference)
    simulator.run()
    return simulator.log()


@dataclass(frozen=True, eq=False)
class GpuView:
    """State of a GPU simulation at an instant; jobs are numbered by (submit, id), types as in `types`."""

    now_s: float
    due: bool
    """Whether a scheduling pass is due: always, but with rounds only at round ticks."""
    waiting: npt.NDArray[Any]
    """Records (`state.GPU_JOB`) of the waiting jobs, by number."""
    running: npt.NDArray[Any]
    """Records of the running jobs, by number."""
    running_type: npt.NDArray[np.int64]
    """GPU type of each running job."""
    free: npt.NDArray[np.int64]
    """Free thousandths of GPUs by type."""
    capacity: npt.NDArray[np.int64]
    types: tuple[str, ...]


class GpuSimulator:
    """A GPU simulation that can be stepped: `advance`, then `start`, `preempt`, `migrate`, until it returns None.

    `scheduler` names an external scheduler in error messages. It must start the jobs: a run that ends while some wait
    or run is an error (`NoProgressError`).

    >>> import kilowait as kw
    >>> machine = Cluster((kw.NodeGroup("a", 1, cores=8, gpus=2, gpu_type="V100", node_level=True),))
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[1, 1], gpus=[2, 1])
    >>> simulator = GpuSimulator(jobs, machine, scheduler="in order")
    >>> while (view := simulator.advance()) is not None:
    ...     for job in view.waiting["number"]:
    ...         started = simulator.start(int(job))
    >>> simulator.log("in order").jobs()["start_s"].tolist()
    [0.0, 60.0]
    """

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        settings: GpuSettings | None = None,
        *,
        policy: PriorityPolicy | None = None,
        speeds: Speeds | None = None,
        preference: npt.NDArray[np.float64] | None = None,
        scheduler: str = "steps",
    ) -> None:
        if not cluster.node_level:
            raise InputError(
                f"cluster {cluster.name!r} has whole nodes or pools; GPU scheduling needs groups with node_level=True"
            )
        if "after_id" in jobs and bool(np.isin(jobs["after_id"], jobs["job_id"]).any()):
            raise InputError(
                "some jobs depend on others (after_id), which node-level clusters do not support; drop the column"
            )
        jobs = cluster.sized(jobs)
        self.settings = settings or GpuSettings()
        self.policy = policy or PriorityPolicy(scheduler, _first)
        self.types = tuple(kind.gpu for kind in node_types(cluster))
        self.table = jobs.sorted()
        self._jobs = jobs
        self._cluster = cluster
        order = jobs.order
        if order is not None:
            speeds = speeds if speeds is None else _speeds_of(speeds, order)
            preference = None if preference is None else preference[:, order]
        self._state: Any = build_gpu_state(self.table, cluster, self.settings, self.policy, speeds, preference)
        prepare = self.policy.prepare
        values = self.policy.parameters if prepare is None else prepare(self.table, cluster)
        self._parameters = np.ascontiguousarray(values, np.float64)
        self._score = compiled_gpu_score(self.policy)
        self._capacity = self._free()

    # -- the whole run ---------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end under the priority policy."""
        kernel = compiled_gpu_kernel("run")
        with reported_run(lambda: self.ended_jobs, len(self.table)):
            while kernel(self._state, self._score, self._parameters) == BUFFER_FULL:
                self._state = with_larger_buffers(self._state)
        self._check()
        self.check_all_ended()

    def check_all_ended(self) -> None:
        """Raise a NoProgressError if a job waits or runs; for the end of a run."""
        error = _unfinished_jobs_error(self._state, self.table, self.types, self.policy.name)
        if error is not None:
            raise error

    def _check(self) -> None:
        k = self._state.clock[0]
        if k.bad_score != 0:
            job = self.table["job_id"][k.bad_score - 1]
            raise InputError(f"policy {self.policy.name!r} gave job {job} a score that is not a number")
        if k.max_fruitless_starts > MAX_FRUITLESS_STARTS or k.fruitless > most_fruitless(len(self.table)):
            fruitless = self._state.job_state["fruitless_starts"]
            number = int(np.argmax(fruitless))
            raise NoProgressError(
                f"policy {self.policy.name!r} makes no progress: by {k.now:g} s job {self.table['job_id'][number]} has "
                f"lost the work of its last {int(fruitless[number]):,} starts, because jobs preempt each other; give "
                "min_run_before_preempt_s, a longer round_interval_s, a shorter checkpoint_s or checkpoint_load_s, or "
                "preempt=False"
            )

    # -- step by step ----------------------------------------------------------------------------

    def advance(self) -> GpuView | None:
        """Advance to the next instant; None at the end of the run.

        Raises a NoProgressError if jobs wait and no event is left, or only round ticks for 10,000 rounds.
        """
        if self._state.clock[0].now > -np.inf:
            compiled_gpu_kernel("update_rates")(self._state)
        status = BUFFER_FULL
        while status == BUFFER_FULL:
            status = compiled_gpu_kernel("advance")(self._state, self._score, self._parameters)
            if status == BUFFER_FULL:
                self._state = with_larger_buffers(self._state)
        self._check()
        if status == ALL_JOBS_ENDED:
            self.check_all_ended()
            return None
        return self.view()

    def view(self) -> GpuView:
        """The state of the simulation now."""
        s = self._state
        k = s.clock[0]
        waiting = np.sort(s.queue["job"][k.queue_lo : k.queue_hi])
        running = np.sort(s.running_jobs[: k.running])
        return GpuView(
            now_s=float(k.now),
            due=bool(compiled_gpu_kernel("due")(s)),
            waiting=self._gpu_job_records(waiting),
            running=self._gpu_job_records(running),
            running_type=s.nodes["type"][s.places[s.job_state["place_lo"][running], 0]],
            free=self._free(),
            capacity=self._capacity,
            types=self.types,
        )

    @property
    def ended_jobs(self) -> int:
        """Number of jobs that have completed, were cancelled or were rejected."""
        return int(np.isin(self._state.job_state["status"], (DONE, CANCELLED, REJECTED)).sum())

    def schedule(self) -> None:
        """Make a scheduling pass of the priority policy."""
        compiled_gpu_kernel("schedule")(self._state, self._score, self._parameters)
        self._check()

    def start(self, job: int, kind: int = -1) -> bool:
        """Start a waiting job now, on type number `kind` (-1: on any); False: it does not fit."""
        self._must_be(job, WAITING, "start", "waiting")
        return bool(compiled_gpu_kernel("start")(self._state, job, kind))

    def preempt(self, job: int) -> None:
        """Preempt a running job."""
        self._must_be(job, RUNNING, "preempt", "running")
        compiled_gpu_kernel("preempt")(self._state, job)

    def migrate(self, job: int, kind: int = -1) -> bool:
        """Migrate a running job to other nodes, on type number `kind`; False: it does not fit."""
        self._must_be(job, RUNNING, "migrate", "running")
        return bool(compiled_gpu_kernel("migrate")(self._state, job, kind))

    def speeds(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """(jobs, types): speed of these jobs on each type; 0: they may not use it, or do not fit its empty nodes."""
        job_state = self._state.job_state[numbers]
        speed = self._state.speed[job_state["speed_class"]]
        return np.asarray(np.where(self._feasible[job_state["demand_class"]], speed, 0.0))

    @cached_property
    def _feasible(self) -> npt.NDArray[np.bool_]:
        """(demand classes, types): whether jobs of the class can be placed on the empty nodes of the type."""
        job_state = self._state.job_state
        _, rows = np.unique(job_state["demand_class"], return_index=True)
        may_use = self._state.speed[job_state["speed_class"][rows]] > 0
        return feasible_types(job_state, rows, may_use, self._cluster)

    def _must_be(self, job: int, status: int, verb: str, status_name: str) -> None:
        if not (0 <= job < len(self.table) and self._state.job_state["status"][job] == status):
            raise ChoiceError(f"cannot {verb} job {job} at {self._state.clock[0].now:g} s: it is not {status_name}")

    def _gpu_job_records(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Records of these jobs as of now."""
        s = self._state
        # Fields of plain arrays are read faster than those of record arrays.
        records = s.jobs.view(np.ndarray)[numbers]
        job_state = s.job_state.view(np.ndarray)[numbers]
        now = s.clock[0].now
        runs = job_state["status"] == RUNNING
        records["running"] = runs
        records["attained_s"] = job_state["attained_s"] + np.where(runs, now - job_state["start_s"], 0.0)
        work = np.where(runs & (now > job_state["since"]), (now - job_state["since"]) * job_state["rate"], 0.0)
        records["done_s"] = job_state["done"] + work
        records["remaining_s"] = np.maximum(job_state["estimate_s"] - records["done_s"], 1.0)
        records["waited_s"] = now - job_state["arrival_s"] - records["attained_s"]
        return records

    def _free(self) -> npt.NDArray[np.int64]:
        nodes = self._state.nodes
        return np.bincount(nodes["type"], nodes["gpu_milli"], len(self.types)).astype(np.int64)

    # -- the result ------------------------------------------------------------------------------

    def log(self, policy_name: str | None = None) -> ExecutionLog:
        """Execution log up to now; `decider` is the policy name if it is not that of the priority policy."""
        s = self._state
        segments = s.segments[: int(s.clock[0].segments)]
        segments = segments[segments["outcome"] > 0]
        outcome = segments["outcome"].astype(np.int8)
        job_state = s.job_state
        job_outcome = _OUTCOME[job_state["status"]]
        if self.settings.at_limit == "kill":
            killed = (self.table["runtime_s"] > job_state["run_s"]) & (job_outcome == Outcome.COMPLETED)
            job_outcome[killed] = Outcome.KILLED
            outcome[(outcome == Outcome.COMPLETED) & killed[segments["job"]]] = Outcome.KILLED
        lengths = segments["piece_hi"] - segments["piece_lo"]
        rows = _ranges(segments["piece_lo"], lengths)
        order = self._jobs.order
        row = np.arange(len(job_state)) if order is None else order
        eligible = np.where(job_state["arrival_s"] <= s.clock[0].now, job_state["arrival_s"], np.nan)
        return ExecutionLog(
            jobs_table=self._jobs,
            job=row[segments["job"]],
            start_s=segments["start_s"].copy(),
            end_s=segments["end_s"].copy(),
            group=segments["group"].astype(np.int16),
            level=np.zeros(len(segments), np.int16),
            outcome=outcome,
            eligible_s=_in_table_order(eligible, row),
            job_outcome=_in_table_order(job_outcome, row),
            capacity_s=np.array([-np.inf]),
            capacity=np.array([self._cluster.nodes]),
            groups=tuple(group.name for group in self._cluster.groups),
            run={"policy": policy_name or self.policy.name, **_recorded_settings(self.settings)},
            pieces=Allocations(
                segment=np.repeat(np.arange(len(segments)), lengths),
                node=s.log["node"][rows],
                gpus=s.log["gpus"][rows],
                gpu_milli=s.log["gpu_milli"][rows],
                count=s.log["count"][rows],
                work_s=segments["work_s"].copy(),
                lost_s=segments["lost_s"].copy(),
                node_group=s.nodes["group"].copy(),
            ),
        )


def _speeds_of(speeds: Speeds, order: npt.NDArray[np.int64]) -> Speeds:
    """The speeds with jobs in the given order."""
    return Speeds(speeds.types, speeds.speed[:, order], speeds.spread[:, order], speeds.source[:, order])


def _first(job: Any, now: float, parameters: Any) -> float:
    """First come, first served."""
    return float(job.submit_s)


def _ranges(first: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Concatenated ranges: first[0], first[0] + 1, ..., then those of first[1], and so on."""
    starts = np.cumsum(lengths) - lengths
    return np.repeat(first - starts, lengths) + np.arange(int(lengths.sum()))


def _in_table_order(values: npt.NDArray[Any], row: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Values by job number as values by row of the input table."""
    ordered = np.empty_like(values)
    ordered[row] = values
    return ordered


def _recorded_settings(settings: GpuSettings) -> dict[str, Any]:
    left_out = ("on_oversized", "gpu_speeds", "interference")
    recorded = {each.name: getattr(settings, each.name) for each in fields(settings) if each.name not in left_out}
    return {**recorded, "interference": settings.interference is not None}


def _unfinished_jobs_error(state: Any, jobs: JobTable, types: tuple[str, ...], policy: str) -> NoProgressError | None:
    """The error of a run that has ended; None if no job waits or runs. `jobs` are in the order of their numbers."""
    status = state.job_state["status"]
    now_s = float(state.clock[0].now)
    waiting, running = np.flatnonzero(status == WAITING), np.flatnonzero((status == RUNNING) | (status == ENDING))
    if len(running):
        job = state.job_state[running[0]]
        kind = types[int(state.nodes["type"][state.places[job.place_lo, 0]])]
        return NoProgressError(
            f"job {jobs['job_id'][running[0]]} under policy {policy!r} would never end: {float(job.run_s):g} s of work "
            f"at speed {float(job.rate):g} on {kind or 'nodes without GPUs'}; give a larger speed, or 0 for types that "
            "the job cannot use"
        )
    if not len(waiting):
        return None
    number = int(waiting[0])
    job = state.job_state[number]
    request = request_text(int(job.pieces), int(job.gpus), int(job.gpu_milli), int(job.cpu), int(job.memory))
    others = f" and {len(waiting) - 1:,} more" if len(waiting) > 1 else ""
    rounds = f" has started none in {MAX_IDLE_ROUNDS:,} rounds" if state.clock[0].round_interval_s > 0 else ""
    return NoProgressError(
        f"policy {policy!r}{rounds or ' starts no job'}: at {now_s:g} s job {jobs['job_id'][number]}, which needs "
        f"{request},{others} wait{'' if others else 's'}, nothing runs, and no arrival or completion is due; start a "
        "waiting job whenever the cluster is idle (start(job) places it on any type with room), or use another policy"
    )
