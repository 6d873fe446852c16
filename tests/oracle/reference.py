"""The reference simulator: a plain simulator written from docs/engine.md alone.

It imports nothing of kilowait, so the two share no bug. Availability is recomputed at every use; speed is not a goal.
This module has the events; reservations.py has the scheduling pass, node_sleep.py sleeping nodes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.oracle.model import (
    Change,
    Count,
    JobReservation,
    Outage,
    ReferenceGroup,
    ReferenceJob,
    ReferencePowerControls,
    Reservation,
    Result,
    Rule,
    Run,
    State,
    all_groups,
    changes_of,
    groups_of,
    levels_of,
    need_of,
    sized,
    value_at,
)
from tests.oracle.node_sleep import ASLEEP, AWAKE, HELD, OUT, SHUTTING_DOWN, WAKING, SleepingNodes
from tests.oracle.reservations import ALL, ARRIVAL, CHANGE, FINISH, TIMER, Planner

__all__ = [
    "Outage",
    "JobReservation",
    "Reservation",
    "Result",
    "Rule",
    "Run",
    "ReferenceGroup",
    "ReferenceJob",
    "simulate",
]


class _ReferenceSimulator(Planner):
    def __init__(
        self,
        states: list[State],
        groups: list[ReferenceGroup],
        changes: list[Change],
        empty: int,
        rules: list[tuple[Rule, bool]],
        depth: int | None,
        schedule_per: str,
        placement: str,
        overrun: str,
        max_wait: float,
        power_controls: ReferencePowerControls,
    ) -> None:
        super().__init__(groups, changes, empty, rules, depth, placement, overrun, max_wait, power_controls)
        self.states, self.schedule_per = states, schedule_per
        self.events = [(change.time, CHANGE, i) for i, change in enumerate(changes)]
        for state in states:
            if state.job.after is None:
                self.expect(state, -math.inf)
        heapq.heapify(self.events)
        first = self.events[0][0] if self.events else -math.inf
        if power_controls.budget is not None:
            self.budget = level = value_at(power_controls.budget, first)
            for time, watts in power_controls.budget:
                if time > first:
                    heapq.heappush(self.events, (time, CHANGE, len(changes)))
                    changes.append(Change(time, ALL, watts - level, -math.inf))
                    level = watts
        for g, group in enumerate(groups[: len(groups) - empty]):
            if group.name in power_controls.sleep:
                self.sleeping[g] = SleepingNodes(power_controls.sleep[group.name], group.nodes, first)
        # Wake-ups and sleep timeouts, computed after every instant and valid until the next.
        self.sleep_events: list[tuple[float, int, int]] = []
        self.counts: list[Count] = []

    # -- events ----------------------------------------------------------------------------------

    def expect(self, state: State, earliest: float) -> None:
        begin = -math.inf if state.job.begin is None else state.job.begin
        heapq.heappush(self.events, (max(state.job.submit, begin, earliest), ARRIVAL, state.number))

    def leave(self, state: State) -> None:
        for other in self.states:
            if other.job.after == state.job.job_id:
                self.expect(other, self.now + other.job.think)

    def next_event(self) -> tuple[float, int, int]:
        return min(self.events[:1] + self.sleep_events[:1])

    def more_now(self) -> bool:
        return bool(self.events or self.sleep_events) and self.next_event()[0] == self.now

    def run(self) -> None:
        while self.events or self.more_now():
            self.now = self.next_event()[0]
            for sleeping in self.sleeping.values():
                sleeping.finish_shutdowns(self.now)
            self.apply()
            while self.schedule_per == "instant" and self.more_now():
                self.apply()
            last = not self.more_now()
            started = len(self.started)
            self.schedule(last)
            for state in self.started[started:]:
                self.notify_policy(state, None)
            if last:
                self.update_node_power()

    def apply(self) -> None:
        event = self.next_event()
        _, kind, number = event
        if event in self.sleep_events:
            self.sleep_events.remove(event)
            if kind == CHANGE:
                self.sleeping[number - len(self.changes)].awake(self.now)
            return
        heapq.heappop(self.events)
        if kind == CHANGE:
            self.change(self.changes[number])
        elif kind == FINISH:
            self.finish(self.started[number])
        elif kind == ARRIVAL:
            self.arrive(self.states[number])
        elif number % 2 == 0:
            self.cancel(self.states[number // 2])
        elif self.states[number // 2] in self.held:  # the end of its hold
            self.held.remove(self.states[number // 2])
            if self.is_usable(self.states[number // 2]):
                self.waiting.append(self.states[number // 2])
            else:
                self.reject(self.states[number // 2])

    def change(self, change: Change) -> None:
        self.changed = True
        if change.group == ALL:
            assert self.budget is not None
            self.budget += change.nodes
            return
        debt = max(0, -self.free[change.group][0])
        for pool, one in enumerate(self.per_node[change.group]):
            self.free[change.group][pool] += change.nodes * one
        if change.group >= self.bare and change.nodes < 0:
            self.ended.add(change.group)
            for state in [state for state in self.waiting if not self.is_usable(state)]:
                self.waiting.remove(state)
                self.reserved.pop(state, None)
                self.reject(state)
        if change.group in self.sleeping and change.nodes < 0:
            self.sleeping[change.group].remove(-change.nodes, self.now)
        elif change.group in self.sleeping:
            self.sleeping[change.group].restore_nodes(change.nodes, debt, self.now)

    def finish(self, state: State) -> None:
        self.running.remove(state)
        assert state.start is not None
        self.notify_policy(state, max(self.now - state.start, 1e-9))
        assert state.group is not None
        debt = max(0, -self.free[state.group][0])
        for pool, need in enumerate(state.need[state.group]):
            self.free[state.group][pool] += need
        if self.budget is not None:
            self.budget += state.watts[state.group][state.level]
        if state.group in self.sleeping:
            self.sleeping[state.group].release(self.nodes_of.pop(state), debt, self.now)
        self.freed = True
        self.leave(state)

    def notify_policy(self, state: State, ran: float | None) -> None:
        """Notify a policy that observes jobs of a start (`ran` is None) or of an end, with the run time."""
        observe = getattr(self.rules[0][0], "observe", None)
        if observe is not None:
            observe(state.job, ran)

    def arrive(self, state: State) -> None:
        state.eligible = self.now
        self.predict(state)
        if not self.is_usable(state):
            self.reject(state)
            return
        state.scores = [rule(state.job, self.now, self.now) for rule, _ in self.rules]
        if state.job.cancel is not None:
            heapq.heappush(self.events, (max(state.job.cancel, self.now), TIMER, 2 * state.number))
        if state.job.hold is not None and state.job.hold > self.now:
            self.held.append(state)
            heapq.heappush(self.events, (state.job.hold, TIMER, 2 * state.number + 1))
        else:
            self.waiting.append(state)

    def is_usable(self, state: State) -> bool:
        """Whether some group of the job is usable: not of a reservation of the cluster that has ended."""
        return any(g not in self.ended for g in state.need)

    def reject(self, state: State) -> None:
        state.outcome = "rejected"
        self.leave(state)

    def cancel(self, state: State) -> None:
        if state in self.waiting:
            self.waiting.remove(state)
            self.reserved.pop(state, None)
            self.freed = True
        elif state in self.held:
            self.held.remove(state)
        else:
            return
        state.outcome = "cancelled"
        self.leave(state)

    # -- sleep -----------------------------------------------------------------------------------

    def update_node_power(self) -> None:
        """After an instant: wake nodes, shut nodes down, and compute the times of their next events."""
        self.sleep_events = []
        timers = [math.inf]
        for g, sleeping in self.sleeping.items():
            settings = sleeping.settings
            want = value_at(settings.reserve, self.now)
            wake_ahead = math.inf
            standing = [(time, s.number, s) for s, (group, time, _) in self.reserved.items() if group == g]
            if settings.wake_ahead and standing:
                time, _, state = min(standing, key=lambda r: r[:2])
                if time - settings.wake <= self.now:
                    left = [level[0] for begin, level in self.steps(g) if begin <= max(time, self.now)][-1]
                    free = self.free[g][0]
                    want = max(want, min(state.need[g][0], free, free - left))
                else:
                    wake_ahead = time - settings.wake
            sleeping.wake_up(want, self.now)
            sleeping.shut_down(want, self.now)
            if sleeping.count(ASLEEP) + sleeping.count(SHUTTING_DOWN) > 0:
                timers.append(wake_ahead)
            self.sleep_events += [(time, CHANGE, len(self.changes) + g) for time in sleeping.wake_times()]
            timers.append(sleeping.next_timer(self.now))
            numbers = [sleeping.count(state) for state in (HELD, AWAKE, SHUTTING_DOWN, ASLEEP, WAKING, OUT)]
            self.counts.append(Count(self.now, g, *numbers))
        # All that only makes an instant is one event of its time: the last.
        if min(timers) < math.inf:
            self.sleep_events.append((min(timers), TIMER, 2 * len(self.states)))
        self.sleep_events.sort()


def simulate(
    jobs: Sequence[ReferenceJob],
    groups: Sequence[ReferenceGroup],
    *,
    queues: Mapping[str, Sequence[str]],
    outages: Sequence[Outage],
    reservations: Sequence[Reservation],
    rule: Rule,
    fixed: bool,
    depth: int | None,
    backfill_rule: Rule | None = None,
    backfill_fixed: bool = True,
    at_limit: str = "extend",
    schedule_per: str = "instant",
    placement: str = "first",
    overrun: str = "double",
    max_wait: float = math.inf,
    on_oversized: str = "drop",
    power_controls: ReferencePowerControls | None = None,
) -> Run:
    """Simulate; `depth` is 0 (no backfilling), 1 (EASY), k, or None (conservative)."""
    power_controls = ReferencePowerControls() if power_controls is None else power_controls
    if hasattr(rule, "predict") and all(job.limit is None for job in jobs):
        jobs = [replace(job, limit=max(job.estimate, 1.0)) for job in jobs]
    jobs = [sized(job, groups) for job in jobs]
    whole = all_groups(groups, reservations)
    states: list[State] = []
    for row, job in sorted(enumerate(jobs), key=lambda pair: (pair[1].submit, pair[1].job_id)):
        e = max(job.estimate, 1.0)
        limit = None if job.limit is None else max(job.limit, 1.0)
        planned = e if job.planned is None else max(job.planned, 1.0)
        if limit is not None:
            planned = min(planned, limit)
        run = job.runtime
        if at_limit == "kill":
            run = min(run, e if limit is None else limit)
        need = {g: need_of(job, whole[g]) for g in groups_of(job, groups, queues, reservations)}
        factor = {
            g: levels_of(power_controls.factor, power_controls.levels, 1.0, groups, reservations, g, row) for g in need
        }
        watts = {
            g: levels_of(power_controls.watts, power_controls.levels, 0, groups, reservations, g, row) for g in need
        }
        if power_controls.budget is not None:
            largest = max(value for _, value in power_controls.budget)
            need = {g: amount for g, amount in need.items() if min(watts[g]) <= largest}
        if not need and on_oversized != "drop":
            raise ValueError(f"job {job.job_id} fits none of its groups")
        preferred_level = 0 if power_controls.preferred_level is None else power_controls.preferred_level[row]
        states.append(State(job, len(states), planned, limit, run, need, factor, watts, preferred_level))
    policy = (rule, fixed)
    rules = [policy, policy if backfill_rule is None else (backfill_rule, backfill_fixed)]
    changes = changes_of(groups, outages, reservations)
    simulator = _ReferenceSimulator(
        states,
        whole,
        changes,
        len(reservations),
        rules,
        depth,
        schedule_per,
        placement,
        overrun,
        max_wait,
        power_controls,
    )
    simulator.run()
    done = {s.job.job_id: Result(s.eligible, s.start, s.end, s.group, s.outcome, s.level) for s in states}
    return Run(
        [done[job.job_id] for job in jobs],
        simulator.segments,
        simulator.job_reservations,
        {g: sleeping.steps(simulator.now) for g, sleeping in simulator.sleeping.items()},
        {s.job.job_id: s.taken for s in simulator.started},
        simulator.counts,
        simulator.now,
    )
