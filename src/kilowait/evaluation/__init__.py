"""Logs become numbers: metrics of a run, by class of job, and over time."""

from kilowait.evaluation.breakdown import ClassRow, by_class
from kilowait.evaluation.metrics import Metrics, metrics
from kilowait.evaluation.timeline import Timeline, TimelineBins, timeline

__all__ = ["ClassRow", "Metrics", "Timeline", "TimelineBins", "by_class", "metrics", "timeline"]
