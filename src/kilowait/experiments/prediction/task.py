"""Prediction tasks: datasets of logs, fitting and tuning of predictors, saving, explanations and tables.

A search for hyperparameters uses walk-forward folds. A fold is a span of consecutive jobs; its model is fitted on data
known at its first submission. The later half of the jobs is split into folds; the jobs of the final evaluation are not
part of the data. The first trial uses the default settings, so the best trial is never worse than these on the folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.storage import save_folder
from kilowait.experiments.power import make_power_context
from kilowait.experiments.prediction.evaluation import history_of
from kilowait.experiments.scenario_inputs import Workload, read_log, resolve_machine
from kilowait.experiments.settings import PowerSettings
from kilowait.experiments.training.tune import TuningTrial, best_trial, optuna_or_error
from kilowait.experiments.workload_settings import PredictionTask
from kilowait.files import atomic_file
from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.explanation import Explanation, explain
from kilowait.predict.model_card import ModelCard
from kilowait.predict.models import DEFAULT_MODELS, ModelSettings, PredictionModel, default_settings, fit_until
from kilowait.predict.predictor import CALIBRATION_FRACTION, Predictor, fit
from kilowait.predict.scores import score
from kilowait.predict.targets import target_of
from kilowait.rng import stream

Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class PredictionData:
    """Prediction dataset with its cluster and workload."""

    dataset: Dataset
    cluster: Cluster
    workload: Workload
    notes: tuple[str, ...]
    power: Mapping[str, Any]
    """Sources of power labels, for the model card; empty for other targets."""
    log_jobs: int
    """Number of jobs that were read; the dataset has the last ones of them if `PredictionTask.fit_jobs` is smaller."""


def load_dataset(task: PredictionTask, *, require_measured: bool = True) -> PredictionData:
    """Read the log and compute the dataset: start and end times, features and target.

    Args:
        task: the log, the target and the sources of the data.
        require_measured: raise if power or energy labels are measured and no job was; else all labels are unknown, as
            is sufficient to apply a saved predictor.

    >>> load_dataset(PredictionTask("lublin:60:16")).dataset.target.name
    'runtime'
    """
    workload = read_log(task)
    machine = resolve_machine(task.cluster, workload.jobs)
    cluster, note = machine.cluster, machine.note
    jobs, log_jobs = machine.jobs.sorted(), len(workload.jobs)
    sample_note = None
    if 0 < task.fit_jobs < log_jobs:
        jobs = jobs[log_jobs - task.fit_jobs :]
        sample_note = (
            f"only the last {task.fit_jobs:,} of {log_jobs:,} jobs are used, for a fit in a few minutes; use more with "
            "--fit-jobs N, or all with --fit-jobs 0"
        )
    jobs, times, history_notes = history_of(jobs, cluster, task.history_source)
    if task.target not in ("power", "energy"):
        dataset, power = make_dataset(jobs, times, cluster.size, target_of(task.target, jobs, times)), {}
    else:
        power = {
            "labels": task.label_source or ("measured" if task.power is None else "both"),
            "power": task.power,
            "utilization": task.utilization,
        }
        watts: dict[str, Any] = {"labels": power["labels"], "require_measured": require_measured}
        if task.power is not None:
            # Cooling does not affect node power, and its models may need weather data: a constant PUE is used.
            settings = PowerSettings(task.power, utilization=task.utilization, cooling="pue:1")
            meter = make_power_context(settings, jobs, cluster)
            watts |= {"model": meter.model, "utilization": meter.utilization}
        dataset = make_dataset(jobs, times, cluster.size, target_of(task.target, jobs, times, **watts))
        if not require_measured and power["labels"] != "model" and len(dataset) and not dataset.has_measured_values:
            history_notes += (f"no job of this log has measured {task.target}: predicted without earlier values",)
    notes = tuple(text for text in (note, sample_note, *history_notes) if text is not None)
    return PredictionData(dataset, cluster, workload, notes, power, log_jobs)


def task_for_predictor(card: ModelCard, task: PredictionTask) -> PredictionTask:
    """The task with the target and power settings of a saved predictor."""
    return replace(
        task,
        target=card.target,
        cluster=f"{card.nodes}" if task.cluster == "auto" else task.cluster,
        label_source=card.power.get("labels"),
        power=card.power.get("power"),
        utilization=card.power.get("utilization"),
    )


def models_for(text: str | None, dataset: Dataset) -> tuple[list[PredictionModel], tuple[str, ...]]:
    """Parse comma-separated model names; else the default models for this dataset, and notes."""
    if text is not None:
        return [PredictionModel.of(name) for name in text.split(",")], ()
    names = DEFAULT_MODELS[dataset.target.name]
    if "request" in names and np.isnan(dataset.target.requested).any():
        models = [PredictionModel.of(name) for name in names if name != "request"]
        return models, ("some jobs have no request: the request baseline is left out",)
    return [PredictionModel.of(name) for name in names], ()


def fit_predictor(
    prepared: PredictionData,
    model: PredictionModel,
    *,
    data: str,
    tune: int = 0,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[TuningTrial], None] | None = None,
) -> Predictor:
    """Fit a predictor; with `tune` trials, hyperparameters are tuned on the jobs before those of the calibration."""
    dataset, settings = prepared.dataset, None
    if tune:
        fitted = dataset.first(round(len(dataset) * (1 - CALIBRATION_FRACTION)))
        settings, _ = tune_predictor(fitted, model, trials=tune, seed=seed, progress=progress)
    return fit(
        dataset,
        model,
        nodes=prepared.cluster.size,
        data=data,
        settings=settings,
        seed=seed,
        threads=threads,
        power=prepared.power,
    )


def save_predictor(
    predictor: Predictor, folder: str | PathLike[str], *, manifest: Mapping[str, Any], force: bool = False
) -> Path:
    """Save a predictor in a folder atomically, with a manifest of its origin."""
    return save_folder(folder, predictor.save, kind="predictor", manifest=manifest, force=force)


def explain_job(predictor: Predictor, dataset: Dataset, job: str) -> Explanation:
    """Explanation of the prediction for the job with this number."""
    ids = dataset.jobs["job_id"]
    try:
        row = int(np.flatnonzero(ids == int(job))[0])
    except (ValueError, IndexError):
        span = f"the job numbers are {ids.min()} to {ids.max()}" if len(ids) else "the log is empty"
        raise InputError(f"there is no job {job} in this log; {span}") from None
    return explain(predictor, dataset, row)


# -- tables ----------------------------------------------------------------------------------------


def table_columns(dataset: Dataset) -> dict[str, npt.NDArray[Any]]:
    """One row per job: its number, its features, and the target where it is known.

    The column of the target holds the values to learn from: `energy_j` holds the energy of the power model where it was
    not measured and a model was given. `power_source` or `energy_source` says which one a value is.
    """
    features, jobs = dataset.features, dataset.jobs
    columns: dict[str, npt.NDArray[Any]] = {"job_id": jobs["job_id"]}
    columns |= {name: features.values[:, at] for at, name in enumerate(features.names)}
    columns["runtime_s"] = jobs["runtime_s"]
    if "energy_j" in jobs:
        columns["energy_j"] = jobs["energy_j"]
    return columns | _target_columns(dataset)


def _target_columns(dataset: Dataset) -> dict[str, npt.NDArray[Any]]:
    """The values of the target; for power and energy also the source of each: measured, power model, or unknown."""
    target = dataset.target
    columns: dict[str, npt.NDArray[Any]] = {f"{target.name}_{target.unit.lower()}": target.values}
    if target.name in ("power", "energy"):
        source = np.where(target.modelled, "power model", "measured")
        columns[f"{target.name}_source"] = np.where(np.isnan(target.values), None, source)  # type: ignore[call-overload]
    return columns


def predicted_columns(predictor: Predictor, dataset: Dataset) -> dict[str, npt.NDArray[Any]]:
    """One row per job: its number, the prediction with its bounds, and the truth where it is known."""
    predicted, unit = predictor.predict(dataset), dataset.target.unit.lower()
    return {
        "job_id": dataset.jobs["job_id"],
        **_target_columns(dataset),
        f"predicted_{unit}": predicted.value,
        f"p10_{unit}": predicted.low,
        f"p50_{unit}": predicted.median,
        f"p90_{unit}": predicted.high,
    }


def write_columns(columns: Columns, path: str | PathLike[str]) -> None:
    """Write a table as Parquet or CSV, by the file extension; unknown values are left empty."""
    check_table_name(path)
    import pyarrow as pa

    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    try:
        with atomic_file(path) as temporary:
            if Path(path).suffix == ".parquet":
                from pyarrow import parquet

                parquet.write_table(table, temporary)
            else:
                from pyarrow import csv

                csv.write_csv(table, temporary)
    except OSError as problem:
        raise InputError(f"cannot write {path}: {problem.strerror or problem}") from None


def check_table_name(path: str | PathLike[str]) -> None:
    """Raise unless a table can be written to this path; called before a long computation."""
    suffix = Path(path).suffix
    if suffix not in (".parquet", ".csv"):
        raise InputError(f"the table's path is {path}; use the extension .parquet or .csv")
    existing = next(folder for folder in Path(path).absolute().parents if folder.exists())
    if not existing.is_dir():
        raise InputError(f"cannot write {path}: {existing} is a file, not a folder; name another path")


Floats = npt.NDArray[np.float64]

FOLDS = 3
MIN_JOBS = 100
"""Minimum number of jobs with a known target before the first fold, and in each fold."""
RANDOM = 6
"""Number of random trials before the TPE sampler starts."""
SPACES: dict[str, dict[str, tuple[float, float]]] = {
    "forest": {"leaves": (63, 1023), "leaf_jobs": (1, 16), "sample": (0.3, 0.95), "features": (0.15, 0.8)},
    "boosting": {
        "trees": (50, 400),
        "leaves": (7, 127),
        "leaf_jobs": (2, 60),
        "rate": (0.02, 0.2),
        "sample": (0.4, 0.95),
        "features": (0.2, 0.9),
    },
}
"""Search ranges; see `ForestSettings` and `BoostingSettings` for the hyperparameters."""


def tune_predictor(
    dataset: Dataset,
    model: PredictionModel,
    *,
    trials: int,
    seed: int = 0,
    progress: Callable[[TuningTrial], None] | None = None,
) -> tuple[ModelSettings, list[TuningTrial]]:
    """The best settings, and all trials.

    Args:
        dataset: training jobs, without those of the final evaluation.
        model: a model with hyperparameters.
        trials: number of trials, including the default settings.
        seed: of the search and of the models.
        progress: called after every trial.
    """
    optuna = optuna_or_error()
    if model.family == "baseline":
        raise InputError(f"{model.text} has no hyperparameters to tune; use forest or boosting:LOSS")
    if trials < 1:
        raise InputError(f"trials is {trials}; it must be at least 1")
    spans = _folds(dataset)
    default = default_settings(model)
    space = SPACES["boosting" if model.family == "boosting" else "forest"]
    kinds = {field.name: field.type for field in fields(default)}
    ranges = {name: _distribution(optuna, kinds[name], *ends) for name, ends in space.items()}
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    finished: list[TuningTrial] = []
    try:
        number = int(stream(seed, "experiments.foresight_tuning").integers(2**31))
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=number, n_startup_trials=RANDOM))
        study.enqueue_trial({name: value for name, value in asdict(default).items() if name in space})
        while len(finished) < trials:
            start = perf_counter()
            trial = study.ask(ranges)
            loss = _mean_loss(dataset, model, replace(default, **trial.params), spans, seed)
            study.tell(trial, loss)
            finished.append(
                TuningTrial(len(finished) + 1, "finished", loss, dict(trial.params), perf_counter() - start)
            )
            if progress is not None:
                progress(finished[-1])
    finally:
        optuna.logging.set_verbosity(before)
    best: dict[str, Any] = best_trial(finished).settings
    return replace(default, **best), finished


def _distribution(optuna: Any, kind: Any, low: float, high: float) -> Any:
    if kind == "int":
        return optuna.distributions.IntDistribution(int(low), int(high), log=True)
    return optuna.distributions.FloatDistribution(low, high, log=high >= 10 * low)


def _folds(dataset: Dataset) -> list[tuple[int, int]]:
    """First and past-the-end row of each fold."""
    ends = np.linspace(len(dataset) // 2, len(dataset), FOLDS + 1).astype(int).tolist()
    spans = list(pairwise(ends))
    known = np.isfinite(dataset.target.values)
    fewest = min(int(known[: spans[0][0]].sum()), *(int(known[begin:end].sum()) for begin, end in spans))
    if fewest < MIN_JOBS:
        raise InputError(
            f"{len(dataset):,} jobs of which {int(known.sum()):,} have a known "
            f"{dataset.target.name} are too few for tuning; "
            f"each of {FOLDS} folds needs {MIN_JOBS}: use a longer log, or no tuning"
        )
    return spans


def _mean_loss(
    dataset: Dataset, model: PredictionModel, settings: ModelSettings, spans: list[tuple[int, int]], seed: int
) -> float:
    """Mean loss of the model over the folds."""
    losses = []
    features, target = dataset.features, dataset.target
    for begin, end in spans:
        fitted = fit_until(dataset, model, float(dataset.jobs["submit_s"][begin]), settings, seed=seed)
        rows = np.arange(begin, end)[np.isfinite(target.values[begin:end])]
        predicted = fitted.predict(features.values[rows], features.anchor[rows], target.max_value[rows])
        losses.append(ranking_loss(model, predicted, target.values[rows]))
    return float(np.mean(losses))


def ranking_loss(model: PredictionModel, predicted: Floats, truth: Floats) -> float:
    """Loss by which trials are ranked, smaller is better: the loss of the model, of ln(1 + value).

    >>> ranking_loss(PredictionModel.of("forest:accurate"), np.array([60.0]), np.array([120.0]))
    0.5
    """
    error = np.log1p(predicted) - np.log1p(truth)
    loss = model.loss
    level = model.level if loss is None or loss.name != "quantile" else loss.number
    if level is not None:
        return float(np.maximum(-level * error, (1 - level) * error).mean())
    if loss is not None and loss.name == "asymmetric" and loss.number is not None:
        return float((np.where(error < 0, loss.number, 1.0) * error**2).mean())
    if model.point_estimate in ("accurate", "median") or (loss is not None and loss.name == "median"):
        return 1.0 - score(predicted, truth).accuracy
    return float((error**2).mean() ** 0.5)
