"""Schema of a log that generators use (columns, value ranges, limits, the machine), and its stored form in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike, fspath
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.array_file import StoredArrays
from kilowait.files.fields import Anything, Either, Flag, Items, Null, Number, Record, Text, Values
from kilowait.jobs import JobTable
from kilowait.jobs.columns import MAX_TIME_S
from kilowait.jobs.table import UNITS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]
"""Columns of jobs in order of submission; users and accounts are numbered by rank of use, 0 is the largest."""

DAY_S, WEEK_S = 86400.0, 7 * 86400.0
MIN_JOBS = 100
"""Minimum number of jobs of a log."""
MODELED_COLUMNS = "user account queue gpus nodes estimate_s runtime_s status energy_j".split()
"""Columns that are generated where a log has them; others are left out of samples."""
PERSON_COLUMNS = ("user", "account")
"""Columns that identify people; samples renumber them."""
METADATA = ("max_procs", "max_nodes", "unit", "unix_start_s", "time_zone")
"""Metadata of the machine and log time that samples keep."""


@dataclass(frozen=True)
class LogSchema:
    """Schema of one log."""

    source: str
    """Name of the file, or of the workload."""
    jobs: int
    first_s: float
    """First submission, in log time."""
    span_s: float
    """From the first submission to the last."""
    columns: tuple[str, ...]
    """Those of `MODELED_COLUMNS` that the log has."""
    most_over_s: float
    """The maximum by which a run time exceeds its request, seconds; 0 if none does."""
    exact_requests: bool
    """Whether every request equals the run time: the log, and so its samples, have no requests."""
    longest_s: float
    """The longest run time."""
    labels: Mapping[str, tuple[str, ...]]
    meta: Mapping[str, Any]
    seen: Mapping[str, npt.NDArray[Any]] = field(repr=False)
    """The distinct values of each column except run time and energy; of users and accounts only where names are kept,
    by rank."""
    numbered: Mapping[str, int] = field(default_factory=dict)
    """Number of users and accounts."""

    @property
    def machine(self) -> int:
        """Size of the machine in the unit of the log, or of the largest job where the machine is unknown."""
        keys = ("max_nodes", "max_procs") if self.unit == "node" else ("max_procs",)
        sizes = [self.meta[key] for key in keys if self.meta.get(key)]
        return int(sizes[0] if sizes else self.seen["nodes"].max())

    @property
    def unit(self) -> str:
        """What the log counts (see `JobTable.unit`); the rows of generators have this as `nodes`."""
        return str(self.meta.get("unit", "node"))

    @property
    def zero_s(self) -> float:
        """Unix time of log time 0, where known; hours of the day refer to it."""
        return float(self.meta.get("unix_start_s") or 0.0)


def unix_zero_s(jobs: JobTable) -> float:
    """Unix time of the jobs' time 0; 0 where it is not known.

    >>> unix_zero_s(JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1]))
    0.0
    """
    return float(jobs.meta.get("unix_start_s") or 0.0)


def log_schema(jobs: JobTable, *, keep_names: bool = False) -> LogSchema:
    """The schema of a log; an error if it is too small or too short to learn from.

    Args:
        jobs: the log.
        keep_names: keep the numbers and names of users and accounts. Otherwise they are dropped here.
    """
    if len(jobs) < MIN_JOBS:
        raise InputError(
            f"{len(jobs)} jobs are too few to learn a workload from; at least {MIN_JOBS} are needed. "
            "kilowait has models that need no log: lublin:JOBS:NODES"
        )
    submit, runtime, request = jobs["submit_s"], jobs["runtime_s"], jobs["estimate_s"]
    if not np.ptp(submit) > 0:
        raise InputError(
            f"all {len(jobs):,} jobs are submitted at {submit[0]:g} s, so arrival times cannot "
            "be learned; give a log with submission times"
        )
    columns = tuple(name for name in MODELED_COLUMNS if name in jobs)
    seen = {
        name: _by_node_seconds(jobs, name) if name in PERSON_COLUMNS else np.unique(jobs[name])
        for name in columns
        if name not in ("runtime_s", "energy_j") and (keep_names or name not in PERSON_COLUMNS)
    }
    return LogSchema(
        source=str(jobs.meta.get("source") or jobs.meta.get("model") or "jobs"),
        jobs=len(jobs),
        first_s=float(submit.min()),
        span_s=float(np.ptp(submit)),
        columns=columns,
        most_over_s=max(0.0, float((runtime - request).max())),
        exact_requests=bool((runtime == request).all()),
        longest_s=float(runtime.max()),
        labels={
            name: tuple(texts)
            for name, texts in jobs.labels.items()
            if name in columns and (keep_names or name not in PERSON_COLUMNS)
        },
        meta={name: jobs.meta[name] for name in METADATA if jobs.meta.get(name) is not None},
        seen=seen,
        numbered={name: len(np.unique(jobs[name])) for name in PERSON_COLUMNS if name in columns},
    )


def rows_of(jobs: JobTable, schema: LogSchema) -> Columns:
    """The modelled columns and `submit_s`, in order of submission; users and accounts by rank, 0 for the largest."""
    ordered = jobs.sorted()
    rows: Columns = {name: ordered[name] for name in ("submit_s", *schema.columns)}
    for name in schema.numbered:
        values = _by_node_seconds(jobs, name)
        order = np.argsort(values)
        rows[name] = order[np.searchsorted(values, rows[name], sorter=order)]
    return rows


def _by_node_seconds(jobs: JobTable, name: str) -> npt.NDArray[Any]:
    """The distinct values of a column, sorted by node-seconds of their jobs, largest first."""
    values, code = np.unique(jobs[name], return_inverse=True)
    volume = np.bincount(code, jobs["nodes"] * jobs["runtime_s"])
    ranked: npt.NDArray[Any] = values[np.argsort(-volume, kind="stable")]
    return ranked


def prefixed(group: str, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Arrays under the names by which `StoredArrays.group` finds them.

    >>> prefixed("calendar", {"week": np.array([0, 1])})
    {'calendar.week': array([0, 1])}
    """
    return {f"{group}.{name}": values for name, values in arrays.items()}


