"""Models on one log, each job predicted from what was known at its submission; judged on the later jobs, by week.

Jobs of one week are alike: intervals are found by drawing whole weeks again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison.bootstrap import Interval, WindowBootstrap
from kilowait.experiments.gpu_settings import usual_backfill
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.predict.dataset import Dataset
from kilowait.predict.known_times import KnownTimes, from_log, from_run
from kilowait.predict.models import ModelPredictions, PredictionModel, predictions
from kilowait.predict.scores import MEASURES, PredictionScores, by_class, coverage, losses, score
from kilowait.predict.walk_forward import Refit, RefitSchedule
from kilowait.rng import stream

__all__ = ["LEVELS", "WORLDS", "PredictorComparison", "PredictorRow", "foresight", "world_of"]

Floats = npt.NDArray[np.float64]

WEEK_S = 7 * 86400.0
FEW = 0.01
"""Share of jobs with an unknown wait that may be left out."""
LEVELS = (0.5, 0.9, 0.97)
"""Of quantiles whose promise is looked at."""
WORLDS = {
    "auto": "recorded where the log says how long jobs waited, else simulated",
    "recorded": "starts and ends as the log has them",
    "simulated": "starts and ends of a simulation: first come, first served, with EASY backfilling",
}
"""When jobs started and ended."""


@dataclass(frozen=True)
class PredictorRow:
    """One model."""

    model: str
    scores: PredictionScores
    intervals: Mapping[str, Interval]
    """95 %, by measure."""
    ratio: Mapping[str, tuple[float, Interval]]
    """Of accuracy and of log_rmse to the best simple model's by that measure; empty for simple ones."""
    seconds: float
    """It took to fit and ask; models that share their fits have the same."""
    classes: Mapping[str, Mapping[str, PredictionScores]]
    """By kind of class and class, where asked for."""


@dataclass(frozen=True)
class PredictorComparison:
    """All models on one log."""

    target: str
    unit: str
    labels: str
    world: str
    jobs: int
    judged: int
    """The later jobs that count, of which the truth is known."""
    weeks: int
    rows: tuple[PredictorRow, ...]
    held: Mapping[float, tuple[float, float]]
    """Share of judged jobs within the forest's quantile, by its level: as they ran, and where a job that went beyond
    what its user asked for counts as that, which no quantile exceeds; empty without a forest."""

    def row(self, model: str) -> PredictorRow:
        """Of a model by name."""
        return next(row for row in self.rows if row.model == model)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def world_of(
    jobs: JobTable, cluster: Cluster, kind: str = "auto"
) -> tuple[JobTable, KnownTimes, tuple[str, ...]]:
    """The jobs, when they started and ended, and notes for people.

    Args:
        jobs: by (submit_s, job_id).
        cluster: the machine.
        kind: one of `WORLDS`.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[1])
    >>> world_of(jobs, Cluster.from_nodes(4))[1].name
    'simulated: fcfs, backfill easy'
    """
    if kind not in WORLDS:
        raise UnknownNameError("world", kind, WORLDS)
    unknown = np.isnan(jobs.column("wait_s"))
    few = unknown.mean() <= FEW if len(jobs) else False
    if kind == "recorded" or (kind == "auto" and few):
        if few and unknown.any():
            left = jobs[~unknown]
            note = (
                f"the log does not say how long {int(unknown.sum()):,} of {len(jobs):,} jobs waited: left out"
            )
            return left, from_log(left), (note,)
        return jobs, from_log(jobs), ()
    notes = ("waits are not known: starts and ends are those of a simulation",) if kind == "auto" else ()
    log = simulate(
        jobs,
        cluster,
        "fcfs",
        usual_backfill(cluster.node_level),
        dependencies=False,
        on_oversized="drop",
    )
    return jobs, from_run(log), notes


