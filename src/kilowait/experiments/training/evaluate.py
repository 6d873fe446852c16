"""Evaluation of agents on the last jobs of a log: against policies, on GPU clusters, and under all preferences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from kilowait.agents import load_agent
from kilowait.cluster import Cluster
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.settings import Settings
from kilowait.errors import InputError
from kilowait.evaluation.comparison import Comparison, PolicyConfig, Windows, cut_windows
from kilowait.evaluation.comparison.bootstrap import WindowBootstrap, ratio_interval
from kilowait.evaluation.comparison.pairwise import pareto_front
from kilowait.experiments.comparison.compare import compare, compare_cases
from kilowait.experiments.comparison.results import PREEMPTION_COSTS, gpu_metrics_by_window, summarize_comparison
from kilowait.experiments.comparison.run_matrix import ComparisonCase
from kilowait.experiments.oversized import without_oversized
from kilowait.experiments.policies import with_preference
from kilowait.experiments.power import PowerTraining
from kilowait.experiments.power_controls import PowerAgent, bind_agent_power
from kilowait.experiments.scenario import Console, prepare_scenario
from kilowait.experiments.scenario_inputs import Workload
from kilowait.experiments.settings import GpuOptions, PowerSettings, Scenario
from kilowait.experiments.training.environments import env_factory_for
from kilowait.experiments.training.power_evaluation import evaluate_power_agent
from kilowait.experiments.training.rl_settings import RLTraining
from kilowait.jobs import JobTable
from kilowait.policies.registry import AnyPolicy, as_policy
from kilowait.rng import stream

POLICIES = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4", "wfp3", "unicef")
"""Policies that an agent is compared with by default."""
GPU_POLICIES = ("fcfs", "sjf", "srtf", "las")
"""The same on GPU clusters. Preemptive policies preempt by their definition; the others run without head-of-line
blocking."""
TEST_FRACTION = 0.2
"""Share of the jobs, the last ones, that no training of `kilowait.train` uses."""


def evaluate(
    agent: AnyPolicy,
    jobs: JobTable,
    cluster: Cluster,
    policies: Sequence[AnyPolicy] | None = None,
    *,
    windows: int = 60,
    window_jobs: int = 1024,
    test_fraction: float = TEST_FRACTION,
    seed: int = 0,
    settings: Settings | GpuSettings | None = None,
    power: PowerSettings | str | None = None,
    power_controls: str | None = None,
    progress: Callable[[str], None] | None = None,
    **changes: Any,
) -> Comparison:
    """Compare an agent with policies on windows of the last jobs of a log.

    The last `test_fraction` of the jobs must be later than those the agent was trained on; the default is the part that
    `kilowait.train` does not use.

    Args:
        agent: the agent, or any other policy; "agent:runs/x" reads one from its folder.
        jobs: the log.
        cluster: the machine.
        policies: policies to compare with; None: `POLICIES`, on GPU clusters `GPU_POLICIES`.
        windows: windows, at random positions in the test jobs.
        window_jobs: jobs of each window.
        test_fraction: share of the jobs, from the end of the log, that are test jobs; 0 to 1.
        seed: seed of the positions of the windows.
        settings: settings of the runs, as in `kilowait.simulate`.
        power: power settings, or the name of a power model, of the energy accounting; agents that use power controls
            need one.
        power_controls: the power controls that such an agent may use; None: those of its training. Policies are
            compared without and with them.
        progress: is called with the label of a policy when its first run ends.
        changes: single settings by name, as in `kilowait.simulate`.

    >>> import kilowait as kw
    >>> log, machine = kw.lublin(600, nodes=16, load=0.9, seed=1), Cluster.from_nodes(16)
    >>> result = evaluate("saf", log, machine, ["fcfs"], windows=2, window_jobs=50)
    >>> result.labels, int(result.windows.first.min()) >= 480
    (('fcfs', 'agent'), True)
    """
    if not 0 < test_fraction <= 1:
        raise InputError(f"test_fraction is {test_fraction}; it must be above 0 and at most 1, such as 0.2")
    count = len(jobs)
    test_windows = cut_windows(
        jobs, windows, window_jobs=window_jobs, seed=seed, within=(int(count * (1 - test_fraction)), count)
    )
    if policies is None:
        policies = GPU_POLICIES if cluster.node_level else POLICIES
    names: dict[str, AnyPolicy] = {
        policy if isinstance(policy, str) else as_policy(policy).name: policy for policy in policies
    }
    if power_controls is None:
        power_controls = getattr(agent, "power_controls", "none")
    return compare(
        test_windows,
        cluster,
        {**names, "agent": agent},
        settings=settings,
        power=power,
        power_controls=tuple(dict.fromkeys(("none", power_controls))),
        progress=progress,
        **changes,
    )


POLICY_VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    ", fastest": {"gpu_type_order": "fastest"},
    ", fastest, migration": {"gpu_type_order": "fastest", "migrate": True},
}
"""GPU settings of the variants of a policy, by the suffix of its name: GPUs of any type; the fastest types first; the
fastest types first, with migration of running jobs to GPUs where they end sooner."""
METRICS = ("mean_jct_s", "p95_jct_s", "makespan_s", "gpu_utilization", "flops_utilization")
_FIXED: dict[str, Any] = {"at_limit": "extend", "on_oversized": "drop", "dependencies": False, "placement": None}


def evaluate_gpu_agent(
    agent: Any, windows: Windows, cluster: Cluster, *, policies: Sequence[str] = GPU_POLICIES, seed: int = 0
) -> dict[str, Any]:
    """Mean `METRICS` over the windows, of the agent and every policy; for mean_jct_s also the ratio to the best policy.

    Each policy runs in all `POLICY_VARIANTS`, the agent with its own settings. Metrics include all jobs of a window,
    which runs until its last job has ended. Utilization is over the time in which jobs arrive, which is the same for
    all policies.
    """
    workload = Workload(windows.jobs)
    cases = tuple(
        ComparisonCase("jobs", cluster, workload, windows, {**_FIXED, "gpu": GpuOptions(**options)})
        for options in POLICY_VARIANTS.values()
    )

    def metrics_of(cases: Sequence[ComparisonCase], runs: Mapping[str, AnyPolicy]) -> list[dict[str, Any]]:
        """By case: the metrics of every run by its name, one value per window."""
        configs = tuple(PolicyConfig(name, "skip") for name in runs)
        compared = compare_cases(cases, configs, policies=[as_policy(policy) for policy in runs.values()], workers=1)
        return [
            {
                name: {metric: [window[metric] for window in rows] for metric in METRICS}
                for name, rows in zip(runs, gpu_metrics_by_window(comparison, cluster, "auto"), strict=True)
            }
            for comparison in compared
        ]

    of_variants = metrics_of(cases, {policy: policy for policy in policies})
    rows: dict[str, dict[str, list[float]]] = metrics_of(cases[:1], {"agent": agent})[0]
    for policy in policies:
        rows |= {policy + suffix: of_variants[place][policy] for place, suffix in enumerate(POLICY_VARIANTS)}
    return {
        "windows": len(windows),
        "window_jobs": int(windows.size[0]),
        "preemption_costs": {name: getattr(GpuSettings(), name) for name in PREEMPTION_COSTS},
        "policies": {
            name: {
                **{metric: float(np.mean(values)) for metric, values in metrics.items()},
                "mean_jct_s_by_window": metrics["mean_jct_s"],
            }
            for name, metrics in rows.items()
        },
        "ratios": _ratios(rows, seed),
    }


def _ratios(rows: Mapping[str, Mapping[str, list[float]]], seed: int) -> dict[str, list[float]]:
    """Ratio of each policy's mean completion time to that of the best policy, with a 95 % interval over windows."""
    means = {name: np.mean(metrics["mean_jct_s"]) for name, metrics in rows.items()}
    best = min((name for name in means if name != "agent"), key=lambda name: means[name])
    return {
        name: [
            float(means[name] / means[best]),
            *ratio_interval(metrics["mean_jct_s"], rows[best]["mean_jct_s"], random=stream(seed, "gpu judging")),
        ]
        for name, metrics in rows.items()
        if name != best
    }


