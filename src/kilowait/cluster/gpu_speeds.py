"""Relative speed of each job on each GPU type, computed before the simulation.

Speed 1 corresponds to the job's `runtime_s` on the GPU type on which that run time was measured
(`runtime_gpu_types`). Sources of a speed, best first:

- *given*: by the caller;
- *recorded*: 1, because the run time was measured on this type;
- *measured*: the ratio of two measured throughputs of this workload on this number of GPUs;
- *roofline*: from FLOPS and bandwidth of the two types. A rough estimate: on Gavel's throughputs its error is a
  factor of 1.8 (root mean square of logarithms), and it misses workloads that are slower on the newer GPU.

`fill_unknown_speeds` takes each cell from the first table that has a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kilowait.cluster.cluster import Cluster
from kilowait.cluster.gpu_catalogue import GAVEL_THROUGHPUTS, GpuType, Throughputs, gpu, read_throughputs
from kilowait.errors import InputError, UnknownNameError
from kilowait.series import Floats

SPEED_SOURCES = ("unknown", "given", "measured", "roofline", "recorded")
"""Source of a speed, by code."""


class JobColumns(Protocol):
    """Columns and labels of a job table."""

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """Names behind numbers."""
        ...

    @property
    def meta(self) -> Mapping[str, Any]:
        """Facts about the whole table."""
        ...

    def __len__(self) -> int: ...
    def __contains__(self, name: object) -> bool: ...
    def __getitem__(self, key: Any) -> Any:
        """A column by name, or a table of selected rows."""
        ...

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column by name."""
        ...


