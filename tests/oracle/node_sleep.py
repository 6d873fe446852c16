"""Nodes that sleep, one by one: the reference simulator's picture of a group whose nodes nobody needs all the time.

Written from docs/engine.md alone, like the rest of the reference simulator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.oracle.model import NodeStep, ReferenceSleep, value_at

AWAKE, FALLING, ASLEEP, WAKING, HELD, OUT = "awake", "falling", "asleep", "waking", "held", "out"


@dataclass(eq=False)
class Node:
    """A node; `since`: awake, idle since then; falling, asleep from then on; waking, awake from then on."""

    state: str
    since: float
    history: list[tuple[float, str]] = field(default_factory=list)
    """What it does, whoever holds it, from each time on; times after now are what it is about to do."""

    def does(self, now: float, *entries: tuple[float, str]) -> None:
        """From now on it does this, and nothing of what it was about to do."""
        self.history = [entry for entry in self.history if entry[0] <= now] + list(entries)

    def doing(self, time: float) -> str:
        return [AWAKE, *(what for begin, what in self.history if begin <= time)][-1]


class Sleepers:
    """The nodes of one group that can sleep."""

    def __init__(self, rule: ReferenceSleep, count: int, now: float) -> None:
        self.policy = rule
        self.nodes = [Node(AWAKE, now) for _ in range(count)]

    def those(self, state: str, *, latest_first: bool = False) -> list[Node]:
        """The nodes in a state that no job holds, by `since`."""
        return sorted(
            (node for node in self.nodes if node.state == state),
            key=lambda node: node.since,
            reverse=latest_first,
        )

    def number(self, state: str) -> int:
        return len(self.those(state))

    def settle(self, now: float) -> None:
        """Those that have fallen asleep by now are asleep; this is no event."""
        for node in self.those(FALLING):
            if node.since <= now:
                node.state = ASLEEP

    # -- jobs ------------------------------------------------------------------------------------

    def next_nodes(self, need: int, now: float) -> list[tuple[Node, float]]:
        """The nodes that a job would take now, and when each of them is ready."""
        wake = self.policy.wake
        line = [(node, now) for node in self.those(AWAKE, latest_first=True)]
        line += [(node, node.since) for node in self.those(WAKING)]
        line += [(node, now + wake) for node in self.those(ASLEEP)]
        line += [(node, node.since + wake) for node in self.those(FALLING)]
        assert len(line) >= need
        return line[:need]

    def start_of(self, need: int, now: float) -> float:
        """When a job that takes its nodes now would start."""
        return max(ready for _, ready in self.next_nodes(need, now))

    def take(self, need: int, now: float) -> list[Node]:
        nodes = self.next_nodes(need, now)
        for node, ready in nodes:
            if node.state == ASLEEP:
                node.does(now, (now, WAKING), (ready, AWAKE))
            elif node.state == FALLING:
                node.does(now, (node.since, WAKING), (ready, AWAKE))
            node.state = HELD
        return [node for node, _ in nodes]

    def fall_free(self, nodes: list[Node], debt: int, now: float) -> None:
        """A job's nodes are given back: the debt is paid first, the others are awake, idle since now."""
        for node in nodes[:debt]:
            node.state = OUT
            node.does(now, (now, OUT))
        for node in nodes[debt:]:
            node.state, node.since = AWAKE, now
            node.does(now, (now, AWAKE))

    # -- capacity --------------------------------------------------------------------------------

    def take_away(self, count: int, now: float) -> None:
        """Those that are there go; what is missing is a debt, which the free counts keep."""
        line = self.those(AWAKE) + self.those(ASLEEP) + self.those(FALLING) + self.those(WAKING)
        for node in line[:count]:
            node.state = OUT
            node.does(now, (now, OUT))

    def give_back(self, count: int, debt: int, now: float) -> None:
        self.fall_free(self.those(OUT)[: max(0, count - debt)], 0, now)

    # -- after the pass --------------------------------------------------------------------------

    def wake_up(self, want: int, now: float) -> None:
        missing = max(0, want - self.number(AWAKE) - self.number(WAKING))
        for node in self.those(ASLEEP)[:missing]:
            node.state, node.since = WAKING, now + self.policy.wake
            node.does(now, (now, WAKING), (node.since, AWAKE))
        if self.policy.wake == 0:
            self.awake(now)

    def awake(self, now: float) -> None:
        """The waking nodes whose time has come are awake, idle since now."""
        for node in self.those(WAKING):
            if node.since <= now:
                node.state, node.since = AWAKE, now

    def fall(self, want: int, now: float) -> None:
        while self.number(AWAKE) > want and self.those(AWAKE)[0].since + self.policy.timeout <= now:
            node = self.those(AWAKE)[0]
            node.state, node.since = FALLING, now + self.policy.fall
            node.does(now, (now, FALLING), (node.since, ASLEEP))
        if self.policy.fall == 0:
            self.settle(now)

    def wake_times(self) -> list[float]:
        return sorted({node.since for node in self.those(WAKING)})

    def next_timer(self, now: float) -> float:
        """The next time at which nodes may fall asleep or the reserve changes; inf: none."""
        times = [time for time, _ in self.policy.reserve]
        if self.number(AWAKE) > value_at(self.policy.reserve, now):
            times.append(self.those(AWAKE)[0].since + self.policy.timeout)
        return min((time for time in times if time > now), default=math.inf)

    # -- what is written down --------------------------------------------------------------------

    def steps(self, end: float) -> list[NodeStep]:
        """Nodes falling, asleep and waking, held ones included, wherever a number changes until `end`."""
        times = sorted({time for node in self.nodes for time, _ in node.history if time <= end})
        steps = [NodeStep(-math.inf, 0, 0, 0)]
        for time in times:
            doing = [node.doing(time) for node in self.nodes]
            numbers = [doing.count(what) for what in (FALLING, ASLEEP, WAKING)]
            if numbers != [*steps[-1][1:]]:
                steps.append(NodeStep(time, *numbers))
        return steps[1:]
