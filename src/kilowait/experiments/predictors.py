"""Predicted run times and predicted power for the replay of a log, each from what was known at the job's submission.

The end times of earlier jobs come from a first replay of the full log, first come, first served, with the users' own
estimates: the recorded times of another cluster or load would not match the simulation.

By default power budgets use the measured power of every job, as if it were known in advance. Predicted power comes from
jobs that had ended in the first replay, or from the power model. Jobs without measured power get no prediction: power
controls and accounting use the power model for them. A saved predictor, fitted on a log with measured power, predicts
every job, and is used on logs without any measured power.

Predictions for jobs of the training log of a saved predictor suffer from data leakage. Therefore the end of the
training log is compared with the submission times of the evaluated jobs, and a run that evaluates earlier jobs gets a
note.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.power import make_power_context
from kilowait.experiments.settings import PowerSettings, default_backfill
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.predict.baselines import BASELINES
from kilowait.predict.dataset import make_dataset
from kilowait.predict.job_history import JobHistory, PastEvents, from_run, group_keys, request_s
from kilowait.predict.model_card import CARD_FILE, ModelCard, read_card
from kilowait.predict.models import MODEL_FAMILIES, PredictionModel
from kilowait.predict.predictor import load
from kilowait.predict.targets import power
from kilowait.predict.walk_forward import predict_runtimes, predictions_of_models


@dataclass(frozen=True)
class SavedPredictor:
    """A saved predictor, and the number of predicted jobs that were submitted during its training log."""

    folder: str
    """Path as given by the user."""
    card_sha256: str
    """Digest of card.json, which contains the sha256 of the other files."""
    target: str
    model: str
    data: str
    """Name of the log it was fitted on."""
    training_jobs: int | None
    """Number of jobs submitted before the end of that log; None: unknown, as the logs have no common dates."""
    first_evaluated: int = 0
    """Index of the first evaluated job, by submission."""

    def evaluated_from(self, first: int) -> SavedPredictor:
        """The same predictor, with evaluation from the job at index `first`, by submission."""
        return replace(self, first_evaluated=first)

    @property
    def note(self) -> str | None:
        """Warning about data leakage, if evaluated jobs may be in the training log; None: there is no leakage.

        >>> saved = SavedPredictor("runs/p", "ab", "runtime", "forest", "kth.swf", training_jobs=70)
        >>> saved.evaluated_from(70).note is None, saved.evaluated_from(60).note
        (True, 'the predictor runs/p was fitted on jobs of kth.swf up to a time by which 10 of the evaluated jobs had \
been submitted (data leakage); evaluate later jobs')
        """
        description = "predictor" if self.target == "runtime" else f"predictor of {self.target}"
        if self.training_jobs is None:
            return (
                f"the {description} {self.folder} was fitted on {self.data}, and without dates the "
                "order of those jobs and the evaluated ones is unknown: the results may contain data leakage"
            )
        overlapping = self.training_jobs - self.first_evaluated
        if overlapping <= 0:
            return None
        return (
            f"the {description} {self.folder} was fitted on jobs of {self.data} up to a time by which "
            f"{overlapping:,} of the evaluated jobs had been submitted (data leakage); evaluate later jobs"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a manifest: the predictor, and the number of evaluated jobs in its training span."""
        overlapping = None if self.training_jobs is None else max(self.training_jobs - self.first_evaluated, 0)
        fields = ("folder", "card_sha256", "target", "model", "data")
        return {**{name: getattr(self, name) for name in fields}, "leaked_test_jobs": overlapping, "note": self.note}


