"""Split the energy of one node among the jobs that held it; the rest is unattributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.telemetry.labels.energy_curve import EnergyCurve, known_spans

__all__ = ["NodeShares", "EnergySplit", "split_energy"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EnergySplit:
    """How the energy of a node is split among the jobs that hold it at the same time."""

    nodes: str = "exclusive"
    """exclusive: all energy belongs to the one job on the node; shared: split by cores, GPU energy by GPUs held."""
    idle: str = "jobs"
    """Energy of free cores and GPUs while jobs run: "jobs" splits it among them, "nobody" leaves it unattributed."""
    node_cores: int | None = None
    """Cores of a node, for idle="nobody"."""
    node_gpus: int | None = None
    """GPUs of a node, for idle="nobody"."""

    def __post_init__(self) -> None:
        for name, known in (("nodes", ("exclusive", "shared")), ("idle", ("jobs", "nobody"))):
            if getattr(self, name) not in known:
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be {' or '.join(known)}")
        if self.idle == "nobody" and (self.nodes != "shared" or self.node_cores is None):
            raise InputError(
                "idle is 'nobody', which needs shared nodes of a known size; give --node-sharing shared and "
                "--node-cores (and --node-gpus)"
            )
        for name in ("node_cores", "node_gpus"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise InputError(f"{name} is {size}; it must be at least 1")


@dataclass(frozen=True)
class NodeShares:
    """Split energy of one node: ``sum(job_j) + unattributed_j == node_j``."""

    job_j: Floats
    known_s: Floats
    """Per job: time on the node with known energy."""
    alone_s: Floats
    """Per job: the part of `known_s` in which no other job held the node."""
    node_j: float
    unattributed_j: float


def split_energy(
    curves: Sequence[EnergyCurve],
    start_s: Floats,
    end_s: Floats,
    held: Mapping[str, Floats],
    size: Mapping[str, float | None],
) -> NodeShares:
    """Split the energy of a node, at every moment, by the resources that each job holds.

    `held` gives for each kind of meter ("node", "gpu") the resources of each job, `size` those of the node; None: the
    jobs that hold resources share all energy. Times have the origin of the energy curves.

    >>> curve = EnergyCurve("node", np.array([0.0, 100]), np.array([0.0, 5000]), np.array([True]))
    >>> start, end, cores = np.array([10.0, 20]), np.array([40.0, 50]), np.array([1.0, 3])
    >>> shares = split_energy([curve], start, end, {"node": cores}, {"node": None})
    >>> shares.job_j.tolist(), shares.unattributed_j
    ([750.0, 1250.0], 3000.0)
    """
    spans = known_spans(curves)
    edges = np.unique(np.concatenate((spans.ravel(), start_s, end_s)))
    if not len(spans) or len(edges) < 2:
        zeros = np.zeros(len(start_s))
        return NodeShares(zeros, zeros, zeros, 0.0, 0.0)
    after = np.searchsorted(spans[:, 0], edges[:-1], side="right") - 1
    known = (after >= 0) & (edges[:-1] < spans[after, 1])
    first, last = np.searchsorted(edges, start_s), np.searchsorted(edges, end_s)
    length = np.where(known, np.diff(edges), 0.0)
    running = _total_held(first, last, np.ones(len(first)), len(edges))
    job_j = np.zeros(len(start_s))
    node_j = unattributed_j = 0.0
    for kind in sorted({curve.kind for curve in curves}):
        total = np.sum([curve.at(edges) for curve in curves if curve.kind == kind], axis=0)
        joules = np.where(known, np.diff(total), 0.0)
        weight = held[kind]
        held_total = _total_held(first, last, weight, len(edges))
        capacity = held_total if size[kind] is None else np.maximum(held_total, float(size[kind] or 0.0))
        in_use = held_total > 0
        rate = np.divide(joules, capacity, out=np.zeros(len(joules)), where=in_use)
        job_j += weight * _sum_ranges(rate, first, last)
        node_j += float(joules.sum())
        unattributed_j += float((joules - rate * np.where(in_use, held_total, 0.0)).sum())
    known_s = _sum_ranges(length, first, last)
    alone_s = _sum_ranges(np.where(running == 1, length, 0.0), first, last)
    return NodeShares(job_j, known_s, alone_s, node_j, unattributed_j)


def _total_held(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], weight: Floats, edges: int) -> Floats:
    """Total resources held between consecutive edges; exactly 0 where no job holds any."""
    is_holder = (weight > 0).astype(np.float64)
    change = np.bincount(first, weight, edges) - np.bincount(last, weight, edges)
    holders = np.cumsum(np.bincount(first, is_holder, edges) - np.bincount(last, is_holder, edges))
    return np.asarray(np.where(holders > 0, np.cumsum(change), 0.0)[:-1])


def _sum_ranges(values: Floats, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> Floats:
    """Per job the sum of ``values[first:last]``. Differences of cumulative sums would be less precise."""
    if not len(first):
        return np.zeros(0)
    sums = np.add.reduceat(np.append(values, 0.0), np.column_stack((first, last)).ravel())[::2]
    return np.where(last > first, sums, 0.0)
