"""What is to be predicted of a job: its value where it is known, since when, and what it cannot be beyond."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.energy.power import (
    ConstantUtilization,
    PowerModel,
    UtilizationProfile,
    job_power_w,
    with_measured_power,
)
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.known_times import UNKNOWN_REQUEST_S, KnownTimes, request_s

__all__ = ["LABELS", "TARGETS", "Target", "energy", "power", "runtime", "target_of", "wait"]

Floats = npt.NDArray[np.float64]

LABELS = {
    "measured": "joules the log has measured",
    "model": "watts of a power model, times the run time",
    "both": "measured where that is possible, else the model's",
}
"""Where watts and joules to learn from may come from."""
USUAL_W = 300.0
"""What a node is taken to draw where nothing at all is known."""


@dataclass(frozen=True, eq=False)
class Target:
    """A quantity that a job has and that nobody knows when it is submitted."""

    name: str
    unit: str
    values: Floats
    """(n,) NaN: not known, so neither learned from nor judged."""
    known_s: Floats
    """(n,) since when it is known, seconds on the log's clock; inf: never."""
    asked: Floats
    """(n,) what the user said it would be; NaN: nothing."""
    most: Floats
    """(n,) what it cannot be beyond; inf where there is no such bound."""
    scale: Floats
    """(n,) known at submission; jobs are compared by value / scale."""
    usual: float
    """Value / scale of a job of which nothing at all is known."""
    nearest: tuple[str, ...]
    """Kinds of jobs, the nearest first, of which one gives the anchor."""
    labels: str
    """Where the values come from."""

    def __len__(self) -> int:
        return len(self.values)

    def logarithm(self) -> Floats:
        """(n,) ln(value / scale), values below 1 counted as 1."""
        return np.asarray(np.log(np.maximum(self.values, 1.0) / self.scale), np.float64)


def runtime(jobs: JobTable, world: KnownTimes) -> Target:
    """The run time, seconds: known when a job has ended, asked for by its user, who is held to it.

    >>> from kilowait.predict.known_times import from_log
    >>> jobs = JobTable(job_id=[1], submit_s=[5], runtime_s=[60], estimate_s=[90], nodes=[2], wait_s=[10])
    >>> target = runtime(jobs, from_log(jobs))
    >>> target.known_s.tolist(), target.most.tolist()
    ([75.0], [90.0])
    """
    asked = request_s(jobs)
    return Target(
        name="runtime",
        unit="s",
        values=jobs["runtime_s"],
        known_s=world.end_s,
        asked=asked,
        most=np.nan_to_num(asked, nan=np.inf),
        scale=np.ones(len(jobs)),
        usual=UNKNOWN_REQUEST_S,
        nearest=("user_same", "user_request", "user"),
        labels="run times of the log",
    )


def wait(jobs: JobTable, world: KnownTimes) -> Target:
    """The time between submission and start in the world that is given, seconds; below 1 s it counts as 1 s.

    It is known when a job has started, so jobs that still run tell of it too.

    >>> from kilowait.predict.known_times import from_log
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[5, 5], runtime_s=[60, 60], nodes=[2, 2], wait_s=[10, 0])
    >>> wait(jobs, from_log(jobs)).values.tolist()
    [10.0, 1.0]
    """
    started = np.isfinite(world.start_s)
    waited_s = np.where(started, np.maximum(world.start_s - jobs["submit_s"], 1.0), np.nan)
    return _unasked(
        jobs,
        name="wait",
        unit="s",
        values=waited_s,
        known_s=world.start_s,
        scale=np.ones(len(jobs)),
        usual=1.0,
        nearest=("queue_size", "size", "everyone"),
        labels=f"waits, {world.name}",
    )


