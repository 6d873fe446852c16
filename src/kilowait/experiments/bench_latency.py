"""How long a decision takes: against the length of the queue, and against the size of the machine.

The workload holds the queue at one length. A job that runs for days has all but one part of the machine; Q others wait
for two parts each and cannot start; small short jobs come one by one and fill the last part, and each of them makes
the rule, or the agent, look at the whole queue. Its cost is told apart from all else by two runs, one with more such
jobs than the other. A larger machine has larger parts: the same queue, the same decisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

import kilowait as kw
from kilowait.jobs import JobTable

__all__ = ["LENGTHS", "NODES", "Latency", "latencies", "slope", "slopes", "standing_queue"]

LENGTHS = (64, 256, 1024, 4096, 16384)
NODES = (256, 1024, 4096, 16384, 49152)
QUEUE_OF_NODES = 1024
"""Waiting jobs where the machine is what changes."""
PARTS = 256
"""Parts a machine has."""
SLOTS = 128
"""Jobs a network is shown at once, unless it is shown all."""
MOST_PROBES = 16_384
FLAT = 256
"""Queues shorter than this are left out of the slope: there other costs are as large."""


@dataclass(frozen=True)
class Latency:
    """Of one decider, in one setting."""

    decider: str
    queue: int
    """Jobs that wait."""
    nodes: int
    seconds: float
    """A decision: scoring, choosing, starting, and the events in between."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def standing_queue(queue: int, nodes: int, probes: int) -> JobTable:
    """A queue that stands, and so many small jobs that pass it.

    >>> jobs = standing_queue(3, 256, probes=2)
    >>> jobs["nodes"].tolist(), jobs["submit_s"].tolist()
    ([255, 2, 2, 2, 1, 1], [0.0, 1.0, 1.0, 1.0, 100.0, 200.0])
    """
    part = nodes // PARTS
    lasting_s = 100.0 * (probes + 2)
    waiting = np.arange(queue)
    count = 1 + queue + probes
    asked_s = np.concatenate([[lasting_s], 600.0 + 60.0 * (waiting % 97), np.full(probes, 30.0)])
    return JobTable(
        job_id=np.arange(count),
        submit_s=np.concatenate([[0.0], np.ones(queue), 100.0 * np.arange(1, probes + 1)]),
        runtime_s=np.minimum(asked_s, np.append(lasting_s, np.full(count - 1, 600.0))),  # they end together
        estimate_s=asked_s,
        nodes=np.concatenate([[part * (PARTS - 1)], np.full(queue, 2 * part), np.full(probes, part)]),
        user=np.arange(count) % 7,
    )


def latencies(
    *,
    lengths: Sequence[int] = LENGTHS,
    nodes: Sequence[int] = NODES,
    seconds: float = 0.3,
    networks: bool = True,
) -> Iterator[Latency]:
    """Every decider at every length of the queue, then on every size of machine; each as soon as it is measured.

    `seconds` are spent on each figure, at least; the best of several runs counts.
    """
    deciders = _deciders(networks)
    settings = [(length, NODES[0]) for length in lengths]
    settings += [(QUEUE_OF_NODES, size) for size in nodes if (QUEUE_OF_NODES, size) not in settings]
    for queue, size in settings:
        for name, measured in deciders.items():
            yield Latency(name, queue, size, measured(queue, size, seconds))


def slope(found: Sequence[Latency], decider: str, along: str) -> float:
    """Growth of the latency along "queue" or "nodes", as a power: 1 is in proportion, 0 not at all.

    >>> made = [Latency("x", queue, 256, 1e-9 * queue**2) for queue in (256, 512, 1024)]
    >>> round(slope(made, "x", "queue"), 6)
    2.0
    """
    fixed, least = ("nodes", FLAT) if along == "queue" else ("queue", 0)
    other = NODES[0] if along == "queue" else QUEUE_OF_NODES
    rows = [one for one in found if one.decider == decider and getattr(one, fixed) == other]
    points = [(getattr(one, along), one.seconds) for one in rows if getattr(one, along) >= least]
    if len({at for at, _ in points}) < 2:
        return float("nan")
    at, took = np.log(np.array(points).T)
    return float(np.polyfit(at, took, 1)[0])


