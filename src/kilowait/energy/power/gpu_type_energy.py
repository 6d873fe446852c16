"""Joules a job would need on each type of node: for placing jobs where they take least, and for a bound."""

from __future__ import annotations

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.energy.power.model import PowerModel
from kilowait.energy.power.partial_node import gpu_caps, pieces_of, watts_of_pieces
from kilowait.energy.power.utilization import UtilizationProfile
from kilowait.energy.power.validate import Floats
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["joules_by_group", "energy_by_type"]


def energy_by_type(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    speeds: Speeds | None = None,
    profile: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """Joules of each job on each type of node (types, jobs), for runs with types="given".

    What all it holds draws there, its idle watts included, for its estimate (deciders know no other run time, and the
    order of the types does not hang on it) divided by its speed. Infinite where it cannot run or no node
    could hold a piece of it. Where groups of one type differ, their mean by nodes.

    The types are those of `kilowait.cluster.gpu_speeds.gpu_types`; on a cluster with queues, groups that different
    queues may use are types of their own, as in the run.

    >>> from kilowait.cluster.gpu_speeds import gpu_types, roofline
    >>> cluster, model = Cluster.preset("gpu-mixed"), PowerModel.preset("gpu-mixed")
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[1], gpus=[1])
    >>> joules = energy_by_type(jobs, cluster, model, roofline(jobs, gpu_types(cluster)))
    >>> dict(zip(gpu_types(cluster), (joules[:, 0] / 3.6e6).round(3).tolist(), strict=True))  # kWh
    {'A100': 0.436, 'V100': 0.408, 'T4': 0.491, 'RTX4090': 0.529}
    """
    spent = joules_by_group(
        jobs, cluster, model, np.maximum(jobs["estimate_s"], 1.0), speeds, profile, gpu_cap
    )
    of_group = [
        (
            group.gpu_type if group.gpus else "",
            frozenset(q for q, open_ in cluster.queues.items() if group.name in open_),
        )
        for group in cluster.groups
    ]
    nodes = np.array([group.nodes for group in cluster.groups], np.float64)
    found = np.full((len(set(of_group)), len(jobs)), np.inf)
    for row, kind in enumerate(dict.fromkeys(of_group)):
        members = [number for number, one in enumerate(of_group) if one == kind]
        weight = np.where(np.isfinite(spent[members]), nodes[members, None], 0.0)
        total = weight.sum(axis=0)
        mean = (np.where(weight > 0, spent[members], 0.0) * weight).sum(axis=0)
        np.divide(mean, total, out=found[row], where=total > 0)
    return found


def joules_by_group(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    seconds: Floats,
    speeds: Speeds | None = None,
    profile: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """Joules (groups, jobs) of so many seconds of work at speed 1, all pieces on nodes of the group; infinite: cannot
    be there.
    """
    if not cluster.node_level:
        raise InputError(
            f"cluster {cluster.name!r} gives out whole nodes or pools; it has no types to choose from"
        )
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    caps = None if gpu_cap is None else gpu_caps(gpu_cap, len(jobs))
    gpus = jobs["gpus"] if "gpus" in jobs else np.zeros(len(jobs), np.int64)
    pieces = pieces_of(jobs)
    found = np.full((len(cluster.groups), len(jobs)), np.inf)
    for row, (nodes, power) in enumerate(zip(cluster.groups, fitted.groups, strict=True)):
        watts = watts_of_pieces(jobs, nodes, power, profile, caps)
        speed = np.where(gpus > 0, _speed(speeds, nodes.gpu_type, len(jobs)) if nodes.gpus else 0.0, 1.0)
        able = watts.fits & (speed > 0)
        np.divide(watts.draw_w * pieces * seconds, speed, out=found[row], where=able)
    return found


def _speed(speeds: Speeds | None, gpu_type: str, jobs: int) -> Floats:
    if speeds is None:
        return np.ones(jobs)
    names = [name.lower() for name in speeds.types]
    if gpu_type.lower() not in names:
        raise InputError(
            f"speeds are given for {', '.join(speeds.types)}, not for {gpu_type}, which the cluster has"
        )
    speeds.require_known()
    if speeds.speed.shape[1] != jobs:
        raise InputError(f"speeds of {speeds.speed.shape[1]} jobs were given for {jobs} jobs")
    return np.asarray(speeds.speed[names.index(gpu_type.lower())], np.float64)
