"""Score of the linear batch agent: twelve features of a waiting job, four of them statistics of ended jobs.

A job's *class* is its user and its estimate's bucket (half an octave wide). For every bucket, every user and every
class, three statistics of ended jobs are stored: their weight, the logarithm of the share of their request that they
used, and their inverse run time (10 s / run time: 1 for a job that ends within 10 s, 1/60 for ten minutes). The weight
of older jobs decays. Running jobs of a class give a lower bound on the run time of its jobs.

The estimate here is the user's own, also where run times are predicted. A prediction counts as a few more ended jobs of
the class: it is computed at submission; jobs that end during the wait are better evidence, but only for their class.

The score is compiled into the engine; `kilowait.agents.linear_batch` builds the parameter array.
"""

from __future__ import annotations

from functools import cache
from math import exp, log, log1p, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.engine.jit_entry import FOUR_NUMBERS_SIGNATURE
from kilowait.engine.kernels.jit import compile_entry, kernel
from kilowait.policies.compile import compiled_score

Floats = npt.NDArray[np.float64]

FEATURES: dict[str, str] = {
    "length": "ln(estimate / 1 h) / 3",
    "width": "ln(nodes) / 3",
    "length_squared": "length x length",
    "length_width": "length x ln(nodes / nodes of the machine) / 3",
    "share": "nodes / nodes of the machine",
    "age": "ln(1 + wait / 1 h) / 3",
    "patience": "ln(1 + wait / estimate) / 3",
    "urgency": "ln(1 + wait / expected run time, at least 10 s) / 3",
    "used_share": "ln(share of the request used; mean of all jobs with such a request) / 3",
    "user_used_share": "the same for this user's jobs, minus used_share",
    "inverse_runtime": "ln(10 s / run time, at most 1; mean of all jobs with such a request) / 3",
    "user_inverse_runtime": "the same for this user's jobs, minus inverse_runtime",
}
"""Features of the agent, in the order of its weights. wait: time since the job joined the queue."""

FEATURE_COUNT = len(FEATURES)
ESTIMATE_BUCKETS = 64
"""Number of buckets for estimates, half an octave of seconds wide; the last contains all above 97 years."""
STATISTICS_PER_CLASS = 5
"""Statistics of a class: weight, sum of ln(share used), sum of inverse run times, number of running jobs, sum of their
start times.
"""
NODES, USERS, MAX_WAIT, STATISTICS_OFFSET = FEATURE_COUNT, FEATURE_COUNT + 1, FEATURE_COUNT + 2, FEATURE_COUNT + 3
"""Positions in the parameters after the weights: nodes of the machine, number of users, longest wait; then
statistics."""

USER_DECAY = 0.85
"""Decay of the weight of a user's earlier jobs when another job ends."""
ALL_USERS_DECAY = 0.999
"""Decay of the weight of all users' earlier jobs."""
SHRINKAGE = 2.0
"""Shrinkage: weight, in jobs, of the more general statistic in the more specific one."""
PRIOR_JOBS = 5.0
"""Weight, in jobs, of the prior: a job uses exp(-1) of its request and takes 500 s."""
OVERDUE_SCORE = -1e12
"""Below any score; among jobs that have waited too long the longest wait goes first."""
RUNNING_WEIGHT = 5.0
"""Weight of a running job, in ended jobs; at most three running jobs count."""
PREDICTION_WEIGHT = 2.0
"""Weight of a prediction of the job's run time, in ended jobs."""


@kernel
def bucket_of(estimate_s: float) -> int:
    """Bucket of an estimate of at least 1 s."""
    return min(int(2.0 * log2(estimate_s) + 0.5), ESTIMATE_BUCKETS - 1)


@kernel
def add(parameters: Any, at: int, decay: float, used: float, inverse: float) -> None:
    """Add an ended job to the statistics that begin at `at`."""
    parameters[at] = decay * parameters[at] + 1.0
    parameters[at + 1] = decay * parameters[at + 1] + used
    parameters[at + 2] = decay * parameters[at + 2] + inverse


@kernel
def add_ended_job(parameters: Any, user: int, estimate_s: float, ran_s: float) -> None:
    """Add an ended job to all its statistics; user -1 is an unknown user."""
    bucket = bucket_of(estimate_s)
    used = log(min(max(ran_s, 1.0) / estimate_s, 1.0))
    inverse = 10.0 / max(ran_s, 10.0)
    add(parameters, STATISTICS_OFFSET + STATISTICS_PER_CLASS * bucket, ALL_USERS_DECAY, used, inverse)
    if user >= 0:
        by_user = STATISTICS_OFFSET + STATISTICS_PER_CLASS * ESTIMATE_BUCKETS
        by_class = by_user + STATISTICS_PER_CLASS * int(parameters[USERS])
        add(parameters, by_user + STATISTICS_PER_CLASS * user, USER_DECAY, used, inverse)
        add(parameters, by_class + STATISTICS_PER_CLASS * (user * ESTIMATE_BUCKETS + bucket), USER_DECAY, used, inverse)


