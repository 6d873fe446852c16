"""GPU power caps on clusters whose jobs are placed on single nodes: longer runs and lower draws, from one number."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds, constant_speeds, gpu_types
from kilowait.cluster.gpus import gpu
from kilowait.energy.power.dvfs import CAP_CURVES, CapCurve
from kilowait.energy.power.model import GroupPower, PowerModel
from kilowait.energy.power.partial_node import gpu_caps, watts_of_pieces
from kilowait.energy.power.utilization import UtilizationProfile
from kilowait.energy.power.validate import Floats
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

__all__ = ["GpuCaps", "cap_curve", "cap_gpus"]

_OTHERWISE = "V100"


@dataclass(frozen=True, eq=False)
class GpuCaps:
    """A cap for each job, chosen before the run."""

    gpu_cap: Floats
    """Per job, share of its GPUs' limit; 1: none. For `account`."""
    speeds: Speeds
    """With the slowdown in them; for the run."""
    slowdown: Floats
    """(types of `speeds`, jobs): how many times as long a job takes as without its cap."""
    notes: tuple[str, ...]
    """Which measured curves the slowdown comes from."""


def cap_gpus(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    fraction: npt.ArrayLike,
    speeds: Speeds | None = None,
    profile: UtilizationProfile | None = None,
) -> GpuCaps:
    """What a run of `jobs` with capped GPUs is made with: its speeds, and the caps for `account`.

    A GPU is held to `fraction` (one number, or one per job) of its limit. By the type's measured curve a job then takes
    1 + a * max(1 / r - 1, 0) ** c times as long, r being the cap over what its GPU would draw: a cap at or above that
    costs nothing. A job with a part of a GPU is held to its part of the cap, whoever else is on the GPU. Where groups
    of one type differ in watts, the slowest counts.

    >>> jobs = JobTable(
    ...     job_id=[1, 2],
    ...     submit_s=[0, 0],
    ...     runtime_s=[9, 9],
    ...     nodes=[1, 1],
    ...     gpus=[1, 1],
    ...     gpu_utilization=[1, 0.3],
    ... )
    >>> capped = cap_gpus(jobs, Cluster.preset("gpu-mixed"), PowerModel.preset("gpu-mixed"), 0.6)
    >>> dict(zip(capped.speeds.types, capped.speeds.speed[:, 0].round(2).tolist()))
    {'A100': 0.76, 'V100': 0.76, 'T4': 0.76, 'RTX4090': 0.76}
    >>> capped.speeds.speed[:, 1].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if not cluster.node_level:
        raise InputError(
            f"cluster {cluster.name!r} gives out whole nodes or pools; there caps are levels: pull('dvfs=1.1', ...)"
        )
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    caps = gpu_caps(fraction, len(jobs))
    if speeds is None:
        speeds = constant_speeds(jobs, gpu_types(cluster), 1.0)
    rows = {name.lower(): row for row, name in enumerate(speeds.types)}
    slowdown, curves = np.ones(speeds.speed.shape), dict[str, CapCurve]()
    for nodes, power in zip(cluster.groups, fitted.groups, strict=True):
        if nodes.gpus == 0:
            continue
        if nodes.gpu_type.lower() not in rows:
            raise InputError(
                f"speeds are given for {', '.join(speeds.types)}, not for {nodes.gpu_type}, which the cluster has"
            )
        row = rows[nodes.gpu_type.lower()]
        curve = curves[nodes.gpu_type] = cap_curve(power, nodes.gpu_type)
        draw_w = watts_of_pieces(jobs, nodes, power, profile, caps).gpu_w
        cap_w = caps * power.node.limit_of("gpu") / nodes.gpus
        r = np.divide(cap_w, draw_w, out=np.ones(len(jobs)), where=(caps < 1) & (draw_w > cap_w))
        slowdown[row] = np.maximum(slowdown[row], curve.slowdown(r))
    slower = replace(speeds, speed=speeds.speed / slowdown)
    return GpuCaps(caps, slower, slowdown, _notes(curves))


def cap_curve(power: GroupPower, gpu_type: str) -> CapCurve:
    """The group's own curve; else that measured on the type; else that of V100, the best fit of those there are.

    >>> power = PowerModel.preset("gpu-mixed").group("t4")
    >>> cap_curve(power, "A40").gpu, cap_curve(power, "V100M32").gpu, cap_curve(power, "T4").gpu
    ('A40', 'V100', 'V100')
    """
    if power.cap_curve is not None:
        return power.cap_curve
    try:
        family = gpu(gpu_type).family
    except UnknownNameError:
        family = ""
    return CAP_CURVES.get(family, CAP_CURVES[_OTHERWISE])


def _notes(curves: dict[str, CapCurve]) -> tuple[str, ...]:
    return tuple(
        f"slowdown of {name} under a cap by the curve of {curve.gpu}, {curve.source}"
        for name, curve in curves.items()
    )
