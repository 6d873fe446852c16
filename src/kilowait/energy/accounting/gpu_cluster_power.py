"""Power over time of node-level GPU clusters, whose jobs share nodes.

Nodes of such a cluster do not sleep: each always draws its idle power. A job accounts for the idle power of the
resources it holds and for the power that its work adds, from allocation to release, also while it loads or writes a
checkpoint. The idle power of free resources counts as idle. Power depends on the group of each node, so a migrated job
draws the power of its current nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.accounting.intervals import Floats, Ints, TimeGrid, weighted_sum
from kilowait.energy.accounting.power_by_node_state import ENERGY_STATES, StatePower
from kilowait.energy.power import PowerModel, UtilizationProfile
from kilowait.energy.power.partial_node_power import checked_gpu_caps, piece_power
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog

__all__ = ["allocated_power", "gpu_notes", "gpu_power_by_state"]


class AllocatedPower(NamedTuple):
    """Nodes and power of segments, and of the pieces (parts on one node) that they consist of."""

    nodes: Floats
    """Per segment: nodes held; a partial node counts by its share of the node's idle power."""
    idle_w: Floats
    """Per segment: idle power of the resources held."""
    watts: Floats
    """Per segment: power of the resources held, `idle_w` included."""
    group: Ints
    """Per piece: group of its node."""
    piece_idle_w: Floats
    piece_w: Floats


def allocated_power(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    utilization: UtilizationProfile | None,
    gpu_cap: npt.ArrayLike | None,
) -> AllocatedPower:
    """Power of the pieces and segments of a log; `model` must have the cluster's groups."""
    pieces, jobs = log.pieces, log.jobs_table
    assert pieces is not None
    if np.bincount(pieces.node_group, minlength=len(cluster.groups)).tolist() != [g.nodes for g in cluster.groups]:
        raise InputError(f"the nodes of the log are not those of {cluster.name!r}; give the cluster of the run")
    caps = None if gpu_cap is None else checked_gpu_caps(gpu_cap, len(jobs))
    job, group = log.job[pieces.segment], pieces.node_group[pieces.node]
    idle_w, watts, nodes = np.zeros(len(pieces)), np.zeros(len(pieces)), np.zeros(len(pieces))
    for number, (node_group, power) in enumerate(zip(cluster.groups, model.groups, strict=True)):
        rows = np.flatnonzero(group == number)
        if not len(rows):
            continue
        per_piece, count = piece_power(jobs, node_group, power, utilization, caps), pieces.count[rows]
        idle_w[rows], watts[rows] = per_piece.idle_w[job[rows]] * count, per_piece.draw_w[job[rows]] * count
        nodes[rows] = idle_w[rows] / power.idle_w if power.idle_w > 0 else count

    def by_segment(of_piece: Floats) -> Floats:
        return np.asarray(np.bincount(pieces.segment, of_piece, len(log)), np.float64)

    return AllocatedPower(by_segment(nodes), by_segment(idle_w), by_segment(watts), group, idle_w, watts)


def gpu_power_by_state(log: ExecutionLog, model: PowerModel, grid: TimeGrid, allocated: AllocatedPower) -> StatePower:
    """IT power over the grid and joules by group and state: jobs with all resources they hold, and free resources."""
    assert log.pieces is not None
    it_w = np.zeros(len(grid))
    joules: dict[str, dict[str, float]] = {}
    for number, power in enumerate(model.groups):
        rows = np.flatnonzero(allocated.group == number)
        segment, watts = log.pieces.segment[rows], allocated.piece_w[rows]
        held_w = grid.running(allocated.piece_idle_w[rows], segment)
        idle_w = np.maximum(power.nodes * power.idle_w - held_w, 0.0)  # negative only by rounding errors
        fixed_w = power.fixed_w()
        it_w += grid.running(watts, segment) + idle_w + fixed_w
        joules[power.name] = dict.fromkeys(ENERGY_STATES, 0.0) | {
            "jobs": weighted_sum(watts, grid.ran_s[segment]),
            "idle": grid.integral(idle_w),
            "fixed": fixed_w * float(grid.edge_s[-1] - grid.edge_s[0]),
        }
    return StatePower(it_w, joules)


def gpu_notes(log: ExecutionLog, cluster: Cluster, gpu_cap: npt.ArrayLike | None) -> list[str]:
    """Notes on the assumptions about jobs that share nodes."""
    jobs = log.jobs_table
    notes = ["jobs on shared nodes have the idle power of the GPUs and the share of cores that they hold"]
    if "cores" not in jobs and not (jobs.column("cpu_milli") >= 0).any():
        notes.append("the log has no cores of jobs: the share of a job in the node's GPUs is also its share of cores")
    if len({group.gpu_type for group in cluster.groups}) > 1 and not np.isnan(jobs.column("power_w")).all():
        notes.append("measured power is assumed to be the same on all GPU types")
    if gpu_cap is not None:
        caps = checked_gpu_caps(gpu_cap, len(jobs))
        span = f"{caps.min(initial=1):.0%}" + (f" to {caps.max():.0%}" if len(set(caps.tolist())) > 1 else "")
        notes.append(f"GPU power is capped at {span} of the limit, a part of a GPU at its share of that")
    return notes
