"""Simulation state: one tuple of record arrays, passed to every kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.engine.kernels.jit import kernel, without_refcount

__all__ = ["State"]

# Kinds of events, in the order in which those of one instant are applied. An event's code is its kind plus a number.
KIND = 2**42
FINISH, CHANGE, ARRIVAL, TIMER = 0, KIND, 2 * KIND, 3 * KIND

# Where a job stands.
COMING, QUEUED, RUNNING, DONE, CANCELLED, REJECTED, HELD = 0, 1, 2, 3, 4, 5, 6

UNLIMITED = 2**62
"""Reservation depth of conservative backfilling."""

RUN_STATE = np.dtype(
    [
        # settings, fixed for a run
        ("depth", np.int64),  # reservations per group: 0 none, 1 EASY, UNLIMITED conservative
        ("time_dependent", np.int64),  # the policy is scored at every pass, not once on arrival
        (
            "backfill_order",
            np.int64,
        ),  # backfill candidates: 0 in the policy's order, 1 own fixed order, 2 own moving order
        ("per_event", np.int64),  # a pass after every single event
        ("overrun", np.int64),  # rule for the expected end of overrun jobs; see overrun
        ("balance", np.int64),  # placement: 0 first group that fits, 1 the emptiest
        ("one_pool", np.int64),  # one group of whole nodes: least_need is the need and pool 0 is all there is
        ("timeline", np.int64),  # plan with the whole timeline, not with shadow and extra
        ("track_expected_ends", np.int64),  # track expected ends (not needed without backfilling)
        ("dependents", np.int64),  # some job waits for another's end
        ("cancels", np.int64),  # some job is withdrawn at a set time
        ("observes_jobs", np.int64),  # the policy observes every start and end
        ("predicts", np.int64),  # the policy writes what jobs are estimated and planned with
        ("half_life_s", np.float64),  # of usage for fair share; 0: usage is not kept
        ("first_submit_s", np.float64),
        # where the run stands
        ("now", np.float64),
        ("events", np.int64),  # on the heap
        ("next_arrival", np.int64),
        ("next_change", np.int64),
        ("next_announcement", np.int64),
        ("queue_lo", np.int64),  # the queue lies in [queue_lo, queue_hi) of its array
        ("queue_hi", np.int64),
        ("running", np.int64),
        ("segments", np.int64),
        (
            "bad_score",
            np.int64,
        ),  # 1 + number of a job whose score was NaN; negative: in the own order of backfilling
        # the plan of the last pass, and what has come since
        ("open_groups", np.int64),  # bits: groups that may take another reservation
        ("unchanged", np.int64),  # nothing but arrivals behind closed_at since the last pass
        ("closed_at", np.int64),  # jobs from here on in the queue are candidates for backfilling
        ("new_arrivals", np.int64),  # arrivals since the last pass
        ("reservations_invalid", np.int64),  # capacity changed since the last pass: no reservation stands
        ("freed", np.int64),  # conservative: something fell free since the last pass
        ("reservations_tight", np.int64),  # and no reservation could be earlier with all others in place
        ("timeline_lo", np.int64),  # the timeline lies in [timeline_lo, timeline_hi)
        ("timeline_hi", np.int64),
    ],
    align=True,
)
"""The counters of a run; one record."""

JOB_STATE = np.dtype(
    [
        ("run_s", np.float64),  # true run time: ends the job
        ("earliest_s", np.float64),  # max(submit, begin)
        ("key", np.float64),  # score on arrival
        ("start_s", np.float64),
        ("expected_end_s", np.float64),
        ("allowed", np.int64),  # bits of groups
        ("least_need", np.int64),  # of the first pool, over those groups
        ("preference_row", np.int32),  # row of preference
        ("group", np.int16),
        ("status", np.int8),
        ("level", np.int8),
    ],
    align=True,
)
"""State of a job in the engine, hidden from policies; one cache line."""

JOB_EXTRA = np.dtype(
    [
        ("backfill_key", np.float64),  # score on arrival in the own order of backfilling
        ("reserved_s", np.float64),  # conservative: the start reserved for it,
        ("reserved_on", np.int64),  # 1 + the group it is reserved on; 0 none
        ("cancel_s", np.float64),  # infinite: never
        ("think_s", np.float64),
        ("first_dependent", np.int64),  # 1 + first of the jobs that wait for this one's end; 0 none
        ("next_dependent", np.int64),
        ("user", np.int64),  # row of usage
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
        ("first_need", np.int64),
        ("first_job", np.int64),
    ],
    align=True,
)
"""A node group: its pools, reservations of this pass, the time of the one reservation (infinite: none) and, in runs
with power controls, of the earliest, with its need of nodes and its job."""

POOL = np.dtype(
    [("need", np.int64), ("capacity", np.int64), ("free", np.int64), ("extra", np.int64)], align=True
)
"""One resource of a group: column of need, all there is, free now, left over at the shadow time."""

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
"""Entries of one number are one change, of several pools."""

RANKED = np.dtype([("key", np.float64), ("job", np.int64)], align=True)
"""Something in order of (key, job): an event (time, code), a running job (believed end, number), a candidate."""

QUEUE_ENTRY = np.dtype(
    [("key", np.float64), ("job", np.int64), ("need", np.int64), ("planned_s", np.float64)], align=True
)
"""A place in the queue: as RANKED, with what the search for backfill candidates looks at first."""

USAGE = np.dtype([("amount", np.float64), ("rate", np.float64), ("as_of_s", np.float64)], align=True)
"""Decayed node-seconds of a user as of a time, and nodes in use since."""

Records = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class State(NamedTuple):
    """Everything a run reads and writes: n jobs, G groups, P pools, K columns of need, C capacity changes."""

    clock: Records  # (1,) RUN_STATE
    jobs: Records  # (n,) interface.JOB: fields visible to policies
    job_state: Records  # (n,) JOB_STATE
    job_extra: Records  # (n,) or (0,) JOB_EXTRA
    need: Ints  # (n, K)
    arrivals: Ints  # (m,) jobs that depend on none, by (earliest, number)
    groups: Records  # (G,) GROUP
    pools: Records  # (P,) POOL
    preference: Ints  # (rows, G) groups in order, -1 at the end
    changes: Records  # (C,) CAPACITY_CHANGE by time
    announcements: npt.NDArray[np.float64]  # (A,) times at which changes become known, sorted
    segments: Ints  # (n,) jobs in start order
    events: Records  # RANKED, a heap
    queue: Records  # QUEUE_ENTRY, in the policy's order if that is fixed, by number if it moves
    new_arrivals: Ints  # (n,) arrivals since the last pass
    expected_ends: Records  # RANKED: running jobs by (believed end, number)
    candidates: Records  # RANKED, a heap of candidates
    timeline_s: npt.NDArray[np.float64]  # (B,) breakpoints of the timeline
    timeline_free: Ints  # (B, P)
    usage: Records  # (users + 1,) USAGE; the last is the whole machine


@kernel
def state_without_refcount(s: Any) -> State:
    """The state with references that are not counted; the first thing a kernel called from Python does."""
    return State(
        without_refcount(s.clock),
        without_refcount(s.jobs),
        without_refcount(s.job_state),
        without_refcount(s.job_extra),
        without_refcount(s.need),
        without_refcount(s.arrivals),
        without_refcount(s.groups),
        without_refcount(s.pools),
        without_refcount(s.preference),
        without_refcount(s.changes),
        without_refcount(s.announcements),
        without_refcount(s.segments),
        without_refcount(s.events),
        without_refcount(s.queue),
        without_refcount(s.new_arrivals),
        without_refcount(s.expected_ends),
        without_refcount(s.candidates),
        without_refcount(s.timeline_s),
        without_refcount(s.timeline_free),
        without_refcount(s.usage),
    )