def foresight(
    dataset: Dataset,
    models: Sequence[PredictionModel],
    *,
    part: float = 0.3,
    classes: Sequence[str] = (),
    seed: int = 0,
    online: RefitSchedule | None = None,
    threads: int = 1,
    progress: Callable[[PredictionModel, Refit], None] | None = None,
    **settings: Any,
) -> PredictorComparison:
    """Judge models on the last `part` of the jobs, each predicted from what was known at its submission.

    Args:
        case: the jobs and what is asked of them.
        models: by name (`Model.of`).
        part: of the jobs, by submission.
        classes: kinds of classes to part the jobs by.
        seed: of the models and of the draws of weeks.
        online: how models are kept up to date.
        threads: fits at a time.
        progress: hears of every fit.
        settings: of the models (`forest`, `boosting`).
    """
    if not 0 < part <= 1:
        raise InputError(
            f"models are judged on a part of {part:g} of the jobs; it must be above 0 and at most 1"
        )
    how = online or RefitSchedule()
    first = len(dataset) - round(len(dataset) * part)
    truth = dataset.target.values
    rows = (np.arange(len(dataset)) >= first) & np.isfinite(truth)
    if not rows.any():
        raise InputError(
            f"of {len(dataset):,} jobs none of the last {100 * part:g} % has a known {dataset.target.name}; take a longer log"
        )
    asked = predictions(
        models,
        dataset,
        seed=seed,
        online=how,
        since=max(0, first - 2 * how.calibrate),  # the levels of quantiles want predictions before
        threads=threads,
        progress=progress,
        **settings,
    )
    told: list[tuple[ModelPredictions, float]] = []
    began = perf_counter()
    for predicted in asked:
        took = perf_counter() - began
        if predicted.distributions is not None:  # the forest is fitted once, however it is asked
            took = next((seconds for other, seconds in told if other.distributions is predicted.distributions), took)
        told.append((predicted, took))
        began = perf_counter()
    weeks = _Weeks(dataset.jobs["submit_s"][rows], seed)
    sums = {predicted.model.text: weeks.sums(losses(predicted.values[rows], truth[rows])) for predicted, _ in told}
    simple = [sums[predicted.model.text] for predicted, _ in told if predicted.model.family == "simple"]
    forest = next((predicted.distributions for predicted, _ in told if predicted.distributions is not None), None)
    return PredictorComparison(
        target=dataset.target.name,
        unit=dataset.target.unit,
        labels=dataset.target.labels,
        world=dataset.world.name,
        jobs=len(dataset),
        judged=int(rows.sum()),
        weeks=weeks.count,
        rows=tuple(
            PredictorRow(
                predicted.model.text,
                score(predicted.values[rows], truth[rows]),
                weeks.intervals(sums[predicted.model.text]),
                {} if predicted.model.family == "simple" else weeks.ratios(sums[predicted.model.text], simple),
                seconds,
                {kind: dict(by_class(dataset.jobs, kind, predicted.values, truth, rows)) for kind in classes},
            )
            for predicted, seconds in told
        ),
        held={} if forest is None else {level: _coverage(forest.quantile(level), dataset, rows) for level in LEVELS},
    )


def _coverage(bound: Floats, dataset: Dataset, rows: npt.NDArray[np.bool_]) -> tuple[float, float]:
    truth = dataset.target.values[rows]
    return coverage(bound[rows], truth), coverage(bound[rows], np.minimum(truth, dataset.target.max_value[rows]))


class _Weeks:
    """The weeks of jobs, which are drawn again."""

    def __init__(self, submit_s: Floats, seed: int) -> None:
        week = ((submit_s - submit_s[0]) // WEEK_S).astype(np.int64)
        _, self._week = np.unique(week, return_inverse=True)
        self._jobs = np.bincount(self._week).astype(np.float64)
        self.count = len(self._jobs)
        self._drawn = WindowBootstrap(self.count, random=stream(seed, "experiments.foresight"))

    def sums(self, by_measure: Mapping[str, Floats]) -> dict[str, Floats]:
        """What each week adds to each measure."""
        return {
            name: np.bincount(self._week, values).astype(np.float64) for name, values in by_measure.items()
        }

    def intervals(self, sums: Mapping[str, Floats]) -> dict[str, Interval]:
        """Of each measure."""
        return {name: self._ratio(name, sums[name], self._jobs)[1] for name in MEASURES}

    def ratios(
        self, sums: Mapping[str, Floats], others: Sequence[Mapping[str, Floats]]
    ) -> dict[str, tuple[float, Interval]]:
        """Of accuracy and log_rmse to the best of others by that measure."""
        found = {}
        for name, sign in (("accuracy", -1.0), ("log_rmse", 1.0)):
            if others:
                best = min((one[name] for one in others), key=lambda values: sign * float(values.sum()))
                found[name] = self._ratio(name, sums[name], best)
        return found

    def _ratio(self, name: str, ours: Floats, theirs: Floats) -> tuple[float, Interval]:
        """Of the sums of a measure, with its interval; NaN where theirs are 0."""
        below = float(theirs.sum())
        ratio, interval = float(ours.sum()) / below if below else math.nan, self._drawn.ratio(ours, theirs)
        if name != "log_rmse":
            return ratio, interval
        return math.sqrt(ratio), Interval(math.sqrt(interval.low), math.sqrt(interval.high))
