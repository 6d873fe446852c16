"""A bound on waiting, put around any rule: whoever has waited longer goes first, the oldest before the others."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.entry import SCORE
from kilowait.engine.ports import Rule
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["FIRST", "guarded"]

FIRST = -1e18
"""Below any score a rule gives. Submission times added to it may round together; ties go by submission anyway."""


def guarded(rule: Rule, max_wait_s: float) -> Rule:
    """The rule, except that jobs which have waited longer than `max_wait_s` seconds go first, oldest first.

    They go to the head of the queue, where EASY's reservation is theirs; it is no promise to start at that time.

    >>> from kilowait.policies.registry import resolve
    >>> guarded(resolve("sjf"), 86400.0).moving
    True
    """
    if not (math.isfinite(max_wait_s) and max_wait_s >= 0):
        raise InputError(f"the longest wait is {max_wait_s} s; give a finite number of seconds, 0 or more")

    def prepare(jobs: JobTable, cluster: Cluster) -> npt.NDArray[np.float64]:
        own = rule.parameters if rule.prepare is None else rule.prepare(jobs, cluster)
        return np.concatenate([[max_wait_s], np.asarray(own, np.float64)])

    score = _guarded_score(rule.score, rule.compiled)
    return replace(rule, score=score, moving=True, prepare=prepare)


@cache
def _guarded_score(score: Any, compiled: bool) -> Any:
    """Compiled on the spot, once for a score: its parameters stand behind the bound."""

    def first_if_late(job: Any, now: float, parameters: Any) -> float:
        if now - job.submit_s > parameters[0]:
            return FIRST + job.submit_s
        return score(job, now, parameters[1:])

    if not compiled or numba.config.DISABLE_JIT:
        return first_if_late
    return numba.njit(SCORE, nogil=True, error_model="numpy")(first_if_late)
