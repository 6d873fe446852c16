"""Random small workloads with power controls: load shifting, DVFS levels, node sleep and a power budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.oracle.model import ReferenceGroup, ReferenceJob, ReferencePowerControls, ReferenceSleep, Steps, Table
from tests.oracle.priority_rules import NAMES
from tests.oracle.workloads import (
    Case,
    draw_constraints,
    draw_outages,
    draw_queues,
    draw_reservations,
    draw_sizes,
    snap,
    with_longest_wait,
    with_planning_times,
    with_predictions,
)


def power_case(seed: int, whole: bool = False) -> Case:
    """The case of this seed; `whole`: every group has whole nodes, and everything happens at whole seconds."""
    case = _power_case(seed, whole)
    return case if whole else with_longest_wait(with_predictions(with_planning_times(case)))


def _power_case(seed: int, whole: bool) -> Case:
    rng = Random(f"levers {seed}")
    unit = 1.0 if whole else rng.choice([1.0, 1.0, 1.0, 1.0, 1.0, 0.25, 0.0])
    groups = _groups(rng, whole)
    queues = draw_queues(rng, groups)
    jobs = draw_sizes(rng, groups, rng.randint(3, rng.choice([6, 15, 30])))
    jobs, first, span = _times(rng, jobs, groups, unit)
    outages = draw_outages(rng, groups, first, span, unit) if rng.random() < 0.45 else ()
    reservations = draw_reservations(rng, groups, first, span, unit) if rng.random() < 0.25 else ()
    jobs = draw_constraints(rng, jobs, [*queues, *(r.name for r in reservations)], first, span, unit)
    if whole:
        jobs = [replace(job, think=round(job.think)) for job in jobs]
    jobs = _holds(rng, jobs, first, span, unit)
    depth = rng.choice([0, 1, 1, 2, 3, 50, None, None])
    backfill_order = bool(depth) and rng.random() < 0.3
    return Case(
        seed=seed,
        jobs=tuple(jobs),
        groups=groups,
        queues=queues,
        outages=outages,
        reservations=reservations,
        policy="fcfs" if rng.random() < 0.4 else rng.choice(NAMES),
        depth=depth,
        backfill_order=rng.choice(["sjf", "smallest", "wfp3"]) if backfill_order else None,
        at_limit=rng.choice(["extend", "extend", "kill"]),
        schedule_per=rng.choice(["instant", "instant", "event"]),
        placement=rng.choice(["first", "balance"]),
        power_controls=_power_controls(rng, jobs, groups, first, span, unit, whole),
    )


def _groups(rng: Random, whole: bool) -> tuple[ReferenceGroup, ...]:
    groups = []
    for i in range(rng.choice([1, 1, 1, 2, 2, 3])):
        if whole or rng.random() < 0.85:
            groups.append(ReferenceGroup(f"g{i}", rng.choice([1, 2, 3, 4, 4, 6, 8])))
        else:
            groups.append(ReferenceGroup(f"g{i}", rng.randint(1, 3), rng.choice([2, 4]), shared=True))
    return tuple(groups)


def _times(
    rng: Random, jobs: list[ReferenceJob], groups: Sequence[ReferenceGroup], unit: float
) -> tuple[list[ReferenceJob], float, float]:
    """Lengths and submit times, with idle stretches as well as queues; the first submit and the span."""
    guesses = rng.choice(["exact", "exact", "over", "under", "mixed"])
    long = rng.choice([1.0, 1.0, 4.0])
    for i, job in enumerate(jobs):
        run = long * rng.choice([0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0])
        if unit != 1.0:
            run = snap(run * rng.uniform(0.7, 1.3), unit)
        guess = rng.choice(["exact", "over", "under"]) if guesses == "mixed" else guesses
        scale = {"exact": 1.0, "over": rng.choice([1.5, 2.0, 4.0]), "under": rng.choice([0.5, 0.3, 0.1])}[guess]
        jobs[i] = replace(job, runtime=run, estimate=snap(run * scale, unit))
    nodes = sum(group.nodes for group in groups)
    work = sum(min(job.nodes, nodes) * (job.runtime + 1.0) for job in jobs)
    span = snap(work / nodes / rng.choice([0.15, 0.3, 0.6, 1.0, 2.0]), unit) + 1.0
    origin = rng.choice([0.0, 0.0, 0.0, 100.0, -7.0, 1.6e9])
    bursts = [rng.uniform(0, span) for _ in range(rng.randint(1, 6))]
    crowds = rng.choice([0.0, 0.5, 0.9])
    made = []
    for job in jobs:
        at = rng.choice(bursts) if rng.random() < crowds else rng.uniform(0, span)
        made.append(replace(job, submit=origin + snap(at, unit)))
    return made, min(job.submit for job in made), span


def _holds(rng: Random, jobs: list[ReferenceJob], first: float, span: float, unit: float) -> list[ReferenceJob]:
    share = rng.choice([0.0, 0.0, 0.3, 0.7])
    together = first + snap(rng.uniform(0, span), unit)
    made = []
    for job in jobs:
        if rng.random() < share:
            other = rng.choice(jobs)
            times = [
                together,
                job.submit + rng.choice([-1.0, 0.0, 1.0, 5.0]),
                job.submit + snap(rng.uniform(0, 30), unit),
                other.submit + other.runtime,
                together if job.cancel is None else job.cancel,
            ]
            job = replace(job, hold=rng.choice(times))
            if rng.random() < 0.2:
                job = replace(job, cancel=job.submit + rng.choice([1.0, 2.0, 4.0, 8.0]))
        made.append(job)
    return made


def _power_controls(
    rng: Random,
    jobs: Sequence[ReferenceJob],
    groups: Sequence[ReferenceGroup],
    first: float,
    span: float,
    unit: float,
    whole: bool,
) -> ReferencePowerControls:
    levels = rng.choice([1, 1, 2, 2, 3, 4])
    bounded = rng.random() < 0.45
    sleep = {}
    if rng.random() < 0.75:
        sleep = {g.name: _sleep(rng, g, first, span, unit) for g in groups if not g.shared and rng.random() < 0.85}
    watts = _watts(rng, jobs, groups, levels) if bounded or rng.random() < 0.2 else None
    slower = levels > 1 or rng.random() < 0.4
    likes = rng.choice([None, "any", "any", "lowest"])
    preferred_level = [rng.randrange(levels) if likes == "any" else levels - 1 for _ in jobs]
    return ReferencePowerControls(
        sleep=sleep,
        factor=_factors(rng, len(jobs), len(groups), levels, whole) if slower else None,
        watts=watts,
        preferred_level=None if likes is None else tuple(preferred_level),
        full_speed_backlog_nodes=rng.choice([-1, 0, 0, 1, 2, 5]),
        budget=_budget(rng, watts, first, span, unit) if bounded and watts is not None else None,
    )


def _sleep(rng: Random, group: ReferenceGroup, first: float, span: float, unit: float) -> ReferenceSleep:
    few = [0, 0, 1, 2, group.nodes, group.nodes + 1]
    odd = 0.0 if unit == 1.0 else rng.choice([0.0, 0.25, 0.1])
    reserve: Steps = ((-math.inf, rng.choice(few)),)
    if rng.random() < 0.4:
        reserve = _steps(rng, few, first, span, unit)
    return ReferenceSleep(
        timeout=rng.choice([0.0, 0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0]) + odd,
        shutdown=rng.choice([0.0, 0.0, 1.0, 2.0, 5.0]) + odd,
        wake=rng.choice([0.0, 1.0, 2.0, 3.0, 5.0, 8.0]) + odd,
        reserve=reserve,
        wake_ahead=rng.random() < 0.5,
    )


def _steps(rng: Random, values: Sequence[int], first: float, span: float, unit: float) -> Steps:
    """Steps from a little before the first submit on; every one of them is a change."""
    times = sorted({first + snap(rng.uniform(-0.2, 1.3) * span, unit) for _ in range(rng.randint(1, 5))})
    steps = [(-math.inf, rng.choice(values))]
    for time in times:
        steps.append((time, rng.choice([value for value in values if value != steps[-1][1]])))
    return tuple(steps)


def _factors(rng: Random, jobs: int, groups: int, levels: int, whole: bool) -> Table[float]:
    more = [1.0, 2.0, 3.0] if whole else [1.0, 1.25, 1.5, 2.0, rng.uniform(1, 3)]
    slow_group = rng.random() < 0.4
    table = []
    for g in range(groups):
        rows = []
        for _ in range(jobs):
            row = [rng.choice(more) if slow_group and g > 0 else 1.0]
            while len(row) < levels:
                row.append(row[-1] * rng.choice(more))
            rows.append(tuple(row))
        table.append(tuple(rows))
    return tuple(table)


def _watts(rng: Random, jobs: Sequence[ReferenceJob], groups: Sequence[ReferenceGroup], levels: int) -> Table[int]:
    shares = [1.0, 0.8, 0.5, 0.3]
    odd = rng.random() < 0.2  # a later level need not draw less
    table = []
    for _ in groups:
        rows = []
        for job in jobs:
            full = job.nodes * rng.choice([0, 1, 10, 10, 10, 15])
            rows.append(tuple(round(full * (rng.random() if odd else share)) for share in shares[:levels]))
        table.append(tuple(rows))
    return tuple(table)


def _budget(rng: Random, watts: Table[int], first: float, span: float, unit: float) -> Steps:
    drawn = sorted(draw for group in watts for job in group for draw in job)
    values = [drawn[len(drawn) // 2], drawn[len(drawn) * 3 // 4], drawn[-1], 2 * drawn[-1] + 1, drawn[-1] * 3 + 2]
    if rng.random() < 0.5:
        return ((-math.inf, rng.choice(values)),)
    return _steps(rng, [0, *values], first, span, unit)
