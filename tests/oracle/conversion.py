"""Convert cases of the reference simulator to kilowait tables, and execution logs to reference results."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

import numpy as np

from kilowait.cluster.cluster import Cluster, NodeGroup, Outage, Reservation
from kilowait.cluster.power_controls import PowerControls, SleepPolicy
from kilowait.jobs.execution_log import ExecutionLog, Outcome
from kilowait.jobs.table import JobTable
from tests.oracle.model import NodeStep, ReferenceJob, ReferencePowerControls, Result, Run
from tests.oracle.workloads import Case

DEPTHS: dict[int | None, str] = {0: "none", 1: "easy", None: "conservative"}


def job_table(jobs: tuple[ReferenceJob, ...]) -> JobTable:
    """The jobs as a table, in their order; columns that no job uses are left out."""
    names = sorted({job.queue for job in jobs if job.queue is not None})
    columns: dict[str, Any] = {
        "job_id": [job.job_id for job in jobs],
        "submit_s": [job.submit for job in jobs],
        "runtime_s": [job.runtime for job in jobs],
        "estimate_s": [job.estimate for job in jobs],
        "nodes": [job.nodes for job in jobs],
    }
    for name in ("cores", "memory_mb", "gpus"):
        if any(getattr(job, name) is not None for job in jobs):
            columns[name] = [getattr(job, name) for job in jobs]
    if any(job.user is not None for job in jobs):
        columns["user"] = [-1 if job.user is None else job.user for job in jobs]
    if names:
        columns["queue"] = [-1 if job.queue is None else names.index(job.queue) for job in jobs]
    if any(job.after is not None for job in jobs):
        columns["after_id"] = [-1 if job.after is None else job.after for job in jobs]
        columns["think_s"] = [job.think for job in jobs]
    if any(job.begin is not None for job in jobs):
        columns["begin_s"] = [-math.inf if job.begin is None else job.begin for job in jobs]
    if any(job.cancel is not None for job in jobs):
        columns["cancel_s"] = [math.inf if job.cancel is None else job.cancel for job in jobs]
    for name, column in (("planned", "planned_s"), ("limit", "limit_s"), ("overrun_planned", "overrun_planned_s")):
        if any(getattr(job, name) is not None for job in jobs):
            spans = [getattr(job, name) for job in jobs]
            columns[column] = [math.nan if span is None else span for span in spans]
    if any(job.hold is not None for job in jobs):
        columns["hold_until_s"] = [-math.inf if job.hold is None else job.hold for job in jobs]
    return JobTable(labels={"queue": tuple(names)} if names else None, **columns)


def cluster(case: Case) -> Cluster:
    """The machine of the case. Groups of reservations are numbered after the plain ones, as in the reference."""
    return Cluster(
        groups=tuple(
            NodeGroup(g.name, g.nodes, cores=g.cores, memory_gb=g.memory_gb, gpus=g.gpus, shared=g.shared)
            for g in case.groups
        ),
        queues=case.queues,
        outages=tuple(Outage(*outage) for outage in case.outages),
        reservations=tuple(Reservation(*reservation) for reservation in case.reservations),
    )


def power_controls_of(power_controls: ReferencePowerControls) -> PowerControls:
    """The power controls of the reference simulator as those of kilowait."""
    return PowerControls(
        sleep={
            name: SleepPolicy(rule.timeout, rule.shutdown, rule.wake, rule.reserve, rule.wake_ahead)
            for name, rule in power_controls.sleep.items()
        },
        factor=None if power_controls.factor is None else np.array(power_controls.factor, np.float64),
        watts=None if power_controls.watts is None else np.array(power_controls.watts, np.int64),
        preferred_level=None
        if power_controls.preferred_level is None
        else np.array(power_controls.preferred_level, np.int64),
        full_speed_backlog_nodes=power_controls.full_speed_backlog_nodes,
        budget=power_controls.budget,
    )


def run_engine(case: Case) -> Run:
    """The engine's results in the format of the reference simulator, without reservations."""
    import kilowait

    controls: dict[str, Any] = (
        {} if case.power_controls is None else {"power_controls": power_controls_of(case.power_controls)}
    )
    log = kilowait.simulate(
        job_table(case.jobs),
        cluster(case),
        policy=case.policy,
        backfill=DEPTHS.get(case.depth, case.depth),
        backfill_order=case.backfill_order,
        at_limit=case.at_limit,
        schedule_per=case.schedule_per,
        placement=case.placement,
        overrun=case.overrun,
        max_wait_s=case.max_wait,
        on_oversized="drop",
        **controls,
    )
    return run_of(log)


