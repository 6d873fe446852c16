"""Training a `SteeredAgent` by direct search: least energy (or CO2, or cost) while nobody waits much longer.

The search begins at the best levers written by hand: those of a small grid that spend least on the training jobs within
the limit. Each generation draws windows from the training jobs and lets every candidate steer the same ones, inside the
engine. What is spent over the limit of the slowdown is charged, so that a candidate that breaks it by one
per cent must save several to be preferred. The later validation jobs choose among the path of the search, averaged
over its latter half, and the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.checkpoint import CheckpointDir, Generation, SearchCheckpoint
from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.agents.linear_power.agent import WEIGHTS, LinearPowerAgent, from_controls
from kilowait.agents.linear_power.objective import Evaluation, EvaluationWindows, SlowdownLimit
from kilowait.cluster import Cluster
from kilowait.envs.power.power_setup import PowerConfig
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.rng import stream

__all__ = ["SPENT", "SlowdownLimit", "starts", "train_steered"]

Floats = npt.NDArray[np.float64]

SPENT = {"energy": None, "co2": "carbon", "cost": "price"}
"""What can be made small, and the signal that it needs."""
CHARGE = 5.0
"""What each per cent of slowdown beyond the limit costs, in per cent of what is to be small."""

_UNIT: dict[str, float] = {
    "longer": 0.2, "longer_length": 0.2, "longer_width": 0.2, "crowded": 0.2, "backlog": 0.2, "behind": 0.2,
    "signal": 1.0, "timeout": 2.0, "timeout_waiting": 2.0, "timeout_busy": 2.0, "spare": 0.05, "spare_demand": 0.5,
    "spare_waiting": 0.05, "hold": 0.5,
}  # fmt: skip
"""How far a weight may be moved for about the same effect; those of the order are of length 1 together."""
UNIT: Floats = np.array([_UNIT.get(name, 1.0) for name in WEIGHTS])
_LEVELS = ("longer", "longer_length", "longer_width", "crowded", "backlog", "behind")
_SLEEP = ("timeout", "timeout_waiting", "timeout_busy", "spare", "spare_demand", "spare_waiting")
_SIGNAL = ("signal", "hold")


def starts(cluster: Cluster, longest: float, break_even_s: float) -> list[LinearPowerAgent]:
    """Levers written by hand, as weights: levels x when crowded x timeouts x reserves; smallest area first.

    `longest` is how much longer the slowest level makes jobs.

    >>> len(starts(Cluster.from_nodes(8), 0.2, 300.0))
    35
    """
    found = []
    for longer, always in [(0.0, False)] + [
        (more, always) for more in (longest / 3, longest) for always in (False, True)
    ]:
        for timeout_s in (60.0, break_even_s, 4 * break_even_s, None):
            for reserve in (0.0,) if timeout_s is None else (0.0, 0.05):
                found.append(
                    from_controls(
                        cluster.nodes, longer=longer, always=always, timeout_s=timeout_s, reserve=reserve
                    )
                )
    return found


def train_steered(
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
    backfill: str | int = "easy",
    trace: str | None = None,
    threads: int = 1,
    progress: Callable[[Generation], None] | None = None,
    keeping: CheckpointDir | None = None,
) -> tuple[LinearPowerAgent, list[Generation]]:
    """An agent trained on `jobs` and chosen on `validation`, later jobs of the same log.

    Same arguments, same weights, to the bit, on any number of threads, and gone on with after a kill or not.

    Args:
        jobs: what is learned from.
        validation: later jobs, which pick among what the search found.
        cluster: the machine.
        power: its power, signals and levers; dvfs=SLOWDOWN is the slowest that may be chosen.
        seed: of the search and of the windows.
        spent: what is to be small: energy, co2 or cost.
        sla: what users are promised meanwhile; None: 1.1 times the slowdown of SAF.
        generations: rounds of the search.
        population: candidates a round.
        windows: windows each candidate is tried on, the same for all of a round.
        window_jobs: jobs in each.
        backfill: as in `kilowait.simulate`.
        trace: name of the log, for the record.
        threads: of the engine.
        progress: hears of every generation.
        keeping: where the search is kept, and whether it goes on from there; None: nowhere.
    """
    if spent not in SPENT:
        raise UnknownNameError("what is to be small", spent, SPENT)
    if generations < 1 or threads < 1:
        raise InputError(f"{generations} generations on {threads} threads; there must be at least 1 of each")
    sla = SlowdownLimit() if sla is None else sla
    signal = SPENT[spent]
    if signal is not None and getattr(power, signal) is None:
        raise InputError(f"{spent} needs the {signal} over time, and none was given; give it, or take energy")
    inside = EvaluationWindows(jobs, cluster, power, windows, window_jobs, backfill, spent)
    checks = EvaluationWindows(validation, cluster, power, windows, window_jobs, backfill, spent)
    drawn = stream(seed, "agents.steered.windows")
    free = _free(inside, signal)

    first = np.linspace(0, inside.last, windows).astype(np.int64)
    allowed = inside.slowdown_limit(first, sla)
    points = starts(cluster, _longest(inside), _break_even_s(inside))
    identity = {
        "search": "of levers",
        "seed": seed,
        "objective": spent,
        "promise": [sla.times, sla.rule],
        "backfill": backfill,
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
    }
    course = SearchCheckpoint(identity, generations, keeping)
    tried = course.starts(points, lambda some: _values(inside.tried(some, first, threads), allowed))
    start = points[int(np.argmin(tried))]
    start = replace(start, levers=power.levers, signal=signal)

    later = np.linspace(0, checks.last, windows).astype(np.int64)
    allowed_later = checks.slowdown_limit(later, sla)
    reference = _values(checks.tried([start], later, threads), allowed_later)[0]
    search = EvolutionStrategy((start.weights / UNIT)[free], step=0.15, seed=seed, population=population)
    every = max(1, generations // 16)
    best = reference if course.best is None else course.best[0]
    path = course.path

    def agent(point: Floats) -> LinearPowerAgent:
        weights = start.weights / UNIT
        weights[free] = point
        return replace(start, weights=weights * UNIT)

    for number in course.rest(search, drawn):
        first = drawn.integers(0, inside.last + 1, windows)
        allowed = inside.slowdown_limit(first, sla)
        candidates = search.ask()
        values = _values(
            inside.tried([start, *(agent(point) for point in candidates)], first, threads), allowed
        )
        search.tell(candidates, values[1:])
        path.append(search.mean)
        score = float("nan")
        if number % every == 0 or number == generations:
            averaged = agent(np.mean(path[len(path) // 2 :], axis=0))
            score = float(_values(checks.tried([averaged], later, threads), allowed_later)[0])
            if score < best:
                best = score
                course.best = (score, averaged.weights)
        training, checked, least = (
            float(np.exp(each))
            for each in (np.mean(values[1:]) - values[0], score - reference, best - reference)
        )
        course.close(Generation(number, generations, training, checked, least, search.step))
        if progress is not None:
            progress(course.history[-1])
    chosen = start if course.best is None else replace(start, weights=course.best[1])
    provenance = {
        "trained_by": "kilowait.agents.train_steered (CMA-ES)",
        "env": "kilowait/Energy-v0",
        "trace": trace,
        "trained_on_jobs": len(jobs),
        "chosen_on_jobs": len(validation),
        "nodes": cluster.nodes,
        "seed": seed,
        "objective": spent,
        "sla": {"times": sla.times, "rule": sla.rule},
        "backfill": backfill,
        "generations": len(course.history),
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
        "validation_relative_to_start": float(np.exp(best - reference)),
        "start": dict(zip(WEIGHTS, start.weights.tolist(), strict=True)),
    }
    return replace(chosen, provenance=provenance), course.history


def _values(tried: Evaluation, allowed: float) -> Floats:
    """ln of what is spent on all windows together, and what slowdown beyond the allowed is charged with."""
    spent = np.log(np.maximum(tried.spent.mean(axis=1), 1e-300))
    over = np.log(tried.slowdown.mean(axis=1) / allowed)
    return np.asarray(spent + CHARGE * np.maximum(over, 0.0))


def _free(windows: EvaluationWindows, signal: str | None) -> npt.NDArray[np.bool_]:
    """Which weights matter on this machine."""
    powered = windows.vec.powered
    idle = set(() if powered.drawing.may.shape[1] > 1 else _LEVELS)
    idle |= set(() if powered.levers.sleep else _SLEEP)
    idle |= set(() if signal is not None else _SIGNAL)
    if powered.drawing.may.shape[1] == 1:
        idle.add("signal")
    return np.array([name not in idle for name in WEIGHTS])


def _longest(windows: EvaluationWindows) -> float:
    """How much longer the slowest level makes a job."""
    levers = windows.vec.powered.levers
    choices = windows.vec.powered.drawing.may.shape[1]
    return 0.0 if levers.factor is None else float(levers.factor[:, :, :choices].max()) - 1.0


def _break_even_s(windows: EvaluationWindows) -> float:
    powered = windows.vec.powered
    found = [
        group.sleep.break_even_s(group.idle_w)
        for group in powered.model.groups
        if group.sleep is not None and group.name in powered.levers.sleep
    ]
    return max(found, default=600.0)
