"""The score of a linear agent: twelve numbers known of a waiting job, and what jobs before it taught.

A job's *class* is its user and the octave half its estimate lies in. Of ended jobs three things are kept for every
estimate, every user and every class: how many there were, the logarithm of the part of their request that they used,
and how quick they were (1 for one over within 10 s, 1/60 for one that took ten minutes). Older ones fade. Of running
jobs of a class it is known for how long they have been running: that long, at least, do such jobs take.

The estimate here is the user's own, also where run times are predicted. A prediction counts as some more ended jobs of
the class: it was made when the job came, and what ends while the job waits tells more of it, but only of its class.

Everything here is compiled into the engine; `kilowait.agents.user_history` lays the numbers out.
"""

from __future__ import annotations

from functools import cache
from math import exp, log, log1p, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.engine.jit_entry import FOUR_NUMBERS
from kilowait.engine.kernels.jit import compile_entry, kernel
from kilowait.policies.compile import compiled_score

__all__ = [
    "BUCKETS",
    "COUNT",
    "FEATURES",
    "HEADER",
    "MOMENTS",
    "compiled",
    "features",
    "recalled",
    "replayed",
]

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
    "usual": "ln(part of such a request that jobs use) / 3",
    "habit": "how much more of it, or less, this user's jobs use: the difference of logarithms / 3",
    "quick_usual": "ln(how quick jobs with such a request are: mean of 10 s / run time, at most 1) / 3",
    "quick": "how much quicker, or slower, this user's are: the difference of logarithms / 3",
}
"""What the agent looks at, in the order of its weights. wait: time since the job joined the queue."""

COUNT = len(FEATURES)
BUCKETS = 64
"""Half octaves of seconds that estimates are sorted into; the last holds all above 97 years."""
MOMENTS = 5
"""Numbers kept of a class: weight, sum of ln(part used), sum of expected_inverse_runtime, running jobs, sum of their
starts.
"""
NODES, USERS, BOUND, HEADER = COUNT, COUNT + 1, COUNT + 2, COUNT + 3
"""Places in the parameters: after the weights the machine's nodes, the number of users, the longest wait, memory."""

FADE = 0.85
"""What is left of the weight of a user's earlier jobs when another has ended."""
FADE_USUAL = 0.999
"""The same for jobs of all users."""
SHRINK = 2.0
"""Jobs that what is known in general counts for, beside what is known in particular."""
BLANK = 5.0
"""Jobs that a guess counts for while nothing is known: a request is used to exp(-1), a job takes 500 s."""
AHEAD_OF_ALL = -1e12
"""Below any score; of jobs that have waited too long the longest goes first."""
RUNNING = 5.0
"""Ended jobs that a running one counts for, and three at most."""
FORETOLD = 2.0
"""Ended jobs that a prediction of the job's run time counts for."""


@kernel
def bucket_of(estimate_s: float) -> int:
    """The half octave of an estimate of at least 1 s."""
    return min(int(2.0 * log2(estimate_s) + 0.5), BUCKETS - 1)


@kernel
def add(parameters: Any, at: int, fade: float, used: float, quick: float) -> None:
    """One more ended job of a class whose numbers begin at `at`."""
    parameters[at] = fade * parameters[at] + 1.0
    parameters[at + 1] = fade * parameters[at + 1] + used
    parameters[at + 2] = fade * parameters[at + 2] + quick


@kernel
def remember(parameters: Any, user: int, estimate_s: float, ran_s: float) -> None:
    """A job has ended; user -1 is nobody."""
    bucket = bucket_of(estimate_s)
    used = log(min(max(ran_s, 1.0) / estimate_s, 1.0))
    quick = 10.0 / max(ran_s, 10.0)
    add(parameters, HEADER + MOMENTS * bucket, FADE_USUAL, used, quick)
    if user >= 0:
        by_user = HEADER + MOMENTS * BUCKETS
        by_class = by_user + MOMENTS * int(parameters[USERS])
        add(parameters, by_user + MOMENTS * user, FADE, used, quick)
        add(parameters, by_class + MOMENTS * (user * BUCKETS + bucket), FADE, used, quick)


@kernel
def recall(
    parameters: Any, user: int, estimate_s: float, now: float, foretold_s: float, foretold_quick: float
) -> tuple[float, float, float, float]:
    """ln(part used) and expected_inverse_runtime to be expected: of anybody's job with this estimate, and of this one.

    `foretold_s` is a prediction of its run time, unless it is the estimate.
    """
    bucket = bucket_of(estimate_s)
    at = HEADER + MOMENTS * bucket
    usual = (parameters[at + 1] - BLANK) / (parameters[at] + BLANK)
    quick_usual = (parameters[at + 2] + 0.02 * BLANK) / (parameters[at] + BLANK)
    used, quick = usual, quick_usual
    if user >= 0:
        at = HEADER + MOMENTS * (BUCKETS + user)
        used = (parameters[at + 1] + SHRINK * used) / (parameters[at] + SHRINK)
        quick = (parameters[at + 2] + SHRINK * quick) / (parameters[at] + SHRINK)
    known = SHRINK
    if foretold_s < estimate_s:
        known = SHRINK + FORETOLD
        used = (SHRINK * used + FORETOLD * log(foretold_s / estimate_s)) / known
        quick = (SHRINK * quick + FORETOLD * max(foretold_quick, 1e-6)) / known
    if user >= 0:
        at = HEADER + MOMENTS * (BUCKETS + int(parameters[USERS]) + user * BUCKETS + bucket)
        before, known = known, parameters[at] + known
        used = (parameters[at + 1] + before * used) / known
        quick = (parameters[at + 2] + before * quick) / known
        running = parameters[at + 3]
        if running > 0.5:
            since_s = now - parameters[at + 4] / running
            counts = RUNNING * min(running, 3.0)
            at_least = max(used, log(min(max(since_s, 1.0) / estimate_s, 1.0)))
            at_most = min(quick, 10.0 / max(since_s, 10.0))
            used = (known * used + counts * at_least) / (known + counts)
            quick = (known * quick + counts * at_most) / (known + counts)
    return usual, used, quick_usual, quick


