"""Checks of progress of batch simulations: schedulers that start no job, and jobs that never start."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from kilowait.engine.kernels.state import COMING, QUEUED, REJECTED, TIMER
from kilowait.errors import NoProgressError

if TYPE_CHECKING:
    from kilowait.engine.simulator import Simulator

MAX_IDLE_INSTANTS = 10_000
"""Maximum number of consecutive instants at which only ends of holds are ahead, in a run of n jobs: this plus 10 n."""


class ProgressCheck:
    """Checks of a run that an external scheduler steps through."""

    def __init__(self, simulator: Simulator, plain_groups: int) -> None:
        self._simulator = simulator
        self._plain_groups = plain_groups  # the groups after them belong to reservations, which have ended
        self._idle_instants = 0
        self._starts = 0

    def count_instant(self) -> None:
        """Raise a NoProgressError after too many instants without a start at which only ends of holds are ahead."""
        k = self._simulator.state.clock[0]
        idle = k.running == 0 and k.segments == self._starts and _only_holds_are_ahead(self._simulator.state)
        self._idle_instants = self._idle_instants + 1 if idle else 0
        self._starts = int(k.segments)
        limit = MAX_IDLE_INSTANTS + 10 * len(self._simulator.table)
        if self._idle_instants > limit:
            self._raise(f"holds jobs again and again, {limit:,} times in succession", int(self._queue()[0]))

    def check_end(self) -> None:
        """Raise a NoProgressError at the end of the run if a job waits that could start on the whole idle cluster.

        If nodes or watts are missing, jobs may wait by right: behind one that no longer fits, for instance.
        """
        pools = self._simulator.state.pools
        whole = slice(0, int(self._simulator.state.groups["pool_hi"][self._plain_groups - 1]))
        if (pools["free"][whole] < pools["capacity"][whole]).any():
            return
        for job in self._queue():
            if self._simulator.can_start(int(job)):
                self._raise("starts no job", int(job))

    def _queue(self) -> Any:
        state = self._simulator.state
        return state.queue["job"][state.clock[0].queue_lo : state.clock[0].queue_hi].copy()

    def _raise(self, what: str, job: int) -> None:
        simulator = self._simulator
        waiting = len(self._queue()) - 1
        others = f" and {waiting:,} more" if waiting else ""
        raise NoProgressError(
            f"policy {simulator.policy.name!r} {what}: at {float(simulator.state.clock[0].now):g} s job "
            f"{_request(simulator, job)},{others} wait{'' if others else 's'}, nothing runs, and no arrival or "
            "completion is due; start a waiting job whenever the cluster is idle (Choice.start, Choice.backfill), or "
            "use another policy"
        )


def warn_of_unstarted_jobs(simulator: Simulator) -> None:
    """At the end of a run, log a warning if jobs never start: none of their groups has room for them any more."""
    state = simulator.state
    status = state.job_state["status"]
    waiting = np.flatnonzero(status == QUEUED)
    if not len(waiting):
        return
    dependents = int(np.count_nonzero(status == COMING))
    free = ", ".join(f"{name} {amount}" for name, amount in simulator.free_nodes().items())
    logging.getLogger("kilowait").warning(
        "%s job(s) never start under policy %r%s; the first is job %s. After the last event are free: %s. Outages, "
        "reservations, the power budget, or jobs before them in the queue keep these jobs from starting; the log "
        "lists them as unstarted",
        f"{len(waiting):,}",
        simulator.policy.name,
        f", and {dependents:,} that depend on them are never submitted" if dependents else "",
        _request(simulator, int(waiting[0])),
        free,
    )


def warn_of_ended_reservations(simulator: Simulator) -> None:
    """At the end of a run, log a warning if jobs were rejected because the reservation of their queue had ended."""
    state = simulator.state
    rejected = np.flatnonzero((state.job_state["status"] == REJECTED) & (state.job_state["allowed"] != 0))
    if not len(rejected):
        return
    group = int(state.job_state["allowed"][rejected[0]]).bit_length() - 1
    logging.getLogger("kilowait").warning(
        "%s job(s) never start under policy %r: the reservation of their queue ended before; the first is job %s, "
        "and reservation %r ended at %g s. The log lists them as rejected. Extend the reservation, or rename it if "
        "the jobs of the queue may use other nodes too",
        f"{len(rejected):,}",
        simulator.policy.name,
        _request(simulator, int(rejected[0])),
        simulator.group_names[group],
        float(state.groups["reservation_end_s"][group]),
    )


def _request(simulator: Simulator, job: int) -> str:
    record = simulator.state.jobs[job]
    size, planned_s = int(record.units), float(record.planned_s)
    return f"{simulator.table['job_id'][job]}, which needs {size} {simulator.table.unit}(s) for {planned_s:g} s"


def _only_holds_are_ahead(state: Any) -> bool:
    """Whether all coming events are ends of holds."""
    k = state.clock[0]
    if k.next_arrival < len(state.arrivals) or k.next_change < len(state.changes):
        return False
    code = state.events["job"][: k.events]
    return bool(((code >= TIMER) & ((code - TIMER) & 1 == 1)).all())