@kernel
def class_statistics(
    parameters: Any, user: int, estimate_s: float, now: float, predicted_s: float, predicted_inverse: float
) -> tuple[float, float, float, float]:
    """Expected ln(share used) and inverse run time: of all users' jobs with this estimate, and of this job.

    In the order: ln(share used) of all and of this job, inverse run time of all and of this job. `predicted_s` is a
    prediction of its run time, unless it equals the estimate.
    """
    bucket = bucket_of(estimate_s)
    at = STATISTICS_OFFSET + STATISTICS_PER_CLASS * bucket
    used_all = (parameters[at + 1] - PRIOR_JOBS) / (parameters[at] + PRIOR_JOBS)
    inverse_all = (parameters[at + 2] + 0.02 * PRIOR_JOBS) / (parameters[at] + PRIOR_JOBS)
    used, inverse = used_all, inverse_all
    if user >= 0:
        at = STATISTICS_OFFSET + STATISTICS_PER_CLASS * (ESTIMATE_BUCKETS + user)
        used = (parameters[at + 1] + SHRINKAGE * used) / (parameters[at] + SHRINKAGE)
        inverse = (parameters[at + 2] + SHRINKAGE * inverse) / (parameters[at] + SHRINKAGE)
    weight = SHRINKAGE
    if predicted_s < estimate_s:
        weight = SHRINKAGE + PREDICTION_WEIGHT
        used = (SHRINKAGE * used + PREDICTION_WEIGHT * log(predicted_s / estimate_s)) / weight
        inverse = (SHRINKAGE * inverse + PREDICTION_WEIGHT * max(predicted_inverse, 1e-6)) / weight
    if user >= 0:
        at = STATISTICS_OFFSET + STATISTICS_PER_CLASS * (
            ESTIMATE_BUCKETS + int(parameters[USERS]) + user * ESTIMATE_BUCKETS + bucket
        )
        previous_weight, weight = weight, parameters[at] + weight
        used = (parameters[at + 1] + previous_weight * used) / weight
        inverse = (parameters[at + 2] + previous_weight * inverse) / weight
        running = parameters[at + 3]
        if running > 0.5:
            since_s = now - parameters[at + 4] / running
            running_weight = RUNNING_WEIGHT * min(running, 3.0)
            min_used = max(used, log(min(max(since_s, 1.0) / estimate_s, 1.0)))
            max_inverse = min(inverse, 10.0 / max(since_s, 10.0))
            used = (weight * used + running_weight * min_used) / (weight + running_weight)
            inverse = (weight * inverse + running_weight * max_inverse) / (weight + running_weight)
    return used_all, used, inverse_all, inverse


@kernel
def count_running(parameters: Any, user: int, estimate_s: float, start_s: float, change: float) -> None:
    """Add (by = 1) or remove (by = -1) a running job of this class that started at `start_s`."""
    if user >= 0:
        at = STATISTICS_OFFSET + STATISTICS_PER_CLASS * (
            ESTIMATE_BUCKETS + int(parameters[USERS]) + user * ESTIMATE_BUCKETS + bucket_of(estimate_s)
        )
        parameters[at + 3] += change
        parameters[at + 4] += change * start_s
        if parameters[at + 3] < 0.5:  # clear rounding errors of the sum
            parameters[at + 3] = 0.0
            parameters[at + 4] = 0.0


@kernel
def user_of(job: Any, parameters: Any) -> int:
    """User of the job: the last parameters are the users of the jobs, by job number."""
    users = int(parameters[USERS])
    return int(
        parameters[
            STATISTICS_OFFSET
            + STATISTICS_PER_CLASS * (ESTIMATE_BUCKETS + users + users * ESTIMATE_BUCKETS)
            + job.number
        ]
    )


@kernel
def requested_s(job: Any) -> Any:
    """The user's request, seconds: the limit if it is known, as the estimate may be a prediction."""
    return job.limit_s if job.limit_s < np.inf else job.estimate_s


def _statistics(job: Any, now: float, parameters: Any) -> tuple[float, float, float, float]:
    """Statistics of a job's class: see `class_statistics`."""
    return class_statistics(
        parameters, user_of(job, parameters), requested_s(job), now, job.estimate_s, job.expected_inverse_runtime
    )