@dataclass(frozen=True, eq=False)
class Speeds:
    """Speeds by GPU type and job, in the order of the job table. NaN: unknown.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[1], gpus=[1])
    >>> constant_speeds(jobs, ("V100", "A100"), {"V100": 1.0, "A100": 2.0}).speed.tolist()
    [[1.0], [2.0]]
    """

    types: tuple[str, ...]
    speed: Floats
    """(types, jobs): 1 corresponds to `runtime_s`; 0: the job cannot run on this type."""
    spread: Floats
    """(types, jobs): factor on the speed (0 to 1] of a job whose GPUs are on more nodes than necessary."""
    source: npt.NDArray[np.int8]
    """(types, jobs): index into `SPEED_SOURCES`."""

    def __post_init__(self) -> None:
        for name in ("speed", "spread", "source"):
            table = getattr(self, name)
            if table.shape != self.speed.shape or table.ndim != 2 or len(table) != len(self.types):
                raise InputError(
                    f"{name} has the shape {table.shape} with {len(self.types)} types; all tables are (types, jobs)"
                )
        valid = np.isnan(self.speed) | (np.isfinite(self.speed) & (self.speed >= 0))
        self._check(valid, self.speed, "speed", "a number, 0 or more")
        self._check((self.spread > 0) & (self.spread <= 1), self.spread, "spread", "above 0 and at most 1")

    def _check(self, valid: npt.NDArray[np.bool_], table: Floats, name: str, rule: str) -> None:
        if not valid.all():
            type_index, row = (int(at[0]) for at in np.nonzero(~valid))
            raise InputError(
                f"row {row}: the {name} on {self.types[type_index]!r} is {table[type_index, row]}; it must be {rule}"
            )

    def row(self, gpu_type: str) -> int:
        """Row of a GPU type of the cluster, in upper or lower case; an InputError if there are no speeds for it."""
        names = [name.lower() for name in self.types]
        if gpu_type.lower() not in names:
            raise InputError(f"speeds are given for {', '.join(self.types)}, not for {gpu_type}, which the cluster has")
        return names.index(gpu_type.lower())

    def require_known(self) -> None:
        """Raise unless every speed is known."""
        unknown = np.isnan(self.speed)
        if unknown.any():
            type_index, row = (int(at[0]) for at in np.nonzero(unknown))
            raise InputError(
                f"row {row}: its speed on {self.types[type_index]!r} is unknown ({int(unknown.sum())} cells are); "
                "fill them: first_known(speeds, constant_speeds(jobs, types, 1.0))"
            )

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of speeds by GPU type and source.

        >>> from kilowait.jobs import JobTable
        >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1])
        >>> constant_speeds(jobs, ("V100",), 1.0).counts()
        {'V100': {'given': 2}}
        """
        rows = {}
        for name, codes in zip(self.types, self.source, strict=True):
            counts = np.bincount(codes, minlength=len(SPEED_SOURCES)).tolist()
            rows[name] = {kind: count for kind, count in zip(SPEED_SOURCES, counts, strict=True) if count}
        return rows


def gpu_types(cluster: Cluster) -> tuple[str, ...]:
    """GPU types of a cluster in the order of its groups; "" stands for nodes without GPUs.

    >>> gpu_types(Cluster.preset("polaris"))
    ('A100-SXM4-40',)
    """
    return tuple(dict.fromkeys(group.gpu_type if group.gpus else "" for group in cluster.groups))


def constant_speeds(
    jobs: JobColumns,
    types: Sequence[str],
    speed: float | Mapping[str, npt.ArrayLike],
    spread: float | Mapping[str, npt.ArrayLike] = 1.0,
) -> Speeds:
    """Constant speeds: one for all, or per type one number or one per job; other types are unknown.

    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1])
    >>> constant_speeds(jobs, ("V100", "K80"), {"V100": 1.0, "K80": [0.2, 0.5]}).speed.tolist()
    [[1.0, 1.0], [0.2, 0.5]]
    """
    shape = (len(types), len(jobs))
    tables = []
    for values, missing in ((speed, np.nan), (spread, 1.0)):
        table = np.full(shape, missing)
        if isinstance(values, Mapping):
            for name, value in values.items():
                if name not in types:
                    raise UnknownNameError("GPU type of the cluster", name, types)
                table[list(types).index(name)] = _per_job(f"the speed on {name!r}", value, len(jobs))
        else:
            table[:] = values
        tables.append(table)
    return _speeds_table(jobs, types, tables[0], tables[1], "given")


def measured_speeds(
    jobs: JobColumns, types: Sequence[str], throughputs: Throughputs = GAVEL_THROUGHPUTS, reference: str = "V100"
) -> Speeds:
    """Speeds from measured throughputs, by the jobs' `model` and `gpus`.

    A type is found in the table by its name, or by a type of its family (any V100 for "v100"). Jobs whose model,
    number of GPUs or type was not measured stay unknown: the ratio on one GPU predicts eight GPUs poorly (on Gavel's
    table no better than the roofline). Where a job was measured to be faster on more nodes than it needs (44
    of 165 in Gavel's table) the factor is 1: fewer nodes are never slower here. The factor is also 1 where it was
    not measured.

    >>> from kilowait.jobs import JobTable
    >>> one = {"job_id": [1], "submit_s": [0], "runtime_s": [9], "nodes": [1], "gpus": [1], "model": [0]}
    >>> jobs = JobTable(**one, labels={"model": ("Recommendation (batch size 512)",)})
    >>> measured_speeds(jobs, ("V100", "K80", "T4")).speed.round(2).tolist()
    [[1.0], [1.41], [nan]]
    """
    speed, spread = np.full((len(types), len(jobs)), np.nan), np.ones((len(types), len(jobs)))
    base = throughputs.consolidated.get(_key(reference, throughputs), {})
    if not base:
        raise UnknownNameError("type of GPU with measured throughputs", reference, throughputs.consolidated)
    names, model = jobs.labels.get("model", ()), jobs.column("model")
    pairs = np.stack((model, _gpus(jobs)))
    kinds, kind_of = np.unique(pairs, axis=1, return_inverse=True)
    for row, name in enumerate(types):
        key = _key(name, throughputs)
        consolidated, unconsolidated = (throughputs.consolidated.get(key, {}), throughputs.unconsolidated.get(key, {}))
        rate, factor = np.full(kinds.shape[1], np.nan), np.ones(kinds.shape[1])
        for number, (code, gpus) in enumerate(kinds.T.tolist()):
            workload = (names[code] if 0 <= code < len(names) else "", gpus)
            if workload in consolidated and base.get(workload, 0.0) > 0:
                rate[number] = consolidated[workload] / base[workload]
                if consolidated[workload] > 0 and unconsolidated.get(workload, 0.0) > 0:
                    factor[number] = min(1.0, unconsolidated[workload] / consolidated[workload])
        speed[row], spread[row] = rate[kind_of.ravel()], factor[kind_of.ravel()]
    return _speeds_table(jobs, types, speed, spread, "measured")


def roofline_speeds(
    jobs: JobColumns,
    types: Sequence[str],
    reference: str = "V100",
    *,
    precision: str = "fp32",
    compute_share: npt.ArrayLike | None = None,
    gpu_memory_gb: npt.ArrayLike | None = None,
) -> Speeds:
    """Speeds from FLOPS and memory bandwidth of the GPU catalogue (roofline model).

    With f and b the ratios of the type's FLOPS and memory bandwidth to the reference's, the speed is the smaller of
    the two; or, where the share c of its time on the reference that a job spends computing is known, from 0 to 1,
    1 / (c / f + (1 - c) / b). Types that are not in the catalogue, or whose rates are not known there, stay unknown.

    Args:
        jobs: the job table.
        types: see `gpu_types`.
        reference: the type on which `runtime_s` was measured.
        precision: "fp64", "fp32" or "fp16" (with tensor cores where there are any).
        compute_share: one number, or one per job.
        gpu_memory_gb: memory a job needs on each of its GPUs, GB; with less it cannot run (speed 0).

    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1])
    >>> roofline_speeds(jobs, ("V100", "T4", "G2")).speed[:, 0].round(3).tolist()
    [1.0, 0.356, nan]
    """
    base = gpu(reference)
    if np.isnan(base.tflops(precision)) or np.isnan(base.bandwidth_gb_per_s):
        raise InputError(f"the rates of {reference!r} are unknown; use another reference, such as V100")
    count = len(jobs)
    share = None if compute_share is None else _per_job("compute_share", compute_share, count)
    if share is not None and not ((share >= 0) & (share <= 1)).all():
        raise InputError(f"compute_share ranges from {share.min():g} to {share.max():g}; it must be 0 to 1")
    need = None if gpu_memory_gb is None else _per_job("gpu_memory_gb", gpu_memory_gb, count)
    speed = np.full((len(types), count), np.nan)
    for row, name in enumerate(types):
        gpu_type = _known(name)
        if gpu_type is None:
            continue
        flops = gpu_type.tflops(precision) / base.tflops(precision)
        bandwidth = gpu_type.bandwidth_gb_per_s / base.bandwidth_gb_per_s
        if share is None:
            speed[row] = np.minimum(flops, bandwidth)
        else:
            speed[row] = 1.0 / (share / flops + (1.0 - share) / bandwidth)
        if need is not None:
            speed[row][need > gpu_type.memory_gb] = 0.0
    return _speeds_table(jobs, types, speed, np.ones(speed.shape), "roofline")


def fill_unknown_speeds(first: Speeds, *others: Speeds) -> Speeds:
    """The first table with its unknown cells filled from the second, and so on.

    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1])
    >>> known = constant_speeds(jobs, ("V100", "T4"), {"V100": 1.0})
    >>> fill_unknown_speeds(known, roofline_speeds(jobs, ("V100", "T4"))).counts()
    {'V100': {'given': 2}, 'T4': {'roofline': 2}}
    """
    speed, spread, source = first.speed.copy(), first.spread.copy(), first.source.copy()
    for other in others:
        if other.types != first.types or other.speed.shape != first.speed.shape:
            raise InputError(
                f"tables of {first.types} with {first.speed.shape[1]} jobs and {other.types} with "
                f"{other.speed.shape[1]} must have the same types and jobs"
            )
        unknown = np.isnan(speed)
        for values, other_values in ((speed, other.speed), (spread, other.spread), (source, other.source)):
            values[unknown] = other_values[unknown]
    return Speeds(first.types, speed, spread, source)


def _speeds_table(jobs: JobColumns, types: Sequence[str], speed: Floats, spread: Floats, source: str) -> Speeds:
    """Build the table; jobs without GPUs have speed 1 everywhere, GPU jobs 0 on nodes without GPUs."""
    without_gpus = _gpus(jobs) == 0
    codes = np.where(np.isnan(speed), 0, SPEED_SOURCES.index(source)).astype(np.int8)
    for row, name in enumerate(types):
        known = without_gpus if name else np.ones(len(jobs), bool)
        speed[row, known] = np.where(without_gpus[known], 1.0, 0.0)
        spread[row, known] = 1.0
        codes[row, known] = SPEED_SOURCES.index("given")
    return Speeds(tuple(types), speed, spread, codes)


def _gpus(jobs: JobColumns) -> npt.NDArray[np.int64]:
    if "gpus" not in jobs:
        raise InputError("these jobs have no column 'gpus'; speeds by GPU type need the number of GPUs of each job")
    return jobs.column("gpus")


def _key(name: str, throughputs: Throughputs) -> str:
    """The key of a GPU type in the throughput table; "" if missing."""
    for key in throughputs.consolidated:
        if key.lower() == name.lower():
            return key
    gpu_type = _known(name)
    for key in throughputs.consolidated:
        other = _known(key)
        if gpu_type is not None and other is not None and gpu_type.family == other.family:
            return key
    return ""


def _known(name: str) -> GpuType | None:
    try:
        return gpu(name)
    except UnknownNameError:
        return None


def _per_job(what: str, values: npt.ArrayLike, count: int) -> Floats:
    table = np.asarray(values, np.float64)
    if table.shape not in ((), (count,)):
        raise InputError(f"{what} has the shape {table.shape}; give one number, or one for each of {count} jobs")
    return np.broadcast_to(table, (count,))


def speeds_for(text: str, jobs: JobColumns, cluster: Cluster) -> Speeds | None:
    """Speed of each job on each GPU type, by the setting `gpu_speeds`; None: speed 1 everywhere.

    Speeds are relative to the type on which the run time of the job was measured (`runtime_gpu_types`): there the job
    takes its recorded run time. A job whose type is unknown takes its recorded run time on every type.

    >>> from kilowait.jobs import JobTable
    >>> rows = {"job_id": [1, 2], "submit_s": [0, 0], "runtime_s": [9, 9], "nodes": [1, 1], "gpus": [1, 1]}
    >>> jobs = JobTable(**rows, runtime_gpu_type=[0, -1], labels={"runtime_gpu_type": ("V100",)})
    >>> speeds_for("auto", jobs, Cluster.preset("gpu-mixed")).speed.round(2).tolist()
    [[1.24, 1.0], [1.0, 1.0], [0.36, 1.0], [1.12, 1.0]]
    """
    setting = text.strip().lower()
    if setting == "none" or "gpus" not in jobs:
        return None
    types = gpu_types(cluster)
    throughputs = None if setting == "roofline" else GAVEL_THROUGHPUTS if setting == "auto" else _throughputs(text)
    speeds = constant_speeds(jobs, types, 1.0)
    code, references = runtime_gpu_types(jobs)
    for number, reference in enumerate(references):
        rows = np.flatnonzero(code == number)
        if not len(rows) or "|" in reference:  # one of several types: the run time is taken as it is on each
            continue
        of_rows = _speeds_relative_to(reference, jobs[rows], types, throughputs)
        speeds.speed[:, rows], speeds.spread[:, rows] = of_rows.speed, of_rows.spread
        speeds.source[:, rows] = of_rows.source
    return speeds


def _speeds_relative_to(
    reference: str, jobs: JobColumns, types: Sequence[str], throughputs: Throughputs | None
) -> Speeds:
    """Speeds of jobs whose run times were all measured on one type; 1 where no ratio to that type is known."""
    own = [name for name in types if name and name.lower() == reference.lower()]
    tables = [_recorded_speeds(jobs, types, own)]
    if throughputs is not None and _key(reference, throughputs):
        tables.insert(0, measured_speeds(jobs, types, throughputs, reference))
    known = _known(reference)
    if known is not None and not np.isnan([known.tflops("fp32"), known.bandwidth_gb_per_s]).any():
        tables.append(roofline_speeds(jobs, types, reference))
    filled = fill_unknown_speeds(*tables, constant_speeds(jobs, types, 1.0))
    with_gpus = _gpus(jobs) > 0
    for name in own:
        filled.source[types.index(name), with_gpus] = SPEED_SOURCES.index("recorded")
    return filled


def _recorded_speeds(jobs: JobColumns, types: Sequence[str], own: Sequence[str]) -> Speeds:
    """Speed 1 on the types on which the run times were measured; the others are unknown."""
    speed = np.full((len(types), len(jobs)), np.nan)
    for name in own:
        speed[types.index(name)] = 1.0
    return _speeds_table(jobs, types, speed, np.ones(speed.shape), "recorded")


def runtime_gpu_types(jobs: JobColumns) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The GPU type on which the run time of each job was measured: codes (-1: unknown) and names.

    It is that of the column `runtime_gpu_type`, else the type that the job requests (`gpu_types`); a request such as
    ``V100M16|V100M32`` does not say on which of these types the job ran.

    >>> from kilowait.jobs import JobTable
    >>> rows = {"job_id": [1, 2, 3], "submit_s": [0] * 3, "runtime_s": [9] * 3, "nodes": [1] * 3, "gpus": [1] * 3}
    >>> labels = {"runtime_gpu_type": ("A100",), "gpu_types": ("T4", "A100|T4")}
    >>> jobs = JobTable(**rows, runtime_gpu_type=[0, -1, -1], gpu_types=[1, 0, -1], labels=labels)
    >>> code, names = runtime_gpu_types(jobs)
    >>> [names[number] if number >= 0 else "" for number in code]
    ['A100', 'T4', '']
    """
    code = np.full(len(jobs), -1)
    names: list[str] = []
    for column in ("runtime_gpu_type", "gpu_types"):
        of_column = jobs.column(column).astype(np.int64)
        known = (code < 0) & (of_column >= 0) & (of_column < len(jobs.labels.get(column, ())))
        code[known] = of_column[known] + len(names)
        names += jobs.labels.get(column, ())
    code[_gpus(jobs) == 0] = -1
    return code, tuple(names)


@cache
def _throughputs(text: str) -> Throughputs:
    if not Path(text).exists():
        raise InputError(f"speeds are {text!r}; give auto, roofline, none, or a file of throughputs in Gavel's format")
    return read_throughputs(text)
