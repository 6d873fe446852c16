"""Random small workloads that cover every feature of the engine, with ties, zeros and pending outages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.oracle.model import ReferencePowerControls
from tests.oracle.priority_rules import BACKFILL_ORDER, NAMES, OVERRUN_RULE, PREDICTING, rule_for
from tests.oracle.reference import Outage, ReferenceGroup, ReferenceJob, Reservation, Run, simulate


@dataclass(frozen=True)
class Case:
    """Inputs of one simulation: machine, jobs and settings."""

    seed: int
    jobs: tuple[ReferenceJob, ...]
    groups: tuple[ReferenceGroup, ...]
    queues: dict[str, tuple[str, ...]]
    outages: tuple[Outage, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    policy: str = "fcfs"
    depth: int | None = 0
    """Reservations per group, made anew at every pass: 0 none, 1 EASY, k; None: conservative, which keeps them."""
    backfill_order: str | None = None
    at_limit: str = "extend"
    schedule_per: str = "instant"
    placement: str = "first"
    overrun: str | None = None
    """None: that of the policy, or double."""
    max_wait: float = math.inf
    power_controls: ReferencePowerControls | None = None


def run_reference(case: Case) -> Run:
    """The reference simulator's result."""
    rule, fixed = rule_for(case.policy, case.jobs)
    order = case.backfill_order or BACKFILL_ORDER.get(case.policy)
    own = (None, True) if order is None else rule_for(order, case.jobs)
    return simulate(
        case.jobs,
        case.groups,
        queues=case.queues,
        outages=case.outages,
        reservations=case.reservations,
        rule=rule,
        fixed=fixed,
        depth=case.depth,
        backfill_rule=own[0],
        backfill_fixed=own[1],
        at_limit=case.at_limit,
        schedule_per=case.schedule_per,
        placement=case.placement,
        overrun=case.overrun or OVERRUN_RULE.get(case.policy, "double"),
        max_wait=case.max_wait,
        power_controls=case.power_controls,
    )


def random_case(seed: int) -> Case:
    """The random case of this seed; its features are random too."""
    return with_longest_wait(with_predictions(with_planning_times(plain_case(seed))))


def plain_case(seed: int) -> Case:
    """The same without planned, limit and overrun_planned times."""
    rng = Random(seed)
    unit = rng.choice([1.0, 1.0, 1.0, 0.25, 0.25, 0.0])
    groups = draw_groups(rng)
    queues = draw_queues(rng, groups)
    jobs = draw_sizes(rng, groups, rng.randint(5, rng.choice([12, 30, 60])))
    jobs = draw_lengths(rng, jobs, unit)
    jobs, span = draw_submits(rng, jobs, groups, unit)
    first = min(job.submit for job in jobs)
    outages = draw_outages(rng, groups, first, span, unit) if rng.random() < 0.35 else ()
    reservations = draw_reservations(rng, groups, first, span, unit) if rng.random() < 0.25 else ()
    jobs = draw_constraints(rng, jobs, [*queues, *(r.name for r in reservations)], first, span, unit)
    if rng.random() < 0.3:
        jobs = rng.sample(jobs, len(jobs))
    depth = rng.choice([0, 0, 1, 1, 2, 3, 50, None, None])
    backfill_order = bool(depth) and rng.random() < 0.4
    return Case(
        seed=seed,
        jobs=tuple(jobs),
        groups=groups,
        queues=queues,
        outages=outages,
        reservations=reservations,
        policy="fcfs" if rng.random() < 0.25 else rng.choice(NAMES),
        depth=depth,
        backfill_order=rng.choice(["sjf", "smallest", "wfp3"]) if backfill_order else None,
        at_limit=rng.choice(["extend", "extend", "kill"]),
        schedule_per=rng.choice(["instant", "instant", "event"]),
        placement=rng.choice(["first", "balance"]),
    )


PLANNING_TIMES_SHARE = 0.4
"""Share of the cases in which some jobs have planned_s, limit_s and overrun_planned_s."""


