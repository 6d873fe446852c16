"""Watts over time on clusters whose jobs are placed on single nodes, and share them.

A node draws its idle watts always: such nodes do not sleep. A job has the idle watts of what it holds and what its work
adds, from the taking of its place to the giving back, also while it loads or writes a checkpoint; the idle watts that
nobody holds are idle. The group of each node it lies on counts, so a job that moves draws what it does there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.accounting.intervals import (
    Floats,
    Ints,
    TimeGrid,
    added_up,
)
from kilowait.energy.accounting.node_states import STATES, StatePower
from kilowait.energy.power import PowerModel, UtilizationProfile
from kilowait.energy.power.partial_node import gpu_caps, watts_of_pieces
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog

__all__ = ["AllocatedPower", "drawn_by_pieces", "laid_out", "placed_notes"]


class AllocatedPower(NamedTuple):
    """What segments hold and draw, and the pieces they are made of."""

    nodes: Floats
    """Per segment: nodes held, a part of one by its part of the node's idle watts."""
    idle_w: Floats
    """Per segment: idle watts of what it holds."""
    watts: Floats
    """Per segment: what all it holds draws, `idle_w` included."""
    group: Ints
    """Per piece: group of its node."""
    piece_idle_w: Floats
    piece_w: Floats


def laid_out(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    profile: UtilizationProfile | None,
    gpu_cap: npt.ArrayLike | None,
) -> AllocatedPower:
    """What the pieces of a log draw; `model` is that of the cluster's groups."""
    pieces, jobs = log.pieces, log.jobs_table
    assert pieces is not None
    if np.bincount(pieces.node_group, minlength=len(cluster.groups)).tolist() != [
        g.nodes for g in cluster.groups
    ]:
        raise InputError(
            f"the log ran on other nodes than those of {cluster.name!r}; give the cluster of the run"
        )
    caps = None if gpu_cap is None else gpu_caps(gpu_cap, len(jobs))
    job, group = log.job[pieces.segment], pieces.node_group[pieces.node]
    idle_w, watts, nodes = np.zeros(len(pieces)), np.zeros(len(pieces)), np.zeros(len(pieces))
    for number, (kind, power) in enumerate(zip(cluster.groups, model.groups, strict=True)):
        rows = np.flatnonzero(group == number)
        if not len(rows):
            continue
        of_piece, count = watts_of_pieces(jobs, kind, power, profile, caps), pieces.count[rows]
        idle_w[rows], watts[rows] = of_piece.idle_w[job[rows]] * count, of_piece.draw_w[job[rows]] * count
        nodes[rows] = idle_w[rows] / power.idle_w if power.idle_w > 0 else count

    def by_segment(of_piece: Floats) -> Floats:
        return np.asarray(np.bincount(pieces.segment, of_piece, len(log)), np.float64)

    return AllocatedPower(by_segment(nodes), by_segment(idle_w), by_segment(watts), group, idle_w, watts)


def drawn_by_pieces(log: ExecutionLog, model: PowerModel, grid: TimeGrid, laid: AllocatedPower) -> StatePower:
    """IT power over the grid and joules by group and state: jobs with all they hold, and idle what nobody holds."""
    assert log.pieces is not None
    it_w = np.zeros(len(grid))
    joules: dict[str, dict[str, float]] = {}
    for number, power in enumerate(model.groups):
        rows = np.flatnonzero(laid.group == number)
        segment, watts = log.pieces.segment[rows], laid.piece_w[rows]
        held_w = grid.running(laid.piece_idle_w[rows], segment)
        idle_w = np.maximum(power.nodes * power.idle_w - held_w, 0.0)  # below 0 by crumbs of rounding alone
        fixed_w = power.fixed_w()
        it_w += grid.running(watts, segment) + idle_w + fixed_w
        joules[power.name] = dict.fromkeys(STATES, 0.0) | {
            "jobs": added_up(watts, grid.ran_s[segment]),
            "idle": grid.integral(idle_w),
            "fixed": fixed_w * float(grid.edge_s[-1] - grid.edge_s[0]),
        }
    return StatePower(it_w, joules)


def placed_notes(log: ExecutionLog, cluster: Cluster, gpu_cap: npt.ArrayLike | None) -> list[str]:
    """What was assumed of jobs that share nodes, in words."""
    jobs = log.jobs_table
    notes = ["jobs on shared nodes have the idle power of the GPUs and the share of cores that they hold"]
    if "cores" not in jobs and not (jobs.column("cpu_milli") >= 0).any():
        notes.append(
            "the jobs do not say what cores they take: they have the share that they have of a node's GPUs"
        )
    if len({group.gpu_type for group in cluster.groups}) > 1 and not np.isnan(jobs.column("power_w")).all():
        notes.append("measured power is taken to be the same on all types of GPU")
    if gpu_cap is not None:
        caps = gpu_caps(gpu_cap, len(jobs))
        span = f"{caps.min(initial=1):.0%}" + (f" to {caps.max():.0%}" if len(set(caps.tolist())) > 1 else "")
        notes.append(f"GPUs are held to {span} of their limit, a part of a GPU to as much of that")
    return notes
