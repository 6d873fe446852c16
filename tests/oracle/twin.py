"""The slow twin: a plain simulator written from docs/clock.md alone.

It imports nothing of kilowait, so the two share no bug. Where the page says a thing once, so does this file;
nothing is planned ahead from pass to pass, and speed is nobody's concern here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.oracle.model import (
    Change,
    Outage,
    Promise,
    Reservation,
    Result,
    Rule,
    Run,
    TwinGroup,
    TwinJob,
    all_groups,
    changes_of,
    groups_of,
    need_of,
    pools_per_node,
)

__all__ = ["Outage", "Promise", "Reservation", "Result", "Rule", "Run", "TwinGroup", "TwinJob", "simulate"]

FINISH, CHANGE, ARRIVAL, TIMER = range(4)


@dataclass(eq=False)
class _State:
    """A job on its way through the clock."""

    job: TwinJob
    number: int
    e: float
    run: float
    need: dict[int, tuple[int, ...]]
    """By group it may use; the keys stand in order of preference."""
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    believed_end: float = math.nan
    group: int | None = None
    outcome: str = "unstarted"
    scores: list[float] = field(default_factory=list)


class _Clock:
    def __init__(
        self,
        states: list[_State],
        groups: list[TwinGroup],
        changes: list[Change],
        empty: int,
        rules: list[tuple[Rule, bool]],
        depth: float,
        passes: str,
        placement: str,
    ) -> None:
        self.states, self.changes, self.rules, self.depth = states, changes, rules, depth
        self.passes, self.placement = passes, placement
        self.per_node = [pools_per_node(group) for group in groups]
        self.capacity = [[group.nodes * one for one in pools_per_node(group)] for group in groups]
        # The last `empty` groups belong to reservations: their full size counts, but they start with nothing.
        bare = len(groups) - empty
        self.free = [list(c) if g < bare else [0] * len(c) for g, c in enumerate(self.capacity)]
        self.now = -math.inf
        self.pass_number = 0
        self.waiting: list[_State] = []
        self.running: list[_State] = []
        self.reserved: list[tuple[int, tuple[int, ...], float, float]] = []
        self.started: list[_State] = []
        self.segments: list[int] = []
        self.promises: list[Promise] = []
        self.events: list[tuple[float, int, int]] = [(c.time, CHANGE, i) for i, c in enumerate(changes)]
        for state in states:
            if state.job.after is None:
                self.expect(state, -math.inf)
        heapq.heapify(self.events)

    # -- events ----------------------------------------------------------------------------------

    def expect(self, state: _State, earliest: float) -> None:
        begin = -math.inf if state.job.begin is None else state.job.begin
        heapq.heappush(self.events, (max(state.job.submit, begin, earliest), ARRIVAL, state.number))

    def leave(self, state: _State) -> None:
        for other in self.states:
            if other.job.after == state.job.job_id:
                self.expect(other, self.now + other.job.think)

    def more_now(self) -> bool:
        return bool(self.events) and self.events[0][0] == self.now

    def go(self) -> None:
        while self.events:
            self.now = self.events[0][0]
            self.apply()
            while self.passes == "instant" and self.more_now():
                self.apply()
            self.schedule()

    def apply(self) -> None:
        _, kind, number = heapq.heappop(self.events)
        if kind == CHANGE:
            change = self.changes[number]
            for pool, one in enumerate(self.per_node[change.group]):
                self.free[change.group][pool] += change.nodes * one
            return
        state = self.started[number] if kind == FINISH else self.states[number]
        if kind == FINISH:
            self.running.remove(state)
            assert state.group is not None
            for pool, need in enumerate(state.need[state.group]):
                self.free[state.group][pool] += need
            self.leave(state)
        elif kind == ARRIVAL:
            state.eligible = self.now
            if not state.need:
                state.outcome = "rejected"
                self.leave(state)
                return
            self.waiting.append(state)
            state.scores = [rule(state.job, self.now, self.now) for rule, _ in self.rules]
            if state.job.cancel is not None:
                heapq.heappush(self.events, (max(state.job.cancel, self.now), TIMER, number))
        elif state in self.waiting:
            self.waiting.remove(state)
            state.outcome = "cancelled"
            self.leave(state)

    # -- what the planner believes ---------------------------------------------------------------

    def steps(self, g: int) -> list[tuple[float, list[int]]]:
        """Availability of the group's pools as a step function: from each time on, until the next."""
        jumps = [(max(s.believed_end, self.now), s.need[g], 1) for s in self.running if s.group == g]
        for change in self.changes:
            if change.group == g and change.time > self.now and change.announced <= self.now:
                jumps.append((change.time, self.per_node[g], change.nodes))
        for group, need, start, end in self.reserved:
            if group == g:
                jumps += [(start, need, -1), (end, need, 1)]
        level = list(self.free[g])
        steps = []
        for time in sorted({self.now, *(jump[0] for jump in jumps)}):
            for when, amount, times in jumps:
                if when == time:
                    level = [have + times * a for have, a in zip(level, amount, strict=True)]
            steps.append((time, level))
        return steps

    def fits(self, state: _State, g: int, start: float, steps: list[tuple[float, list[int]]]) -> bool:
        """Whether the job fits the group at `start`, one of the times of `steps`."""
        end = start + state.e
        for time, level in steps:
            covered = time == start or start < time < end
            if covered and any(need > have for need, have in zip(state.need[g], level, strict=True)):
                return False
        return True

    def earliest(self, state: _State, g: int) -> float | None:
        """The first time at which the job fits the group: now, or one at which availability changes."""
        steps = self.steps(g)
        return next((time for time, _ in steps if self.fits(state, g, time, steps)), None)

    def fits_now(self, state: _State, g: int) -> bool:
        if any(need > have for need, have in zip(state.need[g], self.free[g], strict=True)):
            return False
        return self.fits(state, g, self.now, self.steps(g))

    # -- a pass ----------------------------------------------------------------------------------

    def ordered(self, jobs: list[_State], which: int) -> list[_State]:
        rule, fixed = self.rules[which]

        def key(state: _State) -> tuple[float, int]:
            assert state.eligible is not None
            return (state.scores[which] if fixed else rule(state.job, self.now, state.eligible)), state.number

        return sorted(jobs, key=key)

    def try_to_start(self, state: _State, groups: Iterable[int]) -> bool:
        fitting = [g for g in groups if self.fits_now(state, g)]
        if not fitting:
            return False
        best = fitting[0]
        if self.placement == "balance":  # max() takes the first of equals
            best = max(fitting, key=lambda g: self.free[g][0] / self.capacity[g][0])
        for pool, need in enumerate(state.need[best]):
            self.free[best][pool] -= need
        state.group, state.start, state.end = best, self.now, self.now + state.run
        state.believed_end = self.now + state.e
        state.outcome = "killed" if state.run < state.job.runtime else "completed"
        self.waiting.remove(state)
        self.running.append(state)
        self.segments.append(state.job.job_id)
        heapq.heappush(self.events, (state.end, FINISH, len(self.started)))
        self.started.append(state)
        return True

    def schedule(self) -> None:
        self.pass_number += 1
        self.reserved = []
        if not self.more_now():
            for state in self.running:
                assert state.start is not None
                if state.believed_end <= self.now:
                    k = 1
                    while state.start + state.e * 2**k <= self.now:
                        k += 1
                    state.believed_end = state.start + state.e * 2**k
        order = self.ordered(self.waiting, 0)
        if self.depth == 0:
            blocked: set[int] = set()
            for state in order:
                if not self.try_to_start(state, [g for g in state.need if g not in blocked]):
                    blocked.update(state.need)
            return
        aside = []
        for state in order:
            opened = [g for g in state.need if sum(r[0] == g for r in self.reserved) < self.depth]
            if not opened:
                aside.append(state)
            elif not self.try_to_start(state, state.need):
                self.reserve(state, opened)
        for state in self.ordered(aside, 1):
            self.try_to_start(state, state.need)

    def reserve(self, state: _State, opened: list[int]) -> None:
        times = {g: self.earliest(state, g) for g in opened}
        possible = {g: time for g, time in times.items() if time is not None}
        if possible:
            g = min(possible, key=lambda g: possible[g])  # min() takes the first of equals
            start = possible[g]
            head = not self.reserved
            self.reserved.append((g, state.need[g], start, start + state.e))
            self.promises.append(Promise(self.pass_number, self.now, state.job.job_id, g, start, head))


