"""GPU scheduling options of the command line, the engine settings they define, and speeds and energy by GPU type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_catalogue import gpu
from kilowait.cluster.gpu_speeds import SPEED_SOURCES, Speeds, gpu_types, runtime_gpu_types, speeds_for
from kilowait.energy.power import PowerModel, UtilizationProfile, energy_by_type
from kilowait.engine.gpu.demand import node_types
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.power import PowerContext
from kilowait.experiments.power_controls import gpu_cap_share
from kilowait.experiments.settings import GpuOptions
from kilowait.jobs import JobTable
from kilowait.policies.registry import AnyPolicy

Floats = npt.NDArray[np.float64]


def simulate_arguments(
    settings: Mapping[str, Any],
    jobs: JobTable,
    cluster: Cluster,
    policy: AnyPolicy,
    backfill: str | int,
    context: PowerContext | None = None,
    power_controls: str = "none",
) -> dict[str, Any]:
    """The arguments of `simulate` on a GPU cluster for the settings of a scenario.

    Of the power controls only a GPU power cap is used here.
    """
    arguments = {name: value for name, value in settings.items() if name != "gpu"}
    options: GpuOptions = settings["gpu"]
    placement: str | None = arguments.pop("placement")
    engine_settings = {name: arguments.pop(name) for name in ("at_limit", "on_oversized")}
    arguments.pop("dependencies")
    speeds = run_speeds(options.gpu_speeds, jobs, cluster, context, power_controls)
    preference = None
    if options.gpu_type_order == "least-energy":
        cap = gpu_cap_share(power_controls)
        caps = None if cap is None else np.full(len(jobs), cap)
        model, utilization = (None, None) if context is None else (context.model, context.utilization)
        preference = gpu_type_energy(jobs, cluster, speeds, model, utilization, caps)
    return {
        **arguments,
        "settings": options.to_settings(policy, backfill, placement, **engine_settings),
        "speeds": speeds,
        "preference": preference,
    }


# -- speeds ----------------------------------------------------------------------------------------


def run_speeds(
    text: str, jobs: JobTable, cluster: Cluster, context: PowerContext | None = None, power_controls: str = "none"
) -> Speeds | None:
    """The speeds of a run with these power controls, including the slowdown by a GPU power cap."""
    speeds, cap = speeds_for(text, jobs, cluster), gpu_cap_share(power_controls)
    return speeds if cap is None or context is None else context.gpu_caps(jobs, cap, speeds).speeds


def speed_sources_text(speeds: Speeds | None, jobs: JobTable) -> str:
    """The sources of the speeds, as text.

    >>> speed_sources_text(None, JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1]))
    'the same on every type of GPU'
    """
    if speeds is None or not len(jobs):
        return "the same on every type of GPU"
    names = {
        "recorded": "recorded on that type",
        "measured": "measured",
        "roofline": "by roofline (a guess)",
        "given": "taken as 1",
    }
    rows = jobs["gpus"] > 0
    with_gpus = [index for index, name in enumerate(speeds.types) if name]
    codes = speeds.source[with_gpus][:, rows]
    if not codes.size:
        return "the same on every type of GPU"
    shares = {name: float(np.mean(codes == SPEED_SOURCES.index(name))) for name in names}
    return ", ".join(f"{100 * share:.0f} % {names[name]}" for name, share in shares.items() if share > 0)


def gpu_notes(jobs: JobTable, cluster: Cluster, gpu_speeds: str) -> list[str]:
    """What a GPU cluster cannot know of these jobs: none with GPUs; run times of unknown GPU types.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], gpus=[0], cores=[4])
    >>> gpu_notes(jobs, Cluster.preset("gpu-mixed"), "auto")
    ['none of the 1 jobs requests a GPU: all run on the cores of gpu-mixed']
    """
    with_gpus = int(np.count_nonzero(jobs["gpus"])) if "gpus" in jobs else 0
    if not with_gpus:
        return [f"none of the {len(jobs):,} jobs requests a GPU: all run on the cores of {cluster.name}"]
    if gpu_speeds.strip().lower() == "none" or len(set(gpu_types(cluster)) - {""}) < 2:
        return []
    code, _ = runtime_gpu_types(jobs)
    unknown = int(np.count_nonzero((code < 0) & (jobs["gpus"] > 0)))
    if not unknown:
        return []
    return [
        f"{unknown:,} of {with_gpus:,} GPU jobs do not say on which GPU type their run time was measured "
        "(runtime_gpu_type, or one type in gpu_types): they take it on every type"
    ]


def gpu_type_energy(
    jobs: JobTable,
    cluster: Cluster,
    speeds: Speeds | None,
    model: PowerModel | None = None,
    utilization: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """(types of the cluster, jobs): joules of each job by the power model; without one, TDP over speed.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], gpus=[1])
    >>> gpu_type_energy(jobs, Cluster.preset("gpu-mixed"), None).ravel().tolist()
    [400.0, 300.0, 70.0, 450.0]
    """
    if model is not None:
        return energy_by_type(jobs, cluster, model, speeds, utilization, gpu_cap)
    names = [kind.gpu for kind in node_types(cluster)]
    watts = np.zeros((len(names), len(jobs)))
    for index, name in enumerate(names):
        try:
            limit = gpu(name).tdp_w if name else 0.0
        except UnknownNameError:
            limit = math.nan
        if math.isnan(limit):
            raise InputError(
                f"the power of GPU type {name!r} is unknown; give a power model with --power, or another order of GPU "
                "types"
            )
        watts[index] = limit
    if speeds is None:
        return watts
    speed = speeds.speed[[speeds.types.index(name) for name in names]]
    joules: Floats = np.divide(watts, speed, out=np.full(watts.shape, np.inf), where=speed > 0)
    return joules
