"""Priority policies that order jobs by one score; smaller first.

`job` is an `engine.interface.JOB` record. UNICEF's logarithm has a positive lower bound, so that serial jobs go first,
ordered by wait over estimate.

Sources: WFP3 and UNICEF, Tang et al., Cluster 2009; F1-F4, Carastan-Santos and de Camargo,
SC 2017 (their submit time counts from the first job of the log).

EASY+ and EASY++ backfill with run times predicted from the user's last two jobs, and require EASY backfilling. Source:
Tsafrir, Etsion, Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates", IEEE
TPDS 18(6), 2007.
"""

from __future__ import annotations

from dataclasses import replace
from math import log2, log10, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.jobs import JobTable
from kilowait.policies.compile import compiled_score


def fcfs(job: Any, now: float, parameters: Any) -> float:
    """First come, first served."""
    return job.submit_s


def sjf(job: Any, now: float, parameters: Any) -> float:
    """Shortest estimate first."""
    return job.estimate_s


def ljf(job: Any, now: float, parameters: Any) -> float:
    """Longest estimate first."""
    return -job.estimate_s


def saf(job: Any, now: float, parameters: Any) -> float:
    """Smallest area (nodes times estimate) first."""
    return job.estimate_s * job.units


def saf_short(job: Any, now: float, parameters: Any) -> float:
    """Smallest area divided by the square root of the expected inverse run time first."""
    return job.estimate_s * job.units / sqrt(max(job.expected_inverse_runtime, 1e-6))


def laf(job: Any, now: float, parameters: Any) -> float:
    """Largest area first."""
    return -(job.estimate_s * job.units)


def smallest(job: Any, now: float, parameters: Any) -> float:
    """Fewest nodes first."""
    return float(job.units)


def largest(job: Any, now: float, parameters: Any) -> float:
    """Most nodes first."""
    return -float(job.units)


def lxf(job: Any, now: float, parameters: Any) -> float:
    """Largest expansion factor (wait plus estimate over estimate) first."""
    return -((now - job.submit_s + job.estimate_s) / job.estimate_s)


def wfp3(job: Any, now: float, parameters: Any) -> float:
    """Largest (wait / estimate)^3 x nodes first."""
    return -(((now - job.submit_s) / job.estimate_s) ** 3 * job.units)


def unicef(job: Any, now: float, parameters: Any) -> float:
    """Quick turnaround for small, short jobs."""
    return -((now - job.submit_s) / (max(log2(float(job.units)), 1e-15) * job.estimate_s))


def f1(job: Any, now: float, parameters: Any) -> float:
    """F1, found by regression on simulated schedules."""
    return log10(job.estimate_s) * job.units + 870.0 * log10(max(job.since_first_s, 1.0))


def f2(job: Any, now: float, parameters: Any) -> float:
    """F2, from the same regression."""
    return sqrt(job.estimate_s) * job.units + 25600.0 * log10(max(job.since_first_s, 1.0))


def f3(job: Any, now: float, parameters: Any) -> float:
    """F3, from the same regression."""
    return job.estimate_s * job.units + 6860000.0 * log10(max(job.since_first_s, 1.0))


def f4(job: Any, now: float, parameters: Any) -> float:
    """F4, from the same regression."""
    return job.estimate_s * sqrt(float(job.units)) + 530000.0 * log10(max(job.since_first_s, 1.0))


def largest_priority(job: Any, now: float, parameters: Any) -> float:
    """The largest priority first."""
    return -job.priority


def random(job: Any, now: float, parameters: Any) -> float:
    """Random order drawn before the run: parameters[number]."""
    return parameters[job.number]


STATIC_POLICIES = (fcfs, sjf, ljf, saf, saf_short, laf, smallest, largest, f1, f2, f3, f4)
"""Policies whose score is fixed when a job arrives."""

TIME_DEPENDENT_POLICIES = (lxf, wfp3, unicef)
"""Policies whose score changes with the wait."""


def last_two(job: Any, now: float, parameters: Any) -> float:
    """First come, first served; the predicted run time is the mean of the user's last two ended jobs.

    parameters[2 u] is the run time of user u's last job, seconds, parameters[2 u + 1] of the one before; 0: none.
    """
    if job.user >= 0:
        last = 2 * job.user
        if job.ran_s > 0.0:
            parameters[last + 1] = parameters[last]
            parameters[last] = job.ran_s
        elif job.ran_s == 0.0 and parameters[last] > 0.0:
            predicted = parameters[last]
            if parameters[last + 1] > 0.0:
                predicted = 0.5 * (parameters[last] + parameters[last + 1])
            job.estimate_s = max(min(predicted, job.estimate_s), 1.0)
            job.planned_s = job.estimate_s
    return job.submit_s


def _empty_history(jobs: JobTable, cluster: Cluster) -> npt.NDArray[np.float64]:
    return np.zeros(2 * (int(jobs.column("user").max(initial=-1)) + 1))


def easy_plus() -> PriorityPolicy:
    """First come, first served, with run times predicted by the user's last two jobs (EASY+)."""
    score = compiled_score(last_two)
    return PriorityPolicy("easy+", score, observes_jobs=True, predicts=True, overrun="steps", prepare=_empty_history)


def easy_plus_plus() -> PriorityPolicy:
    """Like easy+, with backfill candidates in order of predicted run time (EASY++)."""
    return replace(easy_plus(), name="easy++", backfill_order=PriorityPolicy("sjf", compiled_score(sjf)))
