"""Benchmark of decision latency as a function of queue length and of cluster size.

The workload keeps the queue at a constant length. The cluster is divided into 256 equal parts. One long job occupies
all parts but one. Q jobs wait for two parts each and cannot start. Small short jobs arrive one by one and fill the
last part; for each of them the policy or agent evaluates the full queue. The cost of a decision is the difference
between two runs with different numbers of small jobs. On a larger cluster the parts are larger, so queue and
decisions are the same.
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
"""Waiting jobs when the cluster size is varied."""
PARTS = 256
"""Parts of the cluster."""
QUEUE_WINDOW = 128
"""Queue window of a network that does not observe all jobs."""
MAX_PROBES = 16_384
"""Upper limit of the number of small jobs."""
MIN_QUEUE_OF_SLOPE = 256
"""Shorter queues are excluded from the slope, because other costs dominate there."""


@dataclass(frozen=True)
class Latency:
    """Decision latency of one policy with one queue length and cluster size."""

    policy: str
    queue: int
    """Waiting jobs."""
    nodes: int
    seconds: float
    """Seconds per decision: scoring, choosing and starting a job, and the events in between."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def standing_queue(queue: int, nodes: int, probes: int) -> JobTable:
    """A workload with `queue` jobs that wait and `probes` small jobs that are started before them.

    >>> jobs = standing_queue(3, 256, probes=2)
    >>> jobs["nodes"].tolist(), jobs["submit_s"].tolist()
    ([255, 2, 2, 2, 1, 1], [0.0, 1.0, 1.0, 1.0, 100.0, 200.0])
    """
    part = nodes // PARTS
    long_job_s = 100.0 * (probes + 2)
    waiting = np.arange(queue)
    count = 1 + queue + probes
    # All waiting jobs have the same run time, but different estimates.
    estimate_s = np.concatenate([[long_job_s], 600.0 + 60.0 * (waiting % 97), np.full(probes, 30.0)])
    return JobTable(
        job_id=np.arange(count),
        submit_s=np.concatenate([[0.0], np.ones(queue), 100.0 * np.arange(1, probes + 1)]),
        runtime_s=np.minimum(estimate_s, np.append(long_job_s, np.full(count - 1, 600.0))),
        estimate_s=estimate_s,
        nodes=np.concatenate([[part * (PARTS - 1)], np.full(queue, 2 * part), np.full(probes, part)]),
        user=np.arange(count) % 7,
    )


def latencies(
    *, lengths: Sequence[int] = LENGTHS, nodes: Sequence[int] = NODES, seconds: float = 0.3, networks: bool = True
) -> Iterator[Latency]:
    """Yield the latency of every policy for every queue length, then for every cluster size.

    Each measurement takes at least `seconds`; it is the best of several runs.
    """
    measurements = _measurements(networks)
    settings = [(length, NODES[0]) for length in lengths]
    settings += [(QUEUE_OF_NODES, size) for size in nodes if (QUEUE_OF_NODES, size) not in settings]
    for queue, size in settings:
        for name, measure in measurements.items():
            yield Latency(name, queue, size, measure(queue, size, seconds))


def slope(results: Sequence[Latency], policy: str, variable: str) -> float:
    """Exponent of the growth of the latency with "queue" or "nodes": 1 is proportional, 0 is constant.

    >>> results = [Latency("x", queue, 256, 1e-9 * queue**2) for queue in (256, 512, 1024)]
    >>> round(slope(results, "x", "queue"), 6)
    2.0
    """
    fixed, minimum = ("nodes", MIN_QUEUE_OF_SLOPE) if variable == "queue" else ("queue", 0)
    fixed_value = NODES[0] if variable == "queue" else QUEUE_OF_NODES
    rows = [row for row in results if row.policy == policy and getattr(row, fixed) == fixed_value]
    points = [(getattr(row, variable), row.seconds) for row in rows if getattr(row, variable) >= minimum]
    if len({value for value, _ in points}) < 2:
        return float("nan")
    log_value, log_seconds = np.log(np.array(points).T)
    return float(np.polyfit(log_value, log_seconds, 1)[0])


