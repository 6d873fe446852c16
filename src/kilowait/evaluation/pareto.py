"""Which of several points no other one beats, where each is several costs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["pareto_front"]


def pareto_front(costs: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """(points,) whether no other point is at most as large in all costs, (points, costs), and smaller in one.

    >>> pareto_front([[1, 3], [2, 2], [2, 4], [2, 2]]).tolist()
    [True, True, False, True]
    """
    each = np.asarray(costs, np.float64)
    no_worse = (each[:, None] <= each[None]).all(axis=-1)
    better = (each[:, None] < each[None]).any(axis=-1)
    return np.asarray(~(no_worse & better).any(axis=0))
