"""Results of runs and comparisons as plain data, for the terminal, JSON output and run folders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import speeds_for
from kilowait.cluster.toml import is_node_level
from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.controls.parse import DEFAULT_SHIFT, DEFAULT_SLOWDOWN
from kilowait.engine.run_times import resolve_run_times
from kilowait.errors import InputError
from kilowait.evaluation import by_class, by_priority, by_type, gpu_metrics, metrics
from kilowait.evaluation.bounds import lower_bounds
from kilowait.evaluation.comparison import (
    Comparison,
    ComparisonResult,
    EnergyResults,
    PolicyConfig,
    PowerCurve,
    SignalCurve,
    Windows,
    single_window,
)
from kilowait.evaluation.comparison.conclusions import (
    agent_sentences,
    energy_options,
    starvation,
    starvation_sentences,
    trade_off_sentence,
)
from kilowait.evaluation.comparison.freedom import difference_sentence, freedom_of_run
from kilowait.experiments.gpu_options import run_speeds, speed_sources_text
from kilowait.experiments.power import PowerContext
from kilowait.experiments.power_controls import DEFAULT_GPU_CAPS, gpu_cap_share, parse_gpu_power_caps
from kilowait.jobs import ExecutionLog

if TYPE_CHECKING:
    from kilowait.experiments.scenario import ScenarioResult

INTERVALS = ("mean_bsld", "mean_wait_s")
"""Metrics reported with confidence intervals, besides the chosen one."""
SAVED = ("energy_kwh", "facility_kwh", "co2_kg", "cost", "peak_kw")
"""Metrics whose relative savings against the first policy are reported."""


def summarize_comparison(comparison: Comparison, metric: str, *, seed: int, bounds: bool = True) -> dict[str, Any]:
    """Means with confidence intervals, pairwise significance, conclusions as sentences, and lower bounds."""
    significance = {name: comparison.significance(name, seed=seed) for name in dict.fromkeys((metric, *INTERVALS))}
    main = significance[metric]
    node_level = is_node_level(comparison.cluster)
    may = {label: freedom_of_run(comparison.logs(number, 0).run) for number, label in enumerate(comparison.labels)}
    metrics_over_windows = _over_windows(comparison)
    means = comparison.means(metric).tolist()
    rows: list[dict[str, Any]] = []
    for number, (config, label) in enumerate(zip(comparison.policies, comparison.labels, strict=True)):
        rows.append(
            {
                "policy": config.policy,
                "backfill": config.backfill,
                "placement": comparison.logs(number, 0).run.get("placement"),
                "power_controls": config.power_controls,
                "kind": config.kind,
                "label": label,
                **({"may": list(may[label])} if node_level else {}),
                "metrics": metrics_over_windows[number],
                "mean": means[number],
                "intervals": {
                    name: {key: value for key, value in asdict(mean).items() if key != "policy"}
                    for name, result in significance.items()
                    for mean in result.means
                    if mean.policy == label
                },
            }
        )
    if comparison.energy is not None:
        for row in rows:
            row["saved"] = _saved(rows[0]["metrics"], row["metrics"])
    return {
        "trace": comparison.trace,
        "size": comparison.size,
        "unit": comparison.unit,
        "node_level": node_level,
        "windows": len(comparison.windows),
        "cut": comparison.windows.description,
        "overlap": comparison.windows.overlap,
        "counted_jobs": int(comparison.windows.size.sum()),
        "metric": metric,
        "rows": rows,
        "judgement": main.to_dict(),
        "sentences": _sentences(comparison, main, may if node_level else {}),
        "starvation": starvation(comparison.longest_wait_s, comparison.fcfs_label),
        "gap_closed": comparison.gap_closed(metric),
        "lower_bounds": _bounds(comparison) if bounds else {},
        "failed": dict(comparison.failed),
        **({"preemption_costs": _preemption_costs(comparison)} if node_level else {}),
        "notes": [*comparison.notes, *main.notes],
        **({} if comparison.energy is None else {"energy": _energy(comparison, comparison.energy)}),
    }


PREEMPTION_COSTS = (
    "checkpoint_s", "checkpoint_write_s", "checkpoint_load_s", "grace_s", "min_run_before_preempt_s"
)  # fmt: skip
"""Settings of a run that determine what a preemption or a migration costs, seconds."""


def _preemption_costs(comparison: Comparison) -> dict[str, float]:
    """The cost of preemption, which is the same in all runs of a comparison."""
    run = comparison.logs(0, 0).run
    return {name: float(run[name]) for name in PREEMPTION_COSTS if name in run}


def _saved(first: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Relative savings of a policy against the first one; NaN if the metric of the first is 0."""
    return {name: 1 - other[name] / first[name] if first[name] > 0 else math.nan for name in SAVED if name in first}


def _energy(comparison: Comparison, energy: EnergyResults) -> dict[str, Any]:
    return {
        "kwh_by_state": dict(zip(comparison.labels, map(dict, energy.states), strict=True)),
        "signals": {signal.name: {"unit": signal.unit, "description": signal.description} for signal in energy.signals},
        "notes": list(energy.notes),
        "conclusion": trade_off_sentence(energy_options(comparison)),
    }


