"""Results of runs and comparisons on GPU clusters, as plain data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kilowait.cluster import Cluster
from kilowait.evaluation import by_priority, by_type, gpu_metrics
from kilowait.evaluation.comparison import Comparison
from kilowait.experiments.gpu_options import run_speeds, speed_sources_text
from kilowait.experiments.power_context import PowerContext

if TYPE_CHECKING:
    from kilowait.experiments.scenario import ScenarioResult

__all__ = ["gpu_metrics_by_policy", "summarize_gpu_run"]


def summarize_gpu_run(result: ScenarioResult) -> dict[str, Any]:
    """The GPU metrics of a run, tables by GPU type and by priority, and the sources of the speeds."""
    log, cluster = result.log, result.cluster
    return {
        "metrics": gpu_metrics(log, cluster, result.speeds),
        "by_type": by_type(log, cluster),
        "by_priority": by_priority(log),
        "speeds": speed_sources_text(result.speeds, log.jobs_table),
    }


def gpu_metrics_by_policy(
    comparison: Comparison, cluster: Cluster, speeds: str, context: PowerContext | None = None
) -> dict[str, dict[str, float]]:
    """The GPU metrics of every policy, by label: means over the windows, without NaN."""
    rows: dict[str, list[dict[str, float]]] = {label: [] for label in comparison.labels}
    for number, window in enumerate(comparison.windows):
        control_sets = {config.power_controls for config in comparison.policies}
        tables = {text: run_speeds(speeds, window.jobs, cluster, context, text) for text in control_sets}
        for policy, label in enumerate(comparison.labels):
            log, table = comparison.logs(policy, number), tables[comparison.policies[policy].power_controls]
            rows[label].append(gpu_metrics(log, cluster, table, counted=window.evaluated, horizon_s=window.horizon))
    return {
        label: {name: _mean([row[name] for row in windows]) for name in windows[0]} for label, windows in rows.items()
    }


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