def power(
    jobs: JobTable,
    world: KnownTimes,
    *,
    labels: str = "measured",
    model: PowerModel | None = None,
    profile: UtilizationProfile | None = None,
    least_w: float = 1.0,
    most_w: float = 20_000.0,
) -> Target:
    """The mean power of all nodes of a job together, watts, known when it has ended.

    Args:
        jobs: with ``power_w``, or ``energy_j`` to take it from, where labels are measured.
        world: when they ended.
        labels: one of `LABELS`.
        model: watts of nodes, where labels are not all measured.
        profile: how hard jobs use them; full load unless given.
        least_w: a measured mean power a node below this is a fault of the meter.
        most_w: and above this.

    >>> from kilowait.predict.known_times import from_log
    >>> jobs = JobTable(
    ...     job_id=[1, 2],
    ...     submit_s=[0, 0],
    ...     runtime_s=[10, 10],
    ...     nodes=[2, 2],
    ...     energy_j=[2000, 0],
    ...     wait_s=[0, 0],
    ... )
    >>> found = power(jobs, from_log(jobs))
    >>> found.values.tolist(), found.labels
    ([200.0, nan], 'measured: 1 with power from measured energy; 1 measured as 0 J')
    """
    measured, words = _measured_w(jobs, labels, least_w, most_w)
    values = _modelled(jobs, measured, labels, model, profile)
    return _unasked(
        jobs,
        name="power",
        unit="W",
        values=values,
        known_s=np.where(np.isnan(values), np.inf, world.end_s),
        scale=jobs["nodes"].astype(np.float64),
        usual=USUAL_W,
        nearest=("user_alike", "user_same", "user_nodes", "user", "everyone"),
        labels=_words(labels, words, model),
    )


def energy(
    jobs: JobTable,
    world: KnownTimes,
    *,
    labels: str = "measured",
    model: PowerModel | None = None,
    profile: UtilizationProfile | None = None,
    most_w: float = 20_000.0,
) -> Target:
    """The energy of all nodes of a job together, joules, known when it has ended; arguments as in `power`.

    A measured energy counts as long as it is above 0 and no node drew more than `most_w` for it on average.

    >>> from kilowait.predict.known_times import from_log
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[10], nodes=[2], wait_s=[0])
    >>> energy(
    ...     jobs, from_log(jobs), labels="model", model=PowerModel.preset("polaris")
    ... ).values.round().tolist()
    [38380.0]
    """
    measured, words = _measured_w(jobs, labels, 0.0, most_w)
    watts = _modelled(jobs, measured, labels, model, profile)
    values = watts * jobs["runtime_s"]
    return _unasked(
        jobs,
        name="energy",
        unit="J",
        values=values,
        known_s=np.where(np.isnan(values), np.inf, world.end_s),
        scale=jobs["nodes"].astype(np.float64),
        usual=USUAL_W * UNKNOWN_REQUEST_S,
        nearest=("user_alike", "user_same", "user_request", "user_nodes", "user", "everyone"),
        labels=_words(labels, words, model),
    )


TARGETS: dict[str, Callable[..., Target]] = {
    "runtime": runtime,
    "wait": wait,
    "power": power,
    "energy": energy,
}
"""What can be predicted."""


def target_of(name: str, jobs: JobTable, world: KnownTimes, **more: object) -> Target:
    """A target by name; `more` is what `power` and `energy` take besides."""
    if name not in TARGETS:
        raise UnknownNameError("target", name, TARGETS)
    return TARGETS[name](jobs, world, **(more if name in ("power", "energy") else {}))


def _unasked(jobs: JobTable, **own: object) -> Target:
    """A target that users say nothing of and that knows no bound."""
    nothing = np.full(len(jobs), np.nan)
    return Target(asked=nothing, most=np.full(len(jobs), np.inf), **own)  # type: ignore[arg-type]


def _measured_w(jobs: JobTable, labels: str, least_w: float, most_w: float) -> tuple[Floats, str]:
    """Measured mean power where the log has it, NaN elsewhere; and in words what became of each job."""
    if labels not in LABELS:
        raise UnknownNameError("kind of labels", labels, LABELS)
    nothing = np.full(len(jobs), np.nan)
    if labels == "model":
        return nothing, ""
    dressed, report = with_measured_power(jobs, least_w, most_w)
    if labels == "measured" and not report.attached + report.kept:
        raise InputError(
            f"none of {len(jobs):,} jobs has measured energy that counts ({report.text() or 'no jobs'}); name a power "
            "model to learn from instead"
        )
    return dressed["power_w"], report.text()


def _modelled(
    jobs: JobTable,
    measured: Floats,
    labels: str,
    model: PowerModel | None,
    profile: UtilizationProfile | None,
) -> Floats:
    """The measured watts, and the model's where they are wanted."""
    if labels == "measured":
        return measured
    if model is None:
        raise InputError(
            f"labels are {labels!r}, which needs a power model; name one, or take measured labels"
        )
    return job_power_w(jobs.with_columns(power_w=measured), model, profile or ConstantUtilization())


def _words(labels: str, report: str, model: PowerModel | None) -> str:
    named = f"power model {model.name}" if model is not None and labels != "measured" else ""
    told = f"measured: {report}" if report else ""
    return "; else ".join(part for part in (told, named) if part)
