"""A pass over GPU clusters: who starts, who claims, who is preempted, who moves; from docs/gpu-engine.md alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.oracle.gpu_model import (
    Hold,
    Piece,
    PlacedCase,
    PlacedJob,
    Segment,
    jobs_of,
    settings_of,
)
from tests.oracle.gpu_nodes import Machine

Rule = Callable[[PlacedJob, float], float]
"""(job, now) -> score; a smaller score goes first."""


def done_s(job: PlacedJob, now: float) -> float:
    return job.done_at(now) if job.state == "running" else job.done


def remaining_s(job: PlacedJob, now: float) -> float:
    return max(job.e - done_s(job, now), 1.0)


def attained_s(job: PlacedJob, now: float) -> float:
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
"""A job that starts more often than that makes no headway."""


class Passes:
    """The machine as it is now, the jobs on it and those that wait for it."""

    def __init__(self, case: PlacedCase) -> None:
        self.settings: dict[str, Any] = settings_of(case)
        self.policy, self.moving = {**FIXED, **MOVING}[case.rule], case.rule in MOVING
        self.machine = Machine(case, self.settings["placement"], self.settings["seed"])
        self.jobs = jobs_of(case)
        self.now = -math.inf
        self.segments: list[Segment] = []
        self.fresh: set[PlacedJob] = set()  # those that took their place in this instant's pass
        self.claims: list[tuple[PlacedJob, list[Hold]]] = []
        self.notes: Counter[str] = Counter()

    def those(self, *states: str) -> list[PlacedJob]:
        """The jobs in these states, by number."""
        return [job for job in self.jobs if job.state in states]

    # -- places ----------------------------------------------------------------------------------

    def start(self, job: PlacedJob, place: list[Hold], delay: float) -> None:
        """A place is taken: a segment begins."""
        self.machine.put(job, place, 1)
        job.starts += 1
        if job.starts > MOST_STARTS:
            raise RuntimeError(f"job {job.number} has started {job.starts} times: the run makes no headway")
        job.state, job.place, job.segment = "running", place, len(self.segments)
        job.start, job.base, job.since, job.rate = self.now, job.done, self.now + delay, math.nan
        bits: dict[int, int] = {}
        for hold in place:
            bits[hold.node] = bits.get(hold.node, 0) | sum(1 << gpu for gpu in hold.gpus)
        pieces = tuple(Piece(node, gpus, job.gpu_milli) for node, gpus in bits.items())
        self.segments.append(Segment(job.number, self.now, math.nan, "", math.nan, math.nan, pieces))
        self.fresh.add(job)

    def end_segment(self, job: PlacedJob, outcome: str, done: float, kept: float) -> None:
        """The segment is over; whoever calls this gives the place back."""
        begun = self.segments[job.segment]
        self.segments[job.segment] = begun._replace(
            end=self.now, outcome=outcome, work=done - job.base, lost=done - kept
        )
        job.attained += self.now - job.start
        job.done, job.place = kept, []

    def release(self, job: PlacedJob) -> None:
        """What a preempted job does in the end; its place has been given back."""
        done = job.done_at(job.stop)
        self.end_segment(job, "preempted", done, job.kept_of(done))
        job.state = "waiting"
        self.notes["preempted"] += 1

    # -- a pass ----------------------------------------------------------------------------------

    def make_pass(self) -> None:
        moved = self.those("waiting", "running") if self.moving else []
        for job in moved:
            job.score = self.policy(job, self.now)
        line = self.those("waiting", "running") if self.settings["preemption"] else self.those("waiting")
        line.sort(key=lambda job: (job.score, job.number))
        for job in line:
            # Who runs when the pass begins may be released in it, and is then tried like others.
            if (
                job.state == "waiting"
                and not self.serve(job, line)
                and self.settings["head_of_line_blocking"]
            ):
                break
        for job, place in self.claims:
            self.machine.put(job, place, -1)
        self.claims = []
        if self.settings["migration"]:
            self.migrate()

    def serve(self, job: PlacedJob, line: list[PlacedJob]) -> bool:
        """Try to start the job; whether it did."""
        if self.start_if_possible(job):
            return True
        place = self.find_behind_ending(job)
        if place is None and self.settings["preemption"]:
            place = self.make_room(job, line)
            if place is not None and self.start_if_possible(job):
                self.notes["made room at once"] += 1
                return True
        if place is not None:
            self.machine.put(job, place, 1)
            self.claims.append((job, place))
            self.notes["claimed"] += 1
        return False

    def start_if_possible(self, job: PlacedJob) -> bool:
        place = self.machine.find(job)
        if place is None:
            return False
        if job.segment >= 0 and self.segments[job.segment].end == self.now:
            self.notes["back at once"] += 1
        self.start(job, place, 0.0 if job.segment < 0 else job.restore)
        return True

    def find_behind_ending(self, job: PlacedJob) -> list[Hold] | None:
        """A place on what is free and what ending jobs hold."""
        ending = self.those("ending")
        for other in ending:
            self.machine.put(other, other.place, -1)
        place = self.machine.find(job) if ending else None
        for other in ending:
            self.machine.put(other, other.place, 1)
        return place

    def make_room(self, job: PlacedJob, line: list[PlacedJob]) -> list[Hold] | None:
        """Preempt jobs so that this one has a place; the place it could then have."""
        for other in self.those("ending"):
            self.machine.put(other, other.place, -1)
        victims: list[PlacedJob] = []
        place = None
        for other in reversed(line):
            if place is None and self.is_victim(other, job):
                self.machine.put(other, other.place, -1)
                victims.append(other)
                place = self.machine.find(job)
        nodes = set() if place is None else {hold.node for hold in place}
        for victim in victims:
            if nodes.isdisjoint(hold.node for hold in victim.place):
                self.machine.put(victim, victim.place, 1)
                self.notes["put back"] += place is not None
            else:
                self.preempt(victim)
        for other in self.those("ending"):
            self.machine.put(other, other.place, 1)
        return place

    def is_victim(self, other: PlacedJob, job: PlacedJob) -> bool:
        return (
            other.state == "running"
            and other not in self.fresh
            and other.score > job.score
            and other.start + self.settings["keep"] <= self.now
            and any(self.machine.nodes[hold.node].type in job.types for hold in other.place)
        )

    def preempt(self, victim: PlacedJob) -> None:
        """Its place has been given back for a trial: it stays so, or the caller takes what ending jobs hold."""
        victim.stop = self.now + self.settings["grace"]
        victim.release = victim.stop
        if victim.checkpoint == 0.0:
            victim.release = victim.stop + self.settings["save"]
        if victim.release == self.now:
            self.release(victim)
        else:
            victim.state = "ending"

    def migrate(self) -> None:
        for job in self.those("running"):
            if job in self.fresh or job.start + self.settings["keep"] > self.now:
                continue
            old = job.place
            self.machine.put(job, old, -1)
            place = self.machine.find(job)
            assert place is not None, "its own place was free"
            done = job.done_at(self.now)
            kept = job.kept_of(done)
            delay = (self.settings["save"] if job.checkpoint == 0.0 else 0.0) + job.restore
            before, after = max(job.e - done, 1.0), max(job.e - kept, 1.0)
            if delay + after / self.plain_rate(job, place) < before / self.plain_rate(job, old):
                self.end_segment(job, "migrated", done, kept)
                self.start(job, place, delay)
                self.notes["migrated"] += 1
            else:
                self.machine.put(job, old, 1)

    # -- rates -----------------------------------------------------------------------------------

    def plain_rate(self, job: PlacedJob, place: list[Hold]) -> float:
        """The rate at a place, without interference."""
        type_ = self.machine.nodes[place[0].node].type
        nodes = len({hold.node for hold in place})
        if job.spread and nodes > self.machine.nodes_needed(job, type_):
            self.notes["spread rates"] += 1
            return job.speed[type_] * job.factor[type_]
        return job.speed[type_]

    def rate(self, job: PlacedJob) -> float:
        rate = self.plain_rate(job, job.place)
        if self.settings["interference"] is None or not job.part:
            return rate
        # A part of a GPU is one hold of one GPU; who shares it has a part of it too.
        here = [other for other in self.those("running", "ending") if other.place == job.place]
        if len(here) == 1:
            return rate
        load = sum(other.load for other in here)
        table = self.settings["interference"]
        value: float = next((value for up_to, value in table[:-1] if up_to >= load), table[-1][1])
        self.notes["slowed"] += value < 1.0
        return rate * value

    def look_at_rates(self) -> None:
        """The end of an instant. A job that has just started has no rate yet, and no work since."""
        for job in self.those("running", "ending"):
            if job.state == "ending" and self.now >= job.stop:
                continue
            rate = self.rate(job)
            if rate != job.rate:
                if self.now > job.since:
                    job.done, job.since = job.done_at(self.now), self.now
                    self.notes["rate changed"] += 1
                job.rate = rate
        self.fresh = set()
