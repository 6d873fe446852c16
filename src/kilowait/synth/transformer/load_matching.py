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

PASSES = 3
WEEK_WEIGHT, CLASS_WEIGHT = 3.0, 2.0
"""Weights of the full week, and of a week's work of one job class, relative to each day's; their remaining deviation
is carried into the next week."""


def select_draws(work: Floats, week: Ints, target: Floats, rng: np.random.Generator) -> Ints:
    """Select a draw for each block.

    Args:
        work: node-seconds of each draw, block, weekday and job class.
        week: of each block.
        target: target: cumulative node-seconds of each week by day and class.
        rng: for the order of the blocks.

    >>> work = np.zeros((2, 2, 7, 1))
    >>> work[:, :, 0, 0] = [[5.0, 5.0], [1.0, 2.0]]
    >>> select_draws(work, np.array([0, 0]), np.full((1, 7, 1), 3.0), np.random.default_rng(0)).tolist()
    [1, 1]
    """
    draws, blocks, days, classes = work.shape
    selected = np.zeros(blocks, np.int64)
    if draws == 1:
        return selected
    draw_goals, target_goals = _goals(work.cumsum(2)), _goals(target)
    weight = np.array([1.0] * (days - 1) + [WEEK_WEIGHT] + [CLASS_WEIGHT] * classes)
    excess = np.zeros(days + classes)
    order = np.argsort(week, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(week[order])) + 1):
        goal = target_goals[week[members[0]]] - excess
        total = draw_goals[selected[members], members].sum(0)
        for _ in range(PASSES):
            for block in rng.permutation(members):
                others = total - draw_goals[selected[block], block]
                error = ((others + draw_goals[:, block] - goal) ** 2 * weight).sum(1)
                selected[block] = np.argmin(error)
                total = others + draw_goals[selected[block], block]
        deviation = total - goal
        excess = np.concatenate((np.full(days, deviation[days - 1]), deviation[days:]))
    return selected


def _goals(cumulative: Floats) -> Floats:
    """Matching goals: all classes together by each day, and each class by the last day."""
    goals: Floats = np.concatenate((cumulative.sum(-1), cumulative[..., -1, :]), -1)
    return goals
