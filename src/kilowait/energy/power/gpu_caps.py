"""GPU power caps in node-level GPU clusters: slowdown and power of each job under a cap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_catalogue import gpu
from kilowait.cluster.gpu_speeds import Speeds, constant_speeds, gpu_types
from kilowait.energy.power.dvfs import GPU_CAP_CURVES, CapCurve
from kilowait.energy.power.model import GroupPower, PowerModel
from kilowait.energy.power.number_checks import Floats
from kilowait.energy.power.partial_node_power import checked_gpu_caps, piece_power
from kilowait.energy.power.utilization import UtilizationProfile
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

__all__ = ["GpuCaps", "cap_gpus"]

_OTHERWISE = "V100"


@dataclass(frozen=True, eq=False)
class GpuCaps:
    """GPU power cap, speeds and slowdown of each job."""

    gpu_cap: Floats
    """Per job, share of its GPUs' power limit; 1: no cap. For `account_energy`."""
    speeds: Speeds
    """GPU speeds with the slowdown included, for the run."""
    slowdown: Floats
    """(types of `speeds`, jobs): run time with the cap / run time without."""
    notes: tuple[str, ...]
    """The measured curves that the slowdown is based on."""


def cap_gpus(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    fraction: npt.ArrayLike,
    speeds: Speeds | None = None,
    utilization: UtilizationProfile | None = None,
) -> GpuCaps:
    """GPU speeds and caps of a run of `jobs` with capped GPUs.

    Each GPU is capped at `fraction` (one number, or one per job) of its power limit. By the measured curve of its type,
    a job then takes 1 + a * max(1 / r - 1, 0) ** c times as long, where r is the cap over the uncapped draw of its GPU:
    a cap at or above that draw causes no slowdown. A job with a part of a GPU is capped at its part of the cap,
    whatever other jobs share the GPU. If groups of one type differ in power, the largest slowdown applies.

    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1], gpu_utilization=[1, 0.3]
    ... )
    >>> capped = cap_gpus(jobs, Cluster.preset("gpu-mixed"), PowerModel.preset("gpu-mixed"), 0.6)
    >>> dict(zip(capped.speeds.types, capped.speeds.speed[:, 0].round(2).tolist()))
    {'A100': 0.76, 'V100': 0.76, 'T4': 0.76, 'RTX4090': 0.76}
    >>> capped.speeds.speed[:, 1].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if not cluster.node_level:
        raise InputError(
            f"cluster {cluster.name!r} is not node-level; there power caps are DVFS states: "
            "resolve_controls('dvfs=1.1', ...)"
        )
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    caps = checked_gpu_caps(fraction, len(jobs))
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
        draw_w = piece_power(jobs, nodes, power, utilization, caps).gpu_w
        cap_w = caps * power.node.limit_of("gpu") / nodes.gpus
        r = np.divide(cap_w, draw_w, out=np.ones(len(jobs)), where=(caps < 1) & (draw_w > cap_w))
        slowdown[row] = np.maximum(slowdown[row], curve.slowdown(r))
    capped_speeds = replace(speeds, speed=speeds.speed / slowdown)
    return GpuCaps(caps, capped_speeds, slowdown, _notes(curves))


def cap_curve(power: GroupPower, gpu_type: str) -> CapCurve:
    """The curve of the group; else the one measured on the GPU type; else that of V100, which has the best fit.

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
    return GPU_CAP_CURVES.get(family, GPU_CAP_CURVES[_OTHERWISE])


def _notes(curves: dict[str, CapCurve]) -> tuple[str, ...]:
    return tuple(
        f"slowdown of {name} under a power cap by the curve of {curve.gpu}, {curve.source}"
        for name, curve in curves.items()
    )
