"""Laws that every schedule obeys: functions of a case and its results per job.

A law that is broken raises AssertionError and says where. The first ones hold for every case. The laws of
reservations hold only for the cases that `easy_case`, `conservative_case` and `exact_case` derive from any case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.oracle.model import (
    Change,
    JobReservation,
    ReferenceJob,
    Result,
    all_groups,
    changes_of,
    groups_of,
    need_of,
    pools_per_node,
    sized,
)
from tests.oracle.priority_rules import PREDICTING
from tests.oracle.workloads import Case

STARTED = ("completed", "killed")
UNSTARTED = ("cancelled", "rejected", "unstarted")


def true_run(case: Case, job: ReferenceJob) -> float:
    """Run time of the job."""
    allowed = max(job.estimate if job.limit is None else job.limit, 1.0)
    return min(job.runtime, allowed) if case.at_limit == "kill" else job.runtime


# -- laws of every case --------------------------------------------------------------------------


def every_job_is_accounted_for(case: Case, results: Sequence[Result]) -> None:
    """One result per job, with consistent fields; rejected jobs fit no group, or their reservation has ended."""
    assert len(results) == len(case.jobs), f"{len(results)} results for {len(case.jobs)} jobs"
    for job, result in zip(case.jobs, results, strict=True):
        what = f"job {job.job_id}: {result}"
        fitting = groups_of(sized(job, case.groups), case.groups, case.queues, case.reservations)
        assert result.outcome in STARTED + UNSTARTED, what
        ran = result.outcome in STARTED
        assert (result.start is not None) == (result.end is not None) == (result.group is not None) == ran, what
        assert result.group is None or result.group in fitting, f"{what} but it may use {fitting}"
        assert result.outcome == "rejected" or fitting or result.eligible is None, f"{what} fits nowhere"
        ended = reservation_end(case, job)
        assert result.outcome != "rejected" or not fitting or ended is not None, f"{what} fits {fitting}"
        assert result.outcome != "unstarted" or ended in (None, math.inf) or result.eligible is None, f"{what} waits on"
        assert result.eligible is not None or result.outcome == "unstarted", what
        short = true_run(case, job) < job.runtime
        assert not ran or (result.outcome == "killed") == short, what
        assert result.outcome != "cancelled" or job.cancel is not None, what


def no_job_starts_before_it_is_eligible(case: Case, results: Sequence[Result]) -> None:
    """A job is eligible after its submission, its begin time and the think time after the job it depends on."""
    by_id = {job.job_id: (job, result) for job, result in zip(case.jobs, results, strict=True)}
    for job, result in by_id.values():
        if result.eligible is None:
            continue
        due = [job.submit] + ([] if job.begin is None else [job.begin])
        if job.after is not None:
            left = left_at(case, *by_id[job.after])
            assert left is not None, f"job {job.job_id} arrived but job {job.after}, before it, never left"
            due.append(left + job.think)
        assert result.eligible == max(due), f"job {job.job_id} is eligible at {result.eligible}, not {max(due)}"
        assert result.start is None or result.start >= result.eligible, f"job {job.job_id}: {result}"


def reservation_end(case: Case, job: ReferenceJob) -> float | None:
    """End of the reservation of the job's queue; None: it has none."""
    return next((each.end for each in case.reservations if each.name == job.queue), None)


def left_at(case: Case, job: ReferenceJob, result: Result) -> float | None:
    """When the job finished, was cancelled or was rejected; None: never."""
    if result.outcome in STARTED:
        return result.end
    if result.outcome == "cancelled":
        assert job.cancel is not None and result.eligible is not None
        return max(job.cancel, result.eligible)
    if result.outcome != "rejected":
        return None
    assert result.eligible is not None
    if not groups_of(sized(job, case.groups), case.groups, case.queues, case.reservations):
        return result.eligible
    ended = reservation_end(case, job)
    assert ended is not None
    late_hold = job.hold if job.hold is not None and result.eligible < ended else -math.inf
    return max(result.eligible, ended, late_hold)


def jobs_run_for_their_run_time(case: Case, results: Sequence[Result]) -> None:
    """end = start + run, to the bit."""
    for job, result in zip(case.jobs, results, strict=True):
        if result.start is not None:
            end = result.start + true_run(case, job)
            assert result.end == end, f"job {job.job_id} ended at {result.end}, not {end}"


def never_oversubscribed(case: Case, results: Sequence[Result]) -> None:
    """Whenever a job starts, its group's running jobs together need no more than the group has then.

    Use grows at starts only. So where it is above capacity at any other time, capacity fell below the jobs
    that were running already, which is the debt an outage may leave; and no job starts into a debt.
    """
    changes = changes_of(case.groups, case.outages, case.reservations)
    for g, group in enumerate(all_groups(case.groups, case.reservations)):
        here = [(sized(j, case.groups), r) for j, r in zip(case.jobs, results, strict=True) if r.group == g]
        own = [change for change in changes if change.group == g]
        whole = group.nodes if g < len(case.groups) else 0
        for time in sorted({r.start for _, r in here if r.start is not None}):
            nodes = _most_nodes(case, whole, own, time)
            running = [need_of(j, group) for j, r in here if _runs_at(r, time)]
            starting = [need_of(j, group) for j, r in here if r.start == time and _runs_at(r, time)]
            for pool, one in enumerate(pools_per_node(group)):
                used = sum(need[pool] for need in running)
                grew = any(need[pool] for need in starting)
                assert not grew or used <= nodes * one, (
                    f"{group.name!r}, pool {pool}, at {time}: {used} in use of {nodes * one}"
                )


