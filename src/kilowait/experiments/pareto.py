"""The front of an agent that weighs terms as it is told: what it reaches on later jobs under each preference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.comparison.bootstrap import WindowBootstrap
from kilowait.evaluation.pareto import pareto_front
from kilowait.experiments.env_factory import world_for
from kilowait.experiments.train_power import PowerTraining
from kilowait.experiments.train_rl import RLTraining
from kilowait.jobs import JobTable
from kilowait.rng import stream

__all__ = ["front"]


def front(
    agent: Any,
    jobs: JobTable,
    cluster: Cluster,
    *,
    windows: int | None = None,
    window_jobs: int = 1024,
    parts: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    power: PowerTraining | None = None,
) -> dict[str, Any]:
    """The figures of every term under fixed preferences, with 95 % intervals over windows, as plain data.

    ``points`` has a row a preference: ``preference``, ``figures``, ``intervals``, and ``dominated``: whether another
    preference is better in all terms at once. ``reference`` is what the least-work-first rule (on whole nodes SAF)
    reaches on the same windows. The jobs must be later than those it was trained on.

    Args:
        agent: as `kilowait.load_agent` gives it, without a preference.
        jobs: later jobs.
        cluster: the machine.
        windows: as many as lie side by side, if None; else so many, evenly spread.
        window_jobs: jobs in each.
        parts: weights are whole multiples of 1 / parts; None: tenths for two terms, quarters for three, else halves.
        seed: of the intervals.
        progress: hears what is about to be played.
        power: with what an agent of kilowait/Energy-v0 plays.
    """
    from kilowait.agents.pareto import front_figures, least_work_first, preferences_for
    from kilowait.agents.rl.validation import figures_of

    terms = agent.preferences
    if not terms:
        raise InputError(
            f"agent {agent.name!r} weighs no terms as it is told; train one with kilowait train --objectives"
        )
    if len(jobs) < window_jobs:
        raise InputError(
            f"{len(jobs):,} jobs hold no window of {window_jobs:,}; take shorter ones (--window)"
        )
    count = len(jobs) // window_jobs if windows is None else windows
    first = np.linspace(0, len(jobs) - window_jobs, count).astype(np.int64)
    learned = agent.provenance["learning"]
    how = RLTraining(**{**learned, "preferences": tuple(learned["preferences"])})
    vec = world_for(cluster, how, power).envs(jobs, count, window_jobs, False)
    places = [tuple(vec.reward.terms).index(name) for name in terms]
    preferences = preferences_for(len(terms), parts)
    figures = []
    for weights in preferences:
        if progress is not None:
            progress(", ".join(f"{name} {weight:g}" for name, weight in zip(terms, weights, strict=True)))
        figures.append(front_figures(agent.network, vec, first, weights[None])[0])
    block = max(1, -(-count * window_jobs // len(jobs)))  # windows that overlap are drawn together
    again = WindowBootstrap(count, random=stream(seed, "experiments.front"), block=min(block, count))
    free = pareto_front([each.mean(axis=0) for each in figures])
    rule = figures_of(least_work_first(vec.spec_of_observation), vec, first)[:, places]
    units = agent.provenance["units"]
    return {
        "terms": {name: vec.reward.terms[name] for name in terms},
        "units": {name: units[name] for name in terms},
        "windows": count,
        "window_jobs": window_jobs,
        "points": [
            {
                "preference": dict(zip(terms, weights.tolist(), strict=True)),
                "figures": dict(zip(terms, each.mean(axis=0).tolist(), strict=True)),
                "intervals": {
                    name: list(again.mean(values)) for name, values in zip(terms, each.T, strict=True)
                },
                "dominated": not free[place],
            }
            for place, (weights, each) in enumerate(zip(preferences, figures, strict=True))
        ],
        "reference": {
            "name": "least work first",
            "figures": dict(zip(terms, rule.mean(axis=0).tolist(), strict=True)),
        },
    }