def run_of(log: ExecutionLog) -> Run:
    """A log in the format of the reference simulator."""
    jobs = log.jobs()
    level = np.zeros(len(jobs), np.int64)
    level[log.job] = log.level
    results = [
        Result(
            _known(jobs["eligible_s"][row]),
            _known(jobs["start_s"][row]),
            _known(jobs["end_s"][row]),
            None if jobs["group"][row] < 0 else int(jobs["group"][row]),
            Outcome(int(jobs["outcome"][row])).name.lower(),
            int(level[row]),
        )
        for row in range(len(jobs))
    ]
    ids = log.jobs_table["job_id"]
    return Run(results, [int(job_id) for job_id in ids[np.asarray(log.job)]], [], _states_of(log))


def _states_of(log: ExecutionLog) -> dict[int, list[NodeStep]]:
    """The steps of each group's nodes; a group that has none is left out."""
    found: dict[int, list[NodeStep]] = {}
    if log.states is not None:
        for row in range(len(log.states)):
            numbers = (int(kind[row]) for kind in (log.states.shutting_down, log.states.asleep, log.states.waking))
            step = NodeStep(float(log.states.time_s[row]), *numbers)
            found.setdefault(int(log.states.group[row]), []).append(step)
    return found


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def difference(case: Case, reference_run: Run, engine: Run) -> str | None:
    """Words for the first job, in simulated time, with a different result; None: all results are equal."""
    settings = (
        f"seed {case.seed}: policy={case.policy!r} depth={case.depth} backfill_order={case.backfill_order!r} "
        f"at_limit={case.at_limit!r} schedule_per={case.schedule_per!r} "
        f"placement={case.placement!r} overrun={case.overrun!r} max_wait={case.max_wait:g}; "
        f"{len(case.jobs)} jobs, {len(case.groups)} groups, {len(case.queues)} queues, "
        f"{len(case.outages)} outages, {len(case.reservations)} reservations"
    )
    if case.power_controls is not None:
        power_controls = case.power_controls
        settings += (
            f"; {sum(job.hold is not None for job in case.jobs)} holds, {power_controls.levels} levels, "
            f"crowd={power_controls.full_speed_backlog_nodes}, budget={power_controls.budget}, "
            f"sleep={dict(power_controls.sleep)}"
        )
    trios = list(zip(case.jobs, reference_run.results, engine.results, strict=True))
    different = [trio for trio in trios if trio[1] != trio[2]]
    if different:
        job, ours, theirs = min(different, key=lambda trio: (_parting(trio[1], trio[2]), trio[0].submit))
        first = f"{len(different)} jobs differ; the first is {job}"
        return f"{settings}\n{first}\n  reference_run   {ours}\n  engine {theirs}"
    for place, (ours_id, theirs_id) in enumerate(zip(reference_run.segments, engine.segments, strict=True)):
        if ours_id != theirs_id:
            return (
                f"{settings}\nall jobs fare the same, but segment {place} is job {theirs_id}, not {ours_id}: "
                "segments stand in the order in which they were started"
            )
    for g in sorted({*reference_run.states, *engine.states}):
        steps = zip_longest(reference_run.states.get(g, ()), engine.states.get(g, ()))
        unlike = [(ours, theirs) for ours, theirs in steps if ours != theirs]
        if unlike:
            mine, other = unlike[0]
            return (
                f"{settings}\nall jobs fare the same, but {len(unlike)} steps of the nodes of group {g} differ"
                f"\n  reference_run   {mine}\n  engine {other}"
            )
    return None


def _parting(one: Result, other: Result) -> float:
    """When two job_results of a job part, as far as they tell."""
    if one.eligible != other.eligible:
        times = [one.eligible, other.eligible]
    elif one.start != other.start:
        times = [one.start, other.start]
    else:
        times = [one.end, other.end]
    return min((time for time in times if time is not None), default=one.eligible or 0.0)
