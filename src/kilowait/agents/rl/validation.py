"""Validation metrics of a policy on windows of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.network_policies.batch import engine_weights
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.rl.inference import greedy_actions
from kilowait.envs.batched_sim import BatchedSimulator
from kilowait.envs.kernels.inline_network import inference_kernel

__all__ = ["weighted_metrics", "term_metrics"]

Decide = Callable[[Mapping[str, Any]], npt.NDArray[np.int64]]


def weighted_metrics(
    network: ActorCritic | DuelingQ, vec: Any, first: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(copies,) weighted metric of the episode that begins at row `first` of the log, of every sub-environment."""
    weighted: npt.NDArray[np.float64] = term_metrics(network, vec, first) @ vec.simulator.buffers.weights
    return weighted


def term_metrics(
    policy: ActorCritic | DuelingQ | Decide, vec: Any, first: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(copies, terms) every reward term, not weighted, of the episode that begins at row `first` of the log.

    `vec` is a vector environment of `kilowait.envs` with one sub-environment a window. Small networks run inside the
    engine, one window after the other.
    """
    seen, _ = vec.reset(options={"first": np.asarray(first, np.int64)})
    board = vec.simulator
    network = policy if isinstance(policy, ActorCritic | DuelingQ) else None
    layers = engine_weights(network) if network is not None and isinstance(board, BatchedSimulator) else None
    if layers is not None:
        arrays = (board.states, board.buffers, board.log_arrays)
        inference_kernel(*arrays, layers)(*arrays, layers, 0, board.copies)
        metrics: npt.NDArray[np.float64] = board.buffers.finished[:, 3:].copy()
        return metrics

    def decide(observation: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        return policy(observation) if network is None else greedy_actions(network, observation)  # type: ignore[return-value]

    values, running = np.full(board.buffers.terms.shape, np.nan), np.ones(board.copies, np.bool_)
    while running.any():
        seen, _, terminated, truncated, infos = vec.step(decide(seen))
        ended = (terminated | truncated) & running
        if ended.any():
            values[ended] = infos["episode"]["terms"][ended]
            running &= ~ended
    return values