def read_predictor_card(folder: str, target: str) -> ModelCard:
    """Model card of a folder; InputError if there is none or it predicts another target."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(
            f"there is no folder {folder}; create a predictor with kilowait predict fit TRACE --target {target} --out "
            f"{folder}"
        )
    card = read_card(path)
    if card.target != target:
        raise InputError(
            f"the predictor {folder} predicts {card.target}, not {target}; fit one with kilowait predict fit "
            f"{card.data} --target {target}"
        )
    return card


def saved_predictor(folder: str, target: str, jobs: JobTable, trace: str) -> SavedPredictor:
    """Metadata of a saved predictor, with its data leakage for these jobs.

    Args:
        folder: as `kilowait predict fit` wrote it.
        target: what it must predict.
        jobs: jobs of the log, in log time (before rescaling).
        trace: the log as given by the user.
    """
    card = read_predictor_card(folder, target)
    sha256 = hashlib.sha256((Path(folder) / CARD_FILE).read_bytes()).hexdigest()
    end_s = _end_s(card, jobs, trace)
    overlapping = None if end_s is None else int(np.count_nonzero(jobs["submit_s"] <= end_s))
    return SavedPredictor(folder, sha256, target, card.model, card.data, overlapping)


def _end_s(card: ModelCard, jobs: JobTable, trace: str) -> float | None:
    """Last submission of the training log, in seconds of the time of these jobs; None: not comparable."""
    zero = jobs.meta.get("unix_start_s")
    if card.unix_zero_s is not None and zero is not None:
        return card.last_s + card.unix_zero_s - float(zero)
    return card.last_s if Path(trace).name == card.data else None


USERS_PREFIX = "users:"
"""Prefix of a policy in a comparison that uses the users' estimates instead of predictions."""

PREDICTORS = {
    "forest": "a distribution forest, refitted every week on jobs that have ended",
    "last2": "the mean of the last two ended jobs of the user (Tsafrir)",
}
"""Predictors by name; anything else is the folder of a saved one (`kilowait predict fit`)."""
ADDED_COLUMNS = ("planned_s", "overrun_planned_s", "expected_inverse_runtime", "limit_s")
"""Columns that predictions add besides the estimate."""


def is_saved_predictor(predictor: str) -> bool:
    """Whether the predictor is a folder: not a known name, and an existing path or a text with a slash."""
    return predictor not in PREDICTORS and (os.sep in predictor or "/" in predictor or Path(predictor).exists())


def check_predictor(predictor: str) -> None:
    """Raise unless it is a known name or the folder of a run-time predictor."""
    if is_saved_predictor(predictor):
        read_predictor_card(predictor, "runtime")
    elif predictor not in PREDICTORS:
        raise UnknownNameError("predictor (no folder of that name either)", predictor, PREDICTORS)


def first_replay(jobs: JobTable, cluster: Cluster) -> JobHistory:
    """Start and end times of a simulation with fcfs and the users' estimates."""
    backfill = "skip" if cluster.node_level else default_backfill(False)
    return from_run(simulate(jobs, cluster, "fcfs", backfill, on_oversized="drop"))


def with_predicted_runtimes(
    jobs: JobTable,
    cluster: Cluster,
    predictor: str = "forest",
    *,
    seed: int = 0,
    progress: Callable[[Any], None] | None = None,
) -> JobTable:
    """The jobs with predicted run times: `estimate_s` for priorities, `planned_s` for reservations; `limit_s` is the
    request.

    `predictor` is one of `PREDICTORS` or the folder of a saved one, which is not refitted. `seed` is that of forests,
    and `progress` is called after every fit.

    >>> import kilowait as kw
    >>> jobs = kw.lublin(50, 16, load=0.9, seed=1, estimates="rounded")
    >>> predicted = with_predicted_runtimes(jobs, Cluster.from_nodes(16), "last2")
    >>> bool((predicted["estimate_s"] <= jobs["estimate_s"]).all()), "limit_s" in predicted
    (True, True)
    """
    check_predictor(predictor)
    ordered = cluster.sized(jobs).sorted()
    if np.isnan(request_s(ordered)).all() and predictor == "last2":
        raise InputError("this log has no requests, which last2 needs; use --runtime-predictor forest")
    times = first_replay(ordered, cluster)
    columns: dict[str, Any]
    if predictor == "last2":
        columns = last_two(ordered, times)
    elif is_saved_predictor(predictor):
        columns = load(predictor).columns(make_dataset(ordered, times, cluster.size))
    else:
        prediction = predict_runtimes(
            ordered, times, cluster.size, seed=seed, threads=min(2, os.cpu_count() or 1), progress=progress
        )
        columns = prediction.columns()
    if jobs.order is not None:  # restore the table's original order
        rank = np.empty_like(jobs.order)
        rank[jobs.order] = np.arange(len(jobs))
        columns = {name: values[rank] for name, values in columns.items()}
    return jobs.with_columns(**columns)