# -- the stored form ------------------------------------------------------------------------------


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
                "unit": Text(UNITS),
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
    values = {name: log[name] for name in _LOG.required}
    return LogSchema(**{**values, "columns": columns, "labels": labels}, seen=seen)


def check_length(arrays: StoredArrays, name: str, values: npt.NDArray[Any], least: int = 1) -> npt.NDArray[Any]:
    """The array, if it has at least that many values."""
    if len(values) < least:
        raise arrays.refuse(name, f"has {len(values)} values; it must have at least {least}")
    return values


def whole_floats(arrays: StoredArrays, name: str, values: Floats) -> Floats:
    """The array of floats, if they are whole numbers."""
    known = values[~np.isnan(values)]
    if (known != np.floor(known)).any():
        raise arrays.refuse(name, "has values that are no whole numbers")
    return values


@dataclass(frozen=True)
class _StoredArray:
    """Type, shape and range of an array. Text is the name of a number that is known when it is read."""

    kind: str
    shape: tuple[int | str | None, ...]
    minimum: float | str = -np.inf
    maximum: float | str = np.inf
    least: int = 0
    options: Mapping[str, bool] = field(default_factory=dict)

    def read(self, state: StoredArrays, name: str, known: Mapping[str, float]) -> npt.NDArray[Any]:
        shape = [int(known[size]) if isinstance(size, str) else size for size in self.shape]
        if self.kind == "flags":
            values: npt.NDArray[Any] = state.flags(name, *shape)
        else:
            limits = (known[limit] if isinstance(limit, str) else limit for limit in (self.minimum, self.maximum))
            minimum, maximum = limits
            read = state.floats if self.kind == "floats" else state.whole
            values = read(name, *shape, minimum=minimum, maximum=maximum, **self.options)
        return check_length(state, name, values, self.least)


def stored(
    kind: str,
    *shape: int | str | None,
    minimum: float | str = -np.inf,
    maximum: float | str = np.inf,
    least: int = 0,
    **options: bool,
) -> Any:
    """Field of a `StoredRecord`, and what its array in a folder must be.

    Args:
        kind: "floats", "whole" or "flags".
        shape: lengths of its axes. None: any; text: a number that the reader of the record gives, or the length of an
            axis of an earlier array, "name.axis".
        minimum: least value; text as in `shape`.
        maximum: greatest value.
        least: minimum number of values.
        options: `nan`, `infinite` and `ascending`, see `StoredArrays`.
    """
    return field(metadata={"stored": _StoredArray(kind, shape, minimum, maximum, least, options)})


class StoredRecord:
    """Base of dataclasses of arrays, each described by `stored`, that are part of the state of a generator.

    >>> @dataclass(frozen=True)
    ... class Margin(StoredRecord):
    ...     values: Floats = stored("floats", None, maximum="most", least=1)
    >>> Margin(np.array([1.0, 2.0])).state()
    {'values': array([1., 2.])}
    >>> Margin.read(StoredArrays({"values": np.array([1.0, 2.0])}, "state.npz"), most=1.5)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: state.npz: values has the value 2.0; each must be a finite number, at least -inf, ...
    """

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def read(cls, state: StoredArrays, **known: float) -> Self:
        """The record in a state, with the numbers that its fields name; an InputError if an array is invalid."""
        values: dict[str, npt.NDArray[Any]] = {}
        for item in fields(cls):  # type: ignore[arg-type]
            array = item.metadata["stored"].read(state, item.name, known)
            known |= {f"{item.name}.{axis}": length for axis, length in enumerate(array.shape)}
            values[item.name] = array.astype(np.int64) if array.dtype.kind in "iu" else array
        return cls(**values)
