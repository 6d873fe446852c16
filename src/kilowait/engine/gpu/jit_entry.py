"""Compiled kernels of the GPU engine that are called from Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from numba import types
from numba.core.errors import NumbaError

from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.gpu import event_loop, job_progress, scheduling_pass
from kilowait.engine.gpu.initial_state import build_gpu_state
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.state import GPU_JOB, gpu_state_without_refcount
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.kernels.jit import cache_location_text, compile_entry, is_compiled
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["compiled_gpu_kernel", "compiled_gpu_score"]

SCORE = types.float64(numba.from_dtype(GPU_JOB), types.float64, types.float64[::1])
"""Signature of a priority policy of the GPU engine."""


@cache
def _compiled_score(function: Callable[..., float], cached: bool) -> Any:
    if cached or numba.config.DISABLE_JIT:
        return compile_entry(function, SCORE)
    return numba.njit(SCORE, nogil=True)(function)


def compiled_gpu_score(policy: PriorityPolicy) -> Any:
    """The policy's score, compiled for the GPU engine."""
    if not policy.compiled:
        raise InputError(
            f"policy {policy.name!r} could not be compiled; GPU simulations need a compiled policy or a step policy"
        )
    function = getattr(policy.score, "py_func", policy.score)
    try:
        return _compiled_score(function, function.__closure__ is None)
    except (NumbaError, KeyError) as problem:
        reason = next((line.strip() for line in str(problem).splitlines() if line.strip()), "no reason given")
        raise InputError(f"policy {policy.name!r} cannot be compiled for GPU simulations: {reason}") from None


def _advance(t: Any, score: Any, parameters: Any) -> int:
    return event_loop.advance(gpu_state_without_refcount(t), score, parameters)


def _due(t: Any) -> bool:
    return event_loop.due(gpu_state_without_refcount(t))


def _schedule(t: Any, score: Any, parameters: Any) -> None:
    scheduling_pass.schedule(gpu_state_without_refcount(t), score, parameters)


def _update_rates(t: Any) -> None:
    job_progress.update_rates(gpu_state_without_refcount(t))


def _start(t: Any, job: int, kind: int) -> bool:
    return scheduling_pass.start_now(gpu_state_without_refcount(t), job, kind)


def _preempt(t: Any, job: int) -> None:
    job_progress.preempt(gpu_state_without_refcount(t), job)


def _migrate(t: Any, job: int, kind: int) -> bool:
    return scheduling_pass.migrate(gpu_state_without_refcount(t), job, kind, True)


@cache
def compiled_gpu_kernel(name: str) -> Callable[..., Any]:
    """The kernel of that name: run, advance, due, schedule, update_rates, start, preempt or migrate."""
    job, state = types.int64, _state_type()
    score = (types.FunctionType(SCORE), types.float64[::1])
    table: dict[str, tuple[Callable[..., Any], Any]] = {
        "run": (event_loop.run, types.int64(state, *score)),
        "advance": (_advance, types.int64(state, *score)),
        "due": (_due, types.boolean(state)),
        "schedule": (_schedule, types.void(state, *score)),
        "update_rates": (_update_rates, types.void(state)),
        "start": (_start, types.boolean(state, job, job)),
        "preempt": (_preempt, types.void(state, job)),
        "migrate": (_migrate, types.boolean(state, job, job)),
    }
    function, signature = table[name]
    if name == "run" and not is_compiled(function):
        logging.getLogger("kilowait").warning(
            "compiling the GPU simulator, once, for about half a minute%s", cache_location_text()
        )
    return compile_entry(function, signature)


def _state_type() -> Any:
    if numba.config.DISABLE_JIT:
        return types.int64  # signatures are ignored then
    example = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1], cores=[1])
    cluster = Cluster(groups=(NodeGroup("one", 1, node_level=True),))
    return numba.typeof(build_gpu_state(example, cluster, GpuSettings(), PriorityPolicy("none", _no_score)))


def _no_score(job: Any, now: float, parameters: Any) -> float:
    return 0.0