def with_planning_times(case: Case) -> Case:
    """In a share of the cases: jobs with planned_s, limit_s and overrun_planned_s, and an overrun rule.

    They have their own random generator, so that the rest of a case depends on its seed only.
    """
    rng = Random(f"beliefs {case.seed} {case.power_controls is not None}")
    if rng.random() >= PLANNING_TIMES_SHARE:
        return case
    shares = [rng.choice([0.0, 0.5, 1.0]) for _ in range(3)]
    long = rng.choice([1.0, 1.0, 60.0, 3600.0])  # so that steps of minutes and hours are taken too
    first = min(job.submit for job in case.jobs)
    jobs = []
    for job in case.jobs:
        job = replace(
            job, submit=first + (job.submit - first) * long, runtime=job.runtime * long, estimate=job.estimate * long
        )
        known = [rng.random() < share for share in shares]
        spans = [_planning_time(rng, job) for _ in range(3)]
        planned, limit, overrun_planned = (span if yes else None for span, yes in zip(spans, known, strict=True))
        jobs.append(replace(job, planned=planned, limit=limit, overrun_planned=overrun_planned))
    return replace(case, jobs=tuple(jobs), overrun=rng.choice(["double", "steps", "steps", "quantile", "quantile"]))


PREDICTING_SHARE = 0.15
"""Share of the cases in which the policy predicts."""


def with_predictions(case: Case) -> Case:
    """In a share of the cases: a policy that predicts from the user's jobs; with its own random generator."""
    rng = Random(f"predictions {case.seed} {case.power_controls is not None}")
    if rng.random() >= PREDICTING_SHARE:
        return case
    users = [None, *range(rng.choice([1, 2, 5]))]
    jobs = tuple(replace(job, user=rng.choice(users)) for job in case.jobs)
    overrun, order = rng.choice([None, case.overrun]), rng.choice([None, case.backfill_order])
    return replace(case, jobs=jobs, policy=rng.choice(PREDICTING), overrun=overrun, backfill_order=order)


LONGEST_WAIT_SHARE = 0.2
"""Share of the cases in which jobs that have waited too long go first."""


def with_longest_wait(case: Case) -> Case:
    """In a share of the cases: a longest wait, of which the jobs' estimates tell the order; with its own generator."""
    rng = Random(f"longest wait {case.seed} {case.power_controls is not None}")
    if rng.random() >= LONGEST_WAIT_SHARE:
        return case
    estimate = rng.choice(case.jobs).estimate
    return replace(case, max_wait=rng.choice([0.0, 1.0, 0.25 * estimate, estimate, 2 * estimate, 10 * estimate]))


def _planning_time(rng: Random, job: ReferenceJob) -> float:
    """Seconds: zero, too short, exact or too long."""
    some = rng.choice([job.runtime, job.estimate, rng.choice([0.0, 0.5, 1.0, 3.0, 61.0, 90.0, 361.0])])
    scale = rng.choice([0.0, 0.1, 0.25, 0.5, 1.0, 1.0, 1.0, 1.5, 2.0, 4.0])
    return round(4 * some * scale) / 4


def snap(value: float, unit: float) -> float:
    """The value on the grid of `unit` seconds (0: no grid)."""
    return round(value / unit) * unit if unit else value


def draw_groups(rng: Random) -> tuple[ReferenceGroup, ...]:
    count = rng.choice([1, 1, 1, 2, 2, 3, 4])
    style = rng.choice(["whole", "whole", "shared", "mixed"])
    groups = []
    for i in range(count):
        if style == "whole" or (style == "mixed" and rng.random() < 0.5):
            groups.append(ReferenceGroup(f"g{i}", rng.choice([1, 2, 4, 4, 8, 10, 16]), cores=rng.choice([1, 4])))
        else:
            memory_gb = rng.choice([0.0, 0.0, 1.2505, 4.0, 16.0])
            cores, gpus = rng.choice([2, 4, 8]), rng.choice([0, 0, 1, 2, 4])
            groups.append(ReferenceGroup(f"g{i}", rng.randint(1, 5), cores, memory_gb, gpus, shared=True))
    return tuple(groups)


