"""JobTable: the jobs of a log as typed columns with units in their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TableError, UnknownNameError
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS, MAX_TIME_S, REQUIRED, ColumnArray, NamedColumns

UNITS = ("node", "core", "processor")
"""What a log may count."""


class JobTable(NamedColumns):
    """Table of jobs with read-only columns; slices share memory.

    `labels` maps codes of labelled columns to names; `meta` has facts of the source about the
    machine (``max_procs``, ``unit``, ``unix_start_s``, ...). Columns left out are unknown for every job.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1])
    >>> jobs["estimate_s"].tolist(), len(jobs), jobs[1:]["nodes"].tolist()
    ([60.0, 30.0], 2, [1])
    """

    __slots__ = ("labels", "meta", "order")

    labels: Mapping[str, tuple[str, ...]]
    meta: Mapping[str, Any]
    order: npt.NDArray[np.int64] | None
    """Row order by (submit_s, job_id), or None if the rows are in that order."""

    def __init__(
        self,
        *,
        labels: Mapping[str, tuple[str, ...]] | None = None,
        meta: Mapping[str, Any] | None = None,
        **columns: npt.ArrayLike | None,
    ) -> None:
        self._fill({name: values for name, values in columns.items() if values is not None}, labels, meta, copy=True)

    def _fill(
        self,
        given: dict[str, npt.ArrayLike],
        labels: Mapping[str, tuple[str, ...]] | None,
        meta: Mapping[str, Any] | None,
        *,
        copy: bool,
    ) -> None:
        for name in given:
            if name not in COLUMNS:
                raise UnknownNameError("job column", name, COLUMNS)
        if "estimate_s" not in given and "runtime_s" in given:
            given["estimate_s"] = given["runtime_s"]
        absent = [name for name in REQUIRED if name not in given]
        if absent:
            raise TableError(f"a job table needs the column(s) {', '.join(absent)}; pass them by name")
        self._columns = {name: _typed(name, given.pop(name), copy) for name in COLUMNS if name in given}
        self.labels = dict(labels or {})
        self.meta = dict(meta or {})
        _validate(self._columns, self.labels)
        self.order = _submit_order(self._columns["submit_s"], self._columns["job_id"])

    # -- sizes -----------------------------------------------------------------------------------

    @property
    def unit(self) -> str:
        """What the log counts: ``"node"``, ``"core"``, or ``"processor"`` where the nodes of the machine are unknown.

        It is ``meta["unit"]``, by default nodes.
        """
        return str(self.meta.get("unit", "node"))

    @property
    def size(self) -> npt.NDArray[np.int64]:
        """What each job requests, in units of `unit`: its nodes, or its cores, at least 1.

        `kilowait.Cluster.sized` converts a table to the unit of a machine.

        >>> columns = {"job_id": [1], "submit_s": [0], "runtime_s": [9], "nodes": [2], "cores": [88]}
        >>> JobTable(**columns).size, JobTable(**columns, meta={"unit": "core"}).size
        (array([2]), array([88]))
        """
        if self.unit == "node" or "cores" not in self:
            nodes: npt.NDArray[np.int64] = self._columns["nodes"]
            return nodes
        return np.maximum(self._columns["cores"], 1)

    @property
    def machine_size(self) -> int | None:
        """Size of the machine in units of `unit`, if the log states it.

        >>> JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[], meta={"max_nodes": 24}).machine_size
        24
        """
        keys = ("max_nodes", "max_procs") if self.unit == "node" else ("max_procs",)
        sizes = [int(self.meta[key]) for key in keys if self.meta.get(key) is not None and self.meta[key] >= 1]
        return sizes[0] if sizes else None

    def with_unit(self, unit: str, **columns: npt.ArrayLike) -> JobTable:
        """The same jobs counted in another unit, with these columns replaced.

        >>> JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[2]).with_unit("core", cores=[88]).size
        array([88])
        """
        if unit not in UNITS:
            raise UnknownNameError("unit of jobs", unit, UNITS)
        return table_of_new_arrays({**self._columns, **columns}, labels=self.labels, meta={**self.meta, "unit": unit})

    # -- reading ---------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """A column by name, or a table of selected rows by slice, mask or row numbers."""
        if isinstance(key, str):
            try:
                return self._columns[key]
            except KeyError:
                raise UnknownNameError("job column", key, self._columns) from None
        if isinstance(key, (int, np.integer)):
            raise TypeError(f"jobs[{key}] is one row; write jobs[{key}:{int(key) + 1}] for a table of it")
        if isinstance(key, slice):
            return self._rebuilt({name: column[key] for name, column in self._columns.items()})
        rows = np.asarray(key, None if len(key) else np.intp)
        if rows.ndim != 1:
            raise TypeError(f"rows are selected by a 1-D list; this one has {rows.ndim} dimensions")
        table = self._rebuilt({name: column[rows] for name, column in self._columns.items()})
        if rows.dtype.kind != "b":  # row numbers may repeat
            _check_unique(table["job_id"])
        return table

    def column(self, name: str) -> ColumnArray:
        """The column, or an array of its "unknown" value if the table lacks it.

        >>> JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1]).column("user").tolist()
        [-1]
        """
        if name in self._columns:
            return self._columns[name]
        if name not in COLUMNS:
            raise UnknownNameError("job column", name, COLUMNS)
        rule = COLUMNS[name]
        if rule.missing is None:
            raise TableError(f"these jobs have no column {name!r} and there is no value that means unknown")
        return np.full(len(self), rule.missing, rule.dtype)

    def __repr__(self) -> str:
        span = ""
        if len(self):
            submit = self._columns["submit_s"]
            span = f", {float(submit.max() - submit.min()) / 86400:.1f} days"
        return f"JobTable({len(self):,} jobs{span}; {', '.join(self._columns)})"

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        """For pickle and `copy.deepcopy`, whose arrays can be written to."""
        for name, value in state[1].items():
            setattr(self, name, value)
        for column in self._columns.values():
            column.flags.writeable = False

    # -- derived tables --------------------------------------------------------------------------

    def classes(self, name: str) -> tuple[ColumnArray, list[str]]:
        """The class of each job by a column of `LABEL_COLUMNS`, numbered from 0, and their labels; "-" is unknown.

        >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0] * 3, runtime_s=[9] * 3, nodes=[1] * 3, user=[7, -1, 7])
        >>> [column if isinstance(column, list) else column.tolist() for column in jobs.classes("user")]
        [[1, 0, 1], ['-', '7']]
        """
        values, code = np.unique(self.column(name), return_inverse=True)
        names = self.labels.get(name)
        return code, ["-" if v < 0 else str(v) if names is None else names[v] for v in values.tolist()]

    def with_columns(self, **columns: npt.ArrayLike | None) -> JobTable:
        """The same jobs with columns added or replaced; None removes one.

        >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1])
        >>> jobs.with_columns(estimate_s=[60])["estimate_s"].tolist()
        [60.0]
        """
        return JobTable(labels=self.labels, meta=self.meta, **{**self._columns, **columns})

    def sorted(self) -> JobTable:
        """The table sorted by (submit_s, job_id); the table itself if it is sorted."""
        if self.order is None:
            return self
        return self._rebuilt({name: column[self.order] for name, column in self._columns.items()})

    def _rebuilt(self, columns: dict[str, ColumnArray]) -> JobTable:
        """Build a table from rows of this one; they are valid, so only the order is recomputed."""
        table = JobTable.__new__(JobTable)
        for column in columns.values():
            column.flags.writeable = False
        table._columns, table.labels, table.meta = columns, self.labels, self.meta
        if self.order is None and len(columns["job_id"]) <= 1:
            table.order = None
        else:
            table.order = _submit_order(columns["submit_s"], columns["job_id"])
        return table

    # -- exchange --------------------------------------------------------------------------------

    def to_arrow(self) -> Any:
        """A pyarrow.Table; labels and meta are stored in the schema's metadata."""
        from kilowait.jobs import conversion

        return conversion.to_arrow(self)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; labelled columns become categoricals."""
        from kilowait.jobs import conversion

        return conversion.to_pandas(self)

    def to_polars(self) -> Any:
        """A polars.DataFrame; labelled columns become categoricals."""
        from kilowait.jobs import conversion

        return conversion.to_polars(self)

    def to_parquet(self, path: Any) -> None:
        """Write a Parquet file that `from_parquet` restores exactly."""
        from kilowait.jobs import conversion

        conversion.to_parquet(self, path)

    @classmethod
    def from_arrow(cls, table: Any) -> JobTable:
        """From a pyarrow.Table, pandas or Polars frame that has kilowait's column names."""
        from kilowait.jobs import conversion

        return conversion.from_frame(table)

    from_pandas = from_arrow
    from_polars = from_arrow

    @classmethod
    def from_parquet(cls, path: Any) -> JobTable:
        """From a Parquet file written by `to_parquet`."""
        from kilowait.jobs import conversion

        return conversion.from_parquet(path)


