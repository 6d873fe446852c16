"""Evaluation of agents that control power against policies with hand-tuned power controls.

All policies schedule the same windows. Energy is counted from a window's first submission to the last end of its jobs.
The slowdown is relative to the run time at full speed, so that slow DVFS states are not rewarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.power import PowerModel
from kilowait.engine.settings import Settings
from kilowait.experiments.power_context import PowerContext
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

__all__ = [
    "METRICS",
    "BASELINES",
    "ParetoMargin",
    "MetricRows",
    "pareto_margin",
    "run_metrics",
    "pareto_names",
    "hand_tuned_baselines",
    "evaluate_power_agent",
    "control_grid",
    "run_on",
    "least_within_slowdown",
]

Floats = npt.NDArray[np.float64]
MetricRows = dict[str, Floats]
"""Metrics by name, one value a window."""

METRICS: dict[str, str] = {
    "energy": "kWh of the IT / jobs",
    "co2": "kg of CO2e / jobs; NaN without a carbon intensity",
    "cost": "price of the energy / jobs; NaN without a price",
    "slowdown": "mean bounded slowdown, by the run time at full speed",
    "wait_s": "mean wait, seconds",
    "p95_wait_s": "95 % of the jobs wait less, seconds",
}
BASELINES = ("fcfs", "sjf", "saf", "f1", "wfp3")
"""Policies that are combined with every set of power controls."""
LEAST_RUN_S = 10.0
DRAWS = 2000


def run_metrics(log: ExecutionLog, spent: EnergyAccounts) -> dict[str, float]:
    """`FIGURES` (metrics) of one run."""
    records, jobs = log.jobs(), log.jobs_table
    ran = ~np.isnan(records["start_s"])
    count = max(int(ran.sum()), 1)
    full_s = np.maximum(jobs["runtime_s"][ran], LEAST_RUN_S)
    wait_s = records["wait_s"][ran]
    return {
        "energy": spent.it_kwh / count,
        "co2": np.nan if spent.co2_kg is None else spent.co2_kg / count,
        "cost": np.nan if spent.cost is None else spent.cost / count,
        "slowdown": float(np.maximum(1.0, records["turnaround_s"][ran] / full_s).mean()),
        "wait_s": float(wait_s.mean()),
        "p95_wait_s": float(np.percentile(wait_s, 95)),
    }


def run_on(
    jobs: JobTable,
    cluster: Cluster,
    meter: PowerContext,
    policy: Any,
    backfill: str | int,
    power_controls: str,
) -> dict[str, float]:
    """`FIGURES` of a window under a policy with these power controls, or under an agent that uses them."""
    pulled = meter.resolve_controls(power_controls, jobs)
    log = simulate(pulled.jobs, cluster, policy, backfill, power_controls=pulled.controls)
    log = replace(log, jobs_table=jobs)
    return run_metrics(log, meter.account(log, pulled))


def control_grid(model: PowerModel, nodes: int, *, signal: bool = False) -> list[str]:
    """Sets of hand-tuned power controls: sleep x reserve x DVFS x load shifting, as far as the machine has them.

    >>> grid = control_grid(PowerModel.preset("mira"), 49152)
    >>> len(grid), grid[:2]
    (21, ['none', 'sleep=timeout:60'])
    """
    sleeps = [""]
    if any(group.sleep is not None for group in model.groups):
        shares = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1)
        kept = dict.fromkeys(max(1, round(nodes * share)) for share in shares)
        for timeout in ("timeout:60", "timeout:1800"):
            sleeps += [f"sleep={timeout}", *(f"sleep={timeout}:reserve={count}" for count in kept)]
        sleeps += ["sleep=timeout:300", "sleep=break-even", "sleep=timeout:3600"]
        sleeps += ["sleep=predictive", "sleep=predictive:60", "sleep=predictive:3600"]
    levels = [""]
    if any(len(group.levels) > 1 for group in model.groups):
        levels += [f"dvfs={times}{when}" for times in (1.05, 1.1, 1.15, 1.3) for when in ("", ":always")]
    holds = ["", "shift=carbon_time:3h", "shift=carbon_time:6h"] if signal else [""]
    sets = ["+".join(part for part in parts if part) for parts in product(sleeps, levels, holds)]
    return [each or "none" for each in sets]


def hand_tuned_baselines(
    windows: Sequence[JobTable],
    cluster: Cluster,
    meter: PowerContext,
    rules: Iterable[str],
    power_controls: Iterable[str],
    *,
    backfill: str | int = Settings.backfill,
    progress: Callable[[str], None] | None = None,
) -> dict[str, MetricRows]:
    """Metrics of every policy with every set of power controls on every window; names are those of `compare`."""
    found = {}
    for rule, text in product(rules, power_controls):
        name = f"{rule}, {text}"
        found[name] = metric_rows([run_on(jobs, cluster, meter, rule, backfill, text) for jobs in windows])
        if progress is not None:
            progress(name)
    return found


def metric_rows(rows: Sequence[Mapping[str, float]]) -> MetricRows:
    """Metrics of many windows as arrays."""
    return {name: np.array([row[name] for row in rows]) for name in METRICS}


def pareto_names(
    points: Mapping[str, MetricRows], spent: str = "energy", waited: str = "slowdown"
) -> list[str]:
    """Names of the Pareto-optimal points by mean `spent` and mean `waited`, the least spent first.

    >>> row = lambda kwh, slow: {"energy": np.array([kwh]), "slowdown": np.array([slow])}
    >>> pareto_names({"a": row(1.0, 9.0), "b": row(2.0, 5.0), "c": row(3.0, 6.0)})
    ['a', 'b']
    """
    order = sorted(points, key=lambda name: (points[name][spent].mean(), points[name][waited].mean()))
    found: list[str] = []
    least = np.inf
    for name in order:
        value = float(points[name][waited].mean())
        if value < least:
            found.append(name)
            least = value
    return found


def least_within_slowdown(points: Mapping[str, MetricRows], allowed: float, spent: str = "energy") -> str:
    """The point with the least `spent` and a mean slowdown of at most `allowed`; else that with the least slowdown."""
    within = [name for name, rows in points.items() if rows["slowdown"].mean() <= allowed]
    if not within:
        return min(points, key=lambda name: points[name]["slowdown"].mean())
    return min(within, key=lambda name: points[name][spent].mean())


class ParetoMargin(NamedTuple):
    """Position of a point relative to the Pareto front of others, each with a 95 % interval over windows."""

    spent: list[float]
    """Its energy (CO2, cost) divided by the least of others with no larger slowdown; below 1: beyond the front."""
    waited: list[float]
    """Its slowdown divided by the smallest of others that spend no more."""
    outside: float
    """Share of the bootstrap samples in which no other point is at least as good in both."""


def pareto_margin(
    point: MetricRows,
    others: Mapping[str, MetricRows],
    *,
    spent: str = "energy",
    waited: str = "slowdown",
    seed: int = 0,
) -> ParetoMargin:
    """Margin of a point over the Pareto front of others, with a bootstrap over windows.

    The front is computed anew in every bootstrap sample, which favours the others. Where no other point has as small a
    slowdown, the one with the smallest represents them.

    >>> one = {"energy": np.array([1.0, 1.0]), "slowdown": np.array([2.0, 2.0])}
    >>> hand = {"a": {"energy": np.array([2.0, 2.0]), "slowdown": np.array([2.0, 2.0])}}
    >>> pareto_margin(one, hand).spent
    [0.5, 0.5, 0.5]
    """
    mine = np.stack([point[spent], point[waited]])
    theirs = np.stack([[rows[spent], rows[waited]] for rows in others.values()])
    count = mine.shape[1]
    samples = stream(seed, "energy judging").integers(0, count, (DRAWS, count))

    def ratios(rows: npt.NDArray[np.int64]) -> tuple[float, float, bool]:
        e, w = mine[:, rows].mean(axis=1)
        energies, waits = theirs[:, :, rows].mean(axis=2).T
        near = waits <= w
        least = energies[near].min() if near.any() else energies[np.argmin(waits)]
        cheap = energies <= e
        shortest = waits[cheap].min() if cheap.any() else waits[np.argmin(energies)]
        return float(e / least), float(w / shortest), not bool((near & cheap).any())

    value = ratios(np.arange(count))
    resampled = [ratios(rows) for rows in samples]
    low, high = np.percentile([row[:2] for row in resampled], [2.5, 97.5], axis=0)
    return ParetoMargin(
        [value[0], float(low[0]), float(high[0])],
        [value[1], float(low[1]), float(high[1])],
        float(np.mean([row[2] for row in resampled])),
    )


def evaluate_power_agent(
    agent: Any,
    windows: Sequence[JobTable],
    cluster: Cluster,
    meter: PowerContext,
    *,
    power_controls: str,
    backfill: str | int = Settings.backfill,
    rules: Sequence[str] = BASELINES,
    sets: Sequence[str] = (),
    spent: str = "energy",
    seed: int = 0,
) -> dict[str, Any]:
    """Mean `FIGURES` over the windows, of the agent and every policy with every set of power controls; and the front.

    `agent` is already bound to its power model (`train_power.bind_agent_power`). Without `sets` common ones are used.
    """
    texts = list(dict.fromkeys(sets or _usual_sets(meter)))
    points = hand_tuned_baselines(windows, cluster, meter, rules, texts, backfill=backfill)
    agent_rows = metric_rows(
        [run_on(jobs, cluster, meter, agent, backfill, power_controls) for jobs in windows]
    )
    margin = pareto_margin(agent_rows, points, spent=spent, seed=seed)
    return {
        "windows": len(windows),
        "window_jobs": len(windows[0]),
        "spent": spent,
        "figures": METRICS,
        "policies": {
            name: {
                figure: float(values.mean()) for figure, values in rows.items() if not np.isnan(values).all()
            }
            for name, rows in {"agent": agent_rows, **points}.items()
        },
        "front": pareto_names(points, spent),
        "beyond": margin._asdict(),
        "by_window": {figure: agent_rows[figure].tolist() for figure in (spent, "slowdown")},
    }


def _usual_sets(meter: PowerContext) -> list[str]:
    """Power controls commonly used on such a machine, and none."""
    found = ["none"]
    sleeps = any(group.sleep is not None for group in meter.model.groups)
    slow = any(len(group.levels) > 1 for group in meter.model.groups)
    if sleeps:
        found += ["sleep=timeout:60", "sleep=break-even", "sleep=timeout:3600"]
    if slow:
        found += ["dvfs=1.1", "dvfs=1.1:always"]
    if sleeps and slow:
        found += [f"sleep=break-even+dvfs=1.1{when}" for when in ("", ":always")]
    if meter.carbon is not None or meter.price is not None:
        signal = "" if meter.carbon is not None else "price:"
        found += [f"{text}+shift={signal}carbon_time:6h".removeprefix("none+") for text in found]
    return found
