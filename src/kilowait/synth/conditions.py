"""Conditions that filter generated jobs, such as one queue, or up to 16 nodes at night.

A condition names a column (nodes, gpus, estimate_s, runtime_s, queue, status) or the hour or weekday of submission,
and its values: one value, a list, or a pair (minimum, maximum). A generator samples its whole workload and keeps the
jobs that match, so they are as frequent as in the whole workload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.synth.log_schema import DAY_S, Bools, Columns, LogSchema

ConditionValue = float | str | Sequence[float | str] | tuple[float, float]
COLUMNS = ("nodes", "gpus", "estimate_s", "runtime_s", "queue", "status")
TIME_FIELDS = {"hour": 24, "weekday": 7}


class Conditions:
    """Validated conditions on jobs.

    >>> from kilowait.synth import lublin
    >>> from kilowait.synth.log_schema import log_schema
    >>> facts = log_schema(lublin(200, 64))
    >>> Conditions({"nodes": (1, 4), "hour": [9, 10]}, facts).names
    ('nodes', 'hour')
    >>> Conditions({"nodes": (65, 128)}, facts)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: condition nodes=65:128: no job of the log matches; its values are 1 to ...
    """

    def __init__(self, conditions: Mapping[str, ConditionValue], schema: LogSchema, *, what: str = "condition") -> None:
        self._zero_s = schema.zero_s
        self._tests = {name: _checked(name, value, schema, what) for name, value in conditions.items()}
        self._texts = {name: f"{name}={_value_text(value)}" for name, value in conditions.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns with conditions."""
        return tuple(self._tests)

    def __str__(self) -> str:
        return ", ".join(self._texts.values())

    def met(self, rows: Columns) -> Bools:
        """Which of the jobs match."""
        matches = np.ones(len(rows["submit_s"]), np.bool_)
        for name, (values, between) in self._tests.items():
            column = self._time_values(name, rows) if name in TIME_FIELDS else rows[name]
            if between is None:
                matches &= np.isin(column, values)
            else:
                matches &= (column >= between[0]) & (column <= between[1])
        return matches

    def _time_values(self, name: str, rows: Columns) -> npt.NDArray[Any]:
        moment = rows["submit_s"] + self._zero_s
        return moment // 3600 % 24 if name == "hour" else moment // DAY_S % 7


Test = tuple[npt.NDArray[Any], tuple[float, float] | None]
"""Values that match, or the minimum and the maximum."""


def _checked(name: str, value: ConditionValue, schema: LogSchema, what: str) -> Test:
    """Validate a condition; `what` is its name in error messages."""
    if name not in COLUMNS and name not in TIME_FIELDS:
        raise UnknownNameError(what, name, (*COLUMNS, *TIME_FIELDS))
    if name not in TIME_FIELDS and name not in schema.columns:
        raise InputError(f"{what} {name}={_value_text(value)}: the log has no column {name}; leave it out")
    between = None
    if isinstance(value, tuple):
        low, high = (float(end) for end in value)
        between = (low, high)
        if not low <= high:
            raise InputError(f"{what} {name}={_value_text(value)}: {low:g} is more than {high:g}; swap them")
    entries = [] if between else [value] if isinstance(value, (str, int, float)) else list(value)
    numbers = np.array([_number(name, entry, schema) for entry in entries], np.float64)
    if name == "runtime_s":
        known = np.array([0.0, schema.longest_s])
        possible = between is None or between[0] <= schema.longest_s
    else:
        known = np.arange(TIME_FIELDS[name], dtype=np.float64) if name in TIME_FIELDS else schema.seen[name]
        known_in_range = known[(known >= between[0]) & (known <= between[1])] if between else known
        possible = bool(len(known_in_range)) and bool(np.isin(numbers, known).all())
    if not possible:
        names = schema.labels.get(name, ())
        values = ", ".join(names[int(number)] for number in known if number >= 0) if names else _range(known)
        raise InputError(f"{what} {name}={_value_text(value)}: no job of the log matches; its values are {values}")
    return numbers, between


def _number(name: str, value: float | str, schema: LogSchema) -> float:
    """The code of a value in the table."""
    if isinstance(value, str):
        names = schema.labels.get(name, ())
        if value in names:
            return float(names.index(value))
        try:
            return float(value)
        except ValueError:
            if names:
                raise UnknownNameError(name, value, names) from None
            if name == "queue":
                raise InputError(
                    f"queue={value}: the log's queues have no names; their numbers are {_range(schema.seen[name])}"
                ) from None
            raise InputError(f"{name}={value}: {value!r} is not a number") from None
    return float(value)


def _value_text(value: ConditionValue) -> str:
    if isinstance(value, tuple):
        return f"{value[0]:g}:{value[1]:g}"
    values = [value] if isinstance(value, (str, int, float)) else value
    return "/".join(entry if isinstance(entry, str) else f"{entry:g}" for entry in values)


def _range(known: npt.NDArray[Any]) -> str:
    if len(known) <= 8:
        return ", ".join(f"{value:g}" for value in known)
    return f"{known.min():g} to {known.max():g}"


def parse_conditions(text: str) -> dict[str, ConditionValue]:
    """Parse conditions: ``queue=long,nodes=1:16,hour=9/10/11``.

    >>> parse_conditions("queue=long,nodes=1:16,hour=9/10")
    {'queue': ['long'], 'nodes': (1.0, 16.0), 'hour': ['9', '10']}
    """
    usage = "column=value, column=value/value or column=min:max, separated by commas: queue=long,nodes=1:16"
    conditions: dict[str, ConditionValue] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InputError(f"the conditions have {part!r}; write {usage}")
        low, colon, high = value.partition(":")
        if colon:
            try:
                conditions[name] = (float(low), float(high))
            except ValueError:
                raise InputError(f"the conditions have {part!r}, which is not a range; write {usage}") from None
        else:
            conditions[name] = value.split("/")
    return conditions