def table_of_new_arrays(
    columns: dict[str, npt.ArrayLike], *, labels: Mapping[str, tuple[str, ...]], meta: Mapping[str, Any]
) -> JobTable:
    """A table of arrays that nothing else refers to: those of the right type are not copied. Empties the dict.

    >>> table_of_new_arrays(
    ...     {"job_id": [1], "submit_s": np.array([0.0]), "runtime_s": [9], "nodes": [1]}, labels={}, meta={}
    ... )["submit_s"]
    array([0.])
    """
    table = JobTable.__new__(JobTable)
    table._fill(columns, labels, meta, copy=False)
    return table


def _typed(name: str, values: npt.ArrayLike, copy: bool) -> ColumnArray:
    """Convert values to the column's type; an error names the first invalid row."""
    rule = COLUMNS[name]
    array = np.asarray(values)
    if array.ndim != 1:
        raise TableError(f"column {name!r} has {array.ndim} dimensions; a column is one value per job")
    if array.dtype.kind not in "iufb" and len(array):
        raise TableError(f"column {name!r} holds {array.dtype}, not numbers; map names to numbers with labels=")
    if np.issubdtype(rule.dtype, np.integer) and array.dtype.kind == "f":
        whole = np.isfinite(array) & (array == np.floor(array))
        if not whole.all():
            row = int(np.argmin(whole))
            raise TableError(f"column {name!r}, row {row}: {array[row].item()} is not a whole number")
    if issubclass(rule.dtype, np.integer) and len(array) and array.dtype.kind in "iuf":
        lowest, highest = np.iinfo(rule.dtype).min, np.iinfo(rule.dtype).max
        # As floats these bounds are powers of two: the upper bound is one too large.
        inside = (array >= lowest) & (array < float(highest) + 1 if array.dtype.kind == "f" else array <= highest)
        if not inside.all():
            row = int(np.argmin(inside))
            kind = np.dtype(rule.dtype)
            raise TableError(f"column {name!r}, row {row}: {array[row].item()} does not fit {kind}")
    typed: ColumnArray = array.astype(rule.dtype, copy=copy)
    typed.flags.writeable = False
    return typed


