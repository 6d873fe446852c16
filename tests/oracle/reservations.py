"""Expected ends, reservations and scheduling passes of the reference simulator; written from docs/engine.md alone."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import chain, repeat

from tests.oracle.model import (
    Change,
    JobReservation,
    ReferenceGroup,
    ReferencePowerControls,
    Rule,
    State,
    pools_per_node,
)
from tests.oracle.node_sleep import Node, SleepingNodes

FINISH, CHANGE, ARRIVAL, TIMER = range(4)
MINUTE, HOUR = 60.0, 3600.0
OVERRUN_STEPS = (
    *(minutes * MINUTE for minutes in (1, 5, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 5, 10, 20, 50, 100)),
)
"""With overrun="steps": increments of the expected run time each time it is exceeded; the last one repeats."""
ALL = -1
"""The "group" whose only pool is the budget."""


class Planner:
    """State of the machine and the waiting jobs, with the scheduling pass."""

    def __init__(
        self,
        groups: list[ReferenceGroup],
        changes: list[Change],
        empty: int,
        rules: list[tuple[Rule, bool]],
        depth: int | None,
        placement: str,
        overrun: str,
        max_wait: float,
        power_controls: ReferencePowerControls,
    ) -> None:
        self.changes, self.rules, self.depth, self.max_wait = changes, rules, depth, max_wait
        self.placement, self.overrun, self.power_controls = placement, overrun, power_controls
        self.per_node = [pools_per_node(group) for group in groups]
        self.capacity = [[group.nodes * one for one in pools_per_node(group)] for group in groups]
        # The last `empty` groups belong to reservations: their full size counts, but they start with nothing.
        self.bare = len(groups) - empty
        self.ended: set[int] = set()  # groups of reservations that have ended
        self.free = [list(c) if g < self.bare else [0] * len(c) for g, c in enumerate(self.capacity)]
        self.budget: int | None = None  # what is free of it; a pool of all groups together
        self.sleeping: dict[int, SleepingNodes] = {}
        self.nodes_of: dict[State, list[Node]] = {}  # of the jobs that run where nodes can sleep
        self.now = self.last_pass = -math.inf
        self.pass_number = 0
        self.large_backlog = False
        self.waiting: list[State] = []
        self.held: list[State] = []
        self.running: list[State] = []
        self.reserved: dict[State, tuple[int, float, int]] = {}  # group, time and level
        self.freed = self.changed = False  # since the last pass: a job went; capacity was changed
        self.started: list[State] = []
        self.segments: list[int] = []
        self.job_reservations: list[JobReservation] = []
        self.events: list[tuple[float, int, int]] = []

    # -- expected availability -------------------------------------------------------------------

    def takes(self, state: State, group: int, level: int, g: int) -> list[int]:
        """Need of the job, on a group at a level, of each pool of group `g`; the budget is the last one."""
        need = list(state.need[g]) if group == g else [0] * len(self.free[g])
        return need if self.budget is None else [*need, state.watts[group][level]]

    def left(self, g: int) -> list[int]:
        """Amount that is free now of each pool of the group."""
        return [*self.free[g]] if self.budget is None else [*self.free[g], self.budget]

    def steps(self, g: int) -> list[tuple[float, list[int]]]:
        """Availability of the group's pools as a step function: from each time on, until the next."""
        jumps: list[tuple[float, list[int], int]] = []
        for s in self.running:
            if s.group is not None and (s.group == g or self.budget is not None):
                jumps.append((max(s.expected_end, self.now), self.takes(s, s.group, s.level, g), 1))
        for change in self.changes:
            if change.group in (g, ALL) and change.time > self.now and change.announced <= self.now:
                if change.group == g:
                    one = [*self.per_node[g], *([] if self.budget is None else [0])]
                else:
                    one = [0] * len(self.per_node[g]) + [1]
                jumps.append((change.time, one, change.nodes))
        for s, (group, start, level) in self.reserved.items():
            if group == g or self.budget is not None:
                amount, end = self.takes(s, group, level, g), start + s.planned * s.factor[group][level]
                jumps += [(max(start, self.now), amount, -1), (max(end, self.now), amount, 1)]
        have = self.left(g)
        steps = []
        for time in sorted({self.now, *(jump[0] for jump in jumps)}):
            for when, amount, times in jumps:
                if when == time:
                    have = [h + times * a for h, a in zip(have, amount, strict=True)]
            steps.append((time, have))
        return steps

    def fits(self, need: list[int], start: float, end: float, steps: list[tuple[float, list[int]]]) -> bool:
        """Whether the need fits from `start`, one of the times of `steps`, until `end`."""
        for time, have in steps:
            covered = time == start or start < time < end
            if covered and any(n > h for n, h in zip(need, have, strict=True)):
                return False
        return True

    def earliest(self, state: State, g: int, level: int) -> float | None:
        """The first time at which the job fits the group: now, or one at which availability changes."""
        need, planned = self.takes(state, g, level, g), state.planned * state.factor[g][level]
        steps = self.steps(g)
        return next((time for time, _ in steps if self.fits(need, time, time + planned, steps)), None)

    def start_of(self, state: State, g: int) -> float:
        """When the job would start if its nodes were allocated now."""
        return self.sleeping[g].start_of(state.need[g][0], self.now) if g in self.sleeping else self.now

    def fits_now(self, state: State, g: int, level: int) -> bool:
        need = self.takes(state, g, level, g)
        if any(n > h for n, h in zip(need, self.left(g), strict=True)):
            return False
        end = self.start_of(state, g) + state.planned * state.factor[g][level]
        return self.fits(need, self.now, end, self.steps(g))

    def has_large_backlog(self) -> bool:
        if self.power_controls.full_speed_backlog_nodes < 0:
            return False
        needed = sum(min(need[0] for need in state.need.values()) for state in self.waiting)
        return needed - sum(free[0] for free in self.free) > self.power_controls.full_speed_backlog_nodes

    def first_level(self, state: State) -> int:
        return 0 if self.large_backlog else state.preferred_level

    def predict(self, state: State) -> bool:
        """Apply the predictions of the policy to a waiting job; return whether its planned time changed."""
        predict_times = getattr(self.rules[0][0], "predict", None)
        if predict_times is None:
            return False
        before = state.planned
        estimate, planned = predict_times(state.job, self.now, state.eligible)
        state.job = replace(state.job, estimate=max(estimate, 1.0), planned=planned)
        state.planned = max(planned, 1.0)
        if state.limit is not None:
            state.planned = min(state.planned, state.limit)
        return state.planned != before

    # -- a pass ----------------------------------------------------------------------------------

    def ordered(self, jobs: list[State], which: int) -> list[State]:
        rule, fixed = self.rules[which]

        def key(state: State) -> tuple[float, int]:
            assert state.eligible is not None
            if self.now - state.eligible > self.max_wait:
                return -math.inf, state.number
            return (state.scores[which] if fixed else rule(state.job, self.now, state.eligible)), state.number

        return sorted(jobs, key=key)

    def try_to_start(self, state: State, groups: Iterable[int]) -> bool:
        first = self.first_level(state)
        for level in range(first, first + 1 if self.budget is None else self.power_controls.levels):
            fitting = [g for g in groups if self.fits_now(state, g, level)]
            if fitting:
                best = fitting[0]
                if self.placement == "balance":  # max() takes the first of equals
                    best = max(fitting, key=lambda g: self.free[g][0] / self.capacity[g][0])
                self.start(state, best, level)
                return True
        return False

    def start(self, state: State, g: int, level: int) -> None:
        start, factor = self.start_of(state, g), state.factor[g][level]
        for pool, need in enumerate(state.need[g]):
            self.free[g][pool] -= need
        if self.budget is not None:
            self.budget -= state.watts[g][level]
        if g in self.sleeping:
            self.nodes_of[state] = self.sleeping[g].take(state.need[g][0], self.now)
        state.group, state.level, state.taken = g, level, self.now
        state.start, state.end = start, start + state.run * factor
        state.expected_end = start + state.planned * factor
        state.outcome = "killed" if state.run < state.job.runtime else "completed"
        self.waiting.remove(state)
        self.running.append(state)
        self.segments.append(state.job.job_id)
        heapq.heappush(self.events, (state.end, FINISH, len(self.started)))
        self.started.append(state)

    def schedule(self, last: bool) -> None:
        """`last`: no further event of this time is still to come."""
        self.pass_number += 1
        if not self.waiting:
            return
        if not self.rules[0][1]:
            changed = [self.predict(state) for state in sorted(self.waiting, key=lambda state: state.number)]
            self.changed = self.changed or any(changed)
        renewed = last and self.update_expected_ends()
        self.large_backlog = self.has_large_backlog()
        order = self.ordered(self.waiting, 0)
        if self.depth is None:
            self.conservative_pass(order, renewed)
        elif self.depth == 0:
            blocked: set[int] = set()
            for state in order:
                if not self.try_to_start(state, [g for g in state.need if g not in blocked]):
                    blocked.update(state.need)
        else:
            self.backfilling_pass(order, self.depth)

    def update_expected_ends(self) -> bool:
        overrun = [state for state in self.running if state.expected_end <= self.now]
        for state in overrun:
            assert state.start is not None
            state.expected_end = state.start + self.new_expected_runtime(state)
        return bool(overrun)

    def new_expected_runtime(self, state: State) -> float:
        """New expected run time of a job that has exceeded the previous one."""
        assert state.start is not None and state.group is not None
        start_s, factor = state.start, state.factor[state.group][state.level]

        def is_in_future(span: float) -> bool:
            return start_s + span > self.now

        def doubled(span: float) -> float:
            k = 1
            while not is_in_future(span * 2**k):
                k += 1
            return span * 2**k

        planned = state.planned * factor
        limit = None if state.limit is None else state.limit * factor
        overrun_planned = None if state.job.overrun_planned is None else state.job.overrun_planned * factor
        if limit is not None and not is_in_future(limit):
            return doubled(limit)
        if self.overrun == "double":
            expected = doubled(planned)
        elif self.overrun == "steps":
            expected, more = planned, chain(OVERRUN_STEPS, repeat(OVERRUN_STEPS[-1]))
            while not is_in_future(expected):
                expected += next(more)
        elif overrun_planned is not None and is_in_future(overrun_planned):
            expected = overrun_planned
        elif limit is not None:
            expected = limit
        else:
            expected = doubled(planned if overrun_planned is None else max(planned, overrun_planned))
        return expected if limit is None else min(expected, limit)

    def backfilling_pass(self, order: list[State], depth: int) -> None:
        self.reserved.clear()
        candidates = []
        for state in order:
            opened = [g for g in state.need if sum(r[0] == g for r in self.reserved.values()) < depth]
            if not opened:
                candidates.append(state)
            elif not self.try_to_start(state, state.need):
                self.reserve(state, opened)
        for state in self.ordered(candidates, 1):
            self.try_to_start(state, state.need)

    def conservative_pass(self, order: list[State], renewed: bool) -> None:
        """Conservative: reservations stay, and are looked at again when something was freed."""
        announced = any(self.last_pass < change.announced <= self.now for change in self.changes)
        missed = not self.running and any(time < self.now for _, time, _ in self.reserved.values())
        plan_invalid = renewed or self.changed or announced or missed
        freed = self.freed or plan_invalid
        self.freed = self.changed = False
        self.last_pass = self.now
        if plan_invalid:
            self.reserved.clear()
        for state in order:
            if state in self.reserved and not freed and self.reserved[state][1] > self.now:
                continue
            self.reserved.pop(state, None)
            if not self.try_to_start(state, state.need):
                self.reserve(state, state.need)

    def reserve(self, state: State, groups: Collection[int]) -> None:
        first = self.first_level(state)
        levels = range(first, first + 1 if self.budget is None else self.power_controls.levels)
        times = {(level, g): self.earliest(state, g, level) for level in levels for g in groups}
        possible = {where: time for where, time in times.items() if time is not None}
        if possible:
            where = min(possible, key=lambda where: possible[where])  # min() takes the first of equals
            level, g = where
            self.reserved[state] = g, possible[where], level
            head = not self.job_reservations or self.job_reservations[-1].at_pass < self.pass_number
            reservation = JobReservation(self.pass_number, self.now, state.job.job_id, g, possible[where], head)
            self.job_reservations.append(reservation)
