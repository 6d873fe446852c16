"""Pareto front of a preference-conditioned agent: its metrics on test jobs under each preference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.comparison.bootstrap import WindowBootstrap
from kilowait.evaluation.pareto import pareto_front
from kilowait.experiments.env_factory import env_factory_for
from kilowait.experiments.train_power import PowerTraining
from kilowait.experiments.train_rl import RLTraining
from kilowait.jobs import JobTable
from kilowait.rng import stream

__all__ = ["preference_front"]


def preference_front(
    agent: Any,
    jobs: JobTable,
    cluster: Cluster,
    *,
    windows: int | None = None,
    window_jobs: int = 1024,
    grid_steps: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    power: PowerTraining | None = None,
) -> dict[str, Any]:
    """Metrics of every term under fixed preferences, with 95 % intervals over windows, as plain data.

    ``points`` has one row per preference: ``preference``, ``metrics``, ``intervals``, and ``dominated``: whether
    another preference is better in all terms. ``reference`` contains the metrics of the least-work-first policy (SAF on
    whole nodes) on the same windows. The jobs must be later than the training jobs.

    Args:
        agent: an agent as returned by `kilowait.load_agent`, without a fixed preference.
        jobs: test jobs.
        cluster: the machine.
        windows: number of evenly spaced windows; None: as many as fit without overlap.
        window_jobs: jobs in a window.
        grid_steps: weights are multiples of 1 / grid_steps; None: 10 for two terms, 4 for three, else 2.
        seed: of the bootstrap.
        progress: called with the text of each preference before its run.
        power: power settings, for an agent of kilowait/Energy-v0.
    """
    from kilowait.agents.pareto import least_work_first, preference_metrics, preferences_for
    from kilowait.agents.rl.validation import term_metrics

    terms = getattr(agent, "preferences", ())
    if not terms:
        raise InputError(f"agent {agent.name!r} takes no preference; train one with kilowait train --objectives")
    if len(jobs) < window_jobs:
        raise InputError(
            f"{len(jobs):,} jobs are fewer than a window of {window_jobs:,}; use shorter windows (--window)"
        )
    count = len(jobs) // window_jobs if windows is None else windows
    first = np.linspace(0, len(jobs) - window_jobs, count).astype(np.int64)
    saved = agent.provenance["training"]
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()
    }
    training = RLTraining(**settings)
    vec = env_factory_for(cluster, training, power).envs(jobs, count, window_jobs, False)
    term_columns = [tuple(vec.reward.terms).index(name) for name in terms]
    preferences = preferences_for(len(terms), grid_steps)
    metrics_by_preference = []
    for weights in preferences:
        if progress is not None:
            progress(", ".join(f"{name} {weight:g}" for name, weight in zip(terms, weights, strict=True)))
        metrics_by_preference.append(preference_metrics(agent.network, vec, first, weights[None])[0])
    block = max(1, -(-count * window_jobs // len(jobs)))  # overlapping windows are resampled together
    bootstrap = WindowBootstrap(count, random=stream(seed, "experiments.front"), block=min(block, count))
    nondominated = pareto_front([metrics.mean(axis=0) for metrics in metrics_by_preference])
    reference = term_metrics(least_work_first(vec.spec_of_observation), vec, first)[:, term_columns]
    units = agent.provenance["units"]
    return {
        "terms": {name: vec.reward.terms[name] for name in terms},
        "units": {name: units[name] for name in terms},
        "windows": count,
        "window_jobs": window_jobs,
        "points": [
            {
                "preference": dict(zip(terms, weights.tolist(), strict=True)),
                "metrics": dict(zip(terms, metrics.mean(axis=0).tolist(), strict=True)),
                "intervals": {
                    name: list(bootstrap.mean(values)) for name, values in zip(terms, metrics.T, strict=True)
                },
                "dominated": not nondominated[index],
            }
            for index, (weights, metrics) in enumerate(zip(preferences, metrics_by_preference, strict=True))
        ],
        "reference": {
            "name": "least work first",
            "metrics": dict(zip(terms, reference.mean(axis=0).tolist(), strict=True)),
        },
    }
