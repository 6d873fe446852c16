"""Test helpers: short job tables, logs as bytes, and a stepwise scheduler that follows docs/engine.md."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.initial_state import build_initial_state
from kilowait.engine.interface import Choice, PriorityPolicy, View
from kilowait.engine.kernels.state import State
from kilowait.engine.pools import resource_pools
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.jobs import ExecutionLog, JobTable
from tests.oracle import conversion
from tests.oracle.model import JobReservation, groups_of, sized
from tests.oracle.workloads import Case

INTERPRETED = bool(numba.config.DISABLE_JIT)
"""Whether kernels run as plain Python, which is a hundred times slower."""

ARRAYS = ("job", "start_s", "end_s", "group", "level", "outcome", "eligible_s", "job_outcome", "capacity_s", "capacity")


def table(*rows: tuple[float, ...], **columns: Any) -> JobTable:
    """Jobs 1, 2, ... from rows (submit, nodes, run) or (submit, nodes, run, estimate)."""
    return JobTable(
        job_id=range(1, len(rows) + 1),
        submit_s=[row[0] for row in rows],
        nodes=[int(row[1]) for row in rows],
        runtime_s=[row[2] for row in rows],
        estimate_s=[row[3] if len(row) > 3 else row[2] for row in rows],
        **columns,
    )


def starts(log: ExecutionLog) -> list[float | None]:
    """Start of each job in the table's order; None: never."""
    return [None if np.isnan(start) else float(start) for start in log.jobs()["start_s"]]


def as_bytes(log: ExecutionLog) -> dict[str, bytes]:
    """The bytes of every array of the log."""
    return {name: getattr(log, name).tobytes() for name in ARRAYS}


def initial_state(
    jobs: JobTable, cluster: Cluster, settings: Settings | None = None, *, time_dependent: bool = False
) -> State:
    """The state before the first event, for a policy that is never scored."""
    rule = PriorityPolicy("none", lambda job, now, parameters: 0.0, time_dependent=time_dependent)
    return build_initial_state(jobs.sorted(), resource_pools(cluster), settings or Settings(), rule, None)


def snapshot(simulator: Simulator) -> list[bytes]:
    """Everything the simulator's kernels read and write."""
    return [np.asarray(array).tobytes() for array in simulator._state]


def stepper(case: Case) -> Simulator:
    """A simulator of the case, for stepwise use."""
    settings = Settings(
        backfill=conversion.DEPTHS.get(case.depth, case.depth),  # type: ignore[arg-type]
        at_limit=case.at_limit,
        schedule_per=case.schedule_per,
        placement=case.placement,
        overrun=case.overrun or "double",
        on_oversized="drop",
    )
    power_controls = None if case.power_controls is None else conversion.power_controls_of(case.power_controls)
    return Simulator(conversion.job_table(case.jobs), conversion.cluster(case), settings, power_controls=power_controls)


class StepwiseScheduler:
    """Scheduler outside the engine: section "A pass" of docs/engine.md, by the step interface only."""

    def __init__(self, case: Case, rule: PriorityPolicy, own: PriorityPolicy | None = None) -> None:
        self.case, self.simulator = case, stepper(case)
        self.rules = (rule, own or rule)
        self.remembered: dict[tuple[int, int], float] = {}
        self.pass_number = 0
        self.job_reservations: list[JobReservation] = []
        ids = self.simulator.table["job_id"]
        by_id = {job.job_id: sized(job, case.groups) for job in case.jobs}
        self.groups = [groups_of(by_id[int(i)], case.groups, case.queues, case.reservations) for i in ids]

    def run(self) -> ExecutionLog:
        while (view := self.simulator.advance()) is not None:
            self.pass_number += 1
            order = self.ordered(view.waiting, view.now_s, 0)
            if self.case.depth == 0:
                self.pass_without_backfilling(order)
            elif self.case.depth is None:
                self.conservative_pass(order, view)
            else:
                self.backfilling_pass(order, self.ordered(view.waiting, view.now_s, 1), view.now_s)
            assert self.simulator.apply(Choice.noop()) is None
        return self.simulator.log()

    def ordered(self, waiting: npt.NDArray[Any], now: float, which: int) -> list[int]:
        rule = self.rules[which]
        keys = []
        for job in waiting:
            number = int(job["number"])
            if rule.time_dependent or (which, number) not in self.remembered:
                self.remembered[which, number] = float(rule.score(job, now, rule.parameters))
            keys.append((self.remembered[which, number], number))
        return [number for _, number in sorted(keys)]

    def pass_without_backfilling(self, order: list[int]) -> None:
        blocked: set[int] = set()
        for job in order:
            fitting = [g for g in self.groups[job] if g not in blocked and self.simulator.can_start(job, g)]
            if not fitting:
                blocked.update(self.groups[job])
                continue
            best = fitting[0]
            if self.case.placement == "balance":
                best = max(fitting, key=self.share_free)
            self.simulator.apply(Choice.start(job, best))

    def share_free(self, group: int) -> float:
        pool = self.simulator._machine.pool_lo[group]
        view = self.simulator.view()
        return float(view.free[pool] / view.capacity[pool])

    def conservative_pass(self, order: list[int], view: View) -> None:
        """Conservative: reservations stay, and move earlier where resources were freed."""
        kept = dict(zip(view.waiting["number"].tolist(), view.reserved_s.tolist(), strict=True))
        for job in order:
            if kept[job] > view.now_s and not view.freed:
                continue
            if self.simulator.can_start(job):
                self.simulator.apply(Choice.start(job))
            else:
                self.reserve(job, view.now_s, head=False)

    def reserve(self, job: int, now: float, head: bool) -> bool:
        """Reserve for the job and record the reservation; return whether one was made."""
        start = self.simulator.apply(Choice.reserve(job))
        assert start is not None
        if start < np.inf:
            job_id = int(self.simulator.table["job_id"][job])
            self.job_reservations.append(JobReservation(self.pass_number, now, job_id, -1, start, head))
        return start < np.inf

    def backfilling_pass(self, order: list[int], own: list[int], now: float) -> None:
        candidates = set()
        head = True
        for job in order:
            if not self.simulator.can_reserve(job):
                candidates.add(job)
            elif self.simulator.can_start(job):
                self.simulator.apply(Choice.start(job))
            else:
                head = not self.reserve(job, now, head) and head
        if self.pass_number % 2:  # the two ways of backfilling
            for job in own:
                if job in candidates and self.simulator.can_start(job):
                    self.simulator.apply(Choice.start(job))
        else:
            place = {job: i for i, job in enumerate(own)}
            waiting = self.simulator.view().waiting["number"]
            self.simulator.apply(Choice.backfill(np.array([float(place[int(j)]) for j in waiting])))
