"""Objective of power-control training: energy, CO2 or cost of windows of a log, and their slowdown."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from kilowait.agents.evolution.objectives import mean_bsld
from kilowait.agents.linear_power.agent import LinearPowerAgent
from kilowait.cluster import Cluster
from kilowait.envs.kernels.linear_power_policy import power_policy_kernel
from kilowait.envs.power.power_setup import PowerConfig
from kilowait.envs.power.reward_terms import TERMS
from kilowait.envs.power.vector_env import EnergyVectorEnv
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies import simulate

__all__ = ["SlowdownLimit", "CandidateResults", "EvaluationWindows"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SlowdownLimit:
    """Constraint: mean slowdown at most `times` that of a policy without power controls."""

    times: float = 1.1
    policy: str = "saf"

    def __post_init__(self) -> None:
        if not self.times > 0:
            raise InputError(f"a limit of {self.times} times the slowdown of {self.policy}; it must be above 0")


@dataclass(frozen=True)
class CandidateResults:
    """Results of candidates on windows, one row a candidate: means over all jobs of a window."""

    spent: Floats
    """kWh, kg or money per job, (candidates, windows)."""
    slowdown: Floats
    """Mean bounded slowdown, relative to the run time at full speed."""


class EvaluationWindows:
    """Windows of a log on which candidates are evaluated, all in one call of the engine."""

    def __init__(
        self, jobs: JobTable, cluster: Cluster, power: PowerConfig, windows: int, window_jobs: int,
        backfill: str | int, spent: str,
    ) -> None:  # fmt: skip
        if len(jobs) < window_jobs:
            raise InputError(
                f"a window of {window_jobs:,} jobs is longer than the {len(jobs):,} jobs available; take "
                "shorter windows or a longer log"
            )
        options: dict[str, Any] = {**vars(power), "reward": {spent: 1.0}, "backfill": backfill}
        self.vec = EnergyVectorEnv(
            windows,
            jobs=jobs,
            cluster=cluster,
            episode_jobs=window_jobs,
            autoreset_mode=AutoresetMode.DISABLED,
            queue_window=1,
            **options,
        )
        self.jobs, self.cluster, self.window_jobs, self.last_first = (
            jobs.sorted(),
            cluster,
            window_jobs,
            len(jobs) - window_jobs,
        )
        self.windows, self.backfill, self.objective_column = windows, backfill, 3 + list(TERMS).index(spent)

    def evaluate(
        self, agents: Sequence[LinearPowerAgent], first_rows: npt.NDArray[np.int64], threads: int
    ) -> CandidateResults:
        """Results of each agent on the windows that begin at these rows."""
        simulator = self.vec.simulator
        arrays = (simulator.states, simulator.buffers, simulator.log_arrays)
        cuts = [self.windows * i // threads for i in range(threads + 1)]
        spent, slowdown = np.empty((2, len(agents), self.windows))
        run: Any = None
        with ThreadPoolExecutor(threads) as pool:
            for row, agent in enumerate(agents):
                weights = agent.policy_weights(self.jobs, self.cluster, self.vec.power_setup)
                self.vec.reset(options={"first": first_rows})
                run = (
                    power_policy_kernel(*arrays, weights) if run is None else run
                )  # looking up the compiled function takes longer than a run
                list(pool.map(lambda bounds: run(*arrays, weights, *bounds), pairwise(cuts)))  # noqa: B023
                spent[row] = simulator.buffers.finished[:, self.objective_column]
                slowdown[row] = 1.0 + simulator.buffers.finished[:, 3]
        return CandidateResults(spent, slowdown)

    def slowdown_limit(self, first_rows: npt.NDArray[np.int64], sla: SlowdownLimit) -> float:
        """The largest mean slowdown allowed on these windows."""
        logs = [
            simulate(self.jobs[row : row + self.window_jobs], self.cluster, sla.policy, self.backfill)
            for row in first_rows.tolist()
        ]
        return sla.times * float(np.mean([mean_bsld(log) for log in logs]))
