"""Energy of each job on each GPU type, for energy-aware placement and for the lower bound of energy."""

from __future__ import annotations

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.energy.power.model import PowerModel
from kilowait.energy.power.number_checks import Floats
from kilowait.energy.power.partial_node_power import checked_gpu_caps, piece_counts, piece_power
from kilowait.energy.power.utilization import UtilizationProfile
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["joules_by_group", "energy_by_type"]


def energy_by_type(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    speeds: Speeds | None = None,
    utilization: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """Energy of each job on each GPU type, joules (types, jobs), for runs with types="given".

    It is the power of the resources that the job holds there, idle power included, times its run-time estimate over its
    speed. (Policies know no other run time, and the order of the types does not depend on it.) It is infinite where the
    job cannot run or its pieces fit on no node. If groups of one type differ, it is their mean, weighted by nodes.

    The types are those of `kilowait.cluster.gpu_speeds.gpu_types`; on a cluster with queues, groups that different
    queues may use are types of their own, as in the run.

    >>> from kilowait.cluster.gpu_speeds import gpu_types, roofline_speeds
    >>> cluster, model = Cluster.preset("gpu-mixed"), PowerModel.preset("gpu-mixed")
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[1], gpus=[1])
    >>> joules = energy_by_type(jobs, cluster, model, roofline_speeds(jobs, gpu_types(cluster)))
    >>> dict(zip(gpu_types(cluster), (joules[:, 0] / 3.6e6).round(3).tolist(), strict=True))  # kWh
    {'A100': 0.436, 'V100': 0.408, 'T4': 0.491, 'RTX4090': 0.529}
    """
    energy_j = joules_by_group(jobs, cluster, model, np.maximum(jobs["estimate_s"], 1.0), speeds, utilization, gpu_cap)
    type_of_group = [
        (
            group.gpu_type if group.gpus else "",
            frozenset(queue for queue, groups in cluster.queues.items() if group.name in groups),
        )
        for group in cluster.groups
    ]
    nodes = np.array([group.nodes for group in cluster.groups], np.float64)
    by_type = np.full((len(set(type_of_group)), len(jobs)), np.inf)
    for row, gpu_type in enumerate(dict.fromkeys(type_of_group)):
        members = [number for number, group_type in enumerate(type_of_group) if group_type == gpu_type]
        weight = np.where(np.isfinite(energy_j[members]), nodes[members, None], 0.0)
        total_weight = weight.sum(axis=0)
        total_j = (np.where(weight > 0, energy_j[members], 0.0) * weight).sum(axis=0)
        np.divide(total_j, total_weight, out=by_type[row], where=total_weight > 0)
    return by_type


def joules_by_group(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    seconds: Floats,
    speeds: Speeds | None = None,
    utilization: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """Joules (groups, jobs) of `seconds` of work at speed 1 on each group; infinite where a job does not fit."""
    if not cluster.node_level:
        raise InputError(f"cluster {cluster.name!r} is not node-level; it has no GPU types to choose from")
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    caps = None if gpu_cap is None else checked_gpu_caps(gpu_cap, len(jobs))
    gpus = jobs["gpus"] if "gpus" in jobs else np.zeros(len(jobs), np.int64)
    pieces = piece_counts(jobs)
    energy_j = np.full((len(cluster.groups), len(jobs)), np.inf)
    for row, (nodes, power) in enumerate(zip(cluster.groups, fitted.groups, strict=True)):
        watts = piece_power(jobs, nodes, power, utilization, caps)
        speed = np.where(gpus > 0, _speed(speeds, nodes.gpu_type, len(jobs)) if nodes.gpus else 0.0, 1.0)
        runnable = watts.fits & (speed > 0)
        np.divide(watts.draw_w * pieces * seconds, speed, out=energy_j[row], where=runnable)
    return energy_j


def _speed(speeds: Speeds | None, gpu_type: str, jobs: int) -> Floats:
    if speeds is None:
        return np.ones(jobs)
    names = [name.lower() for name in speeds.types]
    if gpu_type.lower() not in names:
        raise InputError(f"speeds are given for {', '.join(speeds.types)}, not for {gpu_type}, which the cluster has")
    speeds.require_known()
    if speeds.speed.shape[1] != jobs:
        raise InputError(f"speeds of {speeds.speed.shape[1]} jobs were given for {jobs} jobs")
    return np.asarray(speeds.speed[names.index(gpu_type.lower())], np.float64)
