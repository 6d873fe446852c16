"""Training of a `LinearPowerAgent` by CMA-ES: minimum energy (or CO2, or cost) under a limit on the slowdown.

The search starts from the best hand-tuned power controls: those of a small grid with the smallest objective on the
training jobs within the limit. Each generation samples windows of the training jobs and evaluates every candidate on
the same ones, inside the engine. Slowdown above the limit is penalized: a candidate that exceeds it by one per cent
must save several per cent to be preferred. The later validation jobs select between the start and the means of the
second half of the path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from kilowait.agents.evolution.checkpoint import CheckpointDir, Generation, SearchCheckpoint
from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.agents.evolution.search import check_search, mean_bsld, run_search
from kilowait.agents.linear_power.agent import WEIGHT_MEANINGS, LinearPowerAgent, agent_from_controls
from kilowait.cluster import Cluster
from kilowait.engine.settings import Settings
from kilowait.envs.kernels.linear_power_policy import power_policy_kernel
from kilowait.envs.power.power_setup import PowerConfig
from kilowait.envs.power.reward_terms import TERMS
from kilowait.envs.power.vector_env import EnergyVectorEnv
from kilowait.errors import InputError, UnknownNameError
from kilowait.files import locks_output
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

__all__ = ["SlowdownLimit", "CandidateResults", "EvaluationWindows", "train_linear_power"]

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


OBJECTIVES = {"energy": None, "co2": "carbon", "cost": "price"}
"""Objectives, and the signal each needs."""
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
                        cluster.nodes,
                        slowdown=slowdown,
                        when_crowded=when_crowded,
                        timeout_s=timeout_s,
                        reserve=reserve,
                    )
                )
    return agents


@locks_output("checkpoint_dir", inside=True)
def train_linear_power(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    power: PowerConfig,
    *,
    seed: int,
    spent: str = "energy",
    sla: SlowdownLimit | None = None,
    generations: int = 60,
    population: int = 20,
    windows: int = 16,
    window_jobs: int = 512,
    backfill: str | int = Settings.backfill,
    trace: str | None = None,
    threads: int = 1,
    progress: Callable[[Generation], None] | None = None,
    checkpoint_dir: CheckpointDir | None = None,
) -> tuple[LinearPowerAgent, list[Generation]]:
    """An agent trained on `jobs` and selected on `validation`, later jobs of the same log.

    The same arguments give bit-identical weights, on any number of threads, also after a resume.

    Args:
        jobs: training jobs.
        validation: later jobs, which select among the results of the search.
        cluster: the machine.
        power: power model, signals and power controls; dvfs=SLOWDOWN is the slowest state allowed.
        seed: of the search and of the windows.
        spent: objective: energy, co2 or cost.
        sla: limit on the slowdown; None: 1.1 times the slowdown of SAF.
        generations: generations of the search.
        population: candidates a generation.
        windows: windows each candidate is evaluated on, the same for all of a generation.
        window_jobs: jobs in a window.
        backfill: as in `kilowait.simulate`.
        trace: name of the log, for the provenance.
        threads: of the engine.
        progress: called with every generation.
        checkpoint_dir: folder of the checkpoint, and whether to resume from it; None: no checkpoint.
    """
    if spent not in OBJECTIVES:
        raise UnknownNameError("objective", spent, OBJECTIVES)
    check_search(generations, threads)
    sla = SlowdownLimit() if sla is None else sla
    signal = OBJECTIVES[spent]
    if signal is not None and getattr(power, signal) is None:
        raise InputError(f"{spent} needs the {signal} over time, which is missing; give it, or minimize energy")
    training_windows = EvaluationWindows(jobs, cluster, power, windows, window_jobs, backfill, spent)
    validation_windows = EvaluationWindows(validation, cluster, power, windows, window_jobs, backfill, spent)
    random = stream(seed, "agents.steered.windows")
    free = _effective_weights(training_windows, signal)

    first = np.linspace(0, training_windows.last_first, windows).astype(np.int64)
    allowed = training_windows.slowdown_limit(first, sla)
    points = hand_tuned_starts(cluster, _max_slowdown(training_windows), _break_even_s(training_windows))
    identity = {
        "search": "linear power agent",
        "seed": seed,
        "objective": spent,
        "slowdown_limit": [sla.times, sla.policy],
        "backfill": backfill,
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
    }
    checkpoint = SearchCheckpoint(identity, generations, checkpoint_dir)
    values = checkpoint.start_scores(
        points, lambda agents: _values(training_windows.evaluate(agents, first, threads), allowed)
    )
    start = points[int(np.argmin(values))]
    start = replace(start, power_controls=power.power_controls, signal=signal)

    validation_first = np.linspace(0, validation_windows.last_first, windows).astype(np.int64)
    validation_allowed = validation_windows.slowdown_limit(validation_first, sla)
    reference = _values(validation_windows.evaluate([start], validation_first, threads), validation_allowed)[0]
    search = EvolutionStrategy((start.weights / SCALES)[free], step=0.15, seed=seed, population=population)

    def agent(point: Floats) -> LinearPowerAgent:
        weights = start.weights / SCALES
        weights[free] = point
        return replace(start, weights=weights * SCALES)

    def evaluate(points: Floats, _: int) -> tuple[Floats, float]:
        first = random.integers(0, training_windows.last_first + 1, windows)
        allowed = training_windows.slowdown_limit(first, sla)
        results = training_windows.evaluate([start, *(agent(point) for point in points)], first, threads)
        values = _values(results, allowed)
        return values[1:], float(np.exp(np.mean(values[1:]) - values[0]))

    def validate(point: Floats) -> float:
        results = validation_windows.evaluate([agent(point)], validation_first, threads)
        return float(np.exp(_values(results, validation_allowed)[0] - reference))

    run_search(search, checkpoint, random, evaluate, validate=validate, progress=progress)
    chosen = start if checkpoint.best is None else agent(checkpoint.best[1])
    provenance = {
        "trained_by": "kilowait.agents.linear_power.train (CMA-ES)",
        "env": "kilowait/Energy-v0",
        "trace": trace,
        "trained_on_jobs": len(jobs),
        "validation_jobs": len(validation),
        "nodes": cluster.nodes,
        "seed": seed,
        "objective": spent,
        "sla": {"times": sla.times, "policy": sla.policy},
        "backfill": backfill,
        "generations": len(checkpoint.history),
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
        "validation_relative_to_start": 1.0 if checkpoint.best is None else checkpoint.best[0],
        "start": dict(zip(WEIGHT_MEANINGS, start.weights.tolist(), strict=True)),
    }
    return replace(chosen, provenance=provenance), checkpoint.history


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
