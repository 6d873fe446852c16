"""Compile priority policies with Numba: built-in ones from the cache, user-defined ones at definition."""

from __future__ import annotations

import dis
import inspect
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, overload

import numba
from numba.core.errors import NumbaError

from kilowait.engine.interface import JOB, PriorityPolicy
from kilowait.engine.jit_entry import SCORE_SIGNATURE
from kilowait.engine.kernels.jit import compile_entry
from kilowait.errors import InputError

OwnScore = Callable[[Any, float], float]

JOB_FIELDS = tuple(name for name in JOB.names or () if name != "ran_s")
"""Fields of a waiting job."""


@cache
def compiled_score(function: Callable[..., float]) -> Any:
    """A built-in policy's score, compiled once and cached on disk."""
    return compile_entry(function, SCORE_SIGNATURE)


@overload
def policy(function: OwnScore) -> PriorityPolicy: ...
@overload
def policy(
    *, time_dependent: bool | None = None, half_life_s: float = 0.0, name: str | None = None
) -> Callable[[OwnScore], PriorityPolicy]: ...
def policy(
    function: OwnScore | None = None,
    *,
    time_dependent: bool | None = None,
    half_life_s: float = 0.0,
    name: str | None = None,
) -> PriorityPolicy | Callable[[OwnScore], PriorityPolicy]:
    """Define a priority policy by ``score(job, now)``, smaller first; compiled with Numba.

    `job` has submit_s, estimate_s (s), nodes, cores, memory_mb, gpus, priority, user, account, queue, qos (numbers),
    since_first_s and, with `half_life_s` (s), usage_share (0..1). `time_dependent` says whether the order of two
    waiting jobs can change with time; by default it does if the function reads `now` or usage_share. A policy that
    cannot be compiled runs in Python, much slower, after a warning.

    >>> @policy
    ... def shortest(job, now):
    ...     return job.estimate_s
    >>> shortest.name, shortest.time_dependent, shortest.compiled
    ('shortest', False, True)
    """
    if function is None:
        return lambda decorated: _make_policy(decorated, time_dependent, half_life_s, name)
    return _make_policy(function, time_dependent, half_life_s, name)


def _make_policy(
    function: OwnScore, time_dependent: bool | None, half_life_s: float, name: str | None
) -> PriorityPolicy:
    name = name or str(getattr(function, "__name__", "own"))
    if not inspect.isfunction(function):
        raise InputError(f"policy {name!r} is {function!r}; write a plain function of (job, now)")
    arguments = list(inspect.signature(function).parameters)
    if len(arguments) != 2:
        raise InputError(f"policy {name!r} takes {len(arguments)} arguments; write it as a function of (job, now)")
    uses = {str(i.argval) for i in dis.get_instructions(function)}
    for attribute in _job_attributes(function, arguments[0]):
        if attribute not in JOB_FIELDS:
            raise _unknown_attribute(name, attribute)
    if "usage_share" in uses and half_life_s <= 0:
        raise InputError(f"policy {name!r} reads job.usage_share; give the half-life of usage: policy(half_life_s=...)")
    if time_dependent is None:
        time_dependent = _reads(function, arguments[1]) or "usage_share" in uses

    def score(job: Any, now: float, parameters: Any) -> float:
        return float(own(job, now))

    if numba.config.DISABLE_JIT:
        own = function
        return PriorityPolicy(name, score, time_dependent=time_dependent, half_life_s=half_life_s)
    own = numba.njit(error_model="numpy")(function)
    try:
        return PriorityPolicy(
            name, numba.njit(SCORE_SIGNATURE, nogil=True)(score), time_dependent=time_dependent, half_life_s=half_life_s
        )
    except KeyError as problem:  # Numba's error for a missing record field
        raise _unknown_attribute(name, str(problem.args[0])) from None
    except (NumbaError, TypeError, NotImplementedError) as problem:
        reason = next((line.strip() for line in str(problem).splitlines() if line.strip()), "no reason given")
        warnings.warn(
            f"policy {name!r} cannot be compiled and will run in Python, many times slower: {reason}", stacklevel=3
        )

    def slow_score(job: Any, now: float, parameters: Any) -> float:
        return float(function(job, now))

    return PriorityPolicy(name, slow_score, time_dependent=time_dependent, half_life_s=half_life_s, compiled=False)


def _unknown_attribute(policy: str, attribute: str) -> InputError:
    known = ", ".join(JOB_FIELDS)
    return InputError(f"policy {policy!r} reads job.{attribute}; a waiting job has {known}")


def _reads(function: OwnScore, argument: str) -> bool:
    """Whether the function, or one nested in it, loads the argument."""
    return any(
        i.opname.startswith("LOAD") and argument in (i.argval if isinstance(i.argval, tuple) else (i.argval,))
        for i in dis.get_instructions(function)
    )


def _job_attributes(function: OwnScore, argument: str) -> set[str]:
    """Attributes read directly from the job argument."""
    found = set()
    instructions = list(dis.get_instructions(function))
    for before, after in pairwise(instructions):
        if before.opname.startswith("LOAD_FAST") and before.argval == argument and after.opname == "LOAD_ATTR":
            found.add(str(after.argval))
    return found
