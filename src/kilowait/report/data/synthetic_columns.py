"""Display names and values of the columns and statistics of synthetic workloads."""

from __future__ import annotations

from kilowait.report.format import number, share
from kilowait.units import format_duration

_COLUMNS = {
    "interarrival_s": "interarrival time",
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
    "used": "used share of the request",
    "user_gap_s": "time since the user’s previous job",
    "runtime_change": "change of run time from the user’s previous job",
    "jobs_a_user": "jobs per user",
    "jobs_a_session": "jobs per session",
}
SIMULATION_METRICS = {
    "wait_s": "wait",
    "bsld": "bounded slowdown",
    "backlog_nodes": "nodes requested by waiting jobs",
    "utilization": "nodes busy",
}
"""Display names of the simulation metrics that are compared."""
_STATISTICS = {
    "mean_an_hour": "submissions per hour",
    "dispersion": "their index of dispersion, variance / mean (1: Poisson)",
    "autocorrelation_hour": "autocorrelation at a lag of one hour",
    "autocorrelation_day": "autocorrelation at a lag of one day",
    "autocorrelation_week": "autocorrelation at a lag of one week",
    "day_power": "share of the variance explained by a daily cycle",
    "week_power": "share of the variance explained by a weekly cycle",
    "users": "users",
    "median_jobs_a_user": "median of jobs per user",
    "share_of_busiest_tenth": "share of jobs of the busiest tenth of users",
    "jobs_a_session": "jobs per session (less than half an hour between submissions)",
    "median_user_gap_s": "median time between a user’s jobs",
}


def column_label(name: str) -> str:
    """The display name of a column or of a feature derived from columns.

    >>> column_label("runtime_s"), column_label("same_nodes")
    ('run time', 'same nodes as the user’s previous job')
    """
    if name.startswith("same_"):
        return f"same {_COLUMNS.get(name[5:], name[5:])} as the user’s previous job"
    return _COLUMNS.get(name, name)


def statistic_label(name: str) -> str:
    """The display name of a statistic of arrivals or users."""
    if name.startswith("same_"):
        return f"share of jobs with the same {_COLUMNS.get(name[5:], name[5:])} as the user’s previous job"
    return _STATISTICS.get(name, name.replace("_", " "))


def value_text(name: str, value: float) -> str:
    """A value of a column or a statistic, formatted with its unit.

    >>> value_text("runtime_s", 3700.0), value_text("nodes", 64.0), value_text("energy_j", 7.2e6)
    ('1 h 1 min', '64', '2 kWh')
    """
    if name == "utilization" or name.startswith(("same_", "share_")) or name.endswith("_power"):
        return share(value)
    if name == "hour":
        return f"{number(value)} h"
    if name.endswith("_s"):
        return format_duration(value)
    if name == "energy_j":
        return f"{_rounded(value / 3.6e6)} kWh"
    return _rounded(value)


def _rounded(value: float) -> str:
    """A number with a typographic minus sign, whole numbers without decimals."""
    text = f"{value:,.0f}" if value == round(value) else number(value)
    return text.replace("-", "−")
