"""Training of a `LinearPowerAgent` by CMA-ES: minimum energy (or CO2, or cost) under a limit on the slowdown.

The search starts from the best hand-tuned power controls: those of a small grid with the smallest objective on the
training jobs within the limit. Each generation samples windows of the training jobs and evaluates every candidate on
the same ones, inside the engine. Slowdown above the limit is penalized: a candidate that exceeds it by one per cent
must save several per cent to be preferred. The later validation jobs select between the start and the means of the
second half of the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from kilowait.agents.evolution.search import Objective, SearchCheckpoint, SearchSettings, last_start, mean_bsld
from kilowait.agents.linear_power import WEIGHT_MEANINGS, LinearPowerAgent, agent_from_controls
from kilowait.cluster import Cluster
from kilowait.engine.settings import Settings
from kilowait.envs.energy_env import EnergyVectorEnv
from kilowait.envs.kernels.linear_power_policy import power_policy_kernel
from kilowait.envs.power_setup import PowerConfig
from kilowait.envs.reward_terms import ENERGY_TERMS as TERMS
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SlowdownLimit:
    """Constraint: mean slowdown at most `times` that of a policy without power controls."""

    times: float = 1.1
    policy: str = "saf"

    def __post_init__(self) -> None:
        if not self.times > 0:
            raise InputError(f"a limit of {self.times} times the slowdown of {self.policy}; it must be above 0")


OBJECTIVES = {"energy": None, "co2": "carbon", "cost": "price"}
"""Objectives, and the signal each needs."""


@dataclass(frozen=True, kw_only=True)
class PowerSearchSettings(SearchSettings):
    """Settings of the training of a `LinearPowerAgent`."""

    generations: int = 60
    population: int = 20
    windows: int = 16
    window_jobs: int = 512
    objective: str = "energy"
    """energy, co2 or cost."""
    slowdown_limit: SlowdownLimit = field(default_factory=SlowdownLimit)
    backfill: str | int = Settings.backfill
    """As in `kilowait.simulate`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective", self.objective, OBJECTIVES)


@dataclass(frozen=True)
class CandidateResults:
    """Results of candidates on windows, one row a candidate: means over all jobs of a window."""

    spent: Floats
    """kWh, kg or money per job, (candidates, windows)."""
    slowdown: Floats
    """Mean bounded slowdown, relative to the run time at full speed."""