def slopes(found: Sequence[Latency]) -> dict[str, tuple[float, float]]:
    """By decider: along the queue, and along the nodes."""
    names = dict.fromkeys(one.decider for one in found)
    return {name: (slope(found, name, "queue"), slope(found, name, "nodes")) for name in names}


Measure = Callable[[int, int, float], float]


def _deciders(networks: bool) -> dict[str, Measure]:
    from kilowait.agents import FEATURES, LinearAgent

    linear = LinearAgent(np.linspace(1.0, 0.1, len(FEATURES)))
    found: dict[str, Measure] = {
        "SAF": partial(_rule_s, "saf"),
        "WFP3": partial(_rule_s, "wfp3"),
        "linear agent": partial(_rule_s, linear),
    }
    if networks:
        found[f"kernel network, {SLOTS} slots"] = partial(_network_s, SLOTS)
        found["kernel network, all shown"] = partial(_network_s, 0)
    return found


def _rule_s(policy: Any, queue: int, nodes: int, seconds: float) -> float:
    """By two whole runs; what comes before and after the small jobs is the same in both."""
    cluster = kw.Cluster.from_nodes(nodes)
    few, many = 8, 64

    def took_s(jobs: JobTable) -> float:
        began = time.perf_counter()
        kw.simulate(jobs, cluster, policy, "easy")
        return time.perf_counter() - began

    short = standing_queue(queue, nodes, few)
    took_s(short)  # compiled
    base = min(took_s(short) for _ in range(3))
    while took_s(long := standing_queue(queue, nodes, many)) < 2 * base and many < MOST_PROBES:
        many *= 4  # until what is looked for is half of what is measured
    times: list[tuple[float, float]] = []
    while len(times) < 3 or np.sum(times) < seconds:
        times.append((took_s(short), took_s(long)))
    least = np.min(times, axis=0)
    return float(max(least[1] - least[0], 1e-9) / (many - few))


def _network_s(queue_window: int, queue: int, nodes: int, seconds: float) -> float:
    """Inside the engine, from the first decision to the start of the last small job."""
    from kilowait.agents.network_policies.batch import engine_weights
    from kilowait.agents.networks import network
    from kilowait.envs.kernels.inline_network import inference_kernel
    from kilowait.envs.vector_env import BatchVectorEnv

    probes = max(8, 4096 // queue)
    jobs = standing_queue(queue, nodes, probes)
    vec = BatchVectorEnv(
        1, jobs=jobs, cluster=kw.Cluster.from_nodes(nodes), episode_jobs=len(jobs), autoreset_mode="Disabled",
        queue_window=queue_window or queue + probes, backfill_order="agent", threads=1,
    )  # fmt: skip
    layers = engine_weights(network(vec.observation_spec, "kernel"))
    assert layers is not None
    arrays = (vec.simulator.states, vec.simulator.buffers, vec.simulator.log_arrays)
    think = inference_kernel(*arrays, layers)
    best, spent, runs = np.inf, 0.0, 0
    while runs < 3 or spent < seconds:
        vec.reset(options={"first": 0})
        vec.simulator.buffers.copies["jobs"] = (
            1 + probes
        )  # over when the small ones have started; the queue stays
        before = int(vec.simulator.buffers.copies["steps"][0])
        began = time.perf_counter()
        think(*arrays, layers, 0, 1)
        took = time.perf_counter() - began
        best = min(best, took / max(int(vec.simulator.buffers.copies["steps"][0]) - before, 1))
        spent, runs = spent + took, runs + 1
    vec.close()
    return best