def _agent_label(comparison: Comparison) -> str | None:
    """The label of the agent if there is exactly one: it is compared with all other policies."""
    of_kind = zip(comparison.policies, comparison.labels, strict=True)
    agents = [label for config, label in of_kind if config.kind == "agent"]
    return agents[0] if len(agents) == 1 else None


def _over_windows(comparison: Comparison) -> list[dict[str, float | int]]:
    """By policy: the metrics of a single window, else each metric over all windows."""
    if len(comparison.windows) == 1:
        return [dict(row[0]) for row in comparison.table]
    columns = {name: comparison.over_windows(name).tolist() for name in comparison.table[0][0]}
    return [{name: values[number] for name, values in columns.items()} for number in range(len(comparison.policies))]


def _sentences(comparison: Comparison, main: ComparisonResult, may: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The verdict on a single agent, or else the best policy, against every other policy; and which policies starve.

    `may` is the freedom of every policy on a GPU cluster; a difference in freedom is stated with the verdict.
    """
    agent = _agent_label(comparison)
    reference = agent or main.best
    others = [mean.policy for mean in main.ranked() if mean.policy != reference]
    kinds = {label: config.kind for config, label in zip(comparison.policies, comparison.labels, strict=True)}
    baseline = None if agent is None else next((label for label in others if kinds[label] == "rule"), None)

    def freedom(other: str) -> list[str]:
        text = difference_sentence(reference, may[reference], other, may[other]) if may else ""
        return [text] if text else []

    sentences = []
    if agent is not None and baseline is not None:
        gap = comparison.gap_closed(main.metric).get(agent, math.nan)
        sentences += [*agent_sentences(main.pair(agent, baseline), gap), *freedom(baseline)]
        others.remove(baseline)
    for other in others:
        sentences.append(" ".join([main.pair(reference, other).sentence(), *freedom(other)]))
    return sentences + starvation_sentences(comparison.longest_wait_s, comparison.fcfs_label)


def _bounds(comparison: Comparison) -> dict[str, float]:
    """Lower bounds of metrics for any schedule, means over the windows; empty if no bounds are known."""
    groups = comparison.cluster.get("group", ())
    if any(group.get("node_level", False) for group in groups):
        return {}  # jobs there use parts of nodes
    if any(group.get("shared", False) and (group.get("memory_gb") or group.get("gpus")) for group in groups):
        return {}  # jobs there need several resources
    kill = comparison.logs(0, 0).run.get("at_limit") == "kill"
    bounds = []
    for window in comparison.windows:
        jobs = window.jobs[window.warmup :]
        if kill:
            jobs = jobs.with_columns(runtime_s=resolve_run_times(jobs, "kill").run_s)
        try:
            bounds.append(asdict(lower_bounds(jobs, comparison.size)))
        except InputError:  # jobs that may be cancelled, or are larger than the cluster
            return {}
    return {name: sum(bound[name] for bound in bounds) / len(bounds) for name in bounds[0]}


BINS = 480
"""Time bins of the power curves in reports."""


def compute_energy_results(
    context: PowerContext,
    windows: Windows,
    policies: Sequence[PolicyConfig],
    logs: Callable[[int, int], ExecutionLog],
    speeds: str = "auto",
) -> EnergyResults:
    """Energy metrics of every policy in every window, and power curves of the first window.

    In each window all policies are accounted over the same time, from the first evaluated submission to the last end
    of any of them; nodes that finish earlier are idle or asleep. `least_kwh` is the lower bound of the energy of the
    window's evaluated jobs, without idle nodes; on GPU clusters at these `speeds`, with the best cap of any policy.
    """
    metrics: list[list[dict[str, float]]] = [[] for _ in policies]
    states: list[list[dict[str, float]]] = [[] for _ in policies]
    curves: list[PowerCurve] = []
    signals: tuple[SignalCurve, ...] = ()
    notes: list[str] = []
    caps = {gpu_cap_share(config.power_controls) for config in policies}
    for number, window in enumerate(windows):
        window_logs = [logs(policy, number) for policy in range(len(policies))]
        start_s = float(window.jobs["submit_s"][window.warmup])
        evaluated = window.jobs[window.warmup :]
        gpu_speeds = speeds_for(speeds, evaluated, context.cluster) if context.cluster.node_level else None
        minimum_kwh = context.minimum_kwh(evaluated, gpu_speeds, caps)
        end_s = max((float(log.end_s.max()) for log in window_logs if len(log)), default=start_s)
        for policy, log in enumerate(window_logs):
            accounts = context.account(log, policies[policy].power_controls, (start_s, end_s))
            metrics[policy].append({**accounts.metrics(), "least_kwh": minimum_kwh})
            states[policy].append(accounts.by_state)
            notes += accounts.notes
            if number == 0:
                bins = accounts.power(BINS)
                curves.append(PowerCurve(_tuple(bins.edge_s), _tuple(bins.it_w), _tuple(bins.facility_w)))
                signals = signals or _signals(accounts)
    return EnergyResults(
        metrics=tuple(tuple(row) for row in metrics),
        states=tuple(_summed(row) for row in states),
        curves=tuple(curves),
        signals=signals,
        notes=tuple(dict.fromkeys(notes)),
    )


def default_control_sets(context: PowerContext) -> list[str]:
    """No control, each control that cluster and signals support, and all of them; on GPU clusters GPU power caps."""
    if context.cluster.node_level:
        return ["none", *parse_gpu_power_caps(",".join(map(str, DEFAULT_GPU_CAPS)))]
    sets = ["none"]
    if any(group.sleep is not None for group in context.model.groups):
        sets += ["sleep=break-even", "sleep=predictive"]
    if any(len(group.levels) > 1 for group in context.model.groups):
        sets.append(f"dvfs={DEFAULT_SLOWDOWN:g}")
    if context.carbon is not None:
        sets.append(f"shift={DEFAULT_SHIFT}")
    if context.price is not None:
        sets.append(f"shift=price:{DEFAULT_SHIFT}")
    sets.append("all")
    return sets


def accounts_to_dict(accounts: EnergyAccounts, power_controls: str) -> dict[str, Any]:
    """The energy accounts of a run as plain data, for JSON output and the run folder."""
    return {
        "power_controls": power_controls,
        "horizon_s": list(accounts.horizon_s),
        "metrics": accounts.metrics(),
        "kwh_by_state": accounts.by_state,
        "kwh_by_group": {name: dict(states) for name, states in accounts.by_group.items()},
        "currency": accounts.currency or None,
        "signals": dict(accounts.signals),
        "notes": list(accounts.notes),
    }


def _signals(accounts: EnergyAccounts) -> tuple[SignalCurve, ...]:
    """The signals as means over the bins of the power curves."""
    bins = accounts.power(BINS)
    curves = []
    for name, series, mean in (
        ("carbon", accounts.carbon, bins.carbon_g_per_kwh),
        ("price", accounts.price, bins.price_per_mwh),
    ):
        if series is not None and mean is not None:
            curves.append(SignalCurve(name, series.unit, accounts.signals[name], _tuple(bins.edge_s), _tuple(mean)))
    return tuple(curves)


def _summed(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(row[name] for row in rows) for name in rows[0]}


def _tuple(values: Any) -> tuple[float, ...]:
    return tuple(values.tolist())


def summarize_run(result: ScenarioResult, by: str | None = None) -> dict[str, Any]:
    """The metrics of a run, by class of jobs if `by` is given, of GPUs and energy, and its cleaning report."""
    log, cluster = result.log, result.cluster
    machine = cluster if cluster.node_level else None
    results: dict[str, Any] = {"metrics": metrics(log, cluster=machine)}
    arrivals = single_window(log.jobs_table)[0].horizon
    if arrivals is not None:
        busy = metrics(log, horizon=arrivals, cluster=machine)["utilization"]
        results["while_jobs_arrive"] = {"horizon_s": list(arrivals), "utilization": busy}
    if cluster.node_level:
        results["gpus"] = {
            "metrics": gpu_metrics(log, cluster, result.speeds),
            "by_type": by_type(log, cluster),
            "by_priority": by_priority(log),
            "speeds": speed_sources_text(result.speeds, log.jobs_table),
        }
    if by is not None:
        results["by"] = {"kind": by, "rows": [asdict(row) for row in by_class(log, by)]}
    if result.accounts is not None:
        results["energy"] = accounts_to_dict(result.accounts, result.controls_description)
        if result.budget_violation is not None:
            results["energy"]["budget"] = asdict(result.budget_violation)
    if result.workload.cleaning_report is not None:
        results["ledger"] = result.workload.cleaning_report.to_dict()
    return results


def gpu_metrics_by_policy(
    comparison: Comparison, cluster: Cluster, speeds: str, context: PowerContext | None = None
) -> dict[str, dict[str, float]]:
    """The GPU metrics of every policy, by label: means over the windows, without NaN."""
    rows = gpu_metrics_by_window(comparison, cluster, speeds, context)
    return {
        label: {name: _mean([row[name] for row in windows]) for name in windows[0]}
        for label, windows in zip(comparison.labels, rows, strict=True)
    }


def gpu_metrics_by_window(
    comparison: Comparison, cluster: Cluster, speeds: str, context: PowerContext | None = None
) -> list[list[dict[str, float]]]:
    """The GPU metrics of every policy in every window."""
    rows: list[list[dict[str, float]]] = [[] for _ in comparison.policies]
    for number, window in enumerate(comparison.windows):
        control_sets = {config.power_controls for config in comparison.policies}
        tables = {text: run_speeds(speeds, window.jobs, cluster, context, text) for text in control_sets}
        for policy, config in enumerate(comparison.policies):
            log, table = comparison.logs(policy, number), tables[config.power_controls]
            rows[policy].append(gpu_metrics(log, cluster, table, counted=window.evaluated, horizon_s=window.horizon))
    return rows


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
