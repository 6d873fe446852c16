"""Conservative backfilling as in pyss, reconstructed from its start times.

A job is given the earliest place when it is submitted. When a job ends, each waiting job in order of submission is
taken out of the plan and put back at the earliest place, while those behind it stay where they are; so nobody
can take the hole that a later job holds. Every single event is followed by a pass.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush

END, SUBMIT, START = range(3)


class Plan:
    """Free nodes from each time on; the last value has no end."""

    def __init__(self, nodes: int) -> None:
        self.times, self.free = [float("-inf")], [nodes]

    def cut(self, time: float) -> int:
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.free.insert(at, self.free[at - 1])
        return at

    def take(self, start: float, end: float, nodes: int) -> None:
        first, last = self.cut(start), self.cut(end)
        for at in range(first, last):
            self.free[at] -= nodes

    def forget_before(self, now: float) -> None:
        """Drop past breakpoints, and those at which nothing changes."""
        first = bisect_right(self.times, now) - 1
        times, free = [self.times[first]], [self.free[first]]
        for time, level in zip(self.times[first + 1 :], self.free[first + 1 :], strict=True):
            if level != free[-1]:
                times.append(time)
                free.append(level)
        self.times, self.free = times, free

    def earliest(self, now: float, nodes: int, length: float) -> float:
        at, start = bisect_right(self.times, now) - 1, now
        while True:
            other = at
            while other < len(self.times) and self.times[other] < start + length:
                if self.free[other] < nodes:
                    break
                other += 1
            else:
                return start
            at, start = other + 1, self.times[other + 1]


def compressing(
    submit: Sequence[float], run: Sequence[float], estimate: Sequence[float], nodes: Sequence[int], machine: int
) -> list[float]:
    """Start times. No job may run longer than its estimate."""
    plan = Plan(machine)
    begin = [0.0] * len(submit)  # planned, then true
    waiting: list[int] = []
    events = [(float(time), SUBMIT, job) for job, time in enumerate(submit)]
    while events:
        now, kind, job = heappop(events)
        if kind == START:
            if job in waiting and begin[job] == now:
                waiting.remove(job)
                heappush(events, (now + run[job], END, job))
            continue
        plan.forget_before(now)
        if kind == SUBMIT:
            waiting.append(job)
            again = [job]
        else:
            if now < begin[job] + estimate[job]:
                plan.take(now, begin[job] + estimate[job], -nodes[job])
            again = waiting
        for other in again:
            if kind == END:
                plan.take(begin[other], begin[other] + estimate[other], -nodes[other])
            before = begin[other]
            begin[other] = plan.earliest(now, nodes[other], estimate[other])
            plan.take(begin[other], begin[other] + estimate[other], nodes[other])
            if kind == SUBMIT or begin[other] != before:
                heappush(events, (begin[other], START, other))
    return begin
