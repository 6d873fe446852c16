"""Initial state of GPU simulations from jobs, a cluster and settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.demand import (
    FULL_GPU,
    TYPICAL_SHARE,
    Demand,
    NodeType,
    feasible_types,
    group_node_types,
    node_memory,
    node_types,
    request_text,
    resource_demand,
    typical_shapes,
)
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.state import (
    GPU_JOB,
    JOB_STATE,
    NODE,
    PIECE,
    REJECTED,
    RUN_STATE,
    SEGMENT,
    TYPICAL_JOB,
    GpuState,
)
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.kernels.state import RANKED
from kilowait.engine.run_times import RunTimes, resolve_run_times
from kilowait.errors import TableError
from kilowait.jobs import JobTable

Ints = npt.NDArray[np.int64]
UNBOUNDED_LOAD = 2**60
MAX_CACHED_SCORES = 20_000_000


def build_gpu_state(
    jobs: JobTable,
    cluster: Cluster,
    settings: GpuSettings,
    policy: PriorityPolicy,
    speeds: Speeds | None = None,
    preference: npt.NDArray[np.float64] | None = None,
) -> GpuState:
    """The state before the first event. `jobs`, speeds and preferences are in (submit, id) order."""
    n = len(jobs)
    kinds = node_types(cluster)
    demand = resource_demand(jobs, cluster, settings.gpu_type_order, speeds, preference)
    fits = _fits_empty(demand, cluster)
    if settings.on_oversized == "error" and not fits.all():
        raise TableError(_oversized_message(jobs, demand, int(np.argmin(fits))))
    nodes = _nodes(cluster, kinds)
    gpus = int(nodes["gpus"].sum())
    times = resolve_run_times(jobs, settings.at_limit)
    job_state = _job_states(jobs, demand, settings, times)
    job_state["status"] = np.where(fits, 0, REJECTED)
    type_order, type_rank = _type_order(demand)
    by_type = np.lexsort((np.arange(len(nodes)), nodes["type"]))
    typical = _typical_jobs(demand, fits, settings.placement)
    rows = max(1, min(len(demand.class_example), MAX_CACHED_SCORES // max(len(nodes), 1))) if len(typical) else 1
    cells = (rows, len(nodes) if len(typical) else 1)
    interference = np.array(
        [
            (value, UNBOUNDED_LOAD if up == math.inf else round(up * FULL_GPU))
            for up, value in settings.interference or ()
        ]
        or [(1.0, UNBOUNDED_LOAD)],
        RANKED,
    )
    max_pieces = int(demand.pieces.max(initial=1))
    return GpuState(
        clock=_run_state(jobs, settings, policy, nodes, len(demand.class_example)),
        nodes=_records(nodes),
        gpu_free=np.full(gpus, FULL_GPU),
        gpu_load=np.zeros(gpus, np.int64),
        gpu_first=np.full(gpus, -1),
        gpu_jobs=np.zeros(gpus, np.int64),
        classes=np.zeros((len(nodes), int(demand.gpus.max(initial=0)) + 1), np.int64),
        by_type=by_type,
        type_lo=np.searchsorted(nodes["type"][by_type], np.arange(len(kinds) + 1)),
        job_state=_records(job_state),
        jobs=_records(_gpu_job_records(jobs, times)),
        arrivals=np.lexsort((np.arange(n), job_state["arrival_s"])),
        places=np.zeros((int(demand.pieces.sum()), 2), np.int64),
        saved_places=np.zeros((max_pieces, 2), np.int64),
        speed=demand.speed,
        factor=demand.factor,
        max_node_gpus=np.array([max(nodes["gpus"][nodes["type"] == t].max(initial=1), 1) for t in range(len(kinds))]),
        type_order=type_order,
        type_rank=type_rank,
        interference=_records(interference),
        typical_jobs=_records(typical),
        label_types=demand.label_types,
        score_cache=np.zeros(cells),
        score_cache_gpus=np.zeros(cells, np.int64),
        score_cache_stamp=np.full(cells, -1),
        failed=np.full((len(demand.class_example), 2), -1),
        queue=_records(np.zeros(n, RANKED)),
        running_jobs=np.zeros(n + 1, np.int64),
        ending_jobs=np.zeros(n + 1, np.int64),
        order=_records(np.zeros(n, RANKED)),
        victims=np.zeros(n, np.int64),
        claimed=np.zeros(n, np.int64),
        changed_gpus=np.zeros(gpus, np.int64),
        gpu_changed=np.zeros(gpus, np.bool_),
        events=_records(np.zeros(4096, RANKED)),
        segments=_records(np.zeros(n + 1024, SEGMENT)),
        log=_records(np.zeros(int(demand.pieces.sum()) + 1024, PIECE)),
    )


def with_larger_buffers(state: GpuState) -> GpuState:
    """The state with larger buffers for events and segments."""

    def enlarged(records: Any) -> Any:
        larger = np.zeros(2 * len(records) + 1024, records.dtype)
        larger[: len(records)] = records
        return _records(larger)

    return state._replace(events=enlarged(state.events), segments=enlarged(state.segments), log=enlarged(state.log))


def _records(array: Any) -> Any:
    return array.view(np.recarray)


def _nodes(cluster: Cluster, kinds: tuple[NodeType, ...]) -> Any:
    layout = cluster.node_groups
    if layout is None:
        layout = tuple(np.repeat(np.arange(len(cluster.groups)), [group.nodes for group in cluster.groups]))
    nodes = np.zeros(len(layout), NODE)
    group = np.array(layout, np.int64)
    groups = cluster.groups
    nodes["group"] = group
    nodes["cpu"] = np.array([g.cores * FULL_GPU for g in groups])[group]
    nodes["memory"] = np.array([node_memory(g) for g in groups])[group]
    nodes["gpus"] = np.array([g.gpus for g in groups])[group]
    nodes["type"] = np.array([kinds.index(kind) for kind in group_node_types(cluster)])[group]
    nodes["free_gpus"] = nodes["gpus"]
    nodes["gpu_milli"] = nodes["gpus"] * FULL_GPU
    nodes["gpu_lo"] = np.cumsum(nodes["gpus"]) - nodes["gpus"]
    return nodes


def _run_state(jobs: JobTable, settings: GpuSettings, policy: PriorityPolicy, nodes: Any, demand_classes: int) -> Any:
    run_state = np.zeros(1, RUN_STATE)
    run_state["first_submit_s"] = jobs["submit_s"].min(initial=np.inf)
    for name in (
        "min_run_before_preempt_s",
        "grace_s",
        "checkpoint_write_s",
        "round_interval_s",
        "head_of_line_blocking",
        "preempt",
        "migrate",
        "rounds",
        "seed",
    ):
        run_state[name] = getattr(settings, name)
    run_state["ticks"] = -1
    run_state["next_tick_s"] = np.inf
    run_state["time_dependent"] = policy.time_dependent
    run_state["placement"] = settings.code
    run_state["interference"] = settings.interference is not None
    run_state["demand_classes"] = demand_classes
    run_state["max_cpu"] = nodes["cpu"].max(initial=0)
    run_state["max_gpu"] = nodes["gpu_milli"].max(initial=0)
    run_state["now"] = -np.inf
    return _records(run_state)


def _job_states(jobs: JobTable, demand: Demand, settings: GpuSettings, times: RunTimes) -> Any:
    job_state = np.zeros(len(jobs), JOB_STATE)
    job_state["estimate_s"], job_state["run_s"] = times.estimate_s, times.run_s
    job_state["arrival_s"] = np.maximum(jobs["submit_s"], jobs.column("begin_s"))
    job_state["cancel_s"] = jobs.column("cancel_s")
    for name in ("checkpoint_s", "checkpoint_load_s"):
        values = jobs.column(name)
        job_state[name] = np.where(np.isnan(values), getattr(settings, name), values)
    for name in ("pieces", "gpus", "gpu_milli", "cpu", "memory", "load", "spread", "speed_class", "demand_class"):
        job_state[name] = getattr(demand, name)
    job_state["place_lo"] = np.cumsum(demand.pieces) - demand.pieces
    job_state["stop_s"] = np.inf
    job_state["finish_s"] = np.inf
    job_state["segment"] = -1
    job_state["next"] = -1
    return job_state


def _gpu_job_records(jobs: JobTable, times: RunTimes) -> Any:
    records = np.zeros(len(jobs), GPU_JOB)
    for name in ("nodes", "cores", "memory_mb", "gpus", "user", "account", "queue", "qos", "priority"):
        if name in jobs:
            records[name] = jobs[name]
        elif name in ("user", "account", "queue", "qos"):
            records[name] = -1
    for name in ("estimate_s", "planned_s", "limit_s", "overrun_planned_s", "expected_inverse_runtime"):
        records[name] = getattr(times, name)
    records["units"] = records["nodes"]
    records["number"] = np.arange(len(jobs))
    records["gpu_share"] = records["gpus"] * jobs.column("gpu_milli") / FULL_GPU
    return records


def _type_order(demand: Demand) -> tuple[Ints, Ints]:
    """(kinds, types): types in the order of (rank, type), -1 after the last; and the ranks."""
    type_order = np.full(demand.speed.shape, -1)
    rank = np.zeros(demand.speed.shape, np.int64)
    for kind, (speed, preference) in enumerate(zip(demand.speed, demand.preference, strict=True)):
        rank[kind] = np.unique(preference, return_inverse=True)[1]
        allowed = np.flatnonzero(speed > 0)
        type_order[kind, : len(allowed)] = allowed[np.argsort(rank[kind, allowed], kind="stable")]
    return type_order, rank


def _fits_empty(demand: Demand, cluster: Cluster) -> npt.NDArray[np.bool_]:
    """Whether each job fits on the empty cluster."""
    example = demand.class_example
    may_use = demand.speed[demand.speed_class[example]] > 0
    return np.any(feasible_types(demand, example, may_use, cluster), axis=1)[demand.demand_class]


def _oversized_message(jobs: JobTable, demand: Demand, row: int) -> str:
    amounts = (demand.pieces, demand.gpus, demand.gpu_milli, demand.cpu, demand.memory)
    label = demand.labels[demand.label[row]]
    return (
        f"job {jobs['job_id'][row]} needs {request_text(*(int(amount[row]) for amount in amounts))}"
        f"{f' of {label}' if label else ''}; it fits on no nodes of the cluster: "
        'use a larger cluster, or on_oversized="drop" to leave such jobs out'
    )


def _typical_jobs(demand: Demand, fits: npt.NDArray[np.bool_], placement: str) -> Any:
    """Typical job shapes for fragmentation scores; `capacity` includes rare shapes."""
    if placement not in ("fgd", "capacity"):
        return np.zeros(0, TYPICAL_JOB)
    shapes = typical_shapes(demand, fits, TYPICAL_SHARE if placement == "fgd" else 1.0)
    total = sum(shape[4] for shape in shapes)
    return np.array([(*shape[:4], shape[4] / total) for shape in shapes], TYPICAL_JOB)
