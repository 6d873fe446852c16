"""Validation metrics of a policy on windows of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.network_policies.batch import engine_weights
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.rl.distributions import greedy_actions
from kilowait.envs.batched_sim import BatchedSimulator
from kilowait.envs.kernels.network_inference import inference_kernel

__all__ = ["weighted_metrics", "term_metrics"]

DecisionFunction = Callable[[Mapping[str, Any]], npt.NDArray[np.int64]]


def weighted_metrics(network: ActorCritic | DuelingQ, vec: Any, first: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(copies,) weighted metric of the episode that begins at row `first` of the log, of every sub-environment."""
    weighted: npt.NDArray[np.float64] = term_metrics(network, vec, first) @ vec.simulator.buffers.weights
    return weighted


def term_metrics(
    policy: ActorCritic | DuelingQ | DecisionFunction, vec: Any, first: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(copies, terms) every reward term, not weighted, of the episode that begins at row `first` of the log.

    `vec` is a vector environment of `kilowait.envs` with one sub-environment a window. Small networks run inside the
    engine, one window after the other.
    """
    observation, _ = vec.reset(options={"first": np.asarray(first, np.int64)})
    simulator = vec.simulator
    network = policy if isinstance(policy, ActorCritic | DuelingQ) else None
    weights = engine_weights(network) if network is not None and isinstance(simulator, BatchedSimulator) else None
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
