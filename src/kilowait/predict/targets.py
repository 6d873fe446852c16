"""Prediction targets: run time, wait, power and energy, with the time at which each value becomes known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.energy.power import ConstantUtilization, PowerModel, UtilizationProfile, job_power_w, with_measured_power
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.job_history import UNKNOWN_REQUEST_S, Floats, JobHistory, request_s

LABELS = {
    "measured": "measured energy of the log",
    "model": "power model, times the run time",
    "both": "measured where available, else the power model",
}
"""Sources of power and energy labels."""
DEFAULT_NODE_W = 300.0
"""Default power of a node without any known job, watts."""


@dataclass(frozen=True, eq=False)
class Target:
    """A quantity of a job that is unknown at its submission."""

    name: str
    unit: str
    values: Floats
    """(n,) NaN: not known, excluded from training and evaluation."""
    known_s: Floats
    """(n,) when the value becomes known, seconds in log time; inf: never."""
    requested: Floats
    """(n,) the user's request; NaN: none."""
    max_value: Floats
    """(n,) upper bound; inf where there is none."""
    scale: Floats
    """(n,) known at submission; jobs are compared by value / scale."""
    default: float
    """Default value / scale, where no job is known."""
    anchor_kinds: tuple[str, ...]
    """Kinds of jobs that can give the anchor, most similar first."""
    labels: str
    """Source of the values."""
    modelled: npt.NDArray[np.bool_]
    """(n,) whether the value comes from a power model and was not measured."""

    def __len__(self) -> int:
        return len(self.values)

    def logarithm(self) -> Floats:
        """(n,) ln(value / scale), values below 1 counted as 1."""
        return np.asarray(np.log(np.maximum(self.values, 1.0) / self.scale), np.float64)


def runtime(jobs: JobTable, times: JobHistory) -> Target:
    """The run time, seconds: known when a job has ended, limited by the user's request.

    >>> from kilowait.predict.job_history import from_log
    >>> jobs = JobTable(job_id=[1], submit_s=[5], runtime_s=[60], estimate_s=[90], nodes=[2], wait_s=[10])
    >>> target = runtime(jobs, from_log(jobs))
    >>> target.known_s.tolist(), target.max_value.tolist()
    ([75.0], [90.0])
    """
    requested = request_s(jobs)
    return Target(
        name="runtime",
        unit="s",
        values=jobs["runtime_s"],
        known_s=times.end_s,
        requested=requested,
        max_value=np.nan_to_num(requested, nan=np.inf),
        scale=np.ones(len(jobs)),
        default=UNKNOWN_REQUEST_S,
        anchor_kinds=("user_same", "user_request", "user"),
        labels="run times of the log",
        modelled=np.zeros(len(jobs), np.bool_),
    )


def wait(jobs: JobTable, times: JobHistory) -> Target:
    """The wait between submission and start, seconds; below 1 s it counts as 1 s.

    It is known when a job has started, so running jobs count too.

    >>> from kilowait.predict.job_history import from_log
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[5, 5], runtime_s=[60, 60], nodes=[2, 2], wait_s=[10, 0])
    >>> wait(jobs, from_log(jobs)).values.tolist()
    [10.0, 1.0]
    """
    started = np.isfinite(times.start_s)
    waited_s = np.where(started, np.maximum(times.start_s - jobs["submit_s"], 1.0), np.nan)
    return _without_request(
        jobs,
        name="wait",
        unit="s",
        values=waited_s,
        known_s=times.start_s,
        scale=np.ones(len(jobs)),
        default=1.0,
        anchor_kinds=("queue_size", "size", "everyone"),
        labels=f"waits, {times.name}",
        modelled=np.zeros(len(jobs), np.bool_),
    )