def with_requests(jobs: JobTable) -> JobTable:
    """The same jobs with the users' requests instead of predictions.

    >>> jobs = JobTable(
    ...     job_id=[1], submit_s=[0], runtime_s=[9], estimate_s=[20], limit_s=[60], planned_s=[30], nodes=[1]
    ... )
    >>> with_requests(jobs)["estimate_s"].tolist(), "planned_s" in with_requests(jobs)
    ([60.0], False)
    """
    if "limit_s" not in jobs:
        return jobs
    # An unknown request is replaced by the run time.
    requested_s = np.where(np.isnan(jobs["limit_s"]), jobs["runtime_s"], jobs["limit_s"])
    return jobs.with_columns(estimate_s=requested_s, **dict.fromkeys(ADDED_COLUMNS))


def last_two(jobs: JobTable, times: JobHistory) -> dict[str, Any]:
    """EASY++ prediction: the mean of the user's last two ended jobs, at most the request; else the request."""
    request = request_s(jobs)
    ended_jobs = PastEvents(group_keys(jobs.column("user")), times.end_s, jobs["submit_s"])
    last, second = ended_jobs.latest_values(np.maximum(jobs["runtime_s"], 1.0), 2)
    mean = np.where(np.isnan(second), last, (last + second) / 2.0)
    estimate_s = np.fmin(np.where(np.isnan(mean), request, mean), request)
    return {"estimate_s": estimate_s, "limit_s": request}


POWER_MODEL_PREDICTOR = "model"
"""Name of the predictor that uses the power model with the utilization profile, full load unless given."""


def is_saved_power_predictor(predictor: str) -> bool:
    """Whether the predictor is a folder: an existing or path-like string."""
    return predictor != POWER_MODEL_PREDICTOR and ("/" in predictor or os.sep in predictor or Path(predictor).is_dir())


def check_power_predictor(predictor: str) -> None:
    """Raise unless it is the power model, a model of `kilowait predict`, or a folder with a predictor of power."""
    if predictor == POWER_MODEL_PREDICTOR:
        return
    if is_saved_power_predictor(predictor):
        read_predictor_card(predictor, "power")
        return
    if predictor.partition(":")[0].strip().lower() not in (*BASELINES, *MODEL_FAMILIES):
        raise UnknownNameError(
            "predictor of power (no folder of that name either)",
            predictor,
            (POWER_MODEL_PREDICTOR, *BASELINES, *MODEL_FAMILIES),
        )
    if PredictionModel.of(predictor).point_estimate == "mean":
        raise InputError(
            "the forest's mean is unsuitable for power, which has no upper bound; use forest or boosting:mean"
        )


