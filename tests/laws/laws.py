"""Laws every schedule obeys, whoever made it: functions of a case and its per-job results.

A law that is broken raises AssertionError and says where. The first ones hold for every case. The promises of
backfilling hold for the cases that `honest`, `kept` and `exact` make out of any case, and only for those: see there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.oracle.model import (
    Change,
    Promise,
    ReferenceJob,
    Result,
    all_groups,
    changes_of,
    groups_of,
    need_of,
    pools_per_node,
)
from tests.oracle.priority_rules import PREDICTING
from tests.oracle.workloads import Case

STARTED = ("completed", "killed")
UNSTARTED = ("cancelled", "rejected", "unstarted")


def true_run(case: Case, job: ReferenceJob) -> float:
    """For how long the job runs once it has started."""
    allowed = max(job.estimate if job.limit is None else job.limit, 1.0)
    return min(job.runtime, allowed) if case.at_limit == "kill" else job.runtime


# -- laws of every case --------------------------------------------------------------------------


def every_job_is_accounted_for(case: Case, results: Sequence[Result]) -> None:
    """One result per job, whose fields belong together; rejected are exactly those that fit nowhere."""
    assert len(results) == len(case.jobs), f"{len(results)} results for {len(case.jobs)} jobs"
    for job, result in zip(case.jobs, results, strict=True):
        what = f"job {job.job_id}: {result}"
        fitting = groups_of(job, case.groups, case.queues, case.reservations)
        assert result.outcome in STARTED + UNSTARTED, what
        ran = result.outcome in STARTED
        assert (result.start is not None) == (result.end is not None) == (result.group is not None) == ran, (
            what
        )
        assert result.group is None or result.group in fitting, f"{what} but it may use {fitting}"
        assert result.outcome == "rejected" or fitting or result.eligible is None, f"{what} fits nowhere"
        assert result.outcome != "rejected" or not fitting, f"{what} fits {fitting}"
        assert result.eligible is not None or result.outcome == "unstarted", what
        short = true_run(case, job) < job.runtime
        assert not ran or (result.outcome == "killed") == short, what
        assert result.outcome != "cancelled" or job.cancel is not None, what


def none_starts_before_it_is_eligible(case: Case, results: Sequence[Result]) -> None:
    """Eligible when submitted, no longer held, and the job before it has left and been thought about."""
    by_id = {job.job_id: (job, result) for job, result in zip(case.jobs, results, strict=True)}
    for job, result in by_id.values():
        if result.eligible is None:
            continue
        due = [job.submit] + ([] if job.begin is None else [job.begin])
        if job.after is not None:
            left = left_at(*by_id[job.after])
            assert left is not None, f"job {job.job_id} arrived but job {job.after}, before it, never left"
            due.append(left + job.think)
        assert result.eligible == max(due), (
            f"job {job.job_id} is eligible at {result.eligible}, not {max(due)}"
        )
        assert result.start is None or result.start >= result.eligible, f"job {job.job_id}: {result}"


def left_at(job: ReferenceJob, result: Result) -> float | None:
    """When the job finished, was cancelled or was rejected; None: never."""
    if result.outcome in STARTED:
        return result.end
    if result.outcome == "cancelled":
        assert job.cancel is not None and result.eligible is not None
        return max(job.cancel, result.eligible)
    return result.eligible if result.outcome == "rejected" else None


def each_runs_for_its_time(case: Case, results: Sequence[Result]) -> None:
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
        here = [(j, r) for j, r in zip(case.jobs, results, strict=True) if r.group == g]
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
    none_starts_before_it_is_eligible,
    each_runs_for_its_time,
    never_oversubscribed,
)
"""Laws of every case."""


# -- promises ------------------------------------------------------------------------------------


def _as_long_as_believed(job: ReferenceJob) -> ReferenceJob:
    """The job with an estimate, a planned time and a limit, where it has them, that hold."""
    spans = {"estimate": job.estimate, "planned": job.planned, "limit": job.limit}
    return replace(job, **{name: max(span, job.runtime) for name, span in spans.items() if span is not None})


def honest(case: Case, depth: int | None = 1) -> Case:
    """First come first served on a whole machine: no overruns, no dependencies, no cancellations."""
    jobs = tuple(replace(_as_long_as_believed(job), after=None, think=0.0, cancel=None) for job in case.jobs)
    return replace(
        case,
        jobs=jobs,
        outages=(),
        reservations=(),
        policy="fcfs",
        depth=depth,
        backfill_order=case.backfill_order,
    )


def kept(case: Case) -> Case:
    """Conservative backfilling on a whole machine with estimates that hold; all else as it was.

    Nothing then takes away what was reserved, whatever the order and wherever a job is placed: early finishes
    and cancellations only free, and held or dependent jobs come in like any others.
    """
    jobs = tuple(_as_long_as_believed(job) for job in case.jobs)
    policy = "fcfs" if case.policy in PREDICTING else case.policy  # predictions do not hold
    return replace(case, jobs=jobs, outages=(), reservations=(), depth=None, policy=policy)


def exact(case: Case) -> Case:
    """A `kept` case in which no job ever finds anything freed, so that its first reservation is its start.

    That takes estimates that are the run times: what an early finish frees may not be enough for a job while
    another behind it keeps its place. It takes jobs that go where they were promised to go (placement
    "first"), after all events of an instant, and an order that is that of submission.
    """
    jobs = []
    for job in honest(case).jobs:
        run = max(job.runtime, 1.0)
        jobs.append(replace(job, runtime=run, estimate=run, planned=None, limit=None, begin=None))
    return replace(
        honest(case, depth=None),
        jobs=tuple(jobs),
        backfill_order=None,
        schedule_per="instant",
        placement="first",
    )


def heads_start_by_their_first_promise(
    case: Case, results: Sequence[Result], promises: Sequence[Promise]
) -> None:
    """EASY on an `honest` case: the first in the queue starts no later than it was first told as such.

    Only the first reservation of a pass is a promise: where there are several groups, a job behind it that
    has one on another group loses it when the first finds that it can go there sooner.
    """
    assert case == honest(case), "this law is one of honest cases"
    _keep_promises(case, results, [promise for promise in promises if promise.head])


def all_start_by_their_first_promise(
    case: Case, results: Sequence[Result], promises: Sequence[Promise]
) -> None:
    """Conservative on a `kept` case: every job starts, or is cancelled, no later than it was first told."""
    assert case == kept(case), "this law is one of kept cases"
    _keep_promises(case, results, promises)


def promises_only_move_forward(case: Case, promises: Sequence[Promise]) -> None:
    """Conservative on a `kept` case: no job is ever told a later time than before."""
    assert case == kept(case), "this law is one of kept cases"
    told: dict[int, Promise] = {}
    for promise in promises:
        before = told.get(promise.job_id, promise)
        assert promise.start <= before.start, f"{promise} after {before}"
        told[promise.job_id] = promise


def _keep_promises(case: Case, results: Sequence[Result], promises: Sequence[Promise]) -> None:
    by_id = {job.job_id: (job, result) for job, result in zip(case.jobs, results, strict=True)}
    told: set[int] = set()
    for promise in promises:
        if promise.job_id not in told:
            told.add(promise.job_id)
            job, result = by_id[promise.job_id]
            if result.outcome == "cancelled":
                left = left_at(job, result)
                assert left is not None and left <= promise.start, f"{promise} but it waited until {left}"
                continue
            begun = result.start
            assert begun is not None and begun <= promise.start, f"{promise} but it started at {begun}"


def none_is_moved_by_those_behind(
    case: Case, results: Sequence[Result], rerun: Callable[[Case], Sequence[Result]], job_id: int
) -> None:
    """Conservative on an `exact` case: without the jobs behind it, job and all before it fare the same."""
    assert case == exact(case), "this law is one of exact cases"
    place = {job.job_id: (job.submit, job.job_id) for job in case.jobs}
    kept = tuple(job for job in case.jobs if place[job.job_id] <= place[job_id])
    before = {job.job_id: result for job, result in zip(case.jobs, results, strict=True)}
    for job, result in zip(kept, rerun(replace(case, jobs=kept)), strict=True):
        assert result == before[job.job_id], (
            f"without the jobs behind {job_id}, job {job.job_id} has {result}, with them {before[job.job_id]}"
        )
