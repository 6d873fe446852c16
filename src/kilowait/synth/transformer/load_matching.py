"""Load matching: selection among several samples of each user's week so that the weekly work matches the log's.

Waits depend mainly on the work of busy weeks, which a few large jobs dominate. Without selection, a week's work
deviates by about 13 %; with selection among a few draws per user it matches the log day by day, and week by week also
for short and long, small and large jobs, which policies prioritize differently.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["select_draws"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SWEEPS = 3
WHOLE_WEEK, KIND = 3.0, 2.0
"""Weights of the full week, and of a week's work of one job class, relative to each day's; their remaining deviation
is carried into the next week."""


def select_draws(work: Floats, week: Ints, wanted: Floats, rng: np.random.Generator) -> Ints:
    """Select a draw for each block.

    Args:
        work: node-seconds of each draw, block, weekday and job class.
        week: of each block.
        wanted: target: cumulative node-seconds of each week by day and class.
        rng: for the order of the blocks.

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
    """Matching goals: all classes together by each day, and each class by the last day."""
    aims: Floats = np.concatenate((reached.sum(-1), reached[..., -1, :]), -1)
    return aims