def _validate(columns: Mapping[str, ColumnArray], labels: Mapping[str, tuple[str, ...]]) -> None:
    """Raise a TableError that names the first invalid row."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise TableError(f"columns differ in length: {lengths}")
    ids = columns["job_id"]
    for name, column in columns.items():
        rule = COLUMNS[name]
        fine = column >= rule.minimum
        bounded = column.dtype.kind == "f" or rule.maximum < MAX_TIME_S
        if bounded:
            fine &= column <= rule.maximum
        if rule.missing is not None:
            fine |= np.isnan(column) if np.isnan(rule.missing) else column == rule.missing
        if not fine.all():
            row = int(np.argmin(fine))
            most = f" and at most {rule.maximum:g}" if bounded else ""
            value = column[row].item()
            raise TableError(
                f"row {row} (job {ids[row]}): {name} is {value}; it must be at least {rule.minimum:g}{most}"
            )
    _check_unique(ids)
    for name, names in labels.items():
        if name not in LABEL_COLUMNS:
            raise UnknownNameError("labelled column", name, LABEL_COLUMNS)
        if len(set(names)) < len(names):
            twice = next(label for label in names if list(names).count(label) > 1)
            raise TableError(f"labels[{name!r}] holds {twice!r} twice; a label stands for one number")
        if name in columns and len(columns[name]) and int(columns[name].max()) >= len(names):
            row = int(np.argmax(columns[name]))
            code = columns[name][row]
            raise TableError(f"row {row} (job {ids[row]}): {name} is {code} but has {len(names)} labels")


def _check_unique(ids: ColumnArray) -> None:
    if (ids[1:] > ids[:-1]).all():
        return
    ordered = np.sort(ids)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        rows = np.flatnonzero(ids == twice[0])
        raise TableError(f"rows {rows[0]} and {rows[1]} both have job_id {twice[0]}; ids must be unique")


def _submit_order(submit_s: ColumnArray, job_id: ColumnArray) -> npt.NDArray[np.int64] | None:
    """Row order by (submit_s, job_id), None if the rows are sorted."""
    gap = np.diff(submit_s)
    if (gap > 0).all() or ((gap >= 0) & ((gap > 0) | (job_id[1:] > job_id[:-1]))).all():
        return None
    return np.lexsort((job_id, submit_s))