def slopes(results: Sequence[Latency]) -> dict[str, tuple[float, float]]:
    """For each policy, the exponents of the growth with the queue length and with the number of nodes."""
    names = dict.fromkeys(row.policy for row in results)
    return {name: (slope(results, name, "queue"), slope(results, name, "nodes")) for name in names}


Measure = Callable[[int, int, float], float]


def _measurements(networks: bool) -> dict[str, Measure]:
    from kilowait.agents import FEATURES, LinearAgent

    linear = LinearAgent(np.linspace(1.0, 0.1, len(FEATURES)))
    measurements: dict[str, Measure] = {
        "SAF": partial(_policy_s, "saf"),
        "WFP3": partial(_policy_s, "wfp3"),
        "linear agent": partial(_policy_s, linear),
    }
    if networks:
        measurements[f"kernel network, {QUEUE_WINDOW} jobs observed"] = partial(_network_s, QUEUE_WINDOW)
        measurements["kernel network, all observed"] = partial(_network_s, 0)
    return measurements


def _policy_s(policy: Any, queue: int, nodes: int, seconds: float) -> float:
    """Seconds per decision: the difference between two runs that differ only in the number of small jobs."""
    cluster = kw.Cluster.from_nodes(nodes)
    few, many = 8, 64

    def run_s(jobs: JobTable) -> float:
        began = time.perf_counter()
        kw.simulate(jobs, cluster, policy, "easy")
        return time.perf_counter() - began

    short = standing_queue(queue, nodes, few)
    run_s(short)  # compiles the kernels
    base = min(run_s(short) for _ in range(3))
    while run_s(long := standing_queue(queue, nodes, many)) < 2 * base and many < MAX_PROBES:
        many *= 4  # until the small jobs take half of the time
    times: list[tuple[float, float]] = []
    while len(times) < 3 or np.sum(times) < seconds:
        times.append((run_s(short), run_s(long)))
    fastest = np.min(times, axis=0)
    return float(max(fastest[1] - fastest[0], 1e-9) / (many - few))


def _network_s(queue_window: int, queue: int, nodes: int, seconds: float) -> float:
    """Seconds per decision of a network in the engine, until the last small job has started."""
    from kilowait.agents.network_policies import engine_weights
    from kilowait.agents.networks import network
    from kilowait.envs.batch_env import BatchVectorEnv
    from kilowait.envs.kernels.inline_network import inference_kernel

    probes = max(8, 4096 // queue)
    jobs = standing_queue(queue, nodes, probes)
    vec = BatchVectorEnv(
        1, jobs=jobs, cluster=kw.Cluster.from_nodes(nodes), episode_jobs=len(jobs), autoreset_mode="Disabled",
        queue_window=queue_window or queue + probes, backfill_order="agent", threads=1,
    )  # fmt: skip
    layers = engine_weights(network(vec.observation_spec, "kernel"))
    assert layers is not None
    arrays = (vec.simulator.states, vec.simulator.buffers, vec.simulator.log_arrays)
    run_episode = inference_kernel(*arrays, layers)
    best, spent, runs = np.inf, 0.0, 0
    while runs < 3 or spent < seconds:
        vec.reset(options={"first": 0})
        # The episode ends when the small jobs have started; the queue remains.
        vec.simulator.buffers.copies["jobs"] = 1 + probes
        before = int(vec.simulator.buffers.copies["steps"][0])
        began = time.perf_counter()
        run_episode(*arrays, layers, 0, 1)
        elapsed = time.perf_counter() - began
        best = min(best, elapsed / max(int(vec.simulator.buffers.copies["steps"][0]) - before, 1))
        spent, runs = spent + elapsed, runs + 1
    vec.close()
    return best
