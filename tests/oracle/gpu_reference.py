"""The reference simulator of GPU clusters: a plain simulator written from docs/gpu-engine.md alone.

It imports nothing of kilowait, so the two share no bug. It searches all jobs for the next event; speed is not a goal.
This module has the events; gpu_scheduling_pass.py has the scheduling pass, gpu_nodes.py nodes and placement.
"""

from __future__ import annotations

import math

from tests.oracle.gpu_model import GpuCase, GpuReferenceJob, GpuRun, JobResult
from tests.oracle.gpu_nodes import Machine
from tests.oracle.gpu_scheduling_pass import SchedulingPasses

FINISH, RELEASE, ARRIVAL, CANCELLATION, TICK = range(5)
Event = tuple[float, int, int]


class _GpuReferenceSimulator(SchedulingPasses):
    def __init__(self, case: GpuCase) -> None:
        super().__init__(case)
        empty = Machine(case, "first", 0)
        self.fitting = {job for job in self.jobs if empty.find(job) is not None}
        self.machine.expect([job for job in self.jobs if job in self.fitting])
        self.origin = min((job.arrival for job in self.jobs), default=math.inf)
        self.ticks = 0
        self.tick = math.inf
        self.set_tick()

    # -- events ----------------------------------------------------------------------------------

    def next_event(self) -> Event | None:
        events: list[Event] = []
        for job in self.jobs:
            if job.state == "to come":
                events.append((job.arrival, ARRIVAL, job.number))
            elif job.state == "waiting" and job.segment < 0 and job.cancel < math.inf:
                events.append((max(job.cancel, job.arrival), CANCELLATION, job.number))
            elif job.state == "ending" and job.finish() > job.stop:
                events.append((job.release, RELEASE, job.segment))
            elif job.state in ("running", "ending"):
                events.append((job.finish(), FINISH, job.segment))
        if self.tick < math.inf:
            events.append((self.tick, TICK, 0))
        return min(events, default=None)

    def set_tick(self) -> None:
        """After an instant: the next tick that is an event."""
        self.tick = math.inf
        coming = [job.arrival for job in self.jobs_in("to come")]
        length = self.settings["round_interval"]
        if length == 0.0:
            return
        if self.jobs_in("waiting", "running", "ending"):
            while self.origin + self.ticks * length <= self.now:
                self.ticks += 1
        elif coming:
            while self.origin + self.ticks * length < min(coming):
                self.ticks += 1
        else:
            return
        self.tick = self.origin + self.ticks * length

    def run(self) -> None:
        event = self.next_event()
        while event is not None:
            assert event[0] >= self.now, f"{event} lies before {self.now}"
            self.now = event[0]
            ticked = False
            while event is not None and event[0] == self.now:
                self.apply(event)
                ticked = ticked or event[1] == TICK
                event = self.next_event()
            due = bool(self.jobs_in("waiting") or (self.settings["migration"] and self.jobs_in("running")))
            if due and (ticked or not self.settings["rounds"]):
                self.make_pass()
            self.update_rates()
            self.set_tick()
            event = self.next_event()

    def apply(self, event: Event) -> None:
        _, kind, number = event
        if kind == FINISH:
            self.finish(self.jobs[self.segments[number].job])
        elif kind == RELEASE:
            job = self.jobs[self.segments[number].job]
            self.machine.put(job, job.place, -1)
            self.release(job)
        elif kind == ARRIVAL:
            self.arrive(self.jobs[number])
        elif kind == CANCELLATION:
            self.jobs[number].state, self.jobs[number].outcome = "gone", "cancelled"
        else:
            self.tick = math.inf

    def finish(self, job: GpuReferenceJob) -> None:
        self.notes["finished while ending"] += job.state == "ending"
        self.machine.put(job, job.place, -1)
        job.state, job.outcome = "gone", "killed" if job.too_long else "completed"
        self.end_segment(job, job.outcome, job.run, job.run)

    def arrive(self, job: GpuReferenceJob) -> None:
        if job not in self.fitting:
            job.state, job.outcome = "gone", "rejected"
            return
        job.state = "waiting"
        job.score = self.policy(job, self.now)


def simulate(case: GpuCase) -> GpuRun:
    """Simulate the case."""
    simulator = _GpuReferenceSimulator(case)
    simulator.run()
    return GpuRun(
        simulator.segments, [JobResult(job.arrival, job.outcome) for job in simulator.jobs], dict(simulator.notes)
    )
