"""Compiled kernels that are called from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numba
from numba import types

from kilowait.cluster import Cluster, PowerControls
from kilowait.engine.initial_state import build_initial_state
from kilowait.engine.interface import JOB, PriorityPolicy
from kilowait.engine.kernels.jit import compile_entry
from kilowait.engine.pools import resource_pools
from kilowait.engine.settings import Settings
from kilowait.jobs import JobTable

SCORE_SIGNATURE = types.float64(numba.from_dtype(JOB), types.float64, types.float64[::1])
"""Signature of a priority policy: (job, now, parameters) to score."""

FOUR_NUMBERS_SIGNATURE = types.UniTuple(types.float64, 4)(*SCORE_SIGNATURE.args)
"""Signature of a function that returns four values for a job."""

SCORE_FUNCTION_TYPE = types.FunctionType(SCORE_SIGNATURE)
PARAMETERS_TYPE = types.float64[::1]


def no_score(job: Any, now: float, parameters: Any) -> float:
    """Placeholder score of runs without a priority policy."""
    return 0.0


@cache
def no_score_compiled() -> Any:
    """`no_score`, compiled."""
    return compile_entry(no_score, SCORE_SIGNATURE)


@cache
def compiled_kernel(name: str, power: bool = False) -> Callable[..., Any]:
    """The kernel of that name: run, run_conservative, or a step: advance, schedule, begin, start, reserve or hold.

    `power` is for runs with power controls, which also have wake and sleep. The first use compiles the kernel and logs
    a warning; later processes load it from the cache.
    """
    job, state = types.int64, _state_type(power)
    score = (SCORE_FUNCTION_TYPE, PARAMETERS_TYPE)
    table: dict[str, tuple[str, Any]] = {
        "run": ("run", types.void(state, *score, *score)),
        "run_conservative": ("run_conservative", types.void(state, *score, *score)),
        "advance": ("advance_step", types.boolean(state, *score, *score)),
        "schedule": ("pass_step", types.void(state, *score)),
        "begin": ("begin_step", types.boolean(state)),
        "start": ("start_step", types.int64(state, job, job, job, types.boolean)),
        "reserve": ("reserve_step", types.float64(state, job)),
        "hold": ("hold_step", types.void(state, job, types.float64)),
    }
    if power:
        table["wake"] = ("wake_step", types.int64(state, job, job))
        table["sleep"] = ("sleep_step", types.int64(state, job, job))
    attribute, signature = table[name]
    function = getattr(import_module(f"kilowait.engine.kernels.{'power_' if power else ''}event_loop"), attribute)
    announced = ("the simulator with power controls", "20 s") if power else ("the simulator", "10 s")
    return compile_entry(function, signature, announced=announced if name.startswith("run") else None)


def _state_type(power: bool) -> Any:
    if numba.config.DISABLE_JIT:
        return types.int64  # signatures are ignored then
    example = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1])
    run = (resource_pools(Cluster.from_nodes(1)), Settings(), PriorityPolicy("none", no_score), None)
    if not power:
        return numba.typeof(build_initial_state(example, *run))
    from kilowait.engine.power_initial_state import build_power_state

    return numba.typeof(build_power_state(example, None, *run, PowerControls()))
