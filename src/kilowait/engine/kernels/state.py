"""Simulation state: one tuple of record arrays, passed to every kernel; runs with power controls have more arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

# Kinds of events, in the order in which those of one instant are applied. An event's code is its kind plus a number.
KIND = 2**42
FINISH, CHANGE, ARRIVAL, TIMER = 0, KIND, 2 * KIND, 3 * KIND

# Status of a job.
COMING, QUEUED, RUNNING, DONE, CANCELLED, REJECTED, HELD = 0, 1, 2, 3, 4, 5, 6

RUN_STATE = np.dtype(
    [
        # settings, fixed for a run
        ("depth", np.int64),  # reservations per group: 0 none, 1 EASY, UNLIMITED conservative
        ("time_dependent", np.int64),  # the policy is scored at every pass, not once on arrival
        # order of backfill candidates: 0 the policy's, 1 scored on arrival, 2 scored at every pass
        ("backfill_order", np.int64),
        ("per_event", np.int64),  # a pass after every single event
        ("overrun", np.int64),  # rule for the expected end of jobs that overrun; see module overrun
        ("balance", np.int64),  # placement: 0 first group that fits, 1 the emptiest
        ("one_pool", np.int64),  # one group of whole nodes: pool 0 is the only one, and least_need the need
        ("timeline", np.int64),  # reservations use the timeline, not shadow time and extra
        ("track_expected_ends", np.int64),  # keep the list of expected ends (not needed without backfilling)
        ("dependents", np.int64),  # some job depends on another
        ("cancels", np.int64),  # some job has a cancellation time
        ("observes_jobs", np.int64),  # the policy observes every start and end
        ("predicts", np.int64),  # the policy writes estimate_s and planned_s
        ("bounded", np.int64),  # jobs are ordered with the help of bounds of their scores; see module score_bounds
        ("max_wait_s", np.float64),  # a job that has waited longer goes before all others; infinite: none does
        ("half_life_s", np.float64),  # of usage for fair share; 0: usage is not tracked
        ("first_submit_s", np.float64),
        # progress of the run
        ("now", np.float64),
        ("events", np.int64),  # on the heap
        ("next_arrival", np.int64),
        ("next_change", np.int64),
        ("next_announcement", np.int64),
        ("queue_lo", np.int64),  # the queue is queue[queue_lo:queue_hi]
        ("queue_hi", np.int64),
        ("running", np.int64),
        ("segments", np.int64),
        # 1 + number of a job with score NaN; negative: NaN was its score as a backfill candidate
        ("bad_score", np.int64),
        ("first_arrived", np.int64),  # 1 + first arrived job that has not waited too long yet; 0: none
        ("last_arrived", np.int64),
        ("bounds_until_s", np.float64),  # the bounds of scores are valid until then
        ("bounds_span_s", np.float64),  # time for which bounds are computed
        ("bounds_slack", np.float64),  # part by which the share of a user may fall until then
        ("bounds", np.int64),  # how often bounds were computed
        ("bounds_s", np.float64),  # when they were computed
        ("bounds_usage", np.float64),  # decayed node-seconds of all users then
        ("lead", np.int64),  # the first job of the order of the last pass
        ("bounds_scores", np.int64),  # jobs scored since the bounds were computed
        # the plan of the last pass, and changes since then
        ("open_groups", np.int64),  # bits: groups that may take another reservation
        ("ended_groups", np.int64),  # bits: groups of reservations of the cluster that have ended
        ("unchanged", np.int64),  # since the last pass only jobs behind closed_at have arrived
        ("closed_at", np.int64),  # jobs from this queue position on are backfill candidates
        ("new_arrivals", np.int64),  # arrivals since the last pass
        ("reservations_invalid", np.int64),  # conservative: capacity or planned times have changed
        ("freed", np.int64),  # conservative: resources were freed since the last pass
        ("reservations_tight", np.int64),  # conservative: no reservation can move earlier while the others stay
        ("timeline_lo", np.int64),  # the timeline is rows timeline_lo to timeline_hi - 1
        ("timeline_hi", np.int64),
    ],
    align=True,
)
"""Settings and counters of a run; one record."""

JOB_STATE = np.dtype(
    [
        ("run_s", np.float64),  # true run time
        ("earliest_s", np.float64),  # max(submit, begin)
        ("key", np.float64),  # score on arrival
        ("start_s", np.float64),
        ("expected_end_s", np.float64),
        ("allowed", np.int64),  # groups it may use, as bits
        ("least_need", np.int64),  # minimum need of the first pool over those groups
        ("preference_row", np.int32),  # row of State.preference
        ("group", np.int16),
        ("status", np.int8),
        ("level", np.int8),
    ],
    align=True,
)
"""State of a job in the engine, hidden from policies; one cache line."""

JOB_EXTRA = np.dtype(
    [
        ("backfill_key", np.float64),  # score on arrival as a backfill candidate
        ("reserved_s", np.float64),  # conservative: its reserved start
        ("reserved_on", np.int64),  # 1 + the group of its reservation; 0: none
        ("cancel_s", np.float64),  # infinite: never
        ("think_s", np.float64),
        ("first_dependent", np.int64),  # 1 + first of the jobs that depend on this one; 0: none
        ("next_dependent", np.int64),  # 1 + next job that depends on the same one; 0: none
        ("user", np.int64),  # row of State.usage
        ("next_arrived", np.int64),  # 1 + the job that arrived next; 0: none
    ],
    align=True,
)
"""Job state that only some runs need; empty otherwise."""

GROUP = np.dtype(
    [
        ("pool_lo", np.int64),
        ("pool_hi", np.int64),
        ("reserved", np.int64),
        ("shadow_s", np.float64),
        ("reservation_end_s", np.float64),  # of the reservation of the cluster that it belongs to; infinite: none
        ("first_need", np.int64),
        ("first_job", np.int64),
    ],
    align=True,
)
"""A node group: its pools, number of reservations of this pass, and time of its only reservation (infinite: none). In
runs with power controls, time, nodes and job of its earliest reservation."""

POOL = np.dtype([("need", np.int64), ("capacity", np.int64), ("free", np.int64), ("extra", np.int64)], align=True)
"""One resource of a group: column of need, capacity, amount free now, and amount left over at the shadow time."""

CAPACITY_CHANGE = np.dtype(
    [
        ("time_s", np.float64),
        ("announced_s", np.float64),
        ("number", np.int64),
        ("pool", np.int64),
        ("amount", np.int64),
    ],
    align=True,
)
"""A change of a pool's capacity; entries with the same number belong to one change of a group."""

