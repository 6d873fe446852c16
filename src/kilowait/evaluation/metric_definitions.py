"""The name of each metric for people, which values are better, and how the values of several windows are combined.

Tables, sentences and figures of the command line and of pages take names and combined values from here, so that one
name always stands for one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class MetricDefinition:
    """The name of a metric, and how it is compared and combined."""

    name: str
    better: str = "less"
    """Whether less or more of it is better."""
    over_windows: str = "mean"
    """How the values of windows are combined: their mean, their maximum (max) or their sum."""
    gpu_name: str = ""
    """Name on node-level (GPU) clusters, where it differs."""

    def name_on(self, node_level: bool) -> str:
        """The name on a node-level (GPU) cluster, or on any other."""
        return self.gpu_name if node_level and self.gpu_name else self.name

    def name_of_mean(self, windows: int) -> str:
        """The name of the mean over windows, as significance tests use it.

        >>> METRIC_DEFINITIONS["max_wait_s"].name_of_mean(24), METRIC_DEFINITIONS["mean_wait_s"].name_of_mean(24)
        ('longest wait of a window', 'mean wait')
        """
        return self.name if windows == 1 or self.over_windows == "mean" else f"{self.name} of a window"


METRIC_DEFINITIONS: dict[str, MetricDefinition] = {
    "mean_wait_s": MetricDefinition("mean wait"),
    "median_wait_s": MetricDefinition("median wait"),
    "p95_wait_s": MetricDefinition("95th percentile of waits"),
    "p99_wait_s": MetricDefinition("99th percentile of waits"),
    "max_wait_s": MetricDefinition("longest wait", over_windows="max"),
    "mean_turnaround_s": MetricDefinition("mean completion time (JCT)"),
    "p95_turnaround_s": MetricDefinition("95th percentile of completion times"),
    "max_turnaround_s": MetricDefinition("longest completion time", over_windows="max"),
    "mean_slowdown": MetricDefinition("mean slowdown"),
    "p95_slowdown": MetricDefinition("95th percentile of slowdowns"),
    "max_slowdown": MetricDefinition("largest slowdown", over_windows="max"),
    "mean_bsld": MetricDefinition("mean bounded slowdown"),
    "median_bsld": MetricDefinition("median bounded slowdown"),
    "p95_bsld": MetricDefinition("95th percentile of bounded slowdowns"),
    "p99_bsld": MetricDefinition("99th percentile of bounded slowdowns"),
    "max_bsld": MetricDefinition("largest bounded slowdown", over_windows="max"),
    "makespan_s": MetricDefinition("makespan"),
    "energy_kwh": MetricDefinition("energy"),
    "facility_kwh": MetricDefinition("facility energy"),
    "co2_kg": MetricDefinition("CO2"),
    "cost": MetricDefinition("electricity cost"),
    "peak_kw": MetricDefinition("peak power", over_windows="max"),
    "utilization": MetricDefinition(
        "utilization while jobs arrive", "more", gpu_name="GPU utilization while jobs arrive"
    ),
    "throughput_per_h": MetricDefinition("throughput", "more"),
    "mean_backlog_jobs": MetricDefinition("number of waiting jobs"),
    "mean_backlog_nodes": MetricDefinition("number of nodes requested by waiting jobs"),
    "mean_backlog_cores": MetricDefinition("number of cores requested by waiting jobs"),
    "mean_backlog_processors": MetricDefinition("number of processors requested by waiting jobs"),
    "jain_user_bsld": MetricDefinition("Jain's index over users", "more"),
    "worst_user_bsld": MetricDefinition("slowdown of the worst-off user"),
    "jain_size_bsld": MetricDefinition("Jain's index over job sizes", "more"),
    "worst_size_bsld": MetricDefinition("slowdown of the worst-off size"),
    "share_wait_over_bound": MetricDefinition("jobs waiting over a day"),
    "starved_jobs": MetricDefinition("starved jobs", over_windows="sum"),
}
"""Metrics of comparisons, as `kilowait.evaluation.metrics`, `fairness` and the energy accounting compute them."""

AGENT_METRIC_NAMES: dict[str, str] = {
    "mean_jct_s": METRIC_DEFINITIONS["mean_turnaround_s"].name,
    "p95_jct_s": METRIC_DEFINITIONS["p95_turnaround_s"].name,
    "makespan_s": METRIC_DEFINITIONS["makespan_s"].name,
    "gpu_utilization": METRIC_DEFINITIONS["utilization"].gpu_name,
    "flops_utilization": f"{METRIC_DEFINITIONS['utilization'].gpu_name}, by FLOPS",
    "energy": "kWh per job",
    "co2": "kg CO2 per job",
    "cost": "cost per job",
    "slowdown": METRIC_DEFINITIONS["mean_bsld"].name,
    "wait_s": METRIC_DEFINITIONS["mean_wait_s"].name,
    "p95_wait_s": METRIC_DEFINITIONS["p95_wait_s"].name,
}
"""Names of the metrics in evaluations of agents on GPU clusters and of agents with power controls."""
WINDOWS_NOTE = "Means of the windows; the longest wait and the starved jobs are those of all windows."
"""How tables combine windows, for their notes."""


def metric_name(metric: str, *, node_level: bool = False) -> str:
    """The name of a metric in tables and sentences; a metric without a definition is called by its identifier.

    >>> metric_name("utilization"), metric_name("utilization", node_level=True), metric_name("rounds")
    ('utilization while jobs arrive', 'GPU utilization while jobs arrive', 'rounds')
    """
    definition = METRIC_DEFINITIONS.get(metric)
    return metric if definition is None else definition.name_on(node_level)


def better_of(metric: str) -> str:
    """Whether less or more of a metric is better; less for a metric without a definition."""
    definition = METRIC_DEFINITIONS.get(metric)
    return "less" if definition is None else definition.better


def combine_windows(metric: str, values: npt.ArrayLike | Sequence[float]) -> float:
    """The value of a metric over windows, from its value in each of them; windows without a value are left out.

    NaN if no window has a value.

    >>> combine_windows("max_wait_s", [60.0, 300.0]), combine_windows("mean_wait_s", [60.0, 300.0])
    (300.0, 180.0)
    """
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if len(known) == 0:
        return math.nan
    definition = METRIC_DEFINITIONS.get(metric)
    how = "mean" if definition is None else definition.over_windows
    if how == "max":
        return float(known.max())
    return float(known.sum() if how == "sum" else known.mean())
