"""Pareto front of points with several costs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["pareto_front"]


def pareto_front(costs: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Boolean mask of the non-dominated points; all costs are minimised.

    `costs` has the shape (points, costs). A point is dominated if another one is at most as large in all costs and
    smaller in at least one.

    >>> pareto_front([[1, 3], [2, 2], [2, 4], [2, 2]]).tolist()
    [True, True, False, True]
    """
    points = np.asarray(costs, np.float64)
    no_worse = (points[:, None] <= points[None]).all(axis=-1)
    better = (points[:, None] < points[None]).any(axis=-1)
    return np.asarray(~(no_worse & better).any(axis=0))
