"""Metrics of execution logs, breakdowns by job class, fairness, bounds, statistical comparison, run folders."""

from kilowait.evaluation.breakdown import ClassRow, by_class, by_priority, by_type
from kilowait.evaluation.gpu import finish_time_rho, fragmentation, gpu_metrics
from kilowait.evaluation.metrics import Metrics, fairness, metrics
from kilowait.evaluation.timeline import Timeline, TimelineBins, gpu_timeline, timeline

__all__ = [
    "ClassRow",
    "Metrics",
    "Timeline",
    "TimelineBins",
    "by_class",
    "by_priority",
    "by_type",
    "fairness",
    "finish_time_rho",
    "fragmentation",
    "gpu_metrics",
    "gpu_timeline",
    "metrics",
    "timeline",
]
