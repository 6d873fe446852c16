"""Feature values as readable text with units: "1 h 20 min" instead of a logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable

from kilowait.predict.target_features import feature_meaning
from kilowait.units import format_duration

__all__ = ["feature_value_text"]

_BY_NAME: dict[str, Callable[[float], str]] = {
    "request": lambda value: _duration(math.exp(value)),
    "anchor": lambda value: _duration(math.exp(value)),
    "anchor_share": lambda value: f"{100 * math.exp(value):.3g} % of the request",
    "nodes": lambda value: _count(math.exp(value), "node"),
    "area": lambda value: f"{math.exp(value) / 3600:.3g} node-hours requested",
    "round": lambda value: {1.0: "whole hours", 0.5: "whole ten minutes"}.get(value, "neither"),
    "hour": lambda value: f"{int(value):02d}:{int(value % 1 * 60):02d}",
    "weekday": lambda value: f"day {value:.0f}",
    "cores": lambda value: _count(math.expm1(value), "core"),
    "memory": lambda value: f"{math.expm1(value):,.0f} MB",
    "same_request": lambda value: "yes" if value else "no",
    "same_size": lambda value: "yes" if value else "no",
    "utilization": lambda value: f"{100 * value:.3g} %",
    "backlog": lambda value: f"{math.expm1(value):.3g} h for the full machine",
    "target_anchor": lambda value: f"{math.exp(value):.4g}",
    "queued": lambda value: _count(math.expm1(value), "job"),
    "queued_size": lambda value: _count(math.expm1(value), "job"),
    "longest_wait": lambda value: _duration(math.expm1(value)),
    "remaining": lambda value: f"{math.expm1(value):.3g} h for the full machine",
}
_BY_STATISTIC: dict[str, Callable[[float], str]] = {
    "count": lambda value: _count(math.expm1(value), "job"),
    **dict.fromkeys(("last", "second", "third", "median", "mean"), lambda value: f"{math.exp(value):.3g} × the anchor"),
    "spread": lambda value: f"a factor of {math.exp(value):.3g}",
    **dict.fromkeys(("since", "gap"), lambda value: _duration(math.expm1(value))),
    "elapsed": lambda value: "not running" if value < 0 else _duration(math.expm1(value)),
    "success": lambda value: f"{100 * value:.3g} %",
    **dict.fromkeys(("running", "waiting"), lambda value: _count(value, "job")),
}


def feature_value_text(name: str, value: float) -> str:
    """Text of a feature value, in readable units.

    >>> (
    ...     feature_value_text("request", math.log(3600.0)),
    ...     feature_value_text("user_last", 0.0),
    ...     feature_value_text("user_success", math.nan),
    ... )
    ('1 h 0 min', '1 × the anchor', 'not known')
    """
    feature_meaning(name)  # an unknown name is an error whatever the value
    if not math.isfinite(value):
        return "not known"
    statistic = name.rpartition("_")[2]
    formatter = _BY_NAME.get(name) or _BY_STATISTIC.get(statistic)
    return f"{value:.3g}" if formatter is None else formatter(value)


def _count(value: float, noun: str) -> str:
    number = round(value)
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    return format_duration(round(seconds, 3))  # exp(ln(x)) loses the last digit
