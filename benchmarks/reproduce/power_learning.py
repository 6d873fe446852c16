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
from kilowait.agents.evolution.power import PowerObjective, PowerSearchSettings, SlowdownLimit
from kilowait.agents.evolution.search import train_linear_agent
from kilowait.cluster import Cluster
from kilowait.envs.power_setup import PowerConfig
from kilowait.evaluation.comparison import Windows
from kilowait.experiments.power import make_power_context
from kilowait.experiments.scenario_inputs import rescale_to_load
from kilowait.experiments.settings import PowerSettings
from kilowait.experiments.training.power_evaluation import (
    MetricRows,
    control_grid,
    hand_tuned_runs,
    least_within_slowdown,
    pareto_margin,
    pareto_names,
    power_metrics,
)
from kilowait.jobs import JobTable
from kilowait.traces import read_trace
from kilowait.units import format_duration

__all__ = ["LOGS", "Log", "evaluated", "results", "text"]


class Log(NamedTuple):
    """A log and the cluster on which it is replayed."""

    file: str
    cluster: str
    power_controls: str
    """The power controls of the agent; it chooses idle times before sleep and DVFS states itself."""
    load: float | None = None


LOGS = {
    "Theta": Log("alcf/rlhpc_theta_2023_feb_dec.swf.gz", "theta", "sleep=timeout:600+dvfs=3"),
    "Mira": Log("alcf/lumos_mira.csv.gz", "mira", "sleep=timeout:600"),
    "like Polaris": Log("alcf/lumos_thetagpu.csv.gz", "polaris", "sleep=timeout:600+dvfs=3", 0.3),
}
WHENCE = "it is one of ALCF's public job logs"
RULES = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4")
TOP_POLICIES = 3
"""The number of policies, best without power controls on the training jobs, that are tried with all controls."""
CONSTRAINTS = (1.1,)
SEEDS = (0, 1, 2)
TRAIN, VALIDATION = 0.6, 0.7
WINDOW_JOBS = 512
GENERATIONS, POPULATION, WINDOWS = 60, 20, 12


def results(sources: Sources, say: Callable[[str], None]) -> dict[str, Any]:
    """By log: the Pareto front of the hand-tuned controls, the tuned baseline, and the agents by seed."""
    output = {}
    for name, log in LOGS.items():
        cluster = Cluster.preset(log.cluster)
        jobs = read_trace(sources.file(log.file, WHENCE)).sorted()
        if log.load is not None:
            jobs = rescale_to_load(jobs, cluster, log.load)
        say(f"{name}: {len(jobs):,} jobs on {cluster.nodes:,} nodes")
        output[name] = evaluated(jobs, cluster, log.power_controls, say)
    return output


def evaluated(
    jobs: JobTable,
    cluster: Cluster,
    power_controls: str,
    say: Callable[[str], None],
    *,
    rules: tuple[str, ...] = RULES,
    sets: list[str] | None = None,
    constraints: tuple[float, ...] = CONSTRAINTS,
    seeds: tuple[int, ...] = SEEDS,
    window_jobs: int = WINDOW_JOBS,
    generations: int = GENERATIONS,
) -> dict[str, Any]:
    """Train, tune and evaluate on one log; the jobs must be sorted."""
    power = make_power_context(PowerSettings("auto"), jobs, cluster)
    first, second = int(TRAIN * len(jobs)), int(VALIDATION * len(jobs))
    train, validation, test = jobs[:first], jobs[first:second], jobs[second:]
    sets = control_grid(power.model, cluster.nodes) if sets is None else sets
    without_controls = power_metrics(_windows(train, window_jobs), power, hand_tuned_runs(rules, ["none"]))
    order = sorted(without_controls, key=lambda name: without_controls[name]["slowdown"].mean())
    rules = tuple(name.partition(",")[0] for name in order[:TOP_POLICIES])
    rule = rules[0]
    say(f"best without power controls on the training jobs: {', '.join(rules)}; {len(sets) * len(rules):,} hand-tuned")
    hand_tuned = power_metrics(_windows(test, window_jobs), power, hand_tuned_runs(rules, sets))
    validated = power_metrics(_windows(validation, window_jobs), power, hand_tuned_runs(rules, sets))
    result: dict[str, Any] = {
        "rule": rule,
        "windows": len(_windows(test, window_jobs)),
        "hand_tuned": len(hand_tuned),
        "plain": _means(hand_tuned[f"{rule}, none"]),
        "front": {name: _means(hand_tuned[name]) for name in pareto_names(hand_tuned)},
        "constraints": [],
    }
    for constraint in constraints:
        allowed = constraint * float(validated[f"{rule}, none"]["slowdown"].mean())
        tuned = least_within_slowdown(validated, allowed)
        agents = []
        for seed in seeds:
            config = PowerConfig(power.model, power_controls=power_controls)
            settings = PowerSearchSettings(
                seed=seed,
                slowdown_limit=SlowdownLimit(constraint, rule),
                generations=generations,
                population=POPULATION,
                windows=WINDOWS,
                window_jobs=window_jobs,
            )
            agent, _ = train_linear_agent(PowerObjective(train, validation, cluster, config, settings))
            rows = power_metrics(_windows(test, window_jobs), power, {"agent": (agent, power_controls)})["agent"]
            margin, to_tuned = (pareto_margin(rows, hand_tuned), pareto_margin(rows, {tuned: hand_tuned[tuned]}))
            agents.append(
                {
                    "seed": seed,
                    **_means(rows),
                    "beyond": {"energy": margin.objective_ratio, "slowdown": margin.delay_ratio},
                    "to_tuned": {"energy": to_tuned.objective_ratio},
                    "weights": dict(agent.explain()),
                }
            )
            say(f"{constraint:g} times, seed {seed}: {margin.objective_ratio[0]:.3f} of the energy of the Pareto front")
        result["constraints"].append(
            {
                "times": constraint,
                "allowed": constraint * result["plain"]["slowdown"],
                "tuned": {"name": tuned, **_means(hand_tuned[tuned])},
                "agents": agents,
            }
        )
    return result


