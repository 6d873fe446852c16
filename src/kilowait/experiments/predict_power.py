"""Power of jobs that levers plan with: what is expected of each before it runs, while accounts keep to what it drew.

A log with measured energy knows the watts of every job, and without more ado budgets are kept with these: as if
somebody had known them. Here they are predicted from jobs that had ended in a first replay, or taken from the power
model. Both say nothing of jobs whose power was never measured: those are planned with, and accounted, as the model
has them.
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
from kilowait.experiments.power import PowerSettings, meter_for
from kilowait.experiments.predict_runtimes import first_replay
from kilowait.experiments.saved_predictor import check_kept
from kilowait.jobs import JobTable
from kilowait.predict.baselines import SIMPLE
from kilowait.predict.dataset import case_of
from kilowait.predict.models import FAMILIES, PredictionModel, predictions
from kilowait.predict.predictor import load
from kilowait.predict.targets import power

__all__ = ["MODEL", "check_power_predictor", "is_kept_power", "planned", "with_planned_power"]

MODEL = "model"
"""Who says what the power model does: every job draws what the profile makes of it, full load unless given."""


def is_kept_power(predictor: str) -> bool:
    """Whether a folder is named: something that is there, or is written as a path."""
    return predictor != MODEL and ("/" in predictor or os.sep in predictor or Path(predictor).is_dir())


def check_power_predictor(predictor: str) -> None:
    """Raise unless it is the power model, a model of `kilowait predict`, or a folder with a predictor of power."""
    if predictor == MODEL:
        return
    if is_kept_power(predictor):
        check_kept(predictor, "power")
        return
    if predictor.partition(":")[0].strip().lower() not in (*SIMPLE, *FAMILIES):
        raise UnknownNameError(
            "predictor of power (no folder of that name either)", predictor, (MODEL, *SIMPLE, *FAMILIES)
        )
    if PredictionModel.of(predictor).way == "mean":
        raise InputError(
            "the mean of the forest is of no use for power, which nothing bounds; take forest or boosting:mean"
        )


def with_planned_power(
    jobs: JobTable,
    cluster: Cluster,
    predictor: str,
    most_w: float,
    *,
    seed: int = 0,
    progress: Callable[[Any], None] | None = None,
) -> JobTable:
    """The jobs with `predicted_power_w`, what is expected of their mean power, all nodes together.

    Args:
        jobs: with `power_w` where it was measured (`experiments.power.dressed`), and the users' own estimates.
        cluster: the machine of the first replay.
        predictor: `MODEL`, a model as `kilowait predict score` has them, or the folder of a kept predictor of power.
        most_w: what a node draws at full load; nothing is expected beyond.
        seed: of models that learn.
        progress: hears of every fit.

    >>> jobs = JobTable(
    ...     job_id=[1, 2, 3],
    ...     submit_s=[0, 99, 99],
    ...     runtime_s=[9] * 3,
    ...     nodes=[1, 1, 2],
    ...     power_w=[80, 50, np.nan],
    ... )
    >>> with_planned_power(jobs, Cluster.from_nodes(4), "recent", 200.0)["predicted_power_w"].round().tolist()
    [200.0, 80.0, nan]
    """
    check_power_predictor(predictor)
    nothing = np.full(len(jobs), np.nan)
    if predictor == MODEL:
        return jobs.with_columns(predicted_power_w=nothing)
    measured = ~np.isnan(jobs.column("power_w"))
    if not measured.any():
        raise InputError(
            f"--power-predictor {predictor} learns from measured power, and none of these {len(jobs):,} jobs has any "
            "(energy_j or power_w); leave it out: the power model knows what it says beforehand"
        )
    ordered = jobs.sorted()
    world = first_replay(ordered, cluster)
    case = case_of(ordered, world, cluster.nodes, power(ordered, world))
    said: npt.NDArray[np.float64]
    if is_kept_power(predictor):
        said = load(predictor).predict(case).value
    else:
        threads = min(2, os.cpu_count() or 1)
        (told,) = predictions(
            [PredictionModel.of(predictor)],
            case,
            seed=seed,
            threads=threads,
            progress=None if progress is None else lambda _, refit: progress(refit),
        )
        said = told.values
    said = np.minimum(said, ordered["nodes"] * most_w)
    planned = nothing
    planned[slice(None) if jobs.order is None else jobs.order] = said
    return jobs.with_columns(predicted_power_w=np.where(measured, planned, np.nan))


def planned(
    settings: PowerSettings,
    jobs: JobTable,
    cluster: Cluster,
    predictor: str,
    progress: Callable[[Any], None] | None = None,
) -> tuple[JobTable, str]:
    """The same on the machine that the settings of power name, and a note for people."""
    # What is outside has no part in what nodes draw, and may want the weather.
    bare = PowerSettings(settings.power, profile=settings.profile, cooling="pue:1")
    most_w = max(group.full_w for group in meter_for(bare, jobs, cluster).model.groups)
    told = with_planned_power(jobs, cluster, predictor, most_w, progress=progress)
    if predictor == MODEL:
        return told, "levers plan with the power model's watts; accounts are of what was measured"
    count = int(np.count_nonzero(~np.isnan(told["predicted_power_w"])))
    return told, (
        f"levers plan with watts predicted ({predictor}) of the {count:,} jobs whose power was measured, from jobs "
        "that had ended in a first replay; accounts are of what was measured"
    )