def draw_queues(rng: Random, groups: Sequence[ReferenceGroup]) -> dict[str, tuple[str, ...]]:
    if rng.random() < (0.8 if len(groups) == 1 else 0.3):
        return {}
    names = [group.name for group in groups]
    return {f"q{i}": tuple(rng.sample(names, rng.randint(1, len(names)))) for i in range(rng.randint(1, 3))}


def draw_sizes(rng: Random, groups: Sequence[ReferenceGroup], count: int) -> list[ReferenceJob]:
    """Jobs with resource needs only; columns for shared groups are present for all jobs or none."""
    widest = max(group.nodes for group in groups)
    style = rng.choice(["any", "small", "large", "few", "few"])
    few = [rng.randint(1, widest) for _ in range(3)]
    large_share = rng.choice([0.0, 0.0, 0.05])
    shared = [group for group in groups if group.shared]
    cores = max((g.cores * g.nodes for g in shared), default=0) if rng.random() < 0.7 else 0
    memory_mb = max((g.memory_gb * 1000 * g.nodes for g in shared), default=0) if rng.random() < 0.7 else 0
    gpus = max((g.gpus * g.nodes for g in shared), default=0) if rng.random() < 0.7 else 0
    ids = rng.sample(range(1, 3 * count), count)
    if rng.random() < 0.6:
        ids.sort()
    jobs = []
    for job_id in ids:
        nodes = {
            "any": rng.randint(1, widest),
            "small": rng.randint(1, max(1, widest // 4)),
            "large": rng.randint((widest + 1) // 2, widest),
            "few": rng.choice(few),
        }[style]
        if rng.random() < large_share:
            nodes = widest + rng.randint(1, 3)
        job = ReferenceJob(job_id, 0.0, 0.0, 0.0, nodes)
        if cores:
            job = replace(job, cores=rng.choice([0, 1, 2, rng.randint(1, cores), cores]))
        if memory_mb:
            job = replace(job, memory_mb=rng.choice([0.0, 250.0, rng.randint(0, int(memory_mb * 4)) / 4]))
        if gpus:
            job = replace(job, gpus=rng.choice([0, 0, 1, rng.randint(0, gpus)]))
        jobs.append(job)
    return jobs


def draw_lengths(rng: Random, jobs: list[ReferenceJob], unit: float) -> list[ReferenceJob]:
    lengths = rng.choice(["set", "uniform", "skewed"])
    guesses = rng.choice(["exact", "exact", "over", "under", "round", "tiny", "mixed", "mixed"])
    made = []
    for job in jobs:
        if lengths == "set":
            run = rng.choice([0.0, 1.0, 2.0, 5.0, 10.0, 10.0, 60.0, 100.0])
        elif lengths == "uniform":
            run = rng.uniform(0, 100)
        else:
            run = math.exp(rng.gauss(2.5, 1.5))
        run = snap(run, unit)
        guess = rng.choice(["exact", "over", "under", "round", "tiny"]) if guesses == "mixed" else guesses
        estimate = {
            "exact": run,
            "over": snap(run * rng.uniform(1, 5), unit),
            "under": snap(run / 2 ** rng.uniform(0, 8), unit),
            "round": rng.choice([10.0, 60.0, 300.0]),
            "tiny": rng.choice([0.0, 0.25, 0.5, 1.0, 1.5]),
        }[guess]
        made.append(replace(job, runtime=run, estimate=estimate))
    return made


def draw_submits(
    rng: Random, jobs: list[ReferenceJob], groups: Sequence[ReferenceGroup], unit: float
) -> tuple[list[ReferenceJob], float]:
    """Submission times dense enough for queues to form; also returns their span."""
    nodes = sum(group.nodes for group in groups)
    work = sum(min(job.nodes, nodes) * (job.runtime + 1.0) for job in jobs)
    span = snap(work / nodes * rng.choice([0.2, 0.5, 0.8, 1.0]), unit) + 1.0
    origin = rng.choice([0.0, 0.0, 0.0, 1000.0, -50.0, 1.6e9])
    bursts = [snap(rng.uniform(0, span), unit) for _ in range(rng.randint(1, 5))]
    style = rng.choice(["spread", "bursts", "both", "both", "at once"])
    submits = []
    for _ in jobs:
        if style == "at once":
            at = 0.0
        elif style == "bursts" or (style == "both" and rng.random() < 0.5):
            at = rng.choice(bursts)
        else:
            at = snap(rng.uniform(0, span), unit)
        submits.append(origin + at)
    if rng.random() < 0.6:
        submits.sort()
    return [replace(job, submit=at) for job, at in zip(jobs, submits, strict=True)], span


def draw_outages(
    rng: Random, groups: Sequence[ReferenceGroup], first: float, span: float, unit: float
) -> tuple[Outage, ...]:
    outages = []
    for _ in range(rng.randint(1, 4)):
        group = rng.choice(groups)
        start, end, announced = draw_window(rng, first, span, unit)
        if rng.random() < 0.12:
            end = math.inf
        outages.append(Outage(group.name, rng.randint(1, group.nodes), start, end, announced))
    return tuple(outages)


def draw_reservations(
    rng: Random, groups: Sequence[ReferenceGroup], first: float, span: float, unit: float
) -> tuple[Reservation, ...]:
    reservations = []
    for i in range(rng.randint(1, 2)):
        group = rng.choice(groups)
        window = draw_window(rng, first, span, unit)
        reservations.append(Reservation(f"r{i}", group.name, rng.randint(1, group.nodes), *window))
    return tuple(reservations)


def draw_window(rng: Random, first: float, span: float, unit: float) -> tuple[float, float, float]:
    """(start, end, announced): planned, half planned or a surprise."""
    start = first + snap(rng.uniform(-0.1, 1.2) * span, unit)
    end = start + max(snap(rng.uniform(0.02, 0.6) * span, unit), 1.0)
    announced = rng.choice([-math.inf, start, start - snap(rng.uniform(0, 0.5) * span, unit)])
    return start, end, announced


def draw_constraints(
    rng: Random, jobs: list[ReferenceJob], queues: list[str], first: float, span: float, unit: float
) -> list[ReferenceJob]:
    """Queues, dependencies, holds and cancellations."""
    after_share = rng.choice([0.0, 0.0, 0.0, 0.2, 0.5])
    begin_share = rng.choice([0.0, 0.0, 0.0, 0.3])
    cancel_share = rng.choice([0.0, 0.0, 0.0, 0.15, 0.5])
    together = first + snap(rng.uniform(0, span), unit)
    before: list[ReferenceJob] = []  # a job may only depend on those drawn before it: no circles
    made = {}
    for job in rng.sample(jobs, len(jobs)) if rng.random() < 0.3 else jobs:
        if queues and rng.random() < 0.8:
            job = replace(job, queue=rng.choice([*queues, "unlisted"]))
        if before and rng.random() < after_share:
            think = rng.choice([0.0, 0.0, 1.0, 7.5, snap(rng.uniform(0, 30), unit)])
            job = replace(job, after=rng.choice(before[-5:]).job_id, think=think)
        if rng.random() < begin_share:
            job = replace(job, begin=rng.choice([together, job.submit + snap(rng.uniform(-10, 40), unit)]))
        if rng.random() < cancel_share:
            other = rng.choice(jobs)
            times = [
                job.submit + rng.choice([-5.0, 0.0]),
                job.submit + snap(rng.uniform(0, 120), unit),
                other.submit + other.runtime,
                together,
            ]
            job = replace(job, cancel=rng.choice(times))
        before.append(job)
        made[job.job_id] = job
    return [made[job.job_id] for job in jobs]
