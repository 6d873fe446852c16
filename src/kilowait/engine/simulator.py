"""Batch-cluster simulator: run a whole simulation, or step through it with an external scheduler."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kilowait.cluster import Cluster, PowerControls
from kilowait.engine import jit_entry
from kilowait.engine.initial_state import build_initial_state
from kilowait.engine.interface import Choice, ChoiceKind, PriorityPolicy, View
from kilowait.engine.kernels import event_loop
from kilowait.engine.kernels.score_bounds import FIRST_SLACK, FIRST_SPAN_S
from kilowait.engine.kernels.state import CANCELLED, COMING, DONE, QUEUED, REJECTED, RUNNING
from kilowait.engine.pools import resource_pools
from kilowait.engine.progress import ProgressCheck, warn_of_ended_reservations, warn_of_unstarted_jobs
from kilowait.engine.run_monitor import reported_run
from kilowait.engine.settings import UNLIMITED, Settings
from kilowait.errors import ChoiceError, InputError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import NodeStates, Outcome, node_states

_OUTCOME = np.zeros(8, np.int8)
_OUTCOME[[DONE, RUNNING]] = Outcome.COMPLETED
_OUTCOME[CANCELLED] = Outcome.CANCELLED
_OUTCOME[REJECTED] = Outcome.REJECTED


def run_simulation(
    jobs: JobTable,
    cluster: Cluster,
    policy: PriorityPolicy,
    settings: Settings,
    backfill_policy: PriorityPolicy | None = None,
    power_controls: PowerControls | None = None,
) -> ExecutionLog:
    """Simulate the jobs on the cluster under a priority policy, in compiled code.

    `backfill_policy` orders backfill candidates; None: the order of `policy`.
    """
    simulator = Simulator(
        jobs, cluster, settings, policy=policy, backfill_policy=backfill_policy, power_controls=power_controls
    )
    simulator.run()
    return simulator.log()


class Simulator:
    """A simulation that can be stepped: `advance` to the next instant, `apply` choices, until `advance` returns None.

    Jobs are numbered by (submit, id). `table` holds them in that order.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[3, 2])
    >>> simulator = Simulator(jobs, Cluster.from_nodes(4))
    >>> while (view := simulator.advance()) is not None:
    ...     for job in view.waiting:
    ...         if job["nodes"] <= simulator.view().free[0]:
    ...             simulator.apply(Choice.start(int(job["number"])))
    >>> simulator.log().jobs()["start_s"].tolist()
    [0.0, 60.0]
    """

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        settings: Settings | None = None,
        *,
        policy: PriorityPolicy | None = None,
        backfill_policy: PriorityPolicy | None = None,
        power_controls: PowerControls | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.policy = policy or PriorityPolicy("steps", jit_entry.no_score_compiled())
        if backfill_policy is not None and (backfill_policy.observes_jobs or backfill_policy.predicts):
            raise InputError(
                f"the backfill order {backfill_policy.name!r} observes jobs or predicts run times, "
                "which only the policy may do; make it the policy, or use another order"
            )
        if self.policy.predicts and not self.policy.compiled:
            raise InputError(
                f"policy {self.policy.name!r} predicts run times but is not compiled; make it compilable by Numba"
            )
        self.backfill_policy = backfill_policy
        self._jobs = jobs = cluster.sized(jobs)
        self.table = jobs.sorted()
        self._freed = False
        self._reserved_now: set[int] = set()
        self._machine = resource_pools(cluster)
        shifted = "hold_until_s" in jobs and bool((jobs["hold_until_s"] > -np.inf).any())
        self.power_controls = PowerControls() if power_controls is None and shifted else power_controls
        self._kernel = partial(jit_entry.compiled_kernel, power=self.power_controls is not None)
        self._state: Any
        if self.power_controls is None:
            self._state = build_initial_state(self.table, self._machine, self.settings, self.policy, backfill_policy)
        else:
            from kilowait.engine.power_initial_state import add_power_pool, build_power_state

            self._machine = add_power_pool(self._machine, self.power_controls, self._first_event_s())
            self._state = build_power_state(
                self.table, jobs.order, self._machine, self.settings, self.policy, backfill_policy, self.power_controls
            )
        self._parameters = _parameters(self.policy, self.table, cluster)
        self._backfill_parameters = (
            _parameters(backfill_policy, self.table, cluster) if backfill_policy else np.zeros(0)
        )
        self._progress = ProgressCheck(self, len(cluster.groups))

    def _first_event_s(self) -> float:
        """Time of the first arrival of a job without dependency or of the first capacity change; infinite: none."""
        jobs = self.table
        arrivals = np.maximum(jobs["submit_s"], jobs.column("begin_s"))
        if self.settings.dependencies and "after_id" in jobs:
            arrivals = arrivals[~np.isin(jobs["after_id"], jobs["job_id"])]
        arrival = float(arrivals.min()) if len(arrivals) else np.inf
        return min([arrival, *(change[0] for change in self._machine.changes[:1])])

    # -- whole runs ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end under the priority policy."""
        with reported_run(self._ended_jobs, len(self.table)):
            self._run()
        bad = int(self._state.clock["bad_score"][0])
        if bad:
            source = f"policy {self.policy.name!r}"
            if bad < 0 and self.backfill_policy is not None:
                source = f"backfill order {self.backfill_policy.name!r}"
            raise InputError(
                f"{source} gave job {self.table['job_id'][abs(bad) - 1]} the score NaN at "
                f"{float(self._state.clock['now'][0]):g} s; a score must be a number (inf is one)"
            )
        warn_of_unstarted_jobs(self)
        warn_of_ended_reservations(self)

    def _ended_jobs(self) -> int:
        """Number of jobs that have ended, were cancelled or were rejected."""
        return int(np.isin(self._state.job_state["status"], (DONE, CANCELLED, REJECTED)).sum())

    def _run(self) -> None:
        backfill_policy = self.backfill_policy
        if self.policy.compiled and (backfill_policy is None or backfill_policy.compiled):
            backfill_score = self.policy.score if backfill_policy is None else backfill_policy.score
            self._state.clock["track_expected_ends"] = self.settings.depth > 0 or len(self._state.timeline_s) > 0
            backfill_parameters = self._backfill_parameters
            if self._use_bounds() and backfill_policy is None:
                self._state.clock["backfill_order"] = 2  # candidates are scored one by one
                backfill_parameters = self._parameters
            run = self._kernel("run_conservative" if self.settings.depth == UNLIMITED else "run")
            run(self._state, self.policy.score, self._parameters, backfill_score, backfill_parameters)
            while self._enlarge_node_change_buffer():
                run(self._state, self.policy.score, self._parameters, backfill_score, backfill_parameters)
        else:
            self._run_in_python()

    def _use_bounds(self) -> bool:
        """Use bounds of scores in a whole run if the policy and the cluster permit it; return whether they do."""
        policy, clock = self.policy, self._state.clock
        permitted = policy.time_dependent and policy.monotone and not policy.predicts and not policy.observes_jobs
        permitted = permitted and self.settings.depth <= 1 and len(self._state.groups) == 1
        if not permitted or self.power_controls is not None:
            return False
        clock["bounded"] = True
        clock["bounds_until_s"], clock["bounds_span_s"] = -np.inf, FIRST_SPAN_S
        clock["bounds_slack"] = FIRST_SLACK
        self._state.job_state["key"] = -np.inf
        return True

    def _enlarge_node_change_buffer(self) -> bool:
        """Enlarge the buffer of node changes if the run stopped because it was full; return whether it did."""
        if self.power_controls is None or not self._state.power_control_state["buffer_full"][0]:
            return False
        from kilowait.engine.power_initial_state import with_larger_node_change_buffer

        self._state = with_larger_node_change_buffer(self._state)
        return True

    def _advance(self, backfill_score: Any) -> bool:
        """Advance to the next instant without evaluating a priority policy."""
        no_score, parameters = jit_entry.no_score_compiled(), self._backfill_parameters
        while True:
            moved = self._kernel("advance")(self._state, no_score, np.zeros(0), backfill_score, parameters)
            if moved or not self._enlarge_node_change_buffer():
                return bool(moved)

    def _run_in_python(self) -> None:
        """Run the kernels step by step, with a policy evaluated in Python between them."""
        backfill_policy = self.backfill_policy
        if backfill_policy is not None and not backfill_policy.compiled:
            raise InputError(
                f"the backfill order {backfill_policy.name!r} is not compiled; only policies may run in Python"
            )
        s = self._state
        k = s.clock[0]
        k.time_dependent = 1
        backfill_score = jit_entry.no_score_compiled() if backfill_policy is None else backfill_policy.score
        scores_by_job: dict[int, float] = {}
        running: list[int] = []
        while self._advance(backfill_score):
            if self.policy.observes_jobs:
                running = self._notify_ends(running)
            for i in range(k.queue_lo, k.queue_hi):
                job = int(s.queue[i].job)
                if self.policy.time_dependent or job not in scores_by_job:
                    scores_by_job[job] = float(self.policy.score(s.jobs[job], float(k.now), self._parameters))
                    if scores_by_job[job] != scores_by_job[job]:
                        k.bad_score = job + 1
                        return
                overdue = k.now - s.jobs[job].submit_s > k.max_wait_s
                s.queue[i].key = -np.inf if overdue else scores_by_job[job]
            if k.queue_hi > k.queue_lo:
                before = int(k.segments)
                self._kernel("schedule")(self._state, backfill_score, self._backfill_parameters)
                if self.policy.observes_jobs:
                    running += self._notify_starts(before)

    def _notify_ends(self, running: list[int]) -> list[int]:
        """Notify a Python policy of ended jobs; return the jobs still running."""
        s = self._state
        now = float(s.clock["now"][0])
        for job in running:
            if s.job_state[job].status == DONE:
                s.jobs[job].ran_s = max(now - float(s.job_state[job].start_s), 1e-9)
                self.policy.score(s.jobs[job], now, self._parameters)
        return [job for job in running if s.job_state[job].status != DONE]

    def _notify_starts(self, before: int) -> list[int]:
        """Notify a Python policy of the jobs started after the first `before`; return them."""
        s = self._state
        started = [int(job) for job in s.segments[before : int(s.clock["segments"][0])]]
        for job in started:
            s.jobs[job].ran_s = event_loop.STARTED
            self.policy.score(s.jobs[job], float(s.clock["now"][0]), self._parameters)
        return started

    # -- steps -----------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        """The state of the kernels, for packages with their own kernels."""
        return self._state

    def advance(self) -> View | None:
        """Advance to the next instant with a waiting job; None at the end of the run.

        Raises a NoProgressError if jobs are held again and again while nothing runs.
        """
        k = self._state.clock[0]
        while self._advance(jit_entry.no_score_compiled()):
            if k.queue_hi > k.queue_lo:
                self._begin_pass()
                self._progress.count_instant()
                return self.view()
        return None

    def check_end(self) -> None:
        """For the end of a run: raise a NoProgressError if a job waits that could start on the whole, idle cluster.

        Log a warning if other jobs wait.
        """
        k = self._state.clock[0]
        if k.queue_hi > k.queue_lo:
            self._begin_pass()
            self._progress.check_end()
        warn_of_unstarted_jobs(self)
        warn_of_ended_reservations(self)

    def _begin_pass(self) -> None:
        self._freed = bool(self._kernel("begin")(self._state))
        self._reserved_now.clear()

    def view(self) -> View:
        """The state of the simulation now, as copies."""
        s = self._state
        k = s.clock[0]
        waiting = s.queue["job"][k.queue_lo : k.queue_hi]
        expected_ends = s.expected_ends[: k.running]
        return View(
            now_s=float(k.now),
            waiting=s.jobs[waiting],
            running_job=expected_ends["job"].copy(),
            running_end_s=expected_ends["key"].copy(),
            free=s.pools["free"].copy(),
            capacity=s.pools["capacity"].copy(),
            reserved_s=self._reserved(waiting),
            freed=self._freed,
            **self._sleeping(),
        )

    def _sleeping(self) -> dict[str, Any]:
        """Free nodes of each group by state; empty without node sleep."""
        if self.power_controls is None or not self.power_controls.sleep:
            return {}
        return {name: self._state.sleep_state[name].copy() for name in ("awake", "shutting_down", "asleep", "waking")}

    def _reserved(self, waiting: Any) -> Any:
        reserved = np.full(len(waiting), np.nan)
        if self.settings.depth == UNLIMITED:
            job_extra = self._state.job_extra[waiting]
            reserved[job_extra["reserved_on"] > 0] = job_extra["reserved_s"][job_extra["reserved_on"] > 0]
        return reserved

    def can_start(self, job: int, group: int = -1, level: int = -1) -> bool:
        """Whether `Choice.start` is possible now."""
        known = self._waits(job) and -1 <= group < len(self._machine.names) and -1 <= level < self._levels
        return known and self._start(job, group, level, False) >= 0

    def _start(self, job: int, group: int, level: int, apply: bool) -> int:
        """The group on which the job starts (or could start); -1: none."""
        return int(self._kernel("start")(self._state, job, group, level, apply))

    def can_reserve(self, job: int) -> bool:
        """Whether some group of the job can take another reservation at this instant."""
        s = self._state
        if self.settings.depth == 0 or not self._waits(job) or job in self._reserved_now:
            return False
        return bool(int(s.job_state[job].allowed) & int(s.clock[0].open_groups))

    def apply(self, choice: Choice) -> float | None:
        """Apply a choice, or raise a ChoiceError with job, time and reason and leave the state unchanged.

        For a reservation, return its start time, seconds (infinite: the job never fits).
        """
        s = self._state
        k = s.clock[0]
        if choice.kind is ChoiceKind.PASS:
            return None
        if choice.kind is ChoiceKind.BACKFILL:
            self._backfill(choice)
            return None
        if choice.kind in (ChoiceKind.WAKE, ChoiceKind.SLEEP):
            return float(self._nodes(choice))
        job = choice.job
        if not self._waits(job):
            raise self._impossible(choice, "it is not waiting")
        if choice.kind is ChoiceKind.START:
            if not -1 <= choice.group < len(self._machine.names):
                raise self._impossible(choice, f"there is no group {choice.group}")
            if not -1 <= choice.level < self._levels:
                raise self._impossible(choice, f"there is no level {choice.level}")
            if self._start(job, choice.group, choice.level, True) < 0:
                raise self._impossible(choice, self._why_not(job, choice.group))
        elif choice.kind is ChoiceKind.RESERVE:
            if job in self._reserved_now:
                raise self._impossible(choice, "it already has a reservation of this instant")
            if not self.can_reserve(job):
                reason = f"its groups hold {self.settings.depth} reservation(s) already"
                raise self._impossible(choice, reason)
            if self.settings.depth != UNLIMITED:  # conservative reservations persist, and may be made again
                self._reserved_now.add(job)
            return float(self._kernel("reserve")(s, job))
        else:
            if not choice.until_s > k.now:
                raise self._impossible(choice, f"it would be held until {choice.until_s:g} s, which is not ahead")
            self._kernel("hold")(s, job, choice.until_s)
        return None

    def _backfill(self, choice: Choice) -> None:
        s = self._state
        k = s.clock[0]
        waiting = s.queue["job"][k.queue_lo : k.queue_hi].copy()
        scores = np.zeros(len(waiting)) if choice.scores is None else np.asarray(choice.scores, np.float64)
        if scores.shape != waiting.shape or np.isnan(scores).any():
            raise ChoiceError(
                f"at {float(k.now):g} s: backfill takes one score, not NaN, for each of the {len(waiting)} waiting "
                f"jobs in the view's order; got shape {scores.shape}"
            )
        for i in np.lexsort((waiting, scores)):
            self._start(int(waiting[i]), -1, -1, True)

    def _nodes(self, choice: Choice) -> int:
        """Wake nodes or put them to sleep; return their number."""
        g = choice.group
        if (
            self.power_controls is None
            or not 0 <= g < len(self._machine.names)
            or not self._state.sleep_state["sleeps"][g]
        ):
            now_s = float(self._state.clock["now"][0])
            raise ChoiceError(
                f"cannot {choice.kind.value} nodes of group {g} at {now_s:g} s: it is not a group with node sleep; "
                "give the simulator PowerControls(sleep={...})"
            )
        return int(self._kernel(choice.kind.value)(self._state, g, choice.nodes))

    @property
    def _levels(self) -> int:
        return 1 if self.power_controls is None else self.power_controls.levels

    def _waits(self, job: int) -> bool:
        return 0 <= job < len(self.table) and int(self._state.job_state[job].status) == QUEUED

    def _why_not(self, job: int, group: int) -> str:
        job_state = self._state.job_state[job]
        groups = range(len(self._machine.names)) if group < 0 else [group]
        if not any(int(job_state.allowed) >> g & 1 for g in groups):
            return "its queue does not use that group, or the group is too small"
        free_nodes = self.free_nodes()
        free = {self._machine.names[g]: free_nodes[self._machine.names[g]] for g in groups}
        record = self._state.jobs[job]
        return (
            f"it needs {int(record.units)} {self._jobs.unit}s for {float(record.planned_s):g} s; free are {free}, "
            "and reservations and outages must not be delayed"
        )

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the node groups, then those of the reservations."""
        return self._machine.names

    def free_nodes(self) -> dict[str, int]:
        """Free nodes now by group; of shared groups the free cores."""
        free = self._state.pools["free"][self._machine.pool_lo[:-1]]
        return dict(zip(self._machine.names, free.tolist(), strict=True))

    def _impossible(self, choice: Choice, reason: str) -> ChoiceError:
        name = self.table["job_id"][choice.job] if 0 <= choice.job < len(self.table) else "?"
        return ChoiceError(
            f"cannot {choice.kind.value} job {name} (number {choice.job}) at "
            f"{float(self._state.clock['now'][0]):g} s: {reason}"
        )

    # -- the result ------------------------------------------------------------------------------

    def log(self) -> ExecutionLog:
        """The execution log up to now."""
        s = self._state
        job_state = s.job_state
        started = s.segments[: int(s.clock["segments"][0])]
        start = job_state["start_s"][started]
        run = job_state["run_s"][started]
        outcome = _OUTCOME[job_state["status"]]
        if self.settings.at_limit == "kill":
            run_s = (
                job_state["run_s"] if self.power_controls is None else s.run_s
            )  # job_state.run_s depends on the level
            killed = run_s < self.table["runtime_s"]
            outcome[killed & (outcome == Outcome.COMPLETED)] = Outcome.KILLED
        eligible = s.jobs["submit_s"].copy()  # the event loop stores the arrival there
        if (job_state["status"] == COMING).any():
            eligible[job_state["status"] == COMING] = np.nan
        segment_outcome = outcome[started]
        job = started
        order = self._jobs.order
        if order is not None:  # in row order of the input table
            job = order[started]
            back = np.empty_like(order)
            back[order] = np.arange(len(order))
            eligible, outcome = eligible[back], outcome[back]
        return ExecutionLog(
            jobs_table=self._jobs,
            job=job,
            start_s=start,
            end_s=start + run,
            group=job_state["group"][started],
            level=job_state["level"][started].astype(np.int16),
            outcome=segment_outcome,
            eligible_s=eligible,
            job_outcome=outcome,
            capacity_s=self._machine.capacity_s,
            capacity=self._machine.capacity_size,
            groups=self._machine.names,
            run={
                "policy": self.policy.name,
                "backfill": self.settings.backfill,
                "backfill_order": self.backfill_policy.name if self.backfill_policy is not None else None,
                "at_limit": self.settings.at_limit,
                "overrun": self.settings.overrun,
                "schedule_per": self.settings.schedule_per,
                "placement": self.settings.placement,
                "dependencies": self.settings.dependencies,
                "max_wait_s": self.settings.max_wait_s if self.settings.max_wait_s < np.inf else None,
                **self._recorded_power_controls(),
            },
            states=self._states(),
        )

    def _recorded_power_controls(self) -> dict[str, Any]:
        """The power controls, for the record of the run."""
        if self.power_controls is None:
            return {}
        return {
            "sleep": {
                name: [policy.timeout_s, policy.shutdown_s, policy.wake_s]
                for name, policy in self.power_controls.sleep.items()
            },
            "levels": self.power_controls.levels,
            "full_speed_backlog_nodes": self.power_controls.full_speed_backlog_nodes,
            "budget": self.power_controls.budget is not None,
        }

    def _states(self) -> NodeStates | None:
        """States of sleeping nodes over time."""
        if self.power_controls is None or not self.power_controls.sleep:
            return None
        changes = self._state.node_changes[: int(self._state.power_control_state["node_changes"][0])]
        order = np.lexsort((changes["time_s"], changes["group"]))
        # Column by column: gathering whole records is slow.
        return node_states(*(changes[name][order] for name in ("time_s", "group", "shutting_down", "asleep", "waking")))


def _parameters(policy: PriorityPolicy, jobs: JobTable, cluster: Cluster) -> Any:
    prepare: Callable[[Any, Any], Any] | None = policy.prepare
    values = policy.parameters if prepare is None else prepare(jobs, cluster)
    if policy.observes_jobs:  # its score writes into them: copy, so that every run starts from the same values
        return np.array(values, np.float64)
    return np.ascontiguousarray(values, np.float64)
