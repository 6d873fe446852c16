"""Graph of the shown jobs in `kilowait/Gpu-v0`: edges as bits of `gpu.observation_spec.EDGES`."""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.state import RUNNING, gpu_state_without_refcount
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, noinline, without_refcount
from kilowait.envs.kernels.gpu_env_decision import type_of
from kilowait.envs.kernels.gpu_env_states import log_arrays_without_refcount

__all__ = ["write_edges"]

NEAR_S = 600.0


@noinline
def write_edges(s: Any, copy: Any, source: Any, victims: int, free: Any, slots: Any, edges: Any) -> None:
    """Write the edges of one copy. Sets `free` to the free thousandths of GPUs and of cores of each type."""
    s = gpu_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    free = without_refcount(free)
    slots = without_refcount(slots)
    edges = without_refcount(edges)
    for kind in range(len(free)):
        free[kind, 0] = 0
        free[kind, 1] = 0
        for i in range(s.type_lo[kind], s.type_lo[kind + 1]):
            free[kind, 0] += s.nodes[s.by_type[i]].gpu_milli
            free[kind, 1] += s.nodes[s.by_type[i]].cpu
    for i in range(len(slots)):
        for j in range(len(slots)):
            edges[i, j] = 0
    rows = copy.shown + copy.victims
    for i in range(rows):
        a = assume_nonnegative(_row(copy, slots, victims, i))
        for j in range(i, rows):
            b = assume_nonnegative(_row(copy, slots, victims, j))
            bits = _bits(s, source, free, assume_nonnegative(slots[a]), assume_nonnegative(slots[b]))
            edges[a, b] = bits
            edges[b, a] = bits


@kernel
def _row(copy: Any, slots: Any, victims: int, number: int) -> int:
    """Slot of the shown job with this number: waiting jobs come first, running jobs have the last slots."""
    return number if number < copy.shown else len(slots) - victims + number - copy.shown


@kernel
def _bits(s: Any, source: Any, free: Any, one: int, other: int) -> int:
    a = s.jobs[one]
    b = s.jobs[other]
    bits = 0
    if (a.user >= 0 and a.user == b.user) or (a.account >= 0 and a.account == b.account):
        bits |= 1
    if _compete(s, source, free, one, other):
        bits |= 2
    if abs(s.job_state[one].arrival_s - s.job_state[other].arrival_s) <= NEAR_S:
        bits |= 4
    return bits


@kernel
def _compete(s: Any, source: Any, free: Any, one: int, other: int) -> bool:
    """Whether both jobs can use the same types, and these have too few free GPUs or cores for both."""
    common = _types(s, source, one) & _types(s, source, other)
    if common == 0:
        return False
    gpu_milli = 0
    cpu = 0
    for kind in range(len(free)):
        if (common >> kind) & 1:
            gpu_milli += free[kind, 0]
            cpu += free[kind, 1]
    gpus = _still_needed(s, one, 1000.0 * s.jobs[one].gpu_share) + _still_needed(
        s, other, 1000.0 * s.jobs[other].gpu_share
    )
    cores = _still_needed(s, one, float(s.job_state[one].cpu * s.job_state[one].pieces)) + _still_needed(
        s, other, float(s.job_state[other].cpu * s.job_state[other].pieces)
    )
    return gpus > gpu_milli + 0.5 or cores > cpu + 0.5


@kernel
def _types(s: Any, source: Any, job: int) -> int:
    """Types, as bits, that a waiting job may use, or the type of a running job."""
    job_state = s.job_state[job]
    return 1 << type_of(s, job) if job_state.status == RUNNING else source.may[job_state.speed_class]


@kernel
def _still_needed(s: Any, job: int, amount: float) -> float:
    """What the job still needs; nothing if it runs."""
    return 0.0 if s.job_state[job].status == RUNNING else amount
