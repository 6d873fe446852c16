"""Results of a comparison as plain data, for the terminal, JSON output and the comparison folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kilowait.engine.run_times import resolve_run_times
from kilowait.errors import InputError
from kilowait.evaluation.bounds import lower_bounds
from kilowait.evaluation.comparison import Comparison, EnergyResults

__all__ = ["summarize_comparison"]

INTERVALS = ("mean_bsld", "mean_wait_s")
"""Metrics reported with confidence intervals, besides the chosen one."""
SAVED = ("energy_kwh", "facility_kwh", "co2_kg", "cost", "peak_kw")
"""Metrics whose relative savings against the first policy are reported."""


def summarize_comparison(comparison: Comparison, metric: str, *, seed: int, bounds: bool = True) -> dict[str, Any]:
    """Means with confidence intervals, pairwise significance, conclusions as sentences, and lower bounds."""
    significance = {name: comparison.significance(name, seed=seed) for name in dict.fromkeys((metric, *INTERVALS))}
    main = significance[metric]
    rows: list[dict[str, Any]] = []
    for number, config in enumerate(comparison.policies):
        rows.append(
            {
                "policy": config.policy,
                "backfill": config.backfill,
                "placement": comparison.logs(number, 0).run.get("placement"),
                "power_controls": config.power_controls,
                "kind": config.kind,
                "label": config.label,
                "metrics": _averages(comparison.table[number]),
                "intervals": {
                    name: {key: value for key, value in asdict(mean).items() if key != "policy"}
                    for name, result in significance.items()
                    for mean in result.means
                    if mean.policy == config.label
                },
            }
        )
    if comparison.energy is not None:
        for row in rows:
            row["saved"] = _saved(rows[0]["metrics"], row["metrics"])
    reference = _agent_label(comparison) or main.best
    others = [mean.policy for mean in main.ranked() if mean.policy != reference]
    return {
        "trace": comparison.trace,
        "nodes": comparison.nodes,
        "node_level": _is_node_level(comparison),
        "windows": len(comparison.windows),
        "cut": comparison.windows.description,
        "overlap": comparison.windows.overlap,
        "counted_jobs": int(comparison.windows.size.sum()),
        "metric": metric,
        "rows": rows,
        "judgement": main.to_dict(),
        "sentences": [main.pair(reference, other).sentence() for other in others],
        "gap_closed": comparison.gap_closed(metric),
        "lower_bounds": _bounds(comparison) if bounds else {},
        "notes": [*comparison.notes, *main.notes],
        **({} if comparison.energy is None else {"energy": _energy(comparison, comparison.energy)}),
    }


def _is_node_level(comparison: Comparison) -> bool:
    return any(group.get("node_level", False) for group in comparison.cluster.get("group", ()))


def _saved(first: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Relative savings of a policy against the first one; NaN if the metric of the first is 0."""
    return {name: 1 - other[name] / first[name] if first[name] > 0 else math.nan for name in SAVED if name in first}


def _energy(comparison: Comparison, energy: EnergyResults) -> dict[str, Any]:
    return {
        "kwh_by_state": dict(zip(comparison.labels, map(dict, energy.states), strict=True)),
        "signals": {signal.name: {"unit": signal.unit, "description": signal.description} for signal in energy.signals},
        "notes": list(energy.notes),
    }


def _agent_label(comparison: Comparison) -> str | None:
    """The label of the agent if there is exactly one: it is compared with all other policies."""
    agents = [config.label for config in comparison.policies if config.kind == "agent"]
    return agents[0] if len(agents) == 1 else None


def _averages(windows: Sequence[Mapping[str, float | int]]) -> dict[str, float | int]:
    """The metrics of a single window, else the means over the windows, without NaN."""
    if len(windows) == 1:
        return dict(windows[0])
    means: dict[str, float | int] = {}
    for name in windows[0]:
        values = [float(window[name]) for window in windows if not math.isnan(window[name])]
        means[name] = sum(values) / len(values) if values else math.nan
    return means


def _bounds(comparison: Comparison) -> dict[str, float]:
    """Lower bounds of metrics for any schedule, means over the windows; empty if no bounds are known."""
    groups = comparison.cluster.get("group", ())
    if any(group.get("shared", False) or group.get("node_level", False) for group in groups):
        return {}  # jobs there use parts of nodes
    kill = comparison.logs(0, 0).run.get("at_limit") == "kill"
    bounds = []
    for window in comparison.windows:
        jobs = window.jobs[window.warmup :]
        if kill:
            jobs = jobs.with_columns(runtime_s=resolve_run_times(jobs, "kill").run_s)
        try:
            bounds.append(asdict(lower_bounds(jobs, comparison.nodes)))
        except InputError:  # jobs that may be cancelled, or are larger than the cluster
            return {}
    return {name: sum(bound[name] for bound in bounds) / len(bounds) for name in bounds[0]}
