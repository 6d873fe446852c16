"""What a network reaches on windows of a log, greedily: for validation while it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.learning.acting import greedy_actions
from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.player import exported
from kilowait.envs.board import Board
from kilowait.envs.thinking import thought_for

__all__ = ["figures"]


def figures(network: ActorCritic | DuelingQ, vec: Any, first: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(copies,) the weighted figure of the episode that begins at row `first` of the log, of every copy.

    `vec` is a vector env of ours with one copy a window. Small networks play inside the engine, copy after copy.
    """
    seen, _ = vec.reset(options={"first": np.asarray(first, np.int64)})
    board = vec.board
    layers = exported(network) if isinstance(board, Board) else None
    if layers is not None:
        arrays = (board.stack, board.scene, board.source)
        thought_for(*arrays, layers)(*arrays, layers, 0, board.copies)
        found: npt.NDArray[np.float64] = board.scene.finished[:, 3:] @ board.scene.weights
        return found
    figure, left = np.full(board.copies, np.nan), np.ones(board.copies, np.bool_)
    while left.any():
        seen, _, over, cut, told = vec.step(greedy_actions(network, seen))
        ended = (over | cut) & left
        if ended.any():
            figure[ended] = told["episode"]["metric"][ended]
            left &= ~ended
    return figure
