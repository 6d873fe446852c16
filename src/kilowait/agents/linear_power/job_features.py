"""Features of a job that do not change while it waits, in fixed units: the inputs of the linear power policy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["JOB_FEATURES", "saf_order_weights", "job_features"]

Floats = npt.NDArray[np.float64]

JOB_FEATURES: dict[str, str] = {
    "length": "ln(estimate / 1 h) / 3",
    "width": "ln(nodes) / ln(1 + nodes of the machine)",
    "length_squared": "length x length",
    "width_squared": "width x width",
    "length_width": "length x width",
    "share": "nodes / nodes of the machine",
    "length_share": "length x share",
    "root_days": "square root of estimate / 1 day",
}
"""The features, in order."""


def job_features(estimate_s: npt.ArrayLike, nodes: npt.ArrayLike, machine_nodes: int) -> Floats:
    """Features of jobs, one job a row; estimates in seconds, those below 1 s count as 1 s.

    >>> dict(zip(JOB_FEATURES, job_features([3600], [8], 16)[0].tolist()))["share"]
    0.5
    """
    estimate = np.maximum(np.asarray(estimate_s, np.float64), 1.0)
    size = np.asarray(nodes, np.float64)
    length = np.log(estimate / 3600.0) / 3.0
    width = np.log(size) / np.log(1.0 + machine_nodes)
    share = size / machine_nodes
    columns = (
        length, width, length**2, width**2, length * width, share, length * share, np.sqrt(estimate / 86400.0),
    )  # fmt: skip
    return np.stack(columns, axis=1)


def saf_order_weights(machine_nodes: int) -> dict[str, float]:
    """Weights of the order of smallest area first: ln(estimate) + ln(nodes); their squares sum to 1.

    >>> {name: round(weight, 2) for name, weight in saf_order_weights(255).items()}
    {'length': 0.48, 'width': 0.88}
    """
    weights = np.array([3.0, np.log(1.0 + machine_nodes)])
    length, width = (weights / np.sqrt((weights**2).sum())).tolist()
    return {"length": length, "width": width}
