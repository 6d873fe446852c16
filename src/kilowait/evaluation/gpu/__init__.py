"""Metrics of runs on node-level GPU clusters: utilization, breakdowns, fragmentation, fairness, timelines."""

from kilowait.evaluation.gpu.breakdown import by_priority, by_type
from kilowait.evaluation.gpu.fragmentation import fragmentation
from kilowait.evaluation.gpu.metrics import finish_time_rho, gpu_metrics
from kilowait.evaluation.gpu.timeline import gpu_timeline

__all__ = ["by_priority", "by_type", "finish_time_rho", "fragmentation", "gpu_metrics", "gpu_timeline"]
