"""Metrics of a policy on windows of a log: of a network, also under many preferences, and the units of the terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.network_policies import engine_weights, preference_terms, with_fixed_preference
from kilowait.agents.networks.heads import Network, greedy_actions
from kilowait.agents.networks.spec import ObservationSpecProtocol
from kilowait.agents.rl.device import use_device
from kilowait.envs.batch_env import BatchSimulator
from kilowait.envs.kernels.inline_network import inference_kernel
from kilowait.envs.preferences import Preferences, preference_grid

Floats = npt.NDArray[np.float64]
VALIDATION_GRID_STEPS = 4
"""Grid steps of the weights of two terms in validation: five preferences."""

DecisionFunction = Callable[[Mapping[str, Any]], npt.NDArray[np.int64]]


def weighted_metrics(network: Network, vec: Any, first: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(copies,) weighted metric of the episode that begins at row `first` of the log, of every sub-environment."""
    weighted: npt.NDArray[np.float64] = term_metrics(network, vec, first) @ vec.simulator.buffers.weights
    return weighted


def term_metrics(policy: Network | DecisionFunction, vec: Any, first: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(copies, terms) every reward term, not weighted, of the episode that begins at row `first` of the log.

    `vec` is a vector environment of `kilowait.envs` with one sub-environment a window. Small networks run inside the
    engine, one window after the other.
    """
    observation, _ = vec.reset(options={"first": np.asarray(first, np.int64)})
    simulator = vec.simulator
    network = policy if isinstance(policy, Network) else None
    weights = engine_weights(network) if network is not None and isinstance(simulator, BatchSimulator) else None
    if weights is not None:
        arrays = (simulator.states, simulator.buffers, simulator.log_arrays)
        inference_kernel(*arrays, weights)(*arrays, weights, 0, simulator.copies)
        metrics: npt.NDArray[np.float64] = simulator.buffers.finished[:, 3:].copy()
        return metrics

    def decide(observation: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        return policy(observation) if network is None else greedy_actions(network, observation)  # type: ignore[return-value]

    values, running = np.full(simulator.buffers.terms.shape, np.nan), np.ones(simulator.copies, np.bool_)
    while running.any():
        observation, _, terminated, truncated, infos = vec.step(decide(observation))
        ended = (terminated | truncated) & running
        if ended.any():
            values[ended] = infos["episode"]["terms"][ended]
            running &= ~ended
    return values


def least_work_first(spec: ObservationSpecProtocol) -> Callable[[Mapping[str, Any]], npt.NDArray[np.int64]]:
    """The reference policy whose metrics are the units: start the allowed job with the least estimated work.

    The job is started at full speed, or with any placement: the first choice. If no job may be started, the first
    allowed action is taken. On Batch-v0 that is SAF; on Energy-v0 it is SAF at full speed, with node sleep controlled
    by the sleep setting of the power controls.
    """
    column = spec.features.index("area" if "area" in spec.features else "work")

    def decide(observation: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        mask = observation["mask"]
        jobs = mask[:, : spec.slots * spec.choices : spec.choices] != 0
        smallest = np.where(jobs, observation["jobs"][:, :, column], np.inf).argmin(axis=1)
        actions: npt.NDArray[np.int64] = np.where(jobs.any(axis=1), smallest * spec.choices, mask.argmax(axis=1))
        return actions

    return decide


def term_units(vec: Any, first: npt.ArrayLike, terms: Iterable[str]) -> dict[str, float]:
    """The unit of each term: its mean when `least_work_first` schedules the windows that begin at `first`.

    A weight then is the value of one per cent of that mean. A term with mean 0, such as sla where no job waits long,
    has unit 1.
    """
    names = tuple(vec.reward.terms)
    Preferences(dict.fromkeys(terms, 1.0), names)  # raises an error for unknown names
    means = term_metrics(least_work_first(vec.spec_of_observation), vec, first).mean(axis=0)
    measured = {name: float(means[names.index(name)]) for name in terms}
    return {name: value if value > 0 else 1.0 for name, value in measured.items()}


def preferences_for(terms: int, grid_steps: int | None = None) -> Floats:
    """(points, terms) the preference grid of a Pareto front: two terms in tenths, three in quarters, more in halves.

    >>> len(preferences_for(2)), len(preferences_for(3)), len(preferences_for(4))
    (11, 15, 10)
    """
    return preference_grid(terms, grid_steps or {2: 10, 3: 4}.get(terms, 2))


def preference_metrics(network: Network, vec: Any, first: npt.ArrayLike, preferences: Floats) -> Floats:
    """(preferences, windows, terms of the preference) the network's metrics under each preference.

    `vec` samples no preferences itself and has one sub-environment a window.
    """
    terms = preference_terms(network.spec)
    columns = [tuple(vec.reward.terms).index(name) for name in terms]
    with use_device(next(network.parameters()).device, 1):  # more threads are slower for so few rows
        metrics = [
            term_metrics(with_fixed_preference(network, dict(zip(terms, weights, strict=True))), vec, first)[:, columns]
            for weights in preferences
        ]
    return np.stack(metrics)


def weighted_metric(network: Network, vec: Any, first: npt.ArrayLike, units: Mapping[str, float]) -> float:
    """Mean weighted metric of the windows over a few fixed preferences: for validation."""
    terms = preference_terms(network.spec)
    preferences = preferences_for(len(terms), VALIDATION_GRID_STEPS if len(terms) == 2 else 2)
    metrics = preference_metrics(network, vec, first, preferences).mean(axis=1)
    return float((preferences * metrics / [units[name] for name in terms]).sum(axis=1).mean())
