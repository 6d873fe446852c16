"""Prediction tasks from command-line settings: datasets of logs, fitting, saving, explanations and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.storage import save_folder
from kilowait.experiments.evaluate_predictors import history_of
from kilowait.experiments.power import PowerSettings, make_power_context
from kilowait.experiments.scenario_inputs import Workload, read_workload, resolve_cluster
from kilowait.experiments.tune_predictor import tune_predictor
from kilowait.experiments.tuning_folder import TuningTrial
from kilowait.predict.conformal import CALIBRATION_FRACTION, fit
from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.explanation import Explanation, explain
from kilowait.predict.model_card import ModelCard
from kilowait.predict.models import DEFAULT_MODELS, PredictionModel
from kilowait.predict.predictor import Predictor
from kilowait.predict.targets import TARGETS, target_of

__all__ = [
    "PredictionTask",
    "PredictionData",
    "task_for_predictor",
    "check_table_name",
    "explain_job",
    "fit_predictor",
    "models_for",
    "predicted_columns",
    "load_dataset",
    "save_predictor",
    "table_columns",
    "write_columns",
]

Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class PredictionTask:
    """Settings of a prediction task: the log, the target and the sources of the data."""

    trace: str
    target: str = "runtime"
    cluster: str = "auto"
    history_source: str = "auto"
    label_source: str | None = None
    """Source of power and energy labels; None: measured, or with a power model both."""
    power: str | None = None
    utilization: str | None = None
    format: str | None = None
    unpack_limit: str | None = None
    """Largest size of the decompressed log, e.g. 64G; None: a quarter of the machine's memory."""
    columns: str | None = None
    strict: bool = False
    jobs: str | None = None
    fit_jobs: int = 0
    """Number of jobs to use, the last ones by submission; 0: all."""

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise UnknownNameError("target", self.target, TARGETS)
        if self.target not in ("power", "energy") and (self.power or self.label_source):
            raise InputError(
                f"a power model and label sources are only for the targets power and energy, not {self.target}"
            )


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


def load_dataset(task: PredictionTask) -> PredictionData:
    """Read the log and compute the dataset: start and end times, features and target.

    >>> load_dataset(PredictionTask("lublin:60:16")).dataset.target.name
    'runtime'
    """
    workload = read_workload(
        task.trace,
        format=task.format,
        unpack_limit=task.unpack_limit,
        columns=task.columns,
        strict=task.strict,
        rows=task.jobs,
    )
    cluster, note = resolve_cluster(task.cluster, workload.jobs)
    jobs, log_jobs = workload.jobs.sorted(), len(workload.jobs)
    sample_note = None
    if 0 < task.fit_jobs < log_jobs:
        jobs = jobs[log_jobs - task.fit_jobs :]
        sample_note = (
            f"only the last {task.fit_jobs:,} of {log_jobs:,} jobs are used, for a fit in a few minutes; use more with "
            "--fit-jobs N, or all with --fit-jobs 0"
        )
    jobs, times, history_notes = history_of(jobs, cluster, task.history_source)
    if task.target not in ("power", "energy"):
        dataset, power = make_dataset(jobs, times, cluster.nodes, target_of(task.target, jobs, times)), {}
    else:
        power = {
            "labels": task.label_source or ("measured" if task.power is None else "both"),
            "power": task.power,
            "utilization": task.utilization,
        }
        watts: dict[str, Any] = {"labels": power["labels"]}
        if task.power is not None:
            # Cooling does not affect node power, and its models may need weather data: a constant PUE is used.
            settings = PowerSettings(task.power, utilization=task.utilization, cooling="pue:1")
            meter = make_power_context(settings, jobs, cluster)
            watts |= {"model": meter.model, "utilization": meter.utilization}
        dataset = make_dataset(jobs, times, cluster.nodes, target_of(task.target, jobs, times, **watts))
    notes = tuple(text for text in (note, sample_note, *history_notes) if text is not None)
    return PredictionData(dataset, cluster, workload, notes, power, log_jobs)


def task_for_predictor(card: ModelCard, task: PredictionTask) -> PredictionTask:
    """The task with the target and power settings of a saved predictor."""
    return replace(
        task,
        target=card.target,
        cluster=f"nodes:{card.nodes}" if task.cluster == "auto" else task.cluster,
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
        nodes=prepared.cluster.nodes,
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
    """One row per job: its number, its features, and the target where it is known."""
    features, jobs = dataset.features, dataset.jobs
    columns: dict[str, npt.NDArray[Any]] = {"job_id": jobs["job_id"]}
    columns |= {name: features.values[:, at] for at, name in enumerate(features.names)}
    columns["runtime_s"] = jobs["runtime_s"]
    if "energy_j" in jobs:
        columns["energy_j"] = jobs["energy_j"]
    if dataset.target.name not in ("runtime", "energy"):
        columns[f"{dataset.target.name}_{dataset.target.unit.lower()}"] = dataset.target.values
    return columns


def predicted_columns(predictor: Predictor, dataset: Dataset) -> dict[str, npt.NDArray[Any]]:
    """One row per job: its number, the prediction with its bounds, and the truth where it is known."""
    predicted, unit = predictor.predict(dataset), dataset.target.unit.lower()
    return {
        "job_id": dataset.jobs["job_id"],
        f"{dataset.target.name}_{unit}": dataset.target.values,
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
        if Path(path).suffix == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, path)
        else:
            from pyarrow import csv

            csv.write_csv(table, path)
    except OSError as problem:
        raise InputError(f"cannot write {path}: {problem.strerror or problem}") from None


def check_table_name(path: str | PathLike[str]) -> None:
    """Raise unless a table can be written to this path; called before a long computation."""
    suffix = Path(path).suffix
    if suffix not in (".parquet", ".csv"):
        raise InputError(f"the table's path is {path}; use the extension .parquet or .csv")
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"cannot write {path}: its folder does not exist; create it first")