RANKED = np.dtype([("key", np.float64), ("job", np.int64)], align=True)
"""An entry ordered by (key, job): event (time, code), running job (expected end, number) or backfill candidate."""

QUEUE_ENTRY = np.dtype(
    [("key", np.float64), ("job", np.int64), ("need", np.int64), ("planned_s", np.float64)], align=True
)
"""Queue entry: RANKED, with need and planned time, which the search for backfill candidates reads first."""

USAGE = np.dtype(
    [
        ("amount", np.float64),
        ("rate", np.float64),
        ("as_of_s", np.float64),
        ("share", np.float64),  # share of the user as of share_s; this and the others are for bounds of scores
        ("share_s", np.float64),
        ("least_share", np.float64),  # the share of the bounds
        ("bounds", np.int64),  # RUN_STATE.bounds when it was set
        ("gain", np.float64),  # what the share adds to the scores of the user's jobs as of gain_s, beside least_share
        ("gain_s", np.float64),
    ],
    align=True,
)
"""Decayed node-seconds of a user as of a time, and nodes in use since."""

Records = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class State(NamedTuple):
    """Arrays of a run: n jobs, G groups, P pools, K columns of need, C capacity changes."""

    clock: Records  # (1,) RUN_STATE
    jobs: Records  # (n,) interface.JOB: fields visible to policies
    job_state: Records  # (n,) JOB_STATE
    job_extra: Records  # (n,) or (0,) JOB_EXTRA
    need: Ints  # (n, K)
    arrivals: Ints  # (m,) jobs without dependency, by (earliest, number)
    groups: Records  # (G,) GROUP
    pools: Records  # (P,) POOL
    preference: Ints  # (rows, G) groups in order, -1 at the end
    changes: Records  # (C,) CAPACITY_CHANGE by time
    announcements: npt.NDArray[np.float64]  # (A,) announcement times of capacity changes, sorted
    segments: Ints  # (n,) jobs in start order
    events: Records  # RANKED, a heap
    queue: Records  # QUEUE_ENTRY, by score, or by number for time-dependent policies
    new_arrivals: Ints  # (n,) arrivals since the last pass
    expected_ends: Records  # RANKED: running jobs by (expected end, number)
    candidates: Records  # RANKED, a heap of backfill candidates
    timeline_s: npt.NDArray[np.float64]  # (B,) breakpoints of the timeline
    timeline_free: Ints  # (B, P)
    usage: Records  # (users + 1,) USAGE; the last is the whole machine


# -- power controls --------------------------------------------------------------------------------

