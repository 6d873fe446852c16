"""Look-ahead: the state at a decision is copied, and each candidate's future is simulated in the copy.

In the copy no job arrives, running jobs end at their expected ends and waiting jobs run as long as planned: true run
times are never copied. The candidate is chosen, then the base policy decides, and the costs of the waiting jobs are
summed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.engine.kernels.event_loop import advance
from kilowait.engine.kernels.heap import heapify, pop
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, noinline, specialize
from kilowait.engine.kernels.queue import end_pass
from kilowait.engine.kernels.scheduling_pass import backfill, schedule, score_waiting
from kilowait.engine.kernels.state import FINISH, QUEUED, State
from kilowait.envs.kernels.decision_batch import HEAD, apply_choice, eligible, zero_score
from kilowait.envs.kernels.reward import slowdown

PLAN = np.dtype(
    [
        ("width", np.int64),  # candidates
        ("depth", np.int64),  # starts after which a simulated future ends
        ("waits", np.int64),  # the objective: 0 bounded slowdown, 1 wait
        ("time_dependent", np.int64),  # the base policy is scored at every pass
        ("decisions", np.int64),  # counted: choices among several jobs
        ("simulations", np.int64),  # counted: simulated futures
        ("starts", np.int64),  # counted: starts in these
    ],
    align=True,
)
"""Settings and counters of look-ahead."""


class LookaheadState(NamedTuple):
    """Work arrays of look-ahead. Jobs are renumbered: the running ones, then the waiting ones by number."""

    plan: npt.NDArray[Any]  # (1,) PLAN
    slot: npt.NDArray[np.int64]  # (n,) slot of each waiting job; -1: it cannot be chosen
    start_state: State  # state at the decision
    simulated: State  # the same state, simulated further


def work_arrays_for(state: State, width: int, depth: int, waits: bool, time_dependent: bool) -> LookaheadState:
    """Work arrays for decisions in this state, the state of a run or one row of a stack."""
    plan = np.zeros(1, PLAN).view(np.recarray)
    plan["width"], plan["depth"], plan["waits"], plan["time_dependent"] = width, depth, waits, time_dependent
    start_state = _blank(state)
    # Read-only arrays are shared.
    simulated = _blank(state)._replace(jobs=start_state.jobs, need=start_state.need, preference=start_state.preference)
    return LookaheadState(plan, np.zeros(len(state.jobs), np.int64), start_state, simulated)


def _blank(state: State) -> State:
    """Arrays for as many jobs; only the part for waiting and running jobs is used."""
    unused = {"job_extra", "arrivals", "changes", "announcements", "usage"}
    copied = {"groups", "pools", "preference"}
    arrays = {}
    for name, array in state._asdict().items():
        if name in copied:
            arrays[name] = array.copy()
        else:
            arrays[name] = np.zeros((0 if name in unused else len(array), *array.shape[1:]), array.dtype)
            if array.dtype.names:
                arrays[name] = arrays[name].view(np.recarray)
    return State(**arrays)


@kernel
def score_of(s: Any, job: int, time_dependent: int, score: Any, parameters: Any) -> float:
    """Score of a waiting job by the base policy: now, or at its submission if the order is static."""
    k = s.clock[0]
    job_record = s.jobs[job]
    value = score(job_record, k.now if time_dependent != 0 else job_record.submit_s, parameters)
    if value != value:
        k.bad_score = job + 1
    return value


@kernel
def copy_job(s: Any, job: int, t: Any, to: int) -> None:
    """Copy a job; in the copy its run time is the planned one."""
    t.jobs[to] = s.jobs[job]
    t.job_state[to] = s.job_state[job]
    t.job_state[to].run_s = s.jobs[job].planned_s
    for column in range(s.need.shape[1]):
        t.need[to, column] = s.need[job, column]


@kernel
def copy_resources(s: Any, t: Any) -> None:
    """Copy simulated time, groups, pools and timeline."""
    t.clock[0] = s.clock[0]
    for g in range(len(s.groups)):
        t.groups[g] = s.groups[g]
    for p in range(len(s.pools)):
        t.pools[p] = s.pools[p]
    k = s.clock[0]
    if k.timeline:
        for i in range(k.timeline_lo, k.timeline_hi):
            t.timeline_s[i] = s.timeline_s[i]
            for p in range(len(s.pools)):
                t.timeline_free[i, p] = s.timeline_free[i, p]


@noinline
def copy_state(s: Any, a: Any, score: Any, parameters: Any) -> None:
    """Copy the current state, with the queue in the order of the base policy."""
    t = a.start_state
    time_dependent = a.plan[0].time_dependent
    copy_resources(s, t)
    k = s.clock[0]
    running = assume_nonnegative(k.running)
    waiting = assume_nonnegative(k.queue_hi - k.queue_lo)
    for i in range(running):
        end_s = s.expected_ends[i].key
        copy_job(s, assume_nonnegative(s.expected_ends[i].job), t, i)
        t.expected_ends[i].key = end_s
        t.expected_ends[i].job = i
        t.events[i].key = end_s  # sorted by time, so already a heap
        t.events[i].job = FINISH + i
        t.segments[i] = i
    for i in range(waiting):
        job = assume_nonnegative(s.queue[assume_nonnegative(k.queue_lo + i)].job)
        copy_job(s, job, t, running + i)
        t.candidates[i].key = score_of(s, job, time_dependent, score, parameters)
        t.candidates[i].job = running + i
    heapify(t.candidates, waiting)
    for i in range(waiting):
        job = assume_nonnegative(t.candidates[0].job)
        pop(t.candidates, waiting - i)
        entry = s.queue[assume_nonnegative(k.queue_lo + job - running)]
        copied_entry = t.queue[i]
        copied_entry.key = entry.key  # whether it has a reservation of this pass
        copied_entry.job = job
        copied_entry.need = entry.need
        copied_entry.planned_s = entry.planned_s
    c = t.clock[0]
    c.events = running
    c.segments = running
    c.next_arrival = 0
    c.next_change = 0
    c.next_announcement = 0
    c.queue_lo = 0
    c.queue_hi = waiting
    c.time_dependent = 0  # the order is static until this pass is over
    c.dependents = 0
    c.cancels = 0
    c.unchanged = 0
    c.new_arrivals = 0


@kernel
def place_in_order(s: Any, job: int) -> int:
    """Position of the job in an unsorted queue."""
    at = assume_nonnegative(s.clock[0].queue_lo)
    while s.queue[at].job != job:
        at += 1
    return at


apply_in_order = specialize(apply_choice, queue_position=place_in_order)


@kernel
def next_in_order(s: Any) -> int:
    """The first job of the queue that can still be chosen in this pass; -1: none."""
    k = s.clock[0]
    if k.open_groups != 0:
        for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
            if eligible(s, HEAD, i):
                return s.queue[i].job
    return -1


@kernel
def reset_to_copy(t: Any, w: Any) -> None:
    """Reset `play` to `opening`."""
    copy_resources(t, w)
    k = t.clock[0]
    running = assume_nonnegative(k.running)
    waiting = assume_nonnegative(k.queue_hi)
    for i in range(running):
        w.expected_ends[i] = t.expected_ends[i]
        w.events[i] = t.events[i]
        w.segments[i] = t.segments[i]
    for i in range(running + waiting):
        w.job_state[i] = t.job_state[i]
    for i in range(waiting):
        w.queue[i] = t.queue[i]


@kernel
def start_cost(s: Any, job: int, start_s: float, waits: int) -> float:
    """Cost of a job that starts at that time and runs as planned."""
    job_record = s.jobs[job]
    wait_s = start_s - job_record.submit_s
    return wait_s if waits else slowdown(wait_s + job_record.planned_s, job_record.planned_s)


@noinline
def simulate_candidate(a: Any, job: int, score: Any, parameters: Any) -> float:
    """Cost of the waiting jobs if this one is chosen and the base policy decides the rest."""
    plan = a.plan[0]
    w = a.simulated
    reset_to_copy(a.start_state, w)
    k = w.clock[0]
    no_parameters = w.timeline_s
    running = assume_nonnegative(k.running)
    waiting = assume_nonnegative(k.queue_hi)
    while job >= 0:  # finish the pass of the decision
        apply_in_order(w, w, job)
        job = next_in_order(w)
    if k.depth > 0:
        backfill(w, k.queue_lo, False, -1, 0, zero_score, no_parameters)
    end_pass(w)
    k.time_dependent = plan.time_dependent
    last = running + plan.depth
    while (
        k.segments < last
        and k.queue_hi > k.queue_lo
        and advance(w, zero_score, no_parameters, zero_score, no_parameters)
    ):
        if k.time_dependent:
            score_waiting(w, score, parameters)
        schedule(w, True, zero_score, no_parameters)
    plan.simulations += 1
    plan.starts += k.segments - running
    # Sum in the order of job numbers, so that equal futures have bitwise equal costs.
    cost = 0.0
    for i in range(running, running + waiting):
        job_state = w.job_state[i]
        cost += start_cost(w, i, job_state.start_s if job_state.status != QUEUED else k.now, plan.waits)
    return cost


@noinline
def best_choice(a: Any, score: Any, parameters: Any) -> int:
    """The waiting job, counted from 0, with the lowest cost; -1: no job can be chosen.

    Candidates are the first jobs by the base policy and, last, the longest-waiting job. Ties go to the first candidate.
    """
    plan = a.plan[0]
    t = a.start_state
    k = t.clock[0]
    running = assume_nonnegative(k.running)
    waiting = assume_nonnegative(k.queue_hi)
    choices = 0
    oldest = -1
    need = 0
    for i in range(waiting):
        need += t.queue[i].need
        if a.slot[i] >= 0:
            choices += 1
            oldest = i if oldest < 0 else oldest
    # Nothing to compare: one candidate only, or all jobs start now in any order.
    single_choice = plan.width == 1 or choices <= 1 or (k.one_pool != 0 and need <= t.pools[0].free)
    plan.decisions += 0 if single_choice else 1
    best = -1
    smallest = np.inf
    simulated_count = 0
    oldest_too = False
    for i in range(waiting):
        candidate = assume_nonnegative(t.queue[i].job) - running
        if a.slot[candidate] < 0:
            continue
        if single_choice:
            return candidate
        if simulated_count == plan.width - 1 and not oldest_too:
            candidate = oldest
        oldest_too = oldest_too or candidate == oldest
        cost = simulate_candidate(a, running + candidate, score, parameters)
        if best < 0 or cost < smallest:
            smallest = cost
            best = candidate
        simulated_count += 1
        if simulated_count == plan.width:
            break
    return best