def with_predicted_watts(
    jobs: JobTable,
    cluster: Cluster,
    predictor: str,
    max_node_w: float,
    *,
    seed: int = 0,
    progress: Callable[[Any], None] | None = None,
) -> JobTable:
    """The jobs with `predicted_power_w`, the predicted mean power of all nodes together.

    Args:
        jobs: with `power_w` where it was measured (see `experiments.power.with_power`), and the users' own estimates.
        cluster: the cluster of the first replay.
        predictor: `POWER_MODEL_PREDICTOR`, a model of `kilowait predict score`, or the folder of a saved predictor.
        max_node_w: power of a node at full load; an upper bound of predictions.
        seed: of models that learn.
        progress: called after every fit.

    >>> jobs = JobTable(
    ...     job_id=[1, 2, 3], submit_s=[0, 99, 99], runtime_s=[9] * 3, nodes=[1, 1, 2], power_w=[80, 50, np.nan]
    ... )
    >>> with_predicted_watts(jobs, Cluster.from_nodes(4), "recent", 200.0)["predicted_power_w"].round().tolist()
    [200.0, 80.0, nan]

    A model that learns from this log predicts only the measured jobs. A saved predictor predicts all jobs; none of them
    needs to be measured.
    """
    check_power_predictor(predictor)
    if predictor == POWER_MODEL_PREDICTOR:
        return jobs.with_columns(predicted_power_w=np.full(len(jobs), np.nan))
    measured = ~np.isnan(jobs.column("power_w"))
    is_saved = is_saved_power_predictor(predictor)
    if not measured.any() and not is_saved:
        raise InputError(
            f"--power-predictor {predictor} needs measured power, and none of these {len(jobs):,} jobs has any "
            "(energy_j or power_w); leave it out, as the power model needs no prediction, or give the folder of a "
            "predictor fitted on a log with measured power"
        )
    ordered = cluster.sized(jobs).sorted()
    times = first_replay(ordered, cluster)
    dataset = make_dataset(ordered, times, cluster.size, power(ordered, times, require_measured=not is_saved))
    predicted: npt.NDArray[np.float64]
    if is_saved:
        predicted = load(predictor).predict(dataset).value
    else:
        threads = min(2, os.cpu_count() or 1)
        (result,) = predictions_of_models(
            [PredictionModel.of(predictor)],
            dataset,
            seed=seed,
            threads=threads,
            progress=None if progress is None else lambda _, refit: progress(refit),
        )
        predicted = result.values
    predicted = np.minimum(predicted, ordered["nodes"] * max_node_w)
    predicted_power_w = np.full(len(jobs), np.nan)
    predicted_power_w[slice(None) if jobs.order is None else jobs.order] = predicted
    has_prediction = np.full(len(jobs), True) if is_saved else measured
    return jobs.with_columns(predicted_power_w=np.where(has_prediction, predicted_power_w, np.nan))


def with_predicted_power(
    settings: PowerSettings,
    jobs: JobTable,
    cluster: Cluster,
    predictor: str,
    progress: Callable[[Any], None] | None = None,
) -> tuple[JobTable, str]:
    """The jobs with predicted power for the power model of the settings, and a note for the user."""
    # Cooling does not affect node power, and may need weather data.
    without_cooling = PowerSettings(settings.power, utilization=settings.utilization, cooling="pue:1")
    model = make_power_context(without_cooling, jobs, cluster).model
    max_node_w = max(group.full_w for group in model.groups)
    predicted = with_predicted_watts(jobs, cluster, predictor, max_node_w, progress=progress)
    if predictor == POWER_MODEL_PREDICTOR:
        return predicted, "power controls use the power model's watts; accounting uses the measured power"
    if is_saved_power_predictor(predictor):
        unmeasured = int(np.count_nonzero(np.isnan(jobs.column("power_w"))))
        accounting = f"measured power, and the power model for the {unmeasured:,} jobs without" if unmeasured else ""
        return predicted, (
            f"power controls use the watts that {predictor} predicts for {len(jobs):,} jobs; accounting uses "
            f"{accounting or 'the measured power'}"
        )
    count = int(np.count_nonzero(~np.isnan(predicted["predicted_power_w"])))
    return predicted, (
        f"power controls use predicted watts ({predictor}) of the {count:,} jobs whose power was measured, from jobs "
        "that had ended in a first replay; accounting uses the measured power"
    )
