"""Steering: of several draws of each user's week that one is taken with which the week's work comes to the log's.

How long people wait depends on the work of a busy week far more than on anything else, and a few large jobs make
it. Drawn freely, a week's work is some 13 % off; chosen among a few draws of each user it comes, day by day, to
what the log has.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["choose"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SWEEPS = 3
WHOLE_WEEK = 3.0
"""Weight of the whole week beside each of its days: what is left over is carried into the next week."""


def choose(work: Floats, week: Ints, wanted: Floats, rng: np.random.Generator) -> Ints:
    """Which draw to take for each block.

    Args:
        work: node-seconds of each draw, block and weekday.
        week: of each block.
        wanted: node-seconds of each week from its beginning to the end of each day.
        rng: for the order in which blocks are looked at.

    >>> work = np.zeros((2, 2, 7))
    >>> work[:, :, 0] = [[5.0, 5.0], [1.0, 2.0]]
    >>> choose(work, np.array([0, 0]), np.full((1, 7), 3.0), np.random.default_rng(0)).tolist()
    [1, 1]
    """
    draws, blocks, _ = work.shape
    reached = work.cumsum(2)
    taken = np.zeros(blocks, np.int64)
    if draws == 1:
        return taken
    weight = np.array([1.0] * 6 + [WHOLE_WEEK])
    excess = 0.0
    order = np.argsort(week, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(week[order])) + 1):
        goal = wanted[week[members[0]]] - excess
        total = reached[taken[members], members].sum(0)
        for _ in range(SWEEPS):
            for block in rng.permutation(members):
                others = total - reached[taken[block], block]
                missed = ((others + reached[:, block] - goal) ** 2 * weight).sum(1)
                taken[block] = np.argmin(missed)
                total = others + reached[taken[block], block]
        excess = float(total[-1] - goal[-1])
    return taken