def power(
    jobs: JobTable,
    times: JobHistory,
    *,
    labels: str = "measured",
    model: PowerModel | None = None,
    utilization: UtilizationProfile | None = None,
    min_w: float = 1.0,
    max_w: float = 20_000.0,
    require_measured: bool = True,
) -> Target:
    """The mean power of all nodes of a job together, watts, known when it has ended.

    Args:
        jobs: with ``power_w``, or ``energy_j`` to take it from, where labels are measured.
        times: their end times.
        labels: one of `LABELS`.
        model: power model of nodes, where labels are not all measured.
        utilization: utilization of the nodes; full load unless given.
        min_w: minimum measured mean power per node; lower values are treated as meter faults.
        max_w: maximum; higher values are treated as meter faults.
        require_measured: raise if labels are measured and no job has a measured value; else all values are NaN.

    >>> from kilowait.predict.job_history import from_log
    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 0], runtime_s=[10, 10], nodes=[2, 2], energy_j=[2000, 0], wait_s=[0, 0]
    ... )
    >>> target = power(jobs, from_log(jobs))
    >>> target.values.tolist(), target.labels
    ([200.0, nan], 'measured: 1 with power from measured energy; 1 measured as 0 J')
    """
    watts, modelled, source = _watts(jobs, labels, (min_w, max_w), model, utilization, require_measured)
    return _metered(
        jobs,
        times,
        name="power",
        unit="W",
        values=watts,
        default=DEFAULT_NODE_W,
        anchor_kinds=("user_identical", "user_same", "user_nodes", "user", "everyone"),
        labels=source,
        modelled=modelled,
    )


def energy(
    jobs: JobTable,
    times: JobHistory,
    *,
    labels: str = "measured",
    model: PowerModel | None = None,
    utilization: UtilizationProfile | None = None,
    max_w: float = 20_000.0,
    require_measured: bool = True,
) -> Target:
    """The energy of all nodes of a job together, joules, known when it has ended; arguments as in `power`.

    A measured energy counts if it is above 0 and at most `max_w` per node on average.

    >>> from kilowait.predict.job_history import from_log
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[10], nodes=[2], wait_s=[0])
    >>> energy(jobs, from_log(jobs), labels="model", model=PowerModel.preset("polaris")).values.round().tolist()
    [38380.0]
    """
    watts, modelled, source = _watts(jobs, labels, (0.0, max_w), model, utilization, require_measured)
    return _metered(
        jobs,
        times,
        name="energy",
        unit="J",
        values=watts * jobs["runtime_s"],
        default=DEFAULT_NODE_W * UNKNOWN_REQUEST_S,
        anchor_kinds=("user_identical", "user_same", "user_request", "user_nodes", "user", "everyone"),
        labels=source,
        modelled=modelled,
    )


TARGETS: dict[str, Callable[..., Target]] = {"runtime": runtime, "wait": wait, "power": power, "energy": energy}
"""Prediction targets by name."""


def target_of(name: str, jobs: JobTable, times: JobHistory, **options: object) -> Target:
    """A target by name; `options` are the keyword arguments of `power` and `energy`."""
    if name not in TARGETS:
        raise UnknownNameError("target", name, TARGETS)
    return TARGETS[name](jobs, times, **(options if name in ("power", "energy") else {}))


def _without_request(jobs: JobTable, **fields: object) -> Target:
    """A target without request and upper bound."""
    unknown = np.full(len(jobs), np.nan)
    return Target(requested=unknown, max_value=np.full(len(jobs), np.inf), **fields)  # type: ignore[arg-type]


def _metered(jobs: JobTable, times: JobHistory, *, values: Floats, **fields: object) -> Target:
    """A target per node, known when a job has ended."""
    known_s = np.where(np.isnan(values), np.inf, times.end_s)
    return _without_request(jobs, values=values, known_s=known_s, scale=jobs.size.astype(np.float64), **fields)


def _watts(
    jobs: JobTable,
    labels: str,
    limits_w: tuple[float, float],
    model: PowerModel | None,
    utilization: UtilizationProfile | None,
    require_measured: bool,
) -> tuple[Floats, npt.NDArray[np.bool_], str]:
    """Mean power of each job, NaN where it is not known, measured or of the power model as the labels say; whether it
    is of the power model; and its source as text."""
    if labels not in LABELS:
        raise UnknownNameError("kind of labels", labels, LABELS)
    watts, sources = np.full(len(jobs), np.nan), []
    if labels != "model":
        with_power, report = with_measured_power(jobs, *limits_w)
        watts = with_power["power_w"]
        if labels == "measured" and require_measured and not report.attached + report.existing:
            raise InputError(
                f"none of {len(jobs):,} jobs has usable measured energy ({report.text() or 'no jobs'}); use a power "
                "model instead"
            )
        sources += [f"measured: {report.text()}"] if report.text() else []
    modelled = np.zeros(len(jobs), np.bool_)
    if labels != "measured":
        if model is None:
            raise InputError(f"labels are {labels!r}, which needs a power model; give one, or use measured labels")
        modelled = np.isnan(watts)
        watts = job_power_w(jobs.with_columns(power_w=watts), model, utilization or ConstantUtilization())
        sources.append(f"power model {model.name}")
    return watts, modelled, "; else ".join(sources)
