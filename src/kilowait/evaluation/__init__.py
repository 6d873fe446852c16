"""Metrics of execution logs, breakdowns by job class, fairness, bounds, statistical comparison, run folders."""

from kilowait.evaluation.breakdown import ClassRow, by_class
from kilowait.evaluation.fairness import fairness
from kilowait.evaluation.gpu import by_priority, by_type, finish_time_rho, fragmentation, gpu_metrics, gpu_timeline
from kilowait.evaluation.metrics import Metrics, metrics
from kilowait.evaluation.timeline import Timeline, TimelineBins, timeline

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
