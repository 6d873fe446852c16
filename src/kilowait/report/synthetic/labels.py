"""Columns and measures of workloads in words, and their values for people."""

from __future__ import annotations

from kilowait.report.format import number, share
from kilowait.units import format_span

__all__ = ["MEASURES", "column_words", "measure_words", "short_words", "value_words"]

_COLUMNS = {
    "interarrival_s": "time since the job before",
    "hour": "hour of the day",
    "weekday": "day of the week",
    "nodes": "nodes",
    "gpus": "GPUs",
    "estimate_s": "request",
    "runtime_s": "run time",
    "energy_j": "energy",
    "user": "user",
    "account": "account",
    "queue": "queue",
    "status": "status",
    "used": "part of the request that was used",
    "user_gap_s": "time since the user’s job before",
    "runtime_change": "change of run time from the user’s job before",
    "jobs_a_user": "jobs a user",
    "jobs_a_session": "jobs a session",
}
_SHORT = {"interarrival_s": "gap"}
MEASURES = {
    "wait_s": "wait",
    "bsld": "bounded slowdown",
    "backlog_nodes": "nodes waited for",
    "utilization": "nodes busy",
}
"""What is compared of two simulations."""
_STATISTICS = {
    "mean_an_hour": "submissions an hour",
    "dispersion": "their variance over their mean (1: at random)",
    "autocorrelation_hour": "correlation with the hour before",
    "autocorrelation_day": "correlation with the day before",
    "autocorrelation_week": "correlation with the week before",
    "day_power": "part of the variance that a wave of a day explains",
    "week_power": "part of the variance that a wave of a week explains",
    "users": "users",
    "median_jobs_a_user": "jobs of the middle user",
    "share_of_busiest_tenth": "jobs of the busiest tenth of users",
    "jobs_a_session": "jobs a session (less than half an hour between)",
    "median_user_gap_s": "time between a user’s jobs, middle",
}


def column_words(name: str) -> str:
    """A column, or a feature made from columns.

    >>> column_words("runtime_s"), column_words("same_nodes")
    ('run time', 'same nodes as the user’s job before')
    """
    if name.startswith("same_"):
        return f"same {_COLUMNS.get(name[5:], name[5:])} as the user’s job before"
    return _COLUMNS.get(name, name)


def short_words(name: str) -> str:
    """The same where there is little room."""
    return _SHORT.get(name) or _COLUMNS.get(name, name)


def measure_words(name: str) -> str:
    """A statistic of arrivals or users."""
    if name.startswith("same_"):
        return f"jobs of the same {_COLUMNS.get(name[5:], name[5:])} as the user’s job before"
    return _STATISTICS.get(name, name.replace("_", " "))


def value_words(name: str, value: float) -> str:
    """A value of a column or a measure, with its unit.

    >>> value_words("runtime_s", 3700.0), value_words("nodes", 64.0), value_words("energy_j", 7.2e6)
    ('1 h 1 min', '64', '2 kWh')
    """
    if name == "utilization" or name.startswith(("same_", "share_")) or name.endswith("_power"):
        return share(value)
    if name == "hour":
        return f"{number(value)} h"
    if name.endswith("_s"):
        return format_span(value)
    if name == "energy_j":
        return f"{_rounded(value / 3.6e6)} kWh"
    return _rounded(value)


def _rounded(value: float) -> str:
    """Whole numbers whole, and a minus that is one."""
    told = f"{value:,.0f}" if value == round(value) else number(value)
    return told.replace("-", "−")