@kernel
def run_along(parameters: Any, user: int, estimate_s: float, start_s: float, by: float) -> None:
    """A job of this class that began at `start_s` runs from now on (1), or no longer (-1)."""
    if user >= 0:
        at = HEADER + MOMENTS * (BUCKETS + int(parameters[USERS]) + user * BUCKETS + bucket_of(estimate_s))
        parameters[at + 3] += by
        parameters[at + 4] += by * start_s
        if parameters[at + 3] < 0.5:  # what rounding leaves of the sum is not to stay
            parameters[at + 3] = 0.0
            parameters[at + 4] = 0.0


@kernel
def user_of(job: Any, parameters: Any) -> int:
    """Whose job it is: the last parameters are the users of the jobs, by the jobs' numbers."""
    users = int(parameters[USERS])
    return int(parameters[HEADER + MOMENTS * (BUCKETS + users + users * BUCKETS) + job.number])


@kernel
def asked_of(job: Any) -> Any:
    """What the user asked for, seconds: the limit where it is known, as the estimate may be a prediction."""
    return job.limit_s if job.limit_s < np.inf else job.estimate_s


def _recalled(job: Any, now: float, parameters: Any) -> tuple[float, float, float, float]:
    """What memory says of a job: see `recall`."""
    return recall(
        parameters, user_of(job, parameters), asked_of(job), now, job.estimate_s, job.expected_inverse_runtime
    )


def _score(job: Any, now: float, parameters: Any) -> Any:
    """Smaller goes first; a job that has started or ended is remembered."""
    user = user_of(job, parameters)
    asked_s = asked_of(job)
    if job.ran_s < 0.0:
        run_along(parameters, user, asked_s, now, 1.0)
        return 0.0
    if job.ran_s > 0.0:
        run_along(parameters, user, asked_s, now - job.ran_s, -1.0)
        remember(parameters, user, asked_s, job.ran_s)
        return 0.0
    wait_s = max(now - job.submit_s, 0.0)
    if wait_s > parameters[BOUND]:
        return AHEAD_OF_ALL - wait_s
    usual, used, quick_usual, quick = recall(
        parameters, user, asked_s, now, job.estimate_s, job.expected_inverse_runtime
    )
    nodes = float(job.nodes)
    machine = parameters[NODES]
    length = log(asked_s / 3600.0) / 3.0
    total = parameters[0] * length + parameters[1] * log(nodes) / 3.0
    total += parameters[2] * length * length + parameters[3] * length * log(nodes / machine) / 3.0
    total += parameters[4] * nodes / machine
    total += parameters[5] * log1p(wait_s / 3600.0) / 3.0
    total += parameters[6] * log1p(wait_s / asked_s) / 3.0
    total += parameters[7] * log1p(wait_s / max(asked_s * exp(used), 10.0)) / 3.0
    total += parameters[8] * usual / 3.0 + parameters[9] * (used - usual) / 3.0
    return total + parameters[10] * log(quick_usual) / 3.0 + parameters[11] * log(quick / quick_usual) / 3.0


def _replayed(order: Any, user: Any, estimate_s: Any, ran_s: Any, parameters: Any) -> None:
    """Remember ended jobs one by one, in this order."""
    for job in order:
        remember(parameters, user[job], estimate_s[job], ran_s[job])


def compiled() -> Any:
    """The score as the engine takes it."""
    return compiled_score(_score)


def recalled() -> Any:
    """A function of what the score is one of, that says what memory says of a job, as `features` takes it."""
    return compile_entry(_recalled, FOUR_NUMBERS)


def replayed(order: Any, user: Any, estimate_s: Floats, ran_s: Floats, parameters: Floats) -> None:
    """Remember ended jobs one by one, in this order; user -1 is nobody, times in seconds."""
    _compiled_replay()(order, user, estimate_s, ran_s, parameters)


@cache
def _compiled_replay() -> Any:
    whole, real = "int64[::1]", "float64[::1]"
    return compile_entry(_replayed, f"void({whole}, {whole}, {real}, {real}, {real})")


NOTHING = (-1.0, -1.0, 0.02, 0.02)
"""What `recall` says before any job has ended."""


def features(
    estimate_s: npt.ArrayLike,
    nodes: npt.ArrayLike,
    wait_s: npt.ArrayLike,
    machine_nodes: int,
    recalled: npt.ArrayLike = NOTHING,
) -> Floats:
    """The same numbers by numpy, one job a row, for people who want to look at them.

    `recalled` is what memory says of each job: ln(part of the request used) in general and of its user,
    expected_inverse_runtime
    in general and of its user.

    >>> dict(zip(FEATURES, features(3600, 8, 0, 16)[0].round(2).tolist()))["share"]
    0.5
    """
    estimate = np.maximum(np.atleast_1d(np.asarray(estimate_s, np.float64)), 1.0)
    size, wait = np.asarray(nodes, np.float64), np.maximum(np.asarray(wait_s, np.float64), 0.0)
    usual, used, quick_usual, quick = np.moveaxis(np.asarray(recalled, np.float64), -1, 0)
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
        usual / 3.0,
        (used - usual) / 3.0,
        np.log(quick_usual) / 3.0,
        np.log(quick / quick_usual) / 3.0,
    )
    return np.stack(np.broadcast_arrays(*columns), axis=1)
