"""DVFS states and GPU power caps, the slowdown that they cause, and measurements of it (Zeus power tables).

Frequency: T(f) = T(f_max) * (beta * (f_max / f - 1) + 1); beta is 1 for compute-bound and 0 for memory-bound work
(Hsu & Feng; Etinski). Power cap: T(cap) = T * (1 + a * max(1 / r - 1, 0) ** c) with r = cap / uncapped draw of the job,
so a cap at or above the draw causes no slowdown.

Columns of Zeus tables: dataset, network, batch_size, optimizer, power_limit (W), time_per_epoch (s), average_power (W).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kilowait.compression import decompressed
from kilowait.energy.power.number_checks import Floats, checked_numbers, require
from kilowait.errors import InputError

__all__ = [
    "GPU_CAP_CURVES",
    "FULL_SPEED",
    "CapCurve",
    "DvfsState",
    "break_even_beta",
    "clock_slowdown",
    "CapTable",
    "fit_cap_curve",
    "read_cap_table",
]


@dataclass(frozen=True, slots=True)
class DvfsState:
    """A DVFS state or GPU power cap of a node.

    `speed` is f / f_max, `cpu_dynamic` the remaining share of the CPUs' power above idle, `gpu_cap` the cap as a share
    of the GPUs' power limit.

    >>> DvfsState("1.2 GHz", speed=0.45, cpu_dynamic=0.323).gpu_cap
    1.0
    """

    name: str
    speed: float = 1.0
    cpu_dynamic: float = 1.0
    gpu_cap: float = 1.0
    source: str = ""
    estimate: bool = True

    def __post_init__(self) -> None:
        for key in ("speed", "gpu_cap"):
            if not 0 < getattr(self, key) <= 1:
                raise InputError(
                    f"{key} of the DVFS state {self.name!r} is {getattr(self, key)}; it must be above 0 and at most 1"
                )
        require(f"cpu_dynamic of the DVFS state {self.name!r}", self.cpu_dynamic, 0, 1)

    @property
    def is_full(self) -> bool:
        """Whether this is full speed without a cap."""
        return self.speed == self.cpu_dynamic == self.gpu_cap == 1


FULL_SPEED = DvfsState("full", source="definition", estimate=False)
"""DVFS state 0 of every node group."""


def clock_slowdown(beta: npt.ArrayLike, speed: npt.ArrayLike) -> Floats:
    """Run time at `speed` = f / f_max relative to full speed, for a `beta` from 0 to 1; at least 1.

    >>> clock_slowdown([0, 0.5, 1], 0.5).tolist()
    [1.0, 1.5, 2.0]
    """
    slow = checked_numbers("beta", beta, 0, 1) * (1 / checked_numbers("speed", speed, 1e-6, 1) - 1) + 1
    return np.asarray(slow, np.float64)


def break_even_beta(level_w: npt.ArrayLike, speed: npt.ArrayLike, full_w: float) -> Floats:
    """The beta below which a DVFS state saves energy: where level_w * slowdown = full_w.

    `level_w` and `full_w` are watts of the whole node while the job runs. To count only energy above the power of the
    node after the job, subtract that power from both.

    >>> float(break_even_beta(171.0, 0.89, 190.7).round(3))
    0.932
    """
    watts = checked_numbers("level_w", level_w, 0)
    at = checked_numbers("speed", speed, 1e-6, 1)
    if (watts <= 0).any() or (at >= 1).any():
        raise InputError("break-even needs a DVFS state that draws power and is below full speed; leave others out")
    return np.asarray((full_w / watts - 1) / (1 / at - 1), np.float64)


@dataclass(frozen=True, slots=True)
class CapCurve:
    """Measured slowdown of a GPU type under a power cap.

    >>> GPU_CAP_CURVES["V100"].slowdown([2.0, 1.0, 0.5]).round(2).tolist()
    [1.0, 1.0, 1.58]
    """

    gpu: str
    a: float
    c: float
    rmse: float = float("nan")
    source: str = ""

    def __post_init__(self) -> None:
        require(f"a of the cap curve {self.gpu!r}", self.a)
        require(f"c of the cap curve {self.gpu!r}", self.c)

    def slowdown(self, r: npt.ArrayLike) -> Floats:
        """Run time under the cap / run time without; r = cap / uncapped draw."""
        share = checked_numbers("r", r, 1e-6)
        return np.asarray(1 + self.a * np.maximum(1 / share - 1, 0) ** self.c, np.float64)

    def relative_energy(self, r: npt.ArrayLike) -> Floats:
        """GPU energy under the cap / without, if the GPU draws the cap where the cap is binding.

        Measured draws stay a few per cent below a binding cap, so this estimate is conservative.

        >>> GPU_CAP_CURVES["V100"].relative_energy([1.5, 0.7]).round(2).tolist()
        [1.0, 0.81]
        """
        return np.asarray(np.minimum(checked_numbers("r", r, 1e-6), 1) * self.slowdown(r), np.float64)


_ZEUS = "fitted to Zeus summary_power_{}.csv (ml-energy/zeus, NSDI'23, Apache-2.0), jobs drawing more than 90 W"
GPU_CAP_CURVES: dict[str, CapCurve] = {
    "V100": CapCurve("V100", 0.58, 1.51, 0.08, _ZEUS.format("v100")),
    "RTX6000": CapCurve("RTX6000", 0.73, 1.62, 0.20, _ZEUS.format("rtx6000")),
    "A40": CapCurve("A40", 1.38, 1.45, 0.24, _ZEUS.format("a40")),
}
"""Fitted curves by GPU type, with the root mean square error of the slowdown over the capped runs."""


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
        data, _ = decompressed(path.read_bytes(), str(path), remedy="decompress it and give the decompressed file")
        rows = csv.DictReader(StringIO(data.decode("utf-8"), newline=""))
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot read the power table {path}: {problem}") from None
    absent = [name for name in (*_KEYS, *_NUMBERS) if name not in (rows.fieldnames or ())]
    if absent:
        raise InputError(f"{path} lacks the column(s) {', '.join(absent)}; it is not a Zeus power table")
    runs = tuple(_runs(rows, path))
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
