"""What came out on placed nodes, as plain data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kilowait.cluster import Cluster
from kilowait.evaluation import by_priority, by_type, gpu_metrics
from kilowait.evaluation.comparison import Comparison
from kilowait.experiments.gpu_settings import run_speeds, source_words
from kilowait.experiments.power_context import PowerContext

if TYPE_CHECKING:
    from kilowait.experiments.scenario import ScenarioResult

__all__ = ["gpu_table", "placed_results"]


def placed_results(done: ScenarioResult) -> dict[str, Any]:
    """The GPU metrics of a run, tables by type and by priority, and where speeds come from."""
    log, cluster = done.log, done.cluster
    return {
        "metrics": gpu_metrics(log, cluster, done.speeds),
        "by_type": by_type(log, cluster),
        "by_priority": by_priority(log),
        "speeds": source_words(done.speeds, log.jobs_table),
    }


def gpu_table(
    contest: Comparison, cluster: Cluster, speeds: str, meter: PowerContext | None = None
) -> dict[str, dict[str, float]]:
    """By contender: the GPU metrics of its windows, each the mean over those that have it."""
    rows: dict[str, list[dict[str, float]]] = {label: [] for label in contest.labels}
    for number, window in enumerate(contest.windows):
        pulls = {who.power_controls for who in contest.policies}
        tables = {levers: run_speeds(speeds, window.jobs, cluster, meter, levers) for levers in pulls}
        for who, label in enumerate(contest.labels):
            log, table = contest.logs(who, number), tables[contest.policies[who].power_controls]
            rows[label].append(
                gpu_metrics(log, cluster, table, counted=window.evaluated, horizon_s=window.horizon)
            )
    return {
        label: {name: _mean([row[name] for row in found]) for name in found[0]}
        for label, found in rows.items()
    }


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
