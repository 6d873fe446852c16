"""Measurements of GPU jobs under power caps (Zeus power tables), and the fit of the slowdown curve.

Columns: dataset, network, batch_size, optimizer, power_limit (W), time_per_epoch (s), average_power (W).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from kilowait.energy.power.dvfs import CapCurve
from kilowait.energy.power.number_checks import Floats
from kilowait.errors import InputError

__all__ = ["CapTable", "fit_cap_curve", "read_cap_table"]

_KEYS = ("dataset", "network", "batch_size", "optimizer")
_NUMBERS = ("power_limit", "time_per_epoch", "average_power")


@dataclass(frozen=True, slots=True)
class CappedRun:
    """Measurement of one job under one power cap."""

    job: tuple[str, ...]
    """Data set, network, batch size, optimizer."""
    cap_w: float
    throughput_per_s: float
    """Epochs per second."""
    power_w: float


@dataclass(frozen=True, slots=True)
class CapTable:
    """Throughput and power by job and cap; the largest cap counts as uncapped."""

    gpu: str
    runs: tuple[CappedRun, ...]

    def relative(self, least_w: float = 90.0) -> tuple[Floats, Floats, Floats]:
        """r = cap / uncapped draw, slowdown and power ratio of every run of the jobs that draw more than `least_w`.

        Jobs without a run at the largest cap have no reference and are left out.
        """
        top = max(run.cap_w for run in self.runs)
        uncapped = {run.job: run for run in self.runs if run.cap_w == top}
        pairs = [
            (run, uncapped[run.job]) for run in self.runs if run.job in uncapped and uncapped[run.job].power_w > least_w
        ]
        if not pairs:
            raise InputError(f"no job of the {self.gpu} table draws more than {least_w:g} W without a cap")
        r = np.array([run.cap_w / base.power_w for run, base in pairs])
        slowdown = np.array([base.throughput_per_s / run.throughput_per_s for run, base in pairs])
        power = np.array([run.power_w / base.power_w for run, base in pairs])
        return r, slowdown, power


def read_cap_table(path: str | PathLike[str], gpu: str = "") -> CapTable:
    """Read a Zeus power table (CSV, plain or gzip); a row with a missing or invalid number is an error."""
    path = Path(path)
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            rows = csv.DictReader(lines)
            absent = [name for name in (*_KEYS, *_NUMBERS) if name not in (rows.fieldnames or ())]
            if absent:
                raise InputError(f"{path} lacks the column(s) {', '.join(absent)}; it is not a Zeus power table")
            runs = tuple(_runs(rows, path))
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot read the power table {path}: {problem}") from None
    if not runs:
        raise InputError(f"{path} has no rows; it needs one for each job and cap")
    return CapTable(gpu or path.name.split(".")[0], runs)


def _runs(rows: csv.DictReader[str], path: Path) -> Iterator[CappedRun]:
    for row in rows:
        try:
            cap, seconds, watts = (float(row[name] or "nan") for name in _NUMBERS)
        except ValueError:
            cap = seconds = watts = float("nan")
        if not (0 < cap < 1e5 and 0 < seconds < 1e9 and 0 < watts < 1e5):
            wrong = ", ".join(f"{name} {row[name]!r}" for name in _NUMBERS)
            raise InputError(f"{path}, line {rows.line_num}: {wrong}; each must be a number above 0")
        yield CappedRun(tuple(row[key] for key in _KEYS), cap, 1 / seconds, watts)


def fit_cap_curve(table: CapTable, least_w: float = 90.0) -> CapCurve:
    """Least-squares fit of slowdown = 1 + a * max(1 / r - 1, 0) ** c; the error includes the uncapped runs."""
    from scipy.optimize import least_squares

    r, slowdown, _ = table.relative(least_w)
    over = np.maximum(1 / r - 1, 0)

    def residuals(parameters: Floats) -> Floats:
        return np.asarray(1 + parameters[0] * over ** parameters[1] - slowdown, np.float64)

    fit = least_squares(residuals, x0=(0.5, 1.5), bounds=((1e-3, 0.2), (10, 5)))
    a, c = (float(value) for value in fit.x)
    return CapCurve(table.gpu, a, c, float(np.sqrt(np.mean(fit.fun**2))), f"fitted to {table.gpu}")
