"""The scheduling semantics of RLScheduler's simulator in plain Python: a selected job blocks all others.

RLScheduler: Zhang et al., SC'20, DIR-LAB/deep-batch-scheduler. Once a policy, or their network, has picked a job, no
other job is considered until it fits, whatever arrives meanwhile. Arrivals are admitted one at a time, and before a
release of the same second. A window starts on an empty machine with its first job in the queue. Their backfilling
computes the shadow time, at which the job will fit by the requested times, once, when the job is committed; until
then jobs start in order of arrival if they fit and would end strictly before the shadow time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf, log2, log10
from typing import NamedTuple

__all__ = ["RULES", "Job", "Machine", "commitments_of", "starts_of"]


class Job(NamedTuple):
    """A job; times in seconds, `number` is its place in the window."""

    number: int
    submit: int
    run: int
    request: int
    processors: int


Score = Callable[[Job, int], float | tuple[float, ...]]
"""Priority score of a job at a time; the smallest is selected, ties by arrival."""


def wfp3(job: Job, wait: int) -> float:
    """Minus the wait over the request, cubed, times the processors."""
    return -((wait / job.request) ** 3) * job.processors


def unicep(job: Job, wait: int) -> float:
    """Minus the wait over the request and the logarithm of the processors."""
    return -(wait + 1e-15) / (log2(job.processors + 1e-15) * job.request)


def f1(job: Job, now: int) -> float:
    """F1 of Carastan-Santos and de Camargo, with the time since the beginning of the log, not of the window."""
    return log10(job.request or 0.1) * job.processors + 870 * log10(job.submit or 0.1)


RULES: dict[str, Score] = {
    "FCFS": lambda job, now: job.submit,
    "SJF": lambda job, now: (job.request, job.submit),
    # The start of a waiting job is -1 in their program, so its "wait" is negative and the order reversed.
    "WFP3": lambda job, now: wfp3(job, -1 - job.submit),
    "UNICEP": lambda job, now: unicep(job, -1 - job.submit),
    "F1": f1,
    "WFP3_corrected": lambda job, now: wfp3(job, now - job.submit),
    "UNICEP_corrected": lambda job, now: unicep(job, now - job.submit),
}
"""RLScheduler's policies by name, and two of them with the wait computed as intended."""


class Machine:
    """The cluster and its queue, from one commitment to the next.

    >>> machine = Machine([Job(0, 0, 10, 10, 2), Job(1, 1, 5, 5, 4)], processors=4, backfill=False)
    >>> for job in (0, 1):
    ...     machine.commit_to(machine.jobs[job])
    >>> machine.start
    {0: 0, 1: 10}
    """

    def __init__(self, jobs: Sequence[Job], processors: int, backfill: bool) -> None:
        self.jobs, self.backfill = jobs, backfill
        self.free, self.now = processors, jobs[0].submit
        self.queue = [jobs[0]]
        self.arrived = 1
        self.running: list[tuple[int, int, Job]] = []  # a heap by (end, order of starts)
        self.start: dict[int, int] = {}

    def copy(self) -> Machine:
        """A copy of the state."""
        other = object.__new__(Machine)
        vars(other).update(vars(self))
        other.queue, other.running, other.start = self.queue.copy(), self.running.copy(), self.start.copy()
        return other

    def commit_to(self, job: Job) -> None:
        """Advance time until the job has started and another job can be selected, or none is left."""
        if job.processors > self.free:
            shadow = self._shadow(job) if self.backfill else -inf
            while job.processors > self.free:
                for other in self.queue.copy():
                    if other.processors <= self.free and self.now + other.request < shadow:
                        self._begin(other)
                self._next_event()
        self._begin(job)
        while not self.queue and self.arrived < len(self.jobs):
            self._next_event()

    def _shadow(self, job: Job) -> float:
        """When enough processors are free for the job, by the requested times of running jobs."""
        free = self.free
        for end, processors in sorted((self.start[r.number] + r.request, r.processors) for _, _, r in self.running):
            free += processors
            if free >= job.processors:
                return end
        raise ValueError(f"job {job.number} asks for {job.processors} processors, more than there are")

    def _begin(self, job: Job) -> None:
        self.queue.remove(job)
        self.free -= job.processors
        heappush(self.running, (self.now + job.run, len(self.start), job))
        self.start[job.number] = self.now

    def _next_event(self) -> None:
        """One arrival or one release."""
        release = self.running[0][0] if self.running else inf
        if self.arrived < len(self.jobs) and self.jobs[self.arrived].submit <= release:
            self.now = max(self.now, self.jobs[self.arrived].submit)
            self.queue.append(self.jobs[self.arrived])
            self.arrived += 1
        else:
            end, _, job = heappop(self.running)
            self.now = max(self.now, end)
            self.free += job.processors


def starts_of(jobs: Sequence[Job], processors: int, score: Score, *, backfill: bool) -> list[int]:
    """Start times in seconds, in the order of the jobs, which is that of their submission.

    The second job is picked, does not fit, and blocks the third, which would:

    >>> jobs = [Job(0, 0, 10, 10, 3), Job(1, 1, 5, 5, 4), Job(2, 2, 1, 1, 1)]
    >>> starts_of(jobs, 4, RULES["SJF"], backfill=False)
    [0, 10, 15]
    >>> starts_of(jobs, 4, RULES["SJF"], backfill=True)
    [0, 10, 2]
    """
    machine = Machine(jobs, processors, backfill)
    while machine.queue:
        now = machine.now
        machine.commit_to(min(machine.queue, key=lambda job: score(job, now)))
    return [machine.start[job.number] for job in jobs]


def commitments_of(jobs: Sequence[Job], processors: int, starts: Sequence[int], *, backfill: bool) -> list[int] | None:
    """The jobs in commitment order if the start times follow from these semantics; else None.

    Found by search: after every commitment, the jobs that started must have their recorded start times.

    >>> jobs = [Job(0, 0, 10, 10, 3), Job(1, 1, 5, 5, 4), Job(2, 2, 1, 1, 1)]
    >>> commitments_of(jobs, 4, [0, 10, 2], backfill=True)
    [0, 1]
    >>> commitments_of(jobs, 4, [0, 10, 2], backfill=False) is None
    True
    """
    open_branches = [(Machine(jobs, processors, backfill), list[int]())]
    while open_branches:
        machine, commitments = open_branches.pop()
        if not machine.queue:
            return commitments
        for job in sorted(machine.queue, key=lambda job: starts[job.number], reverse=True):
            next_machine = machine.copy()
            next_machine.commit_to(job)
            started = next_machine.start.items() - machine.start.items()
            if all(starts[number] == start for number, start in started):
                open_branches.append((next_machine, [*commitments, job.number]))
    return None
