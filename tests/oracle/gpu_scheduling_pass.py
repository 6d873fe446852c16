"""Scheduling pass of the GPU reference simulator: starts, claims, preemption, migration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.oracle.gpu_model import GpuCase, GpuReferenceJob, Piece, PiecePlace, Segment, jobs_of, settings_of
from tests.oracle.gpu_nodes import Machine

Rule = Callable[[GpuReferenceJob, float], float]
"""(job, now) -> score; a smaller score goes first."""


def done_s(job: GpuReferenceJob, now: float) -> float:
    return job.done_at(now) if job.state == "running" else job.done


def remaining_s(job: GpuReferenceJob, now: float) -> float:
    return max(job.e - done_s(job, now), 1.0)


def attained_s(job: GpuReferenceJob, now: float) -> float:
    return job.attained + (now - job.start) if job.state == "running" else job.attained


FIXED: dict[str, Rule] = {
    "fcfs": lambda job, now: now,
    "sjf": lambda job, now: job.e,
    "priority": lambda job, now: -job.priority,
    "random": lambda job, now: job.drawn,
}
"""Scored once, on arrival."""

MOVING: dict[str, Rule] = {
    "srtf": remaining_s,
    "srsf": lambda job, now: remaining_s(job, now) * job.gpu_share,
    "las": lambda job, now: attained_s(job, now) * job.gpu_share,
}
"""Scored at every pass."""

RULES = (*FIXED, *MOVING)

MOST_STARTS = 10_000
"""Maximum starts of a job."""


class SchedulingPasses:
    """State of the machine and the jobs, with the scheduling pass."""

    def __init__(self, case: GpuCase) -> None:
        self.settings: dict[str, Any] = settings_of(case)
        self.policy, self.moving = {**FIXED, **MOVING}[case.rule], case.rule in MOVING
        self.machine = Machine(case, self.settings["placement"], self.settings["seed"])
        self.jobs = jobs_of(case)
        self.now = -math.inf
        self.segments: list[Segment] = []
        self.new_jobs: set[GpuReferenceJob] = set()  # those that took their place in this instant's pass
        self.claims: list[tuple[GpuReferenceJob, list[PiecePlace]]] = []
        self.notes: Counter[str] = Counter()

    def jobs_in(self, *states: str) -> list[GpuReferenceJob]:
        """The jobs in these states, by number."""
        return [job for job in self.jobs if job.state in states]

    # -- places ----------------------------------------------------------------------------------

    def start(self, job: GpuReferenceJob, place: list[PiecePlace], delay: float) -> None:
        """Allocate the pieces and begin a segment."""
        self.machine.put(job, place, 1)
        job.starts += 1
        if job.starts > MOST_STARTS:
            raise RuntimeError(f"job {job.number} has started {job.starts} times: the run makes no progress")
        job.state, job.place, job.segment = "running", place, len(self.segments)
        job.start, job.base, job.since, job.rate = self.now, job.done, self.now + delay, math.nan
        bits: dict[int, int] = {}
        for piece in place:
            bits[piece.node] = bits.get(piece.node, 0) | sum(1 << gpu for gpu in piece.gpus)
        pieces = tuple(Piece(node, gpus, job.gpu_milli) for node, gpus in bits.items())
        self.segments.append(Segment(job.number, self.now, math.nan, "", math.nan, math.nan, pieces))
        self.new_jobs.add(job)

    def end_segment(self, job: GpuReferenceJob, outcome: str, done: float, kept: float) -> None:
        """End the segment; the caller releases the resources."""
        segment = self.segments[job.segment]
        self.segments[job.segment] = segment._replace(
            end=self.now, outcome=outcome, work=done - job.base, lost=done - kept
        )
        job.attained += self.now - job.start
        job.done, job.place = kept, []

    def release(self, job: GpuReferenceJob) -> None:
        """End the segment of a preempted job, whose resources have been released."""
        done = job.done_at(job.stop)
        self.end_segment(job, "preempted", done, job.kept_of(done))
        job.state = "waiting"
        self.notes["preempted"] += 1

    # -- a pass ----------------------------------------------------------------------------------

    def make_pass(self) -> None:
        moved = self.jobs_in("waiting", "running") if self.moving else []
        for job in moved:
            job.score = self.policy(job, self.now)
        line = self.jobs_in("waiting", "running") if self.settings["preemption"] else self.jobs_in("waiting")
        line.sort(key=lambda job: (job.score, job.number))
        for job in line:
            # Who runs when the pass begins may be released in it, and is then tried like others.
            if job.state == "waiting" and not self.start_or_claim(job, line) and self.settings["head_of_line_blocking"]:
                break
        for job, place in self.claims:
            self.machine.put(job, place, -1)
        self.claims = []
        if self.settings["migration"]:
            self.migrate()

    def start_or_claim(self, job: GpuReferenceJob, line: list[GpuReferenceJob]) -> bool:
        """Try to start the job, or claim resources for it; return whether it started."""
        if self.start_if_possible(job):
            return True
        place = self.find_with_ending(job)
        if place is None and self.settings["preemption"]:
            place = self.preempt_for(job, line)
            if place is not None and self.start_if_possible(job):
                self.notes["made room at once"] += 1
                return True
        if place is not None:
            self.machine.put(job, place, 1)
            self.claims.append((job, place))
            self.notes["claimed"] += 1
        return False

    def start_if_possible(self, job: GpuReferenceJob) -> bool:
        place = self.machine.find(job)
        if place is None:
            return False
        if job.segment >= 0 and self.segments[job.segment].end == self.now:
            self.notes["back at once"] += 1
        self.start(job, place, 0.0 if job.segment < 0 else job.checkpoint_load)
        return True

    def find_with_ending(self, job: GpuReferenceJob) -> list[PiecePlace] | None:
        """Nodes and GPUs on the free resources and those of ending jobs."""
        ending = self.jobs_in("ending")
        for other in ending:
            self.machine.put(other, other.place, -1)
        place = self.machine.find(job) if ending else None
        for other in ending:
            self.machine.put(other, other.place, 1)
        return place

    def preempt_for(self, job: GpuReferenceJob, line: list[GpuReferenceJob]) -> list[PiecePlace] | None:
        """Preempt jobs so that this one fits; return the nodes and GPUs that it could then get."""
        for other in self.jobs_in("ending"):
            self.machine.put(other, other.place, -1)
        victims: list[GpuReferenceJob] = []
        place = None
        for other in reversed(line):
            if place is None and self.is_victim(other, job):
                self.machine.put(other, other.place, -1)
                victims.append(other)
                place = self.machine.find(job)
        nodes = set() if place is None else {piece.node for piece in place}
        for victim in victims:
            if nodes.isdisjoint(piece.node for piece in victim.place):
                self.machine.put(victim, victim.place, 1)
                self.notes["put back"] += place is not None
            else:
                self.preempt(victim)
        for other in self.jobs_in("ending"):
            self.machine.put(other, other.place, 1)
        return place

    def is_victim(self, other: GpuReferenceJob, job: GpuReferenceJob) -> bool:
        return (
            other.state == "running"
            and other not in self.new_jobs
            and other.score > job.score
            and other.start + self.settings["min_run_before_preempt"] <= self.now
            and any(self.machine.nodes[piece.node].type in job.types for piece in other.place)
        )

    def preempt(self, victim: GpuReferenceJob) -> None:
        """Preempt a job whose resources have been released for a trial."""
        victim.stop = self.now + self.settings["grace"]
        victim.release = victim.stop
        if victim.checkpoint == 0.0:
            victim.release = victim.stop + self.settings["checkpoint_write"]
        if victim.release == self.now:
            self.release(victim)
        else:
            victim.state = "ending"

    def migrate(self) -> None:
        for job in self.jobs_in("running"):
            if job in self.new_jobs or job.start + self.settings["min_run_before_preempt"] > self.now:
                continue
            old = job.place
            self.machine.put(job, old, -1)
            place = self.machine.find(job)
            assert place is not None, "its own place was free"
            done = job.done_at(self.now)
            kept = job.kept_of(done)
            delay = (self.settings["checkpoint_write"] if job.checkpoint == 0.0 else 0.0) + job.checkpoint_load
            before, after = max(job.e - done, 1.0), max(job.e - kept, 1.0)
            if delay + after / self.plain_rate(job, place) < before / self.plain_rate(job, old):
                self.end_segment(job, "migrated", done, kept)
                self.start(job, place, delay)
                self.notes["migrated"] += 1
            else:
                self.machine.put(job, old, 1)

    # -- rates -----------------------------------------------------------------------------------

    def plain_rate(self, job: GpuReferenceJob, place: list[PiecePlace]) -> float:
        """The rate on these nodes, without interference."""
        type_ = self.machine.nodes[place[0].node].type
        nodes = len({piece.node for piece in place})
        if job.spread and nodes > self.machine.nodes_needed(job, type_):
            self.notes["spread rates"] += 1
            return job.speed[type_] * job.factor[type_]
        return job.speed[type_]

    def rate(self, job: GpuReferenceJob) -> float:
        rate = self.plain_rate(job, job.place)
        if self.settings["interference"] is None or not job.part:
            return rate
        # A part of a GPU is one piece of one GPU; who shares it has a part of it too.
        here = [other for other in self.jobs_in("running", "ending") if other.place == job.place]
        if len(here) == 1:
            return rate
        load = sum(other.load for other in here)
        table = self.settings["interference"]
        value: float = next((value for up_to, value in table[:-1] if up_to >= load), table[-1][1])
        self.notes["slowed"] += value < 1.0
        return rate * value

    def update_rates(self) -> None:
        """Update the rates at the end of an instant; a job that has just started has no rate yet."""
        for job in self.jobs_in("running", "ending"):
            if job.state == "ending" and self.now >= job.stop:
                continue
            rate = self.rate(job)
            if rate != job.rate:
                if self.now > job.since:
                    job.done, job.since = job.done_at(self.now), self.now
                    self.notes["rate changed"] += 1
                job.rate = rate
        self.new_jobs = set()
