"""States of all environment copies: every array of the engine's state with one row per copy.

An episode is a window of consecutive jobs of the log on an empty machine. The job arrays are prepared once for the
whole log; a new episode copies the rows of its window and resets the engine state, inside compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.engine.kernels.jit import kernel, noinline, without_refcount
from kilowait.engine.kernels.state import State, state_without_refcount

__all__ = ["COPY_RECORD", "LogArrays", "nth_state", "reset", "prepare_log_arrays", "stack_states"]

COPY_RECORD = np.dtype(
    [
        ("first", np.int64),  # first row of the episode in the log
        ("next_first", np.int64),  # first row of the next episode
        ("jobs", np.int64),  # jobs to start; those that fit no group are left out
        ("phase", np.int64),  # phase of the scheduling pass, see decision
        ("shown", np.int64),  # jobs in the slots; the next observation clears their rows, also in another episode
        ("counted", np.int64),  # started jobs whose costs are in `settled`
        ("steps", np.int64),
        ("invalid", np.int64),  # forbidden actions, which were replaced
        ("over", np.int64),
        ("arrival_rate", np.float64),  # factor on the arrival rate of the log
        ("total", np.float64),  # reward of the episode so far
    ],
    align=True,
)
"""Data of a copy beside the engine state."""


class LogArrays(NamedTuple):
    """Prepared arrays of the whole log, from which episodes are copied."""

    jobs: npt.NDArray[Any]  # (N,) interface.JOB
    job_state: npt.NDArray[Any]  # (N,) JOB_STATE
    need: npt.NDArray[np.int64]  # (N, K)
    features: npt.NDArray[np.float32]  # (N, FIXED), or more: see observation.COLUMNS
    user: npt.NDArray[np.int64]  # (N,) numbered without gaps
    account: npt.NDArray[np.int64]  # (N,)
    order: npt.NDArray[np.float64]  # (N,) scores of the backfill order
    clock: npt.NDArray[Any]  # (1,) RUN_STATE before the first event
    pools: npt.NDArray[Any]  # (P,) POOL of the empty machine
    by_user: npt.NDArray[np.int64]  # (copies, users) scratch: jobs of each user in the episode
    user_weight: npt.NDArray[np.float64]  # (copies, n) 1 / (users x jobs of this one's user)


def stack_states(state: State, copies: int) -> State:
    """`copies` copies of this state, one per row; `nth_state` returns each of them."""
    rows = (np.repeat(np.asarray(array)[None], copies, axis=0) for array in state)
    return State(*(row.view(np.recarray) if row.dtype.names else row for row in rows))


def prepare_log_arrays(
    state: State, features: Any, user: Any, account: Any, order: Any, jobs: int, copies: int
) -> LogArrays:
    """What episodes of `jobs` jobs are copied from: the state of the whole log before its first event."""
    users = int(user.max()) + 1 if len(user) else 1
    return LogArrays(
        jobs=state.jobs,
        job_state=state.job_state,
        need=state.need.copy(),
        features=features,
        user=user,
        account=account,
        order=order,
        clock=state.clock.copy(),
        pools=state.pools.copy(),
        by_user=np.zeros((copies, users), np.int64),
        user_weight=np.zeros((copies, jobs)),
    )


@kernel
def log_arrays_without_refcount(a: Any) -> LogArrays:
    """The log arrays without reference counts."""
    return LogArrays(
        without_refcount(a.jobs),
        without_refcount(a.job_state),
        without_refcount(a.need),
        without_refcount(a.features),
        without_refcount(a.user),
        without_refcount(a.account),
        without_refcount(a.order),
        without_refcount(a.clock),
        without_refcount(a.pools),
        without_refcount(a.by_user),
        without_refcount(a.user_weight),
    )


@kernel
def nth_state(t: Any, copy: int) -> State:
    """The state of one copy, as the engine kernels take it."""
    s = state_without_refcount(t)
    return State(
        s.clock[copy],
        s.jobs[copy],
        s.job_state[copy],
        s.job_extra[copy],
        s.need[copy],
        s.arrivals[copy],
        s.groups[copy],
        s.pools[copy],
        s.preference[copy],
        s.changes[copy],
        s.announcements[copy],
        s.segments[copy],
        s.events[copy],
        s.queue[copy],
        s.new_arrivals[copy],
        s.expected_ends[copy],
        s.candidates[copy],
        s.timeline_s[copy],
        s.timeline_free[copy],
        s.usage[copy],
    )


@noinline
def reset(s: Any, copy: Any, source: Any, row: int) -> None:
    """Begin the next episode of the copy: the window of the log at `next_first`, on the empty machine."""
    s = state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    n = len(s.jobs)
    lo = copy.next_first
    copy.first = lo
    s.clock[0] = source.clock[0]
    k = s.clock[0]
    first_s = source.job_state[lo].earliest_s
    k.first_submit_s = first_s
    k.now = first_s
    for p in range(len(s.pools)):
        s.pools[p] = source.pools[p]
    counts = source.by_user[row]
    copy.jobs = 0
    users = 0
    for job in range(n):
        s.jobs[job] = source.jobs[lo + job]
        s.job_state[job] = source.job_state[lo + job]
        job_state = s.job_state[job]
        job_state.earliest_s = first_s + (job_state.earliest_s - first_s) / copy.arrival_rate
        for column in range(s.need.shape[1]):
            s.need[job, column] = source.need[lo + job, column]
        s.arrivals[job] = job
        if job_state.allowed != 0:
            copy.jobs += 1
            user = source.user[lo + job]
            users += 1 if counts[user] == 0 else 0
            counts[user] += 1
    for job in range(n):
        if s.job_state[job].allowed != 0:
            source.user_weight[row, job] = 1.0 / (users * counts[source.user[lo + job]])
    for job in range(n):
        counts[source.user[lo + job]] = 0
    copy.phase = 0
    copy.counted = 0
    copy.steps = 0
    copy.invalid = 0
    copy.over = 0
    copy.total = 0.0
