"""What a network reaches on windows of a log, greedily: for validation while it learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.network_policies.batch import exported
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.rl.inference import greedy_actions
from kilowait.envs.batched_sim import BatchedSimulator
from kilowait.envs.kernels.inline_network import inference_kernel

__all__ = ["figures", "figures_of"]

Decide = Callable[[Mapping[str, Any]], npt.NDArray[np.int64]]


def figures(network: ActorCritic | DuelingQ, vec: Any, first: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(copies,) the weighted figure of the episode that begins at row `first` of the log, of every copy."""
    weighted: npt.NDArray[np.float64] = figures_of(network, vec, first) @ vec.board.scene.weights
    return weighted


def figures_of(
    decider: ActorCritic | DuelingQ | Decide, vec: Any, first: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """(copies, terms) every term of the reward, not weighted, of the episode that begins at row `first` of the log.

    `vec` is a vector env of ours with one copy a window. Small networks play inside the engine, copy after copy.
    """
    seen, _ = vec.reset(options={"first": np.asarray(first, np.int64)})
    board = vec.board
    network = decider if isinstance(decider, ActorCritic | DuelingQ) else None
    layers = exported(network) if network is not None and isinstance(board, BatchedSimulator) else None
    if layers is not None:
        arrays = (board.stack, board.scene, board.source)
        inference_kernel(*arrays, layers)(*arrays, layers, 0, board.copies)
        found: npt.NDArray[np.float64] = board.scene.finished[:, 3:].copy()
        return found

    def decide(seen: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        return decider(seen) if network is None else greedy_actions(network, seen)  # type: ignore[return-value]

    figure, left = np.full(board.scene.terms.shape, np.nan), np.ones(board.copies, np.bool_)
    while left.any():
        seen, _, over, cut, told = vec.step(decide(seen))
        ended = (over | cut) & left
        if ended.any():
            figure[ended] = told["episode"]["terms"][ended]
            left &= ~ended
    return figure