def _score(job: Any, now: float, parameters: Any) -> Any:
    """The score; for a job that has started or ended, update the statistics and return 0."""
    user = user_of(job, parameters)
    estimate_s = requested_s(job)
    if job.ran_s < 0.0:
        count_running(parameters, user, estimate_s, now, 1.0)
        return 0.0
    if job.ran_s > 0.0:
        count_running(parameters, user, estimate_s, now - job.ran_s, -1.0)
        add_ended_job(parameters, user, estimate_s, job.ran_s)
        return 0.0
    wait_s = max(now - job.submit_s, 0.0)
    if wait_s > parameters[MAX_WAIT]:
        return OVERDUE_SCORE - wait_s
    used_all, used, inverse_all, inverse = class_statistics(
        parameters, user, estimate_s, now, job.estimate_s, job.expected_inverse_runtime
    )
    nodes = float(job.units)
    machine = parameters[NODES]
    length = log(estimate_s / 3600.0) / 3.0
    total = parameters[0] * length + parameters[1] * log(nodes) / 3.0
    total += parameters[2] * length * length + parameters[3] * length * log(nodes / machine) / 3.0
    total += parameters[4] * nodes / machine
    total += parameters[5] * log1p(wait_s / 3600.0) / 3.0
    total += parameters[6] * log1p(wait_s / estimate_s) / 3.0
    total += parameters[7] * log1p(wait_s / max(estimate_s * exp(used), 10.0)) / 3.0
    total += parameters[8] * used_all / 3.0 + parameters[9] * (used - used_all) / 3.0
    return total + parameters[10] * log(inverse_all) / 3.0 + parameters[11] * log(inverse / inverse_all) / 3.0


def _add_ended_jobs(order: Any, user: Any, estimate_s: Any, ran_s: Any, parameters: Any) -> None:
    """Add ended jobs to the statistics one by one, in this order."""
    for job in order:
        add_ended_job(parameters, user[job], estimate_s[job], ran_s[job])


def compiled_agent_score() -> Any:
    """The compiled score, as the engine takes it."""
    return compiled_score(_score)


def compiled_statistics() -> Any:
    """A compiled function with the arguments of a score: the statistics of a job's class, as `features` takes them."""
    return compile_entry(_statistics, FOUR_NUMBERS_SIGNATURE)


def replay_ended_jobs(order: Any, user: Any, estimate_s: Floats, ran_s: Floats, parameters: Floats) -> None:
    """Add ended jobs to the statistics one by one, in this order; user -1 is an unknown user, times in seconds."""
    _compiled_replay()(order, user, estimate_s, ran_s, parameters)


@cache
def _compiled_replay() -> Any:
    integers, numbers = "int64[::1]", "float64[::1]"
    return compile_entry(_add_ended_jobs, f"void({integers}, {integers}, {numbers}, {numbers}, {numbers})")


NO_HISTORY = (-1.0, -1.0, 0.02, 0.02)
"""Result of `class_statistics` before any job has ended."""


def features(
    estimate_s: npt.ArrayLike,
    nodes: npt.ArrayLike,
    wait_s: npt.ArrayLike,
    machine_nodes: int,
    statistics: npt.ArrayLike = NO_HISTORY,
) -> Floats:
    """The features computed by numpy, one job a row, for inspection.

    `statistics` is the result of `class_statistics` for each job: ln(share of the request used) of all users
    and of this job, inverse run time of all users and of this job.

    >>> dict(zip(FEATURES, features(3600, 8, 0, 16)[0].round(2).tolist()))["share"]
    0.5
    """
    estimate = np.maximum(np.atleast_1d(np.asarray(estimate_s, np.float64)), 1.0)
    size, wait = np.asarray(nodes, np.float64), np.maximum(np.asarray(wait_s, np.float64), 0.0)
    used_all, used, inverse_all, inverse = np.moveaxis(np.asarray(statistics, np.float64), -1, 0)
    length = np.log(estimate / 3600.0) / 3.0
    columns = (
        length,
        np.log(size) / 3.0,
        length**2,
        length * np.log(size / machine_nodes) / 3.0,
        size / machine_nodes,
        np.log1p(wait / 3600.0) / 3.0,
        np.log1p(wait / estimate) / 3.0,
        np.log1p(wait / np.maximum(estimate * np.exp(used), 10.0)) / 3.0,
        used_all / 3.0,
        (used - used_all) / 3.0,
        np.log(inverse_all) / 3.0,
        np.log(inverse / inverse_all) / 3.0,
    )
    return np.stack(np.broadcast_arrays(*columns), axis=1)
