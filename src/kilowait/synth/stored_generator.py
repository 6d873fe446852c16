"""Contents of a generator's folder: the fields of its card, and the types and ranges of its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.array_file import StoredArrays
from kilowait.files.fields import Anything, Either, Flag, Items, Null, Number, Record, Text, Values
from kilowait.jobs.columns import MAX_TIME_S
from kilowait.synth.log_schema import MODELED_COLUMNS, PERSON_COLUMNS, LogSchema

__all__ = ["CARD_FIELDS", "LIMITS", "TIME_COLUMNS", "check_length", "modeled_column", "stored_schema", "whole_floats"]

MAX_SPAN_S = 1e10
"""Longest span of a log, 317 years: some generators store an entry per week."""
MAX_PEOPLE = 10_000_000
_UNBOUNDED = 2**31 - 1
LIMITS: dict[str, tuple[float, float]] = {
    "user": (-1, _UNBOUNDED),
    "account": (-1, _UNBOUNDED),
    "queue": (-1, _UNBOUNDED),
    "gpus": (0, 2**40),
    "nodes": (1, 2**40),
    "estimate_s": (0, MAX_TIME_S),
    "runtime_s": (0, MAX_TIME_S),
    "status": (-1, 127),
    "energy_j": (0, MAX_TIME_S * 1e9),
}
"""Least and greatest value of each modelled column."""
TIME_COLUMNS = ("estimate_s", "runtime_s", "energy_j")
"""Columns of floats; the others are whole numbers."""
_COUNT = Number(1, MAX_PEOPLE, whole=True)
_LOG = Record(
    {
        "source": Text(),
        "jobs": Number(1, 2**40, whole=True),
        "first_s": Number(-MAX_TIME_S, MAX_TIME_S),
        "span_s": Number(1e-6, MAX_SPAN_S),
        "columns": Items(Text(tuple(MODELED_COLUMNS)), 1, len(MODELED_COLUMNS)),
        "most_over_s": Number(0, MAX_TIME_S),
        "exact_requests": Flag(),
        "longest_s": Number(0, MAX_TIME_S),
        "labels": Values(Items(Text())),
        "meta": Record(
            {},
            {
                "max_procs": Number(0, 2**40),
                "max_nodes": Number(0, 2**40),
                "unix_start_s": Number(-1e12, 1e12),
                "time_zone": Text(),
            },
        ),
        "numbered": Record({}, dict.fromkeys(PERSON_COLUMNS, _COUNT)),
    }
)
CARD_FIELDS = Record(
    {"seed": Number(whole=True), "settings": Values(Either(Null(), Number(), Text())), "log": _LOG},
    {"privacy": Either(Null(), Values(Anything())), "ks_distances": Either(Null(), Values(Anything()))},
)
"""Fields of card.json, besides the version and the generator's name."""


def modeled_column(
    arrays: StoredArrays,
    name: str,
    stored_name: str,
    *shape: int | None,
    ascending: bool = False,
    highest: float | None = None,
) -> npt.NDArray[Any]:
    """The array of values of a modelled column.

    Args:
        arrays: the stored arrays.
        name: the column.
        stored_name: name of the array.
        shape: its shape; None: any length.
        ascending: whether the values must be in ascending order.
        highest: greatest value, where it is less than that of the column.
    """
    low, high = LIMITS[name]
    high = high if highest is None else highest
    if name in TIME_COLUMNS:
        return arrays.floats(
            stored_name, *shape, minimum=low, maximum=high, nan=name == "energy_j", ascending=ascending
        )
    return arrays.whole(stored_name, *shape, minimum=low, maximum=high, ascending=ascending)


def stored_schema(log: Mapping[str, Any], arrays: StoredArrays, card: str | PathLike[str]) -> LogSchema:
    """The schema of the log of a generator, from the entry ``log`` of its card and from its arrays."""
    columns, numbered = tuple(log["columns"]), log["numbered"]
    people = [name for name in PERSON_COLUMNS if name in columns]
    missing = [name for name in ("nodes", "estimate_s", "runtime_s") if name not in columns]
    if missing or len(set(columns)) < len(columns) or sorted(numbered) != sorted(people):
        raise InputError(
            f"{fspath(card)}: log.columns is {', '.join(columns)}, and log.numbered has "
            f"{', '.join(numbered) or 'none'}; the columns of sizes and times are needed, each once, and the numbers "
            "of users and accounts"
        )
    seen = {}
    for name in columns:
        stored_name = f"seen.{name}"
        if name in PERSON_COLUMNS:
            if stored_name in arrays:
                seen[name] = modeled_column(arrays, name, stored_name, numbered[name])
        elif name not in ("runtime_s", "energy_j"):
            seen[name] = modeled_column(arrays, name, stored_name, None, ascending=True)
            if not len(seen[name]):
                raise arrays.refuse(stored_name, "is empty")
    labels = {column: tuple(texts) for column, texts in log["labels"].items()}
    fields = {name: log[name] for name in _LOG.required}
    return LogSchema(**{**fields, "columns": columns, "labels": labels}, seen=seen)


def check_length(arrays: StoredArrays, name: str, values: npt.NDArray[Any], least: int = 1) -> npt.NDArray[Any]:
    """The array, if it has at least that many values."""
    if len(values) < least:
        raise arrays.refuse(name, f"has {len(values)} values; it must have at least {least}")
    return values


def whole_floats(arrays: StoredArrays, name: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The array of floats, if they are whole numbers."""
    known = values[~np.isnan(values)]
    if (known != np.floor(known)).any():
        raise arrays.refuse(name, "has values that are no whole numbers")
    return values
