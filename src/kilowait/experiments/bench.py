"""Speed of simulations on this machine: jobs per second of a job log under several policies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kilowait.cluster import Cluster
from kilowait.experiments.policies import resolve_policy
from kilowait.jobs import JobTable
from kilowait.policies import simulate

MIN_TOTAL_S, MAX_CALLS = 1.0, 1000
"""A simulation is repeated for this time, seconds, but not more often than this."""


@dataclass(frozen=True)
class SimulationSpeed:
    """Speed of one policy: the fastest of several simulations, without the compilation of the kernels."""

    policy: str
    jobs: int
    seconds: float
    first_s: float
    """Seconds of the first simulation, which compiles the kernels or loads them from the cache."""

    @property
    def jobs_per_s(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "jobs_per_s": self.jobs_per_s}


def simulation_speeds(
    jobs: JobTable, cluster: Cluster, policies: Sequence[str], **settings: Any
) -> Iterator[SimulationSpeed]:
    """Yield the speed of each policy (names as on the command line) as soon as it is measured.

    `settings` are arguments of `kilowait.simulate`, such as ``backfill="easy"``.

    >>> from kilowait.synth import lublin
    >>> [speed.policy for speed in simulation_speeds(lublin(50, 16), Cluster.from_nodes(16), ["fcfs", "sjf"])]
    ['fcfs', 'sjf']
    """
    for name in policies:
        policy = resolve_policy(name)
        times: list[float] = []
        while len(times) < 3 or (sum(times[1:]) < MIN_TOTAL_S and len(times) < MAX_CALLS):
            began = time.perf_counter()
            simulate(jobs, cluster, policy, **settings)
            times.append(time.perf_counter() - began)
        yield SimulationSpeed(name, len(jobs), min(times[1:]), times[0])
