"""A log as a table for other people's models, one job a row, and their tables as jobs again.

Columns are those of the log, with the time since the job before in place of the time of submission. A column that
is the same for all jobs is left out, and put back. Where energy is not always known, whether it is is a column of
its own, so that the tables have no holes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kilowait.synth.log_schema import Columns, LogSchema

__all__ = ["Layout"]

GAP = "gap_s"
"""Time since the job before, whoever submitted that."""
KNOWN = "energy_known"
KINDS = ("user", "account", "queue", "status", KNOWN)
"""Columns whose numbers are names, not amounts."""
SIZES = ("nodes", "gpus", "estimate_s")
"""Amounts of which people ask for a few: given as kinds, too, where they are at most `MOST_KINDS`."""
MOST_KINDS = 200


@dataclass(frozen=True)
class Layout:
    """The columns of a table, in order."""

    names: npt.NDArray[np.str_]
    least: npt.NDArray[np.float64] = field(repr=False)
    most: npt.NDArray[np.float64] = field(repr=False)
    """Smallest and largest value of each."""
    whole: npt.NDArray[np.bool_] = field(repr=False)
    """Whether all values are whole numbers."""
    kind: npt.NDArray[np.bool_] = field(repr=False)
    """Whether models are to take it for a name, not for an amount."""

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
                    name in KINDS or (name in SIZES and len(np.unique(column)) <= MOST_KINDS)
                    for name, column in table.items()
                ]
            ),
        )

    @property
    def kinds(self) -> list[str]:
        """Columns of the table that models are to take for names."""
        return [str(name) for name in self.names[(self.least < self.most) & self.kind]]

    @property
    def varied(self) -> list[str]:
        """Columns of the table: those that are not the same for all jobs."""
        return [str(name) for name in self.names[self.least < self.most]]

    def table(self, rows: Columns) -> dict[str, npt.NDArray[Any]]:
        """The table of a log's rows."""
        columns = _columns(rows)
        whole = dict(zip(self.names, self.whole, strict=True))
        return {name: columns[name].astype(np.int64 if whole[name] else np.float64) for name in self.varied}

    def rows(self, table: dict[str, npt.NDArray[Any]], facts: LogSchema, first_s: float) -> Columns:
        """The rows of a generated table: numbers within the log's, sizes, requests and kinds the nearest it has.

        Args:
            table: what a model made.
            facts: of the log.
            first_s: submission of the first job.
        """
        jobs = len(next(iter(table.values())))
        columns: Columns = {}
        for name, least, most, whole in zip(self.names, self.least, self.most, self.whole, strict=True):
            values = np.asarray(table[name], np.float64) if name in table else np.full(jobs, least)
            values = np.clip(np.nan_to_num(values, nan=least), least, most)
            known = np.arange(facts.numbered[name]) if name in facts.numbered else facts.seen.get(name)
            if known is None:
                columns[str(name)] = np.rint(values) if whole else values
            else:
                columns[str(name)] = _nearest(values, known)
        gaps = columns.pop(GAP)
        if KNOWN in columns:
            columns["energy_j"] = np.where(columns.pop(KNOWN) > 0, columns["energy_j"], np.nan)
        return {"submit_s": first_s + np.cumsum(gaps) - gaps[0], **columns}

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """As arrays, by name."""
        return {f"layout.{item.name}": getattr(self, item.name) for item in fields(self)}

    @classmethod
    def restored(cls, state: dict[str, npt.NDArray[Any]]) -> Self:
        """The layout whose arrays these are."""
        return cls(**{item.name: state[f"layout.{item.name}"] for item in fields(cls)})


def _columns(rows: Columns) -> Columns:
    """All columns, from the second job on, which is the first with a job before."""
    columns = {GAP: np.diff(rows["submit_s"])}
    columns |= {name: values[1:] for name, values in rows.items() if name != "submit_s"}
    energy = columns.get("energy_j")
    if energy is not None and np.isnan(energy).any():
        columns[KNOWN] = ~np.isnan(energy) * 1
        columns["energy_j"] = np.nan_to_num(energy, nan=float(np.nanmedian(energy)))
    return columns


def _nearest(values: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The nearest known value of each; known values are in order.

    >>> _nearest(np.array([-3.0, 4.0, 7.0, 99.0]), np.array([1, 4, 8, 16]))
    array([ 1,  4,  8, 16])
    """
    above = (
        np.clip(np.searchsorted(known, values), 1, len(known) - 1)
        if len(known) > 1
        else np.zeros(len(values), int)
    )
    below = np.maximum(above - 1, 0)
    nearest: npt.NDArray[Any] = np.where(
        values - known[below] <= known[above] - values, known[below], known[above]
    )
    return nearest