def _runs_at(result: Result, time: float) -> bool:
    return result.start is not None and result.end is not None and result.start <= time < result.end


def _most_nodes(case: Case, whole: int, changes: Sequence[Change], time: float) -> int:
    """Nodes at that time; with a pass per event, the most there were between the changes of that time."""
    nodes = whole + sum(change.nodes for change in changes if change.time < time)
    seen = [nodes]
    for change in changes:
        if change.time == time:
            nodes += change.nodes
            seen.append(nodes)
    return max(seen) if case.schedule_per == "event" else nodes


GENERAL = (
    every_job_is_accounted_for,
    no_job_starts_before_it_is_eligible,
    jobs_run_for_their_run_time,
    never_oversubscribed,
)
"""Laws of every case."""


# -- reservations ----------------------------------------------------------------------------------------


def _without_overrun(job: ReferenceJob) -> ReferenceJob:
    """The job with its estimate, planned time and limit raised to its run time."""
    spans = {"estimate": job.estimate, "planned": job.planned, "limit": job.limit}
    return replace(job, **{name: max(span, job.runtime) for name, span in spans.items() if span is not None})


def easy_case(case: Case, depth: int | None = 1) -> Case:
    """The case with FCFS and EASY, without overruns, outages, reservations, dependencies and cancellations."""
    jobs = tuple(replace(_without_overrun(job), after=None, think=0.0, cancel=None) for job in case.jobs)
    return replace(
        case,
        jobs=jobs,
        outages=(),
        reservations=(),
        policy="fcfs",
        depth=depth,
        backfill_order=case.backfill_order,
        max_wait=math.inf,  # a job that has waited too long goes before the first of the queue
    )


def conservative_case(case: Case) -> Case:
    """The case with conservative backfilling, without overruns, outages and reservations.

    Then nothing invalidates a reservation, in any order and with any placement: early finishes and cancellations only
    free resources.
    """
    jobs = tuple(_without_overrun(job) for job in case.jobs)
    policy = "fcfs" if case.policy in PREDICTING else case.policy  # predictions may be exceeded
    return replace(case, jobs=jobs, outages=(), reservations=(), depth=None, policy=policy)


def exact_case(case: Case) -> Case:
    """A `conservative_case` case in which no job ever finds anything freed, so that its first reservation is its start.

    That takes estimates that are the run times: what an early finish frees may not be enough for a job while
    another behind it keeps its place. It takes jobs that go where they were reserved (placement
    "first"), after all events of an instant, and an order that is that of submission.
    """
    jobs = []
    for job in easy_case(case).jobs:
        run = max(job.runtime, 1.0)
        jobs.append(replace(job, runtime=run, estimate=run, planned=None, limit=None, begin=None))
    return replace(
        easy_case(case, depth=None), jobs=tuple(jobs), backfill_order=None, schedule_per="instant", placement="first"
    )


def first_jobs_start_by_their_first_reservation(
    case: Case, results: Sequence[Result], job_reservations: Sequence[JobReservation]
) -> None:
    """On an `easy_case`: the first job of the queue starts by the time of its first reservation in that position.

    Only the first reservation of a pass is a reservation: where there are several groups, a job behind it that
    has one on another group loses it when the first finds that it can go there sooner.
    """
    assert case == easy_case(case), "this law is one of cases of easy_case"
    _check_reservations(case, results, [reservation for reservation in job_reservations if reservation.head])


def all_jobs_start_by_their_first_reservation(
    case: Case, results: Sequence[Result], job_reservations: Sequence[JobReservation]
) -> None:
    """On a `conservative_case`: every job starts, or is cancelled, by the time of its first reservation."""
    assert case == conservative_case(case), "this law is one of cases of conservative_case"
    _check_reservations(case, results, job_reservations)


def reservations_only_move_earlier(case: Case, job_reservations: Sequence[JobReservation]) -> None:
    """On a `conservative_case`: no reservation moves to a later time."""
    assert case == conservative_case(case), "this law is one of cases of conservative_case"
    latest: dict[int, JobReservation] = {}
    for reservation in job_reservations:
        before = latest.get(reservation.job_id, reservation)
        assert reservation.start <= before.start, f"{reservation} after {before}"
        latest[reservation.job_id] = reservation


def _check_reservations(case: Case, results: Sequence[Result], job_reservations: Sequence[JobReservation]) -> None:
    by_id = {job.job_id: (job, result) for job, result in zip(case.jobs, results, strict=True)}
    checked: set[int] = set()
    for reservation in job_reservations:
        if reservation.job_id not in checked:
            checked.add(reservation.job_id)
            job, result = by_id[reservation.job_id]
            if result.outcome == "cancelled":
                left = left_at(case, job, result)
                assert left is not None and left <= reservation.start, f"{reservation} but it waited until {left}"
                continue
            start = result.start
            assert start is not None and start <= reservation.start, f"{reservation} but it started at {start}"


def jobs_behind_delay_no_job(
    case: Case, results: Sequence[Result], rerun: Callable[[Case], Sequence[Result]], job_id: int
) -> None:
    """Conservative on an `exact_case` case: without the jobs behind it, job and all before it fare the same."""
    assert case == exact_case(case), "this law is one of cases of exact_case"
    place = {job.job_id: (job.submit, job.job_id) for job in case.jobs}
    kept = tuple(job for job in case.jobs if place[job.job_id] <= place[job_id])
    before = {job.job_id: result for job, result in zip(case.jobs, results, strict=True)}
    for job, result in zip(kept, rerun(replace(case, jobs=kept)), strict=True):
        assert result == before[job.job_id], (
            f"without the jobs behind {job_id}, job {job.job_id} has {result}, with them {before[job.job_id]}"
        )
