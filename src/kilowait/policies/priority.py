"""Priority policies that order jobs by one score; smaller first.

`job` is an `engine.interface.JOB` record. UNICEF's logarithm has a positive lower bound, so that serial jobs go first,
ordered by wait over estimate.

Sources: WFP3 and UNICEF, Tang et al., Cluster 2009; F1-F4, Carastan-Santos and de Camargo,
SC 2017 (their submit time counts from the first job of the log).
"""

from __future__ import annotations

from math import log2, log10, sqrt
from typing import Any

__all__ = ["STATIC_POLICIES", "TIME_DEPENDENT_POLICIES"]


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
    return job.estimate_s * job.nodes


def saf_short(job: Any, now: float, parameters: Any) -> float:
    """Smallest area divided by the square root of the expected inverse run time first."""
    return job.estimate_s * job.nodes / sqrt(max(job.expected_inverse_runtime, 1e-6))


def laf(job: Any, now: float, parameters: Any) -> float:
    """Largest area first."""
    return -(job.estimate_s * job.nodes)


def smallest(job: Any, now: float, parameters: Any) -> float:
    """Fewest nodes first."""
    return float(job.nodes)


def largest(job: Any, now: float, parameters: Any) -> float:
    """Most nodes first."""
    return -float(job.nodes)


def lxf(job: Any, now: float, parameters: Any) -> float:
    """Largest expansion factor (wait plus estimate over estimate) first."""
    return -((now - job.submit_s + job.estimate_s) / job.estimate_s)


def wfp3(job: Any, now: float, parameters: Any) -> float:
    """Largest (wait / estimate)^3 x nodes first."""
    return -(((now - job.submit_s) / job.estimate_s) ** 3 * job.nodes)


def unicef(job: Any, now: float, parameters: Any) -> float:
    """Quick turnaround for small, short jobs."""
    return -((now - job.submit_s) / (max(log2(float(job.nodes)), 1e-15) * job.estimate_s))


def f1(job: Any, now: float, parameters: Any) -> float:
    """F1, found by regression on simulated schedules."""
    return log10(job.estimate_s) * job.nodes + 870.0 * log10(max(job.since_first_s, 1.0))


def f2(job: Any, now: float, parameters: Any) -> float:
    """F2, from the same regression."""
    return sqrt(job.estimate_s) * job.nodes + 25600.0 * log10(max(job.since_first_s, 1.0))


def f3(job: Any, now: float, parameters: Any) -> float:
    """F3, from the same regression."""
    return job.estimate_s * job.nodes + 6860000.0 * log10(max(job.since_first_s, 1.0))


def f4(job: Any, now: float, parameters: Any) -> float:
    """F4, from the same regression."""
    return job.estimate_s * sqrt(float(job.nodes)) + 530000.0 * log10(max(job.since_first_s, 1.0))


def random(job: Any, now: float, parameters: Any) -> float:
    """Random order drawn before the run: parameters[number]."""
    return parameters[job.number]


STATIC_POLICIES = (fcfs, sjf, ljf, saf, saf_short, laf, smallest, largest, f1, f2, f3, f4)
"""Policies whose score is fixed when a job arrives."""

TIME_DEPENDENT_POLICIES = (lxf, wfp3, unicef)
"""Policies whose score changes with the wait."""
