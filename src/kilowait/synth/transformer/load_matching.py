"""Steering: of several draws of each user's week that one is taken with which the week's work comes to the log's.

How long people wait depends on the work of a busy week far more than on anything else, and a few large jobs make
it. Drawn freely, a week's work is some 13 % off; chosen among a few draws of each user it comes, day by day, to
what the log has; and so does, week by week, the work of short and long, small and large jobs, of which some rules
let the one go ahead of the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["select_draws"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SWEEPS = 3
WHOLE_WEEK, KIND = 3.0, 2.0
"""Weights of the whole week, and of a week's work of one kind, beside each day's: what is left over of them is
carried into the next week."""


def select_draws(work: Floats, week: Ints, wanted: Floats, rng: np.random.Generator) -> Ints:
    """Which draw to take for each block.

    Args:
        work: node-seconds of each draw, block, weekday and kind of job.
        week: of each block.
        wanted: node-seconds of each week from its beginning to the end of each day, and kind.
        rng: for the order in which blocks are looked at.

    >>> work = np.zeros((2, 2, 7, 1))
    >>> work[:, :, 0, 0] = [[5.0, 5.0], [1.0, 2.0]]
    >>> select_draws(work, np.array([0, 0]), np.full((1, 7, 1), 3.0), np.random.default_rng(0)).tolist()
    [1, 1]
    """
    draws, blocks, days, kinds = work.shape
    taken = np.zeros(blocks, np.int64)
    if draws == 1:
        return taken
    reached, goals = _aims(work.cumsum(2)), _aims(wanted)
    weight = np.array([1.0] * (days - 1) + [WHOLE_WEEK] + [KIND] * kinds)
    excess = np.zeros(days + kinds)
    order = np.argsort(week, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(week[order])) + 1):
        goal = goals[week[members[0]]] - excess
        total = reached[taken[members], members].sum(0)
        for _ in range(SWEEPS):
            for block in rng.permutation(members):
                others = total - reached[taken[block], block]
                missed = ((others + reached[:, block] - goal) ** 2 * weight).sum(1)
                taken[block] = np.argmin(missed)
                total = others + reached[taken[block], block]
        left = total - goal
        excess = np.concatenate((np.full(days, left[days - 1]), left[days:]))
    return taken


def _aims(reached: Floats) -> Floats:
    """Of what is reached by each day and kind: all kinds by each day, and each kind by the last."""
    aims: Floats = np.concatenate((reached.sum(-1), reached[..., -1, :]), -1)
    return aims
