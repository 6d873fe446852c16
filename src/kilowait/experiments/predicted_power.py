"""Predicted job power for power controls; energy accounting uses the measured power.

By default power budgets use the measured power of every job, as if it were known in advance. Here the power is
predicted from jobs that had ended in a first replay, or taken from the power model. Jobs without measured power get no
prediction: power controls and accounting use the power model for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.power import PowerSettings, make_power_context
from kilowait.experiments.predicted_runtimes import first_replay
from kilowait.experiments.saved_predictor import read_predictor_card
from kilowait.jobs import JobTable
from kilowait.predict.baselines import BASELINES
from kilowait.predict.dataset import make_dataset
from kilowait.predict.models import MODEL_FAMILIES, PredictionModel, predictions_of_models
from kilowait.predict.predictor import load
from kilowait.predict.targets import power

__all__ = [
    "POWER_MODEL_PREDICTOR",
    "check_power_predictor",
    "is_saved_power_predictor",
    "with_predicted_power",
    "with_predicted_watts",
]

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
    """
    check_power_predictor(predictor)
    if predictor == POWER_MODEL_PREDICTOR:
        return jobs.with_columns(predicted_power_w=np.full(len(jobs), np.nan))
    measured = ~np.isnan(jobs.column("power_w"))
    if not measured.any():
        raise InputError(
            f"--power-predictor {predictor} needs measured power, and none of these {len(jobs):,} jobs has any "
            "(energy_j or power_w); leave it out: the power model needs no prediction"
        )
    ordered = jobs.sorted()
    times = first_replay(ordered, cluster)
    dataset = make_dataset(ordered, times, cluster.nodes, power(ordered, times))
    predicted: npt.NDArray[np.float64]
    if is_saved_power_predictor(predictor):
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
    return jobs.with_columns(predicted_power_w=np.where(measured, predicted_power_w, np.nan))


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
    count = int(np.count_nonzero(~np.isnan(predicted["predicted_power_w"])))
    return predicted, (
        f"power controls use predicted watts ({predictor}) of the {count:,} jobs whose power was measured, from jobs "
        "that had ended in a first replay; accounting uses the measured power"
    )