class EvaluationWindows:
    """Windows of a log on which candidates are evaluated, all in one call of the engine."""

    def __init__(self, jobs: JobTable, cluster: Cluster, power: PowerConfig, settings: PowerSearchSettings) -> None:
        windows, window_jobs, backfill = settings.windows, settings.window_jobs, settings.backfill
        self.last_first = last_start(jobs, windows, window_jobs)
        options: dict[str, Any] = {**vars(power), "reward": {settings.objective: 1.0}, "backfill": backfill}
        self.vec = EnergyVectorEnv(
            windows,
            jobs=jobs,
            cluster=cluster,
            episode_jobs=window_jobs,
            autoreset_mode=AutoresetMode.DISABLED,
            queue_window=1,
            **options,
        )
        self.jobs, self.cluster, self.window_jobs = jobs.sorted(), cluster, window_jobs
        self.windows, self.backfill, self.threads = windows, backfill, settings.threads
        self.objective_column = 3 + list(TERMS).index(settings.objective)

    def evaluate(self, agents: Sequence[LinearPowerAgent], first_rows: npt.NDArray[np.int64]) -> CandidateResults:
        """Results of each agent on the windows that begin at these rows."""
        simulator = self.vec.simulator
        arrays = (simulator.states, simulator.buffers, simulator.log_arrays)
        cuts = [self.windows * i // self.threads for i in range(self.threads + 1)]
        spent, slowdown = np.empty((2, len(agents), self.windows))
        run: Any = None
        with ThreadPoolExecutor(self.threads) as pool:
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

    def slowdown_limit(self, first_rows: npt.NDArray[np.int64], limit: SlowdownLimit) -> float:
        """The largest mean slowdown allowed on these windows."""
        logs = [
            simulate(self.jobs[row : row + self.window_jobs], self.cluster, limit.policy, self.backfill)
            for row in first_rows.tolist()
        ]
        return limit.times * float(np.mean([mean_bsld(log) for log in logs]))


SLOWDOWN_PENALTY = 5.0
"""Penalty of each per cent of slowdown above the limit, in per cent of the objective."""

_SCALES: dict[str, float] = {
    "slowdown": 0.2, "slowdown_length": 0.2, "slowdown_width": 0.2, "crowded": 0.2, "backlog": 0.2, "backfill": 0.2,
    "signal": 1.0, "timeout": 2.0, "timeout_waiting": 2.0, "timeout_busy": 2.0, "spare": 0.05, "spare_demand": 0.5,
    "spare_waiting": 0.05, "hold": 0.5,
}  # fmt: skip
"""Scale of each weight: changes of about equal effect; the weights of the job order together have length 1."""
SCALES: Floats = np.array([_SCALES.get(name, 1.0) for name in WEIGHT_MEANINGS])
_DVFS_WEIGHTS = ("slowdown", "slowdown_length", "slowdown_width", "crowded", "backlog", "backfill")
_SLEEP_WEIGHTS = ("timeout", "timeout_waiting", "timeout_busy", "spare", "spare_demand", "spare_waiting")
_SIGNAL_WEIGHTS = ("signal", "hold")


def hand_tuned_starts(cluster: Cluster, max_slowdown: float, break_even_s: float) -> list[LinearPowerAgent]:
    """Hand-tuned power controls as weights: DVFS x when crowded x timeouts x reserves; smallest area first.

    `longest` is the relative increase of the run time in the slowest DVFS state.

    >>> len(hand_tuned_starts(Cluster.from_nodes(8), 0.2, 300.0))
    35
    """
    agents = []
    for slowdown, when_crowded in [(0.0, False)] + [
        (slowdown, when_crowded) for slowdown in (max_slowdown / 3, max_slowdown) for when_crowded in (False, True)
    ]:
        for timeout_s in (60.0, break_even_s, 4 * break_even_s, None):
            for reserve in (0.0,) if timeout_s is None else (0.0, 0.05):
                agents.append(
                    agent_from_controls(
                        cluster.size, slowdown=slowdown, when_crowded=when_crowded, timeout_s=timeout_s, reserve=reserve
                    )
                )
    return agents


class PowerObjective(Objective[LinearPowerAgent]):
    """The objective of a `LinearPowerAgent`, trained on `jobs` and selected on `validation`.

    Args:
        jobs: training jobs.
        validation: later jobs of the same log, which select among the results of the search.
        cluster: the machine.
        power: power model, signals and power controls; dvfs=SLOWDOWN is the slowest state allowed.
        settings: settings of the search.
    """

    kind = "linear power agent"
    step = 0.15

    def __init__(
        self, jobs: JobTable, validation: JobTable, cluster: Cluster, power: PowerConfig, settings: PowerSearchSettings
    ) -> None:
        self._cluster, self._power = cluster, power
        self.settings: PowerSearchSettings = settings
        self._limit, self._signal = settings.slowdown_limit, OBJECTIVES[settings.objective]
        if self._signal is not None and getattr(power, self._signal) is None:
            raise InputError(
                f"{settings.objective} needs the {self._signal} over time, which is missing; give it, or minimize "
                "energy"
            )
        self.identity = {
            "objective": settings.objective,
            "slowdown_limit": [self._limit.times, self._limit.policy],
            "backfill": settings.backfill,
        }
        self._training = EvaluationWindows(jobs, cluster, power, settings)
        self._validation = EvaluationWindows(validation, cluster, power, settings)
        self.random = stream(settings.seed, "agents.steered.windows")
        self._free = _effective_weights(self._training, self._signal)

    def start(self, checkpoint: SearchCheckpoint) -> Floats:
        """The weights of the best hand-tuned power controls, those that have an effect."""
        training, validation = self._training, self._validation
        first = _even_rows(training)
        allowed = training.slowdown_limit(first, self._limit)
        points = hand_tuned_starts(self._cluster, _max_slowdown(training), _break_even_s(training))
        values = checkpoint.start_scores(points, lambda agents: _values(training.evaluate(agents, first), allowed))
        start = points[int(np.argmin(values))]
        self._start = replace(start, power_controls=self._power.power_controls, signal=self._signal)
        self._validation_first = _even_rows(validation)
        self._validation_allowed = validation.slowdown_limit(self._validation_first, self._limit)
        self._reference = self._validated(self._start)
        return np.asarray((self._start.weights / SCALES)[self._free])

    def evaluate(self, points: Floats, number: int) -> tuple[Floats, float]:
        """Logarithms of the objective, plus the penalty of slowdown above the limit."""
        first = self.random.integers(0, self._training.last_first + 1, self.settings.windows)
        allowed = self._training.slowdown_limit(first, self._limit)
        agents = [self._start, *(self._with_weights(point) for point in points)]
        values = _values(self._training.evaluate(agents, first), allowed)
        return values[1:], float(np.exp(np.mean(values[1:]) - values[0]))

    def validate(self, point: Floats) -> float:
        """The ratio of the objective, with its penalty, to that of the start."""
        return float(np.exp(self._validated(self._with_weights(point)) - self._reference))

    def agent(self, checkpoint: SearchCheckpoint) -> LinearPowerAgent:
        """The best validated weights."""
        settings, start = self.settings, self._start
        chosen = start if checkpoint.best is None else self._with_weights(checkpoint.best[1])
        provenance = {
            "trained_by": "kilowait.agents.evolution.power (CMA-ES)",
            "env": "kilowait/Energy-v0",
            "trace": settings.trace,
            "trained_on_jobs": len(self._training.jobs),
            "validation_jobs": len(self._validation.jobs),
            "nodes": self._cluster.size,
            "seed": settings.seed,
            "objective": settings.objective,
            "sla": {"times": self._limit.times, "policy": self._limit.policy},
            "backfill": settings.backfill,
            **self.size(checkpoint),
            "validation_relative_to_start": 1.0 if checkpoint.best is None else checkpoint.best[0],
            "start": dict(zip(WEIGHT_MEANINGS, start.weights.tolist(), strict=True)),
        }
        return replace(chosen, provenance=provenance)

    def _with_weights(self, point: Floats) -> LinearPowerAgent:
        weights = self._start.weights / SCALES
        weights[self._free] = point
        return replace(self._start, weights=weights * SCALES)

    def _validated(self, agent: LinearPowerAgent) -> float:
        results = self._validation.evaluate([agent], self._validation_first)
        return float(_values(results, self._validation_allowed)[0])


def _even_rows(windows: EvaluationWindows) -> npt.NDArray[np.int64]:
    """First rows of equally spaced windows."""
    return np.linspace(0, windows.last_first, windows.windows).astype(np.int64)


def _values(evaluation: CandidateResults, allowed: float) -> Floats:
    """ln of the mean objective over all windows, plus the penalty of slowdown above the allowed."""
    spent = np.log(np.maximum(evaluation.spent.mean(axis=1), 1e-300))
    excess = np.log(evaluation.slowdown.mean(axis=1) / allowed)
    return np.asarray(spent + SLOWDOWN_PENALTY * np.maximum(excess, 0.0))


def _effective_weights(windows: EvaluationWindows, signal: str | None) -> npt.NDArray[np.bool_]:
    """Which weights have an effect on this machine."""
    power_setup = windows.vec.power_setup
    without_effect = set(() if power_setup.power_tables.may.shape[1] > 1 else _DVFS_WEIGHTS)
    without_effect |= set(() if power_setup.power_controls.sleep else _SLEEP_WEIGHTS)
    without_effect |= set(() if signal is not None else _SIGNAL_WEIGHTS)
    if power_setup.power_tables.may.shape[1] == 1:
        without_effect.add("signal")
    return np.array([name not in without_effect for name in WEIGHT_MEANINGS])


def _max_slowdown(windows: EvaluationWindows) -> float:
    """Relative increase of the run time in the slowest DVFS state."""
    power_controls = windows.vec.power_setup.power_controls
    choices = windows.vec.power_setup.power_tables.may.shape[1]
    return 0.0 if power_controls.factor is None else float(power_controls.factor[:, :, :choices].max()) - 1.0


def _break_even_s(windows: EvaluationWindows) -> float:
    power_setup = windows.vec.power_setup
    times_s = [
        group.sleep.break_even_s(group.idle_w)
        for group in power_setup.model.groups
        if group.sleep is not None and group.name in power_setup.power_controls.sleep
    ]
    return max(times_s, default=600.0)