def simulate(
    jobs: Sequence[TwinJob],
    groups: Sequence[TwinGroup],
    *,
    queues: Mapping[str, Sequence[str]],
    outages: Sequence[Outage],
    reservations: Sequence[Reservation],
    rule: Rule,
    fixed: bool,
    depth: float | None,
    backfill_rule: Rule | None = None,
    backfill_fixed: bool = True,
    walltime: str = "extend",
    passes: str = "instant",
    placement: str = "first",
    oversized: str = "reject",
) -> Run:
    """Run the clock; `depth` is 0 (no backfilling), 1 (EASY), k, or None (conservative)."""
    whole = all_groups(groups, reservations)
    states = []
    for number, job in enumerate(sorted(jobs, key=lambda job: (job.submit, job.job_id))):
        e = max(job.estimate, 1.0)
        run = min(job.runtime, e) if walltime == "kill" else job.runtime
        need = {g: need_of(job, whole[g]) for g in groups_of(job, groups, queues, reservations)}
        if not need and oversized != "reject":
            raise ValueError(f"job {job.job_id} fits none of its groups")
        states.append(_State(job, number, e, run, need))
    policy = (rule, fixed)
    rules = [policy, policy if backfill_rule is None else (backfill_rule, backfill_fixed)]
    clock = _Clock(
        states,
        whole,
        changes_of(groups, outages, reservations),
        len(reservations),
        rules,
        math.inf if depth is None else depth,
        passes,
        placement,
    )
    clock.go()
    done = {s.job.job_id: Result(s.eligible, s.start, s.end, s.group, s.outcome) for s in states}
    return Run([done[job.job_id] for job in jobs], clock.segments, clock.promises)
