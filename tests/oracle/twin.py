"""The slow twin: a plain simulator written from docs/clock.md alone.

It imports nothing of kilowait, so the two share no bug. Where the page says a thing once, so does this file;
availability is added up anew whenever it is looked at, and speed is nobody's concern here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

from tests.oracle.model import (
    Change,
    Outage,
    Promise,
    Reservation,
    Result,
    Rule,
    Run,
    State,
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


class _Clock:
    def __init__(
        self,
        states: list[State],
        groups: list[TwinGroup],
        changes: list[Change],
        empty: int,
        rules: list[tuple[Rule, bool]],
        depth: int | None,
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
        self.now = self.last_pass = -math.inf
        self.pass_number = 0
        self.waiting: list[State] = []
        self.running: list[State] = []
        self.reserved: dict[State, tuple[int, float]] = {}  # group and time
        self.freed = self.changed = False  # since the last pass: a job went; capacity was changed
        self.started: list[State] = []
        self.segments: list[int] = []
        self.promises: list[Promise] = []
        self.events: list[tuple[float, int, int]] = [(c.time, CHANGE, i) for i, c in enumerate(changes)]
        for state in states:
            if state.job.after is None:
                self.expect(state, -math.inf)
        heapq.heapify(self.events)

    # -- events ----------------------------------------------------------------------------------

    def expect(self, state: State, earliest: float) -> None:
        begin = -math.inf if state.job.begin is None else state.job.begin
        heapq.heappush(self.events, (max(state.job.submit, begin, earliest), ARRIVAL, state.number))

    def leave(self, state: State) -> None:
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
            self.changed = True
            return
        state = self.started[number] if kind == FINISH else self.states[number]
        if kind == FINISH:
            self.running.remove(state)
            assert state.group is not None
            for pool, need in enumerate(state.need[state.group]):
                self.free[state.group][pool] += need
            self.freed = True
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
            self.reserved.pop(state, None)
            self.freed = True
            state.outcome = "cancelled"
            self.leave(state)

    # -- what the planner believes ---------------------------------------------------------------

    def steps(self, g: int) -> list[tuple[float, list[int]]]:
        """Availability of the group's pools as a step function: from each time on, until the next."""
        jumps = [(max(s.believed_end, self.now), s.need[g], 1) for s in self.running if s.group == g]
        for change in self.changes:
            if change.group == g and change.time > self.now and change.announced <= self.now:
                jumps.append((change.time, self.per_node[g], change.nodes))
        for s, (group, start) in self.reserved.items():
            if group == g:
                jumps += [(max(start, self.now), s.need[g], -1), (max(start + s.e, self.now), s.need[g], 1)]
        level = list(self.free[g])
        steps = []
        for time in sorted({self.now, *(jump[0] for jump in jumps)}):
            for when, amount, times in jumps:
                if when == time:
                    level = [have + times * a for have, a in zip(level, amount, strict=True)]
            steps.append((time, level))
        return steps

    def fits(self, state: State, g: int, start: float, steps: list[tuple[float, list[int]]]) -> bool:
        """Whether the job fits the group at `start`, one of the times of `steps`."""
        end = start + state.e
        for time, level in steps:
            covered = time == start or start < time < end
            if covered and any(need > have for need, have in zip(state.need[g], level, strict=True)):
                return False
        return True

    def earliest(self, state: State, g: int) -> float | None:
        """The first time at which the job fits the group: now, or one at which availability changes."""
        steps = self.steps(g)
        return next((time for time, _ in steps if self.fits(state, g, time, steps)), None)

    def fits_now(self, state: State, g: int) -> bool:
        if any(need > have for need, have in zip(state.need[g], self.free[g], strict=True)):
            return False
        return self.fits(state, g, self.now, self.steps(g))

    # -- a pass ----------------------------------------------------------------------------------

    def ordered(self, jobs: list[State], which: int) -> list[State]:
        rule, fixed = self.rules[which]

        def key(state: State) -> tuple[float, int]:
            assert state.eligible is not None
            return (state.scores[which] if fixed else rule(state.job, self.now, state.eligible)), state.number

        return sorted(jobs, key=key)

    def try_to_start(self, state: State, groups: Iterable[int]) -> bool:
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
        if not self.waiting:
            return
        renewed = not self.more_now() and self.renew_beliefs()
        order = self.ordered(self.waiting, 0)
        if self.depth is None:
            self.keep_plan(order, renewed)
        elif self.depth == 0:
            blocked: set[int] = set()
            for state in order:
                if not self.try_to_start(state, [g for g in state.need if g not in blocked]):
                    blocked.update(state.need)
        else:
            self.plan_anew(order, self.depth)

    def renew_beliefs(self) -> bool:
        outlived = [state for state in self.running if state.believed_end <= self.now]
        for state in outlived:
            assert state.start is not None
            k = 1
            while state.start + state.e * 2**k <= self.now:
                k += 1
            state.believed_end = state.start + state.e * 2**k
        return bool(outlived)

    def plan_anew(self, order: list[State], depth: int) -> None:
        self.reserved.clear()
        aside = []
        for state in order:
            opened = [g for g in state.need if sum(r[0] == g for r in self.reserved.values()) < depth]
            if not opened:
                aside.append(state)
            elif not self.try_to_start(state, state.need):
                self.reserve(state, opened)
        for state in self.ordered(aside, 1):
            self.try_to_start(state, state.need)

    def keep_plan(self, order: list[State], renewed: bool) -> None:
        """Conservative: reservations stay, and are looked at again when something was freed."""
        announced = any(self.last_pass < change.announced <= self.now for change in self.changes)
        void = renewed or self.changed or announced
        freed = self.freed or void
        self.freed = self.changed = False
        self.last_pass = self.now
        if void:
            self.reserved.clear()
        for state in order:
            if state in self.reserved and not freed and self.reserved[state][1] > self.now:
                continue
            self.reserved.pop(state, None)
            if not self.try_to_start(state, state.need):
                self.reserve(state, state.need)

    def reserve(self, state: State, groups: Iterable[int]) -> None:
        times = {g: self.earliest(state, g) for g in groups}
        possible = {g: time for g, time in times.items() if time is not None}
        if possible:
            g = min(possible, key=lambda g: possible[g])  # min() takes the first of equals
            self.reserved[state] = g, possible[g]
            head = not self.promises or self.promises[-1].at_pass < self.pass_number
            self.promises.append(Promise(self.pass_number, self.now, state.job.job_id, g, possible[g], head))


def simulate(
    jobs: Sequence[TwinJob],
    groups: Sequence[TwinGroup],
    *,
    queues: Mapping[str, Sequence[str]],
    outages: Sequence[Outage],
    reservations: Sequence[Reservation],
    rule: Rule,
    fixed: bool,
    depth: int | None,
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
        states.append(State(job, number, e, run, need))
    policy = (rule, fixed)
    rules = [policy, policy if backfill_rule is None else (backfill_rule, backfill_fixed)]
    changes = changes_of(groups, outages, reservations)
    clock = _Clock(states, whole, changes, len(reservations), rules, depth, passes, placement)
    clock.go()
    done = {s.job.job_id: Result(s.eligible, s.start, s.end, s.group, s.outcome) for s in states}
    return Run([done[job.job_id] for job in jobs], clock.segments, clock.promises)
