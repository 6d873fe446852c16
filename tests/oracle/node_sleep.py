"""Node sleep of the reference simulator, with one object per node.

Written from docs/engine.md alone, like the rest of the reference simulator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.oracle.model import NodeStep, ReferenceSleep, value_at

AWAKE, SHUTTING_DOWN, ASLEEP, WAKING, HELD, OUT = "awake", "shutting_down", "asleep", "waking", "held", "out"


@dataclass(eq=False)
class Node:
    """A node; `since`: awake, idle since then; falling, asleep from then on; waking, awake from then on."""

    state: str
    since: float
    history: list[tuple[float, str]] = field(default_factory=list)
    """State from each time on, also while a job has the node; later entries are planned changes."""

    def set_history(self, now: float, *entries: tuple[float, str]) -> None:
        """Replace all planned changes by these."""
        self.history = [entry for entry in self.history if entry[0] <= now] + list(entries)

    def state_at(self, time: float) -> str:
        return [AWAKE, *(what for begin, what in self.history if begin <= time)][-1]


class SleepingNodes:
    """Nodes of a group with node sleep."""

    def __init__(self, settings: ReferenceSleep, count: int, now: float) -> None:
        self.settings = settings
        self.nodes = [Node(AWAKE, now) for _ in range(count)]

    def nodes_in(self, state: str, *, latest_first: bool = False) -> list[Node]:
        """The nodes in a state that no job holds, by `since`."""
        return sorted(
            (node for node in self.nodes if node.state == state), key=lambda node: node.since, reverse=latest_first
        )

    def count(self, state: str) -> int:
        return len(self.nodes_in(state))

    def finish_shutdowns(self, now: float) -> None:
        """Mark nodes that have finished shutting down as asleep; this is no event."""
        for node in self.nodes_in(SHUTTING_DOWN):
            if node.since <= now:
                node.state = ASLEEP

    # -- jobs ------------------------------------------------------------------------------------

    def next_nodes(self, need: int, now: float) -> list[tuple[Node, float]]:
        """The nodes that would be allocated to a job now, and when each of them is ready."""
        wake = self.settings.wake
        line = [(node, now) for node in self.nodes_in(AWAKE, latest_first=True)]
        line += [(node, node.since) for node in self.nodes_in(WAKING)]
        line += [(node, now + wake) for node in self.nodes_in(ASLEEP)]
        line += [(node, node.since + wake) for node in self.nodes_in(SHUTTING_DOWN)]
        assert len(line) >= need
        return line[:need]

    def start_of(self, need: int, now: float) -> float:
        """Start of a job whose nodes are allocated now."""
        return max(ready for _, ready in self.next_nodes(need, now))

    def take(self, need: int, now: float) -> list[Node]:
        nodes = self.next_nodes(need, now)
        for node, ready in nodes:
            if node.state == ASLEEP:
                node.set_history(now, (now, WAKING), (ready, AWAKE))
            elif node.state == SHUTTING_DOWN:
                node.set_history(now, (node.since, WAKING), (ready, AWAKE))
            node.state = HELD
        return [node for node, _ in nodes]

    def release(self, nodes: list[Node], debt: int, now: float) -> None:
        """Release a job's nodes: pending outages get `debt` of them, the others are awake and idle from now on."""
        for node in nodes[:debt]:
            node.state = OUT
            node.set_history(now, (now, OUT))
        for node in nodes[debt:]:
            node.state, node.since = AWAKE, now
            node.set_history(now, (now, AWAKE))

    # -- capacity --------------------------------------------------------------------------------

    def remove(self, count: int, now: float) -> None:
        """Remove nodes without a job; missing ones are a debt, which the free counts hold as a negative number."""
        line = self.nodes_in(AWAKE) + self.nodes_in(ASLEEP) + self.nodes_in(SHUTTING_DOWN) + self.nodes_in(WAKING)
        for node in line[:count]:
            node.state = OUT
            node.set_history(now, (now, OUT))

    def restore_nodes(self, count: int, debt: int, now: float) -> None:
        self.release(self.nodes_in(OUT)[: max(0, count - debt)], 0, now)

    # -- after the pass --------------------------------------------------------------------------

    def wake_up(self, want: int, now: float) -> None:
        missing = max(0, want - self.count(AWAKE) - self.count(WAKING))
        for node in self.nodes_in(ASLEEP)[:missing]:
            node.state, node.since = WAKING, now + self.settings.wake
            node.set_history(now, (now, WAKING), (node.since, AWAKE))
        if self.settings.wake == 0:
            self.awake(now)

    def awake(self, now: float) -> None:
        """Mark nodes that have finished waking as awake and idle from now on."""
        for node in self.nodes_in(WAKING):
            if node.since <= now:
                node.state, node.since = AWAKE, now

    def shut_down(self, want: int, now: float) -> None:
        while self.count(AWAKE) > want and self.nodes_in(AWAKE)[0].since + self.settings.timeout <= now:
            node = self.nodes_in(AWAKE)[0]
            node.state, node.since = SHUTTING_DOWN, now + self.settings.shutdown
            node.set_history(now, (now, SHUTTING_DOWN), (node.since, ASLEEP))
        if self.settings.shutdown == 0:
            self.finish_shutdowns(now)

    def wake_times(self) -> list[float]:
        return sorted({node.since for node in self.nodes_in(WAKING)})

    def next_timer(self, now: float) -> float:
        """The next time at which nodes may fall asleep or the reserve changes; inf: none."""
        times = [time for time, _ in self.settings.reserve]
        if self.count(AWAKE) > value_at(self.settings.reserve, now):
            times.append(self.nodes_in(AWAKE)[0].since + self.settings.timeout)
        return min((time for time in times if time > now), default=math.inf)

    # -- results ---------------------------------------------------------------------------------

    def steps(self, end: float) -> list[NodeStep]:
        """Nodes shutting down, asleep and waking, including those of jobs, at every change until `end`."""
        times = sorted({time for node in self.nodes for time, _ in node.history if time <= end})
        steps = [NodeStep(-math.inf, 0, 0, 0)]
        for time in times:
            states = [node.state_at(time) for node in self.nodes]
            numbers = [states.count(what) for what in (SHUTTING_DOWN, ASLEEP, WAKING)]
            if numbers != [*steps[-1][1:]]:
                steps.append(NodeStep(time, *numbers))
        return steps[1:]
