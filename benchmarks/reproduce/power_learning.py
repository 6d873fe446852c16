"""A learned power-control policy against hand-tuned power controls on three logs: energy against waiting.

The first 60 % of a log are the training set, the next 10 % the validation set; the last 30 % are split into adjacent
test windows of 512 jobs. The constraint is a mean bounded slowdown (relative to the run time at full speed) of at most
a given multiple of that of the best policy without power controls on the training jobs. Baselines are the three best
policies x node-sleep policies x idle reserves x DVFS states: all of them on the test windows (hindsight), and the one
with the lowest energy within the constraint on the validation jobs. Load shifting is not included: it shifts energy,
but saves none. Power, node sleep and DVFS states come from the presets, which are estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.text_tables import table
from kilowait.agents.linear_power.train import SlowdownLimit, train_linear_power
from kilowait.cluster import Cluster
from kilowait.envs.power.power_setup import PowerConfig
from kilowait.experiments.evaluate_power import (
    MetricRows,
    control_grid,
    hand_tuned_baselines,
    least_within_slowdown,
    metric_rows,
    pareto_margin,
    pareto_names,
    run_on,
)
from kilowait.experiments.inputs import rescaled_to_load
from kilowait.experiments.power import PowerSettings, meter_for
from kilowait.experiments.power_context import PowerContext
from kilowait.jobs import JobTable
from kilowait.traces import read_trace
from kilowait.units import format_duration

__all__ = ["LOGS", "Log", "judged", "results", "text"]


class Log(NamedTuple):
    """A log and the cluster on which it is replayed."""

    file: str
    cluster: str
    levers: str
    """The power controls of the agent; it chooses idle times before sleep and DVFS states itself."""
    load: float | None = None


LOGS = {
    "Theta": Log("alcf/rlhpc_theta_2023_feb_dec.swf.gz", "theta", "sleep=timeout:600+dvfs=3"),
    "Mira": Log("alcf/lumos_mira.csv.gz", "mira", "sleep=timeout:600"),
    "like Polaris": Log("alcf/lumos_thetagpu.csv.gz", "polaris", "sleep=timeout:600+dvfs=3", 0.3),
}
WHENCE = "it is one of ALCF's public job logs"
RULES = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4")
KEPT = 3
"""The number of policies, best without power controls on the training jobs, that are tried with all controls."""
PROMISES = (1.1,)
SEEDS = (0, 1, 2)
TRAIN, VALIDATION = 0.6, 0.7
WINDOW_JOBS = 512
GENERATIONS, POPULATION, WINDOWS = 60, 20, 12


def results(sources: Sources, say: Callable[[str], None]) -> dict[str, Any]:
    """By log: the Pareto front of the hand-tuned controls, the tuned baseline, and the agents by seed."""
    found = {}
    for name, log in LOGS.items():
        cluster = Cluster.preset(log.cluster)
        jobs = read_trace(sources.file(log.file, WHENCE)).sorted()
        if log.load is not None:
            jobs = rescaled_to_load(jobs, cluster, log.load)
        say(f"{name}: {len(jobs):,} jobs on {cluster.nodes:,} nodes")
        found[name] = judged(jobs, cluster, log.levers, say)
    return found


def judged(
    jobs: JobTable,
    cluster: Cluster,
    levers: str,
    say: Callable[[str], None],
    *,
    rules: tuple[str, ...] = RULES,
    sets: list[str] | None = None,
    promises: tuple[float, ...] = PROMISES,
    seeds: tuple[int, ...] = SEEDS,
    window_jobs: int = WINDOW_JOBS,
    generations: int = GENERATIONS,
) -> dict[str, Any]:
    """Train, tune and evaluate on one log; the jobs must be sorted."""
    meter = meter_for(PowerSettings("auto"), jobs, cluster)
    first, second = int(TRAIN * len(jobs)), int(VALIDATION * len(jobs))
    past, chosen_on, later = jobs[:first], jobs[first:second], jobs[second:]
    sets = control_grid(meter.model, cluster.nodes) if sets is None else sets
    plain = hand_tuned_baselines(_windows(past, window_jobs), cluster, meter, rules, ["none"])
    order = sorted(plain, key=lambda name: plain[name]["slowdown"].mean())
    rules = tuple(name.partition(",")[0] for name in order[:KEPT])
    rule = rules[0]
    say(
        f"best without power controls on the training jobs: {', '.join(rules)}; {len(sets) * len(rules):,} hand-tuned"
    )
    hands = hand_tuned_baselines(_windows(later, window_jobs), cluster, meter, rules, sets)
    before = hand_tuned_baselines(_windows(chosen_on, window_jobs), cluster, meter, rules, sets)
    found: dict[str, Any] = {
        "rule": rule,
        "windows": len(_windows(later, window_jobs)),
        "by_hand": len(hands),
        "plain": _means(hands[f"{rule}, none"]),
        "front": {name: _means(hands[name]) for name in pareto_names(hands)},
        "promises": [],
    }
    for promise in promises:
        allowed = promise * float(before[f"{rule}, none"]["slowdown"].mean())
        own = least_within_slowdown(before, allowed)
        agents = []
        for seed in seeds:
            agent, _ = train_linear_power(
                past,
                chosen_on,
                cluster,
                PowerConfig(meter.model, power_controls=levers),
                seed=seed,
                sla=SlowdownLimit(promise, rule),
                generations=generations,
                population=POPULATION,
                windows=WINDOWS,
                window_jobs=window_jobs,
            )
            agent = agent.bind_power(PowerConfig(meter.model, power_controls=levers))
            rows = _tried(agent, _windows(later, window_jobs), cluster, meter, levers)
            lies, to_tuned = pareto_margin(rows, hands), pareto_margin(rows, {own: hands[own]})
            agents.append(
                {
                    "seed": seed,
                    **_means(rows),
                    "margin": lies._asdict(),
                    "to_tuned": to_tuned._asdict(),
                    "weights": dict(agent.explain()),
                }
            )
            say(
                f"{promise:g} times, seed {seed}: {lies.objective_ratio[0]:.3f} of the energy of the Pareto front"
            )
        found["promises"].append(
            {
                "times": promise,
                "allowed": promise * found["plain"]["slowdown"],
                "tuned": {"name": own, **_means(hands[own])},
                "agents": agents,
            }
        )
    return found


def text(found: dict[str, Any]) -> str:
    """The tables and their summaries."""
    parts = []
    for name, log in found.items():
        heads = [
            "",
            "kWh/job",
            "slowdown",
            "mean wait",
            "95 % wait below",
            "of the energy of the Pareto front",
            "of its slowdown",
        ]
        rows = [[f"{log['rule']}, no power controls", *_cells(log["plain"]), "", ""]]
        rows += [[f"front: {who}", *_cells(means), "", ""] for who, means in log["front"].items()]
        said = []
        for promise in log["promises"]:
            times = f"{promise['times']:g} x"
            rows.append([f"{times}, tuned: {promise['tuned']['name']}", *_cells(promise["tuned"]), "", ""])
            for agent in promise["agents"]:
                lies = agent["margin"]
                ratios = [_interval(lies["objective_ratio"]), _interval(lies["delay_ratio"])]
                rows.append([f"{times}, agent, seed {agent['seed']}", *_cells(agent), *ratios])
            said.append(_said(promise))
        parts.append(
            f"{name}: {log['windows']} windows of the last 30 % of the log; {log['by_hand']:,} hand-tuned power "
            f"controls, those on the Pareto front of the test windows\n\n{table(heads, rows)}\n\n"
            + "\n".join(said)
        )
    parts.append(
        "of the front's energy: over the least of all hand-written points with no larger slowdown on these very "
        "windows; of its slowdown: over the least of those that spend no more. 95 % intervals over windows, the front "
        "found anew in each draw."
    )
    return "\n\n".join(parts)


def _said(promise: dict[str, Any]) -> str:
    """Summary of the agents of one constraint."""
    agents = promise["agents"]
    kept = sum(agent["slowdown"] <= promise["allowed"] for agent in agents)
    out = sum(
        agent["margin"]["objective_ratio"][0] < 1 or agent["margin"]["delay_ratio"][0] < 1 for agent in agents
    )
    sure = sum(agent["margin"]["objective_ratio"][2] < 1 for agent in agents)
    faster = sum(agent["margin"]["delay_ratio"][2] < 1 for agent in agents)
    over = [agent["to_tuned"]["objective_ratio"] for agent in agents]
    return (
        f"constraint {promise['times']:g} x (slowdown at most {promise['allowed']:.2f} here): satisfied by {kept} of "
        f"{len(agents)} agents; beyond the Pareto front {out} of {len(agents)}, with an interval below 1 in energy "
        f"{sure}, in "
        f"slowdown {faster}; energy relative to the tuned controls {', '.join(f'{each[0]:.3f}' for each in over)}"
    )


def _windows(jobs: JobTable, window_jobs: int) -> list[JobTable]:
    """Adjacent windows."""
    return [jobs[at : at + window_jobs] for at in range(0, len(jobs) - window_jobs + 1, window_jobs)]


def _tried(
    agent: Any, windows: list[JobTable], cluster: Cluster, meter: PowerContext, levers: str
) -> MetricRows:
    return metric_rows([run_on(jobs, cluster, meter, agent, "easy", levers) for jobs in windows])


def _means(rows: MetricRows) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in rows.items() if not np.isnan(values).any()}


def _cells(means: dict[str, Any]) -> list[str]:
    return [
        f"{means['energy']:,.2f}",
        f"{means['slowdown']:.3f}",
        format_duration(means["wait_s"]),
        format_duration(means["p95_wait_s"]),
    ]


def _interval(value: list[float]) -> str:
    return f"{value[0]:.3f} ({value[1]:.3f} to {value[2]:.3f})"