def preference_front(
    agent: Any,
    jobs: JobTable,
    cluster: Cluster,
    *,
    windows: int | None = None,
    window_jobs: int = 1024,
    grid_steps: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    power: PowerTraining | None = None,
) -> dict[str, Any]:
    """Metrics of every term under fixed preferences, with 95 % intervals over windows, as plain data.

    ``points`` has one row per preference: ``preference``, ``metrics``, ``intervals``, and ``dominated``: whether
    another preference is better in all terms. ``reference`` contains the metrics of the least-work-first policy (SAF on
    whole nodes) on the same windows. The jobs must be later than the training jobs.

    Args:
        agent: an agent as returned by `kilowait.load_agent`, without a fixed preference.
        jobs: test jobs.
        cluster: the machine.
        windows: number of evenly spaced windows; None: as many as fit without overlap.
        window_jobs: jobs in a window.
        grid_steps: weights are multiples of 1 / grid_steps; None: 10 for two terms, 4 for three, else 2.
        seed: of the bootstrap.
        progress: called with the text of each preference before its run.
        power: power settings, for an agent of kilowait/Energy-v0.
    """
    from kilowait.agents.validation import least_work_first, preference_metrics, preferences_for, term_metrics

    terms = getattr(agent, "preferences", ())
    if not terms:
        raise InputError(f"agent {agent.name!r} takes no preference; train one with kilowait train --objectives")
    if len(jobs) < window_jobs:
        raise InputError(
            f"{len(jobs):,} jobs are fewer than a window of {window_jobs:,}; use shorter windows (--window)"
        )
    count = len(jobs) // window_jobs if windows is None else windows
    first = np.linspace(0, len(jobs) - window_jobs, count).astype(np.int64)
    saved = agent.provenance["training"]
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()
    }
    training = RLTraining(**settings)
    vec = env_factory_for(cluster, training, power).envs(jobs, count, window_jobs, False)
    term_columns = [tuple(vec.reward.terms).index(name) for name in terms]
    preferences = preferences_for(len(terms), grid_steps)
    metrics_by_preference = []
    for weights in preferences:
        if progress is not None:
            progress(", ".join(f"{name} {weight:g}" for name, weight in zip(terms, weights, strict=True)))
        metrics_by_preference.append(preference_metrics(agent.network, vec, first, weights[None])[0])
    block = max(1, -(-count * window_jobs // len(jobs)))  # overlapping windows are resampled together
    bootstrap = WindowBootstrap(count, random=stream(seed, "experiments.front"), block=min(block, count))
    nondominated = pareto_front([metrics.mean(axis=0) for metrics in metrics_by_preference])
    reference = term_metrics(least_work_first(vec.spec_of_observation), vec, first)[:, term_columns]
    units = agent.provenance["units"]
    return {
        "terms": {name: vec.reward.terms[name] for name in terms},
        "units": {name: units[name] for name in terms},
        "windows": count,
        "window_jobs": window_jobs,
        "points": [
            {
                "preference": dict(zip(terms, weights.tolist(), strict=True)),
                "metrics": dict(zip(terms, metrics.mean(axis=0).tolist(), strict=True)),
                "intervals": {
                    name: list(bootstrap.mean(values)) for name, values in zip(terms, metrics.T, strict=True)
                },
                "dominated": not nondominated[index],
            }
            for index, (weights, metrics) in enumerate(zip(preferences, metrics_by_preference, strict=True))
        ],
        "reference": {
            "name": "least work first",
            "metrics": dict(zip(terms, reference.mean(axis=0).tolist(), strict=True)),
        },
    }


# -- agents in files, on the logs of scenarios -----------------------------------------------------


@dataclass(frozen=True)
class EvaluationTask:
    """A test of an agent on the last jobs of the log of a scenario."""

    agent: Any
    scenario: Scenario
    policies: Sequence[str] = POLICIES
    """Policies to compare with, on batch clusters without power controls."""
    test_fraction: float = TEST_FRACTION
    windows: int | None = 60
    window_jobs: int = 1024
    seed: int = 0


@dataclass(frozen=True)
class AgentEvaluation:
    """Test results of an agent."""

    kind: str
    """comparison: of `summarize_comparison`; gpu: of `evaluate_gpu_agent`; power: of `evaluate_power_agent`."""
    results: dict[str, Any]
    workload: Workload


def agent_for_test(
    path: str | PathLike[str], *, preference: str | None = None, has_power: bool, power_controls: str | None
) -> tuple[Any, str]:
    """An agent of a file, and the power controls of its runs: the given ones, or else those of its training.

    With a `preference` (empty: none is given), an agent with several objectives must have one.
    """
    agent = load_agent(path)
    if preference is not None:
        agent = with_preference(agent, preference)
    controls = "none" if power_controls is None else power_controls
    if isinstance(agent, PowerAgent):
        controls = agent.power_controls if power_controls is None else power_controls
        if not has_power:
            bind_agent_power(agent, None, controls)  # raises an error that names the missing settings
    return agent, controls


def run_evaluation(task: EvaluationTask, console: Console) -> AgentEvaluation:
    """Compare an agent with policies on random windows of the last jobs of a log."""
    agent, scenario, seed = task.agent, task.scenario, task.seed
    with console.busy(f"reading {scenario.trace} ..."):
        workload, cluster, notes = prepare_scenario(scenario)
        workload, more = without_oversized(workload, cluster, scenario.on_oversized)
    count = len(workload.jobs)
    within = (int(count * (1 - task.test_fraction)), count)
    windows = cut_windows(workload.jobs, task.windows or 1, window_jobs=task.window_jobs, seed=seed, within=within)
    for text in (*notes, *more, *workload.evaluated_from(int(windows.first.min())).leakage_notes):
        console.note(text)
    with console.busy("testing the agent ..."):
        if getattr(agent, "skips", False):
            results = evaluate_gpu_agent(agent, windows, cluster, seed=seed)
            return AgentEvaluation("gpu", results, workload)
        if isinstance(agent, PowerAgent) and scenario.power is not None:
            assert scenario.backfill is not None
            power = PowerTraining.of(scenario.power, scenario.power_controls, workload.jobs, cluster)
            results = evaluate_power_agent(agent, windows, power, backfill=scenario.backfill, seed=seed)
            return AgentEvaluation("power", results, workload)
        named = {**{name: name for name in task.policies}, "agent": agent}
        comparison = compare(windows, cluster, named, backfill=scenario.backfill, trace=scenario.trace)
        return AgentEvaluation("comparison", summarize_comparison(comparison, "mean_bsld", seed=seed), workload)


def run_preference_front(task: EvaluationTask, grid_steps: int | None, console: Console) -> dict[str, Any]:
    """`preference_front` of an agent on the last jobs of the log of a scenario."""
    scenario = task.scenario
    with console.busy(f"reading {scenario.trace} ..."):
        workload, cluster, notes = prepare_scenario(scenario)
        workload, more = without_oversized(workload, cluster, scenario.on_oversized)
    for text in (*notes, *more):
        console.note(text)
    test_jobs = workload.jobs[int(len(workload.jobs) * (1 - task.test_fraction)) :]
    power = None
    if scenario.power is not None:
        power = PowerTraining.of(scenario.power, scenario.power_controls, workload.jobs, cluster)
    with console.busy("testing the agent under every preference ..."):
        return preference_front(
            task.agent,
            test_jobs,
            cluster,
            windows=task.windows,
            window_jobs=task.window_jobs,
            grid_steps=grid_steps,
            seed=task.seed,
            power=power,
        )
