"""Evaluation of agents that control power against policies with hand-tuned power controls.

All policies schedule the same windows. Energy is counted from a window's first submission to the end of its last job.
The slowdown is relative to the run time at full speed: a job that runs longer in a slow DVFS state has a larger one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.power import PowerModel
from kilowait.engine.settings import Settings
from kilowait.evaluation.comparison import PolicyConfig, Windows
from kilowait.experiments.comparison.run_matrix import ComparisonCase, run_cells
from kilowait.experiments.power import PowerContext, PowerTraining
from kilowait.experiments.scenario_inputs import Workload
from kilowait.jobs import ExecutionLog
from kilowait.policies.registry import AnyPolicy, as_policy
from kilowait.rng import stream

Floats = npt.NDArray[np.float64]
MetricRows = dict[str, Floats]
"""Metrics by name, one value per window."""

METRICS: dict[str, str] = {
    "energy": "IT energy per job, kWh",
    "co2": "CO2e per job, kg; NaN without a carbon intensity",
    "cost": "energy cost per job; NaN without a price",
    "slowdown": "mean bounded slowdown, relative to the run time at full speed",
    "wait_s": "mean wait, seconds",
    "p95_wait_s": "95th percentile of the wait, seconds",
}
BASELINES = ("fcfs", "sjf", "saf", "f1", "wfp3")
"""Policies that are combined with every set of power controls."""
MIN_RUN_S = 10.0
BOOTSTRAP_SAMPLES = 2000


def run_metrics(log: ExecutionLog, objective: EnergyAccounts) -> dict[str, float]:
    """`METRICS` of one run."""
    records, jobs = log.jobs(), log.jobs_table
    ran = ~np.isnan(records["start_s"])
    count = max(int(ran.sum()), 1)
    full_s = np.maximum(jobs["runtime_s"][ran], MIN_RUN_S)
    wait_s = records["wait_s"][ran]
    return {
        "energy": objective.it_kwh / count,
        "co2": np.nan if objective.co2_kg is None else objective.co2_kg / count,
        "cost": np.nan if objective.cost is None else objective.cost / count,
        "slowdown": float(np.maximum(1.0, records["turnaround_s"][ran] / full_s).mean()),
        "wait_s": float(wait_s.mean()),
        "p95_wait_s": float(np.percentile(wait_s, 95)),
    }


def power_metrics(
    windows: Windows,
    context: PowerContext,
    runs: Mapping[str, tuple[AnyPolicy, str]],
    *,
    backfill: str | int = Settings.backfill,
) -> dict[str, MetricRows]:
    """`METRICS` of every run in every window; a run has a name, a policy and the text of its power controls."""
    case = ComparisonCase("jobs", context.cluster, Workload(windows.jobs), windows, {}, context)
    points = {}
    for name, (policy, text) in runs.items():
        config = PolicyConfig(name, backfill, power_controls=text)
        logs, _ = run_cells((case,), [config], workers=1, policies=[as_policy(policy)])
        rows = [run_metrics(log, context.account(log, text)) for log in logs.values()]
        points[name] = {metric: np.array([row[metric] for row in rows]) for metric in METRICS}
    return points


def hand_tuned_runs(policies: Iterable[str], control_sets: Iterable[str]) -> dict[str, tuple[AnyPolicy, str]]:
    """Every policy with every set of power controls, by name as in `compare`.

    >>> hand_tuned_runs(["saf"], ["none", "dvfs=1.1"])
    {'saf, none': ('saf', 'none'), 'saf, dvfs=1.1': ('saf', 'dvfs=1.1')}
    """
    return {f"{policy}, {text}": (policy, text) for policy, text in product(policies, control_sets)}


def control_grid(model: PowerModel, nodes: int, *, signal: bool = False) -> list[str]:
    """Grid of hand-tuned power controls: node sleep x reserve x DVFS x load shifting, as far as the machine has them.

    >>> grid = control_grid(PowerModel.preset("mira"), 49152)
    >>> len(grid), grid[:2]
    (21, ['none', 'sleep=timeout:60'])
    """
    sleeps = [""]
    if any(group.sleep is not None for group in model.groups):
        shares = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1)
        reserves = dict.fromkeys(max(1, round(nodes * share)) for share in shares)
        for timeout in ("timeout:60", "timeout:1800"):
            sleeps += [f"sleep={timeout}", *(f"sleep={timeout}:reserve={count}" for count in reserves)]
        sleeps += ["sleep=timeout:300", "sleep=break-even", "sleep=timeout:3600"]
        sleeps += ["sleep=predictive", "sleep=predictive:60", "sleep=predictive:3600"]
    dvfs = [""]
    if any(len(group.levels) > 1 for group in model.groups):
        dvfs += [f"dvfs={times}{when}" for times in (1.05, 1.1, 1.15, 1.3) for when in ("", ":always")]
    shifting = ["", "shift=carbon_time:3h", "shift=carbon_time:6h"] if signal else [""]
    control_sets = ["+".join(part for part in parts if part) for parts in product(sleeps, dvfs, shifting)]
    return [each or "none" for each in control_sets]


def pareto_names(points: Mapping[str, MetricRows], objective: str = "energy", delay: str = "slowdown") -> list[str]:
    """Names of the Pareto-optimal points by mean `objective` and mean `delay`, in order of increasing `objective`.

    >>> row = lambda kwh, slow: {"energy": np.array([kwh]), "slowdown": np.array([slow])}
    >>> pareto_names({"a": row(1.0, 9.0), "b": row(2.0, 5.0), "c": row(3.0, 6.0)})
    ['a', 'b']
    """
    order = sorted(points, key=lambda name: (points[name][objective].mean(), points[name][delay].mean()))
    front: list[str] = []
    smallest = np.inf
    for name in order:
        value = float(points[name][delay].mean())
        if value < smallest:
            front.append(name)
            smallest = value
    return front


def least_within_slowdown(points: Mapping[str, MetricRows], allowed: float, objective: str = "energy") -> str:
    """The point with the smallest `objective` at a mean slowdown of at most `allowed`; else the smallest slowdown."""
    within = [name for name, rows in points.items() if rows["slowdown"].mean() <= allowed]
    if not within:
        return min(points, key=lambda name: points[name]["slowdown"].mean())
    return min(within, key=lambda name: points[name][objective].mean())


class ParetoMargin(NamedTuple):
    """Position of a point relative to the Pareto front of others, each with a 95 % interval over windows."""

    objective_ratio: list[float]
    """Its energy (CO2, cost) divided by the smallest among points with no larger slowdown; below 1: the point dominates
    the front."""
    delay_ratio: list[float]
    """Its slowdown divided by the smallest among points with no larger energy (CO2, cost)."""
    nondominated_share: float
    """Share of the bootstrap samples in which no other point is at least as good in both."""


def pareto_margin(
    point: MetricRows,
    others: Mapping[str, MetricRows],
    *,
    objective: str = "energy",
    delay: str = "slowdown",
    seed: int = 0,
) -> ParetoMargin:
    """Margin of a point over the Pareto front of others, with a bootstrap over windows.

    The front is computed anew in every bootstrap sample, which favours the other points. Where every other point has a
    larger slowdown, the margin is relative to the point with the smallest slowdown.

    >>> point = {"energy": np.array([1.0, 1.0]), "slowdown": np.array([2.0, 2.0])}
    >>> others = {"a": {"energy": np.array([2.0, 2.0]), "slowdown": np.array([2.0, 2.0])}}
    >>> pareto_margin(point, others).objective_ratio
    [0.5, 0.5, 0.5]
    """
    this_point = np.stack([point[objective], point[delay]])
    other_points = np.stack([[rows[objective], rows[delay]] for rows in others.values()])
    count = this_point.shape[1]
    samples = stream(seed, "energy judging").integers(0, count, (BOOTSTRAP_SAMPLES, count))

    def ratios(rows: npt.NDArray[np.int64]) -> tuple[float, float, bool]:
        energy, delay_mean = this_point[:, rows].mean(axis=1)
        energies, delays = other_points[:, :, rows].mean(axis=2).T
        no_slower = delays <= delay_mean
        least_energy = energies[no_slower].min() if no_slower.any() else energies[np.argmin(delays)]
        no_more_energy = energies <= energy
        shortest = delays[no_more_energy].min() if no_more_energy.any() else delays[np.argmin(energies)]
        return (
            float(energy / least_energy),
            float(delay_mean / shortest),
            not bool((no_slower & no_more_energy).any()),
        )

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
    windows: Windows,
    power: PowerTraining,
    *,
    backfill: str | int = Settings.backfill,
    policies: Sequence[str] = BASELINES,
    control_sets: Sequence[str] = (),
    objective: str = "energy",
    seed: int = 0,
) -> dict[str, Any]:
    """Mean `METRICS` over the windows, of the agent and every policy with every set of power controls; and the front.

    The agent uses the power controls of `power`. Without `control_sets` common sets are used.
    """
    hand_tuned = hand_tuned_runs(policies, dict.fromkeys(control_sets or _default_control_sets(power.context)))
    runs = {"agent": (agent, power.power_controls), **hand_tuned}
    rows_by_name = power_metrics(windows, power.context, runs, backfill=backfill)
    agent_rows = rows_by_name["agent"]
    points = {name: rows_by_name[name] for name in hand_tuned}
    return {
        "windows": len(windows),
        "window_jobs": int(windows.size[0]),
        "objective": objective,
        "metrics": METRICS,
        "policies": {
            name: {metric: float(values.mean()) for metric, values in rows.items() if not np.isnan(values).all()}
            for name, rows in rows_by_name.items()
        },
        "front": pareto_names(points, objective),
        "margin": pareto_margin(agent_rows, points, objective=objective, seed=seed)._asdict(),
        "by_window": {metric: agent_rows[metric].tolist() for metric in (objective, "slowdown")},
    }


def _default_control_sets(power_context: PowerContext) -> list[str]:
    """Common sets of power controls for this machine, and none."""
    control_sets = ["none"]
    has_sleep = any(group.sleep is not None for group in power_context.model.groups)
    has_dvfs = any(len(group.levels) > 1 for group in power_context.model.groups)
    if has_sleep:
        control_sets += ["sleep=timeout:60", "sleep=break-even", "sleep=timeout:3600"]
    if has_dvfs:
        control_sets += ["dvfs=1.1", "dvfs=1.1:always"]
    if has_sleep and has_dvfs:
        control_sets += [f"sleep=break-even+dvfs=1.1{when}" for when in ("", ":always")]
    if power_context.carbon is not None or power_context.price is not None:
        signal = "" if power_context.carbon is not None else "price:"
        control_sets += [f"{text}+shift={signal}carbon_time:6h".removeprefix("none+") for text in control_sets]
    return control_sets
