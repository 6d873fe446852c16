"""Simulation state with power controls: node sleep, DVFS levels, load shifting and power budget."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.engine.kernels.jit import kernel, without_refcount
from kilowait.engine.kernels.state import Ints, Records

__all__ = [
    "NODE_BATCH",
    "POWER_CONTROL_STATE",
    "SLEEP_STATE",
    "NODE_CHANGE",
    "PowerState",
    "power_state_without_refcount",
]

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


@kernel
def power_state_without_refcount(s: Any) -> PowerState:
    """The state with references that are not counted; see `state_without_refcount`."""
    return PowerState(
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
        without_refcount(s.power_control_state),
        without_refcount(s.factor),
        without_refcount(s.watts),
        without_refcount(s.least_watts),
        without_refcount(s.preferred_level),
        without_refcount(s.run_s),
        without_refcount(s.planned_s),
        without_refcount(s.hold_until_s),
        without_refcount(s.reserved_level),
        without_refcount(s.sleep_state),
        without_refcount(s.idle),
        without_refcount(s.shutting_down),
        without_refcount(s.booting),
        without_refcount(s.reserve),
        without_refcount(s.node_changes),
    )