POWER_CONTROL_STATE = np.dtype(
    [
        ("one_pool", np.int64),  # one group, with one pool besides watts: least_need is the need
        ("sleeps", np.int64),  # some group has node sleep
        ("load_shifting", np.int64),  # some job has a time until which it is shifted
        ("levels", np.int64),
        ("shared_factors", np.int64),  # all jobs have the same factors
        ("budget", np.int64),  # the last pool of every group is watts
        ("watts_column", np.int64),  # column of need
        ("full_speed_backlog_nodes", np.int64),  # a larger backlog runs at full speed; below 0: none does
        ("large_backlog", np.int64),  # the backlog is larger in this pass
        ("queued_nodes", np.int64),  # sum of the minimum nodes of waiting jobs
        ("node_changes", np.int64),  # rows of node_changes written
        ("started", np.int64),  # the first instant has been reached
        ("pass_made", np.int64),  # a scheduling pass was made at this instant
        ("instant_complete", np.int64),  # all events of this instant have been applied
        ("buffer_full", np.int64),  # node_changes is full
    ],
    align=True,
)
"""Settings and counters of the power controls; one record."""

SLEEP_STATE = np.dtype(
    [
        ("sleeps", np.int64),  # whether the group has node sleep
        ("wake_ahead", np.int64),  # whether it wakes nodes in time for reservations
        ("timeout_s", np.float64),
        ("shutdown_s", np.float64),
        ("wake_s", np.float64),
        ("awake", np.int64),  # idle nodes; this and the next three count nodes without a job
        ("shutting_down", np.int64),
        ("asleep", np.int64),
        ("waking", np.int64),
        ("pending_outage_nodes", np.int64),  # nodes in use that an outage removes when they are released
        ("idle_lo", np.int64),  # idle[idle_lo:idle_hi], longest idle first
        ("idle_hi", np.int64),
        ("shutdown_lo", np.int64),  # shutting_down[shutdown_lo:shutdown_hi], by the time they are asleep
        ("shutdown_hi", np.int64),
        ("wake_lo", np.int64),  # booting[wake_lo:wake_hi], by the time they are awake
        ("wake_hi", np.int64),
        ("reserve_at", np.int64),  # current step of the reserve
        ("reserve_end", np.int64),
        ("spare", np.int64),  # nodes that an agent keeps awake besides the reserve
        ("check_s", np.float64),  # time of the next sleep decision
    ],
    align=True,
)
"""Sleep settings of a group, and its free nodes by state."""

NODE_BATCH = np.dtype([("time_s", np.float64), ("nodes", np.int64)], align=True)
"""Nodes with one time: idle since, asleep at or awake at it; or a step of the reserve."""

NODE_CHANGE = np.dtype(
    [
        ("time_s", np.float64),
        ("group", np.int64),
        ("shutting_down", np.int64),
        ("asleep", np.int64),
        ("waking", np.int64),
    ],
    align=True,
)
"""A change of the numbers of a group's nodes by state; rows are not sorted by time."""


class PowerState(NamedTuple):
    """`State` and the state of the power controls."""

    clock: Records
    jobs: Records
    job_state: Records
    job_extra: Records
    need: Ints
    arrivals: Ints
    groups: Records
    pools: Records
    preference: Ints
    changes: Records
    announcements: npt.NDArray[np.float64]
    segments: Ints
    events: Records
    queue: Records
    new_arrivals: Ints
    expected_ends: Records
    candidates: Records
    timeline_s: npt.NDArray[np.float64]
    timeline_free: Ints
    usage: Records
    power_control_state: Records  # (1,) POWER_CONTROL_STATE
    factor: npt.NDArray[np.float64]  # (G, n, L), or (G, 1, L) if all jobs have the same
    watts: Ints  # (G, n, L), or (0, 0, 0) without a budget
    least_watts: Ints  # (n,) over groups and levels, or (0,)
    preferred_level: Ints  # (n,)
    run_s: npt.NDArray[np.float64]  # (n,) at factor 1
    planned_s: npt.NDArray[np.float64]  # (n,) at factor 1
    hold_until_s: npt.NDArray[np.float64]  # (n,), or (0,) without load shifting
    reserved_level: Ints  # (n,) conservative: level of the job's reservation
    sleep_state: Records  # (G,) SLEEP_STATE
    idle: Records  # (G, B) NODE_BATCH
    shutting_down: Records  # (G, B) NODE_BATCH
    booting: Records  # (G, B) NODE_BATCH
    reserve: Records  # NODE_BATCH: steps of the reserves of all groups, concatenated
    node_changes: Records  # NODE_CHANGE
