"""Conversion of a log to a table for external models, one job per row, and back.

Columns are those of the log, with the time since the previous job in place of the submission time. Constant columns are
left out and restored. Where energy is not always known, a separate column says whether it is, so that the tables have
no missing values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kilowait.files.array_file import StoredArrays
from kilowait.synth.log_schema import Bools, Columns, Floats, LogSchema, prefixed
from kilowait.synth.tabular.log_table import nearest

GAP_COLUMN = "gap_s"
"""Time since the previous submission of any user."""
ENERGY_KNOWN = "energy_known"
CATEGORICAL = ("user", "account", "queue", "status", ENERGY_KNOWN)
"""Categorical columns."""
SIZE_COLUMNS = ("nodes", "gpus", "estimate_s")
"""Numeric columns with few distinct values: categorical too, if at most `MAX_CATEGORIES` values."""
MAX_CATEGORIES = 200


@dataclass(frozen=True)
class TableLayout:
    """The columns of a table, in order."""

    names: npt.NDArray[np.str_]
    minimum: Floats = field(repr=False)
    maximum: Floats = field(repr=False)
    """Minimum and maximum of each column."""
    integer: Bools = field(repr=False)
    """Whether all values are whole numbers."""
    categorical: Bools = field(repr=False)
    """Whether the column is categorical for the model."""

    @classmethod
    def of(cls, rows: Columns) -> Self:
        """The layout of a log's rows."""
        table = _columns(rows)
        values = list(table.values())
        return cls(
            np.array(list(table)),
            np.array([column.min() for column in values], np.float64),
            np.array([column.max() for column in values], np.float64),
            np.array([bool((column == np.floor(column)).all()) for column in values]),
            np.array(
                [
                    name in CATEGORICAL or (name in SIZE_COLUMNS and len(np.unique(column)) <= MAX_CATEGORIES)
                    for name, column in table.items()
                ]
            ),
        )

    @property
    def categorical_columns(self) -> list[str]:
        """Categorical columns of the table."""
        return [str(name) for name in self.names[(self.minimum < self.maximum) & self.categorical]]

    @property
    def varying_columns(self) -> list[str]:
        """Columns of the table: those that are not constant."""
        return [str(name) for name in self.names[self.minimum < self.maximum]]

    def table(self, rows: Columns) -> dict[str, npt.NDArray[Any]]:
        """The table of a log's rows."""
        columns = _columns(rows)
        integer = dict(zip(self.names, self.integer, strict=True))
        return {name: columns[name].astype(np.int64 if integer[name] else np.float64) for name in self.varying_columns}

    def rows(self, table: dict[str, npt.NDArray[Any]], schema: LogSchema, first_s: float) -> Columns:
        """The rows of a generated table, with numbers clipped to the log's range, and sizes, requests and categories
        mapped to the nearest value of the log.

        Args:
            table: output of a model.
            schema: of the log.
            first_s: submission of the first job.
        """
        jobs = len(next(iter(table.values())))
        columns: Columns = {}
        for name, minimum, maximum, integer in zip(self.names, self.minimum, self.maximum, self.integer, strict=True):
            values = np.asarray(table[name], np.float64) if name in table else np.full(jobs, minimum)
            values = np.clip(np.nan_to_num(values, nan=minimum), minimum, maximum)
            known = np.arange(schema.numbered[name]) if name in schema.numbered else schema.seen.get(name)
            if known is None:
                columns[str(name)] = np.rint(values) if integer else values
            else:
                columns[str(name)] = nearest(values, known)
        gaps = columns.pop(GAP_COLUMN)
        if ENERGY_KNOWN in columns:
            columns["energy_j"] = np.where(columns.pop(ENERGY_KNOWN) > 0, columns["energy_j"], np.nan)
        return {"submit_s": first_s + np.cumsum(gaps) - gaps[0], **columns}

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays by name."""
        return prefixed("layout", {item.name: getattr(self, item.name) for item in fields(self)})

    @classmethod
    def restored(cls, state: StoredArrays, schema: LogSchema) -> Self:
        """Restore the layout of a log from its arrays."""
        expected = {GAP_COLUMN, *schema.columns}
        names = [str(name) for name in state["layout.names"].ravel()] if state["layout.names"].dtype.kind == "U" else []
        if len(set(names)) < len(names) or set(names) - {ENERGY_KNOWN} != expected:
            raise state.refuse("layout.names", f"is not {', '.join(sorted(expected))}")
        layout = state.group("layout")
        count = len(names)
        return cls(
            np.array(names),
            layout.floats("minimum", count),
            layout.floats("maximum", count),
            layout.flags("integer", count),
            layout.flags("categorical", count),
        )


def _columns(rows: Columns) -> Columns:
    """All columns, from the second job on, which is the first with a previous job."""
    columns = {GAP_COLUMN: np.diff(rows["submit_s"])}
    columns |= {name: values[1:] for name, values in rows.items() if name != "submit_s"}
    energy = columns.get("energy_j")
    if energy is not None and np.isnan(energy).any():
        columns[ENERGY_KNOWN] = ~np.isnan(energy) * 1
        columns["energy_j"] = np.nan_to_num(energy, nan=float(np.nanmedian(energy)))
    return columns