def text(output: dict[str, Any]) -> str:
    """The tables and their summaries."""
    parts = []
    for name, log in output.items():
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
        rows += [[f"front: {controls}", *_cells(means), "", ""] for controls, means in log["front"].items()]
        summaries = []
        for constraint in log["constraints"]:
            times = f"{constraint['times']:g} x"
            rows.append([f"{times}, tuned: {constraint['tuned']['name']}", *_cells(constraint["tuned"]), "", ""])
            for agent in constraint["agents"]:
                ratio_of = agent["beyond"]
                ratios = [_interval(ratio_of["energy"]), _interval(ratio_of["slowdown"])]
                rows.append([f"{times}, agent, seed {agent['seed']}", *_cells(agent), *ratios])
            summaries.append(_summary(constraint))
        parts.append(
            f"{name}: {log['windows']} windows of the last 30 % of the log; {log['hand_tuned']:,} hand-tuned power "
            f"controls, those on the Pareto front of the test windows\n\n{table(heads, rows)}\n\n"
            + "\n".join(summaries)
        )
    parts.append(
        "Energy ratio: agent ÷ lowest energy among hand-tuned sets with at most the agent's slowdown; slowdown ratio: "
        "agent ÷ lowest slowdown among sets with at most its energy. 95 % intervals over windows, both recomputed in "
        "each bootstrap sample."
    )
    return "\n\n".join(parts)


def _summary(constraint: dict[str, Any]) -> str:
    """Summary of the agents of one constraint."""
    agents = constraint["agents"]
    satisfied = sum(agent["slowdown"] <= constraint["allowed"] for agent in agents)
    beyond = sum(agent["beyond"]["energy"][0] < 1 or agent["beyond"]["slowdown"][0] < 1 for agent in agents)
    beyond_significantly = sum(agent["beyond"]["energy"][2] < 1 for agent in agents)
    faster = sum(agent["beyond"]["slowdown"][2] < 1 for agent in agents)
    relative_energy = [agent["to_tuned"]["energy"] for agent in agents]
    return (
        f"constraint {constraint['times']:g} x (slowdown at most {constraint['allowed']:.2f} here): satisfied by "
        f"{satisfied} of {len(agents)} agents; beyond the Pareto front {beyond} of {len(agents)}, with "
        f"an interval below 1 in energy {beyond_significantly}, in slowdown {faster}; energy relative to the tuned "
        f"controls {', '.join(f'{each[0]:.3f}' for each in relative_energy)}"
    )


def _windows(jobs: JobTable, window_jobs: int) -> Windows:
    """Adjacent windows."""
    first = np.arange(0, len(jobs) - window_jobs + 1, window_jobs)
    return Windows(jobs, first, np.full(len(first), window_jobs), np.zeros(len(first), np.int64), "adjacent windows")


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
