"""Energy of a reference run, summed second by second, for workloads in which all events are at whole seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.oracle.model import NodeStep, Run, Table, all_groups, changes_of
from tests.oracle.workloads import Case


class NodeWatts(NamedTuple):
    """Power of a node without a job; a node in an outage draws nothing."""

    idle: int
    shutting_down: int
    asleep: int
    waking: int


class Joules(NamedTuple):
    """Energy by use; `per_job` is in job order and adds up to `jobs`."""

    jobs: int
    idle: int
    shutting_down: int
    asleep: int
    waking: int
    per_job: tuple[int, ...]


def joules(case: Case, run: Run, busy: Table[int], nodes: Sequence[NodeWatts], begin: int, end: int) -> Joules:
    """Joules in `[begin, end)`. `busy`: watts of a job, all its nodes together, by plain group, job and level;
    `nodes`: by plain group. A reservation's nodes draw what those of its group do.

    A job draws from its start to its end, into an outage too. Its nodes are waking (or falling) until they are
    ready, and idle while they wait for the last of them. A debt can make what jobs use exceed what there is: then no
    node is idle.
    """
    _check_whole(case, run)
    names = [group.name for group in case.groups]
    groups = all_groups(case.groups, case.reservations)
    like = [*range(len(names)), *(names.index(r.group) for r in case.reservations)]
    changes = changes_of(case.groups, case.outages, case.reservations)
    per_job = [0] * len(case.jobs)
    idle = falling = asleep = waking = 0
    for second in range(begin, end):
        for plain in range(len(names)):
            spare = 0  # of the group and of the reservations on it together: their nodes are the same
            for g in (g for g in range(len(groups)) if like[g] == plain):
                spare += groups[g].nodes if g == plain else 0
                spare += sum(c.nodes for c in changes if c.group == g and c.time <= second)
                for row, (job, result) in enumerate(zip(case.jobs, run.results, strict=True)):
                    if result.group != g or result.start is None or result.end is None:
                        continue
                    if result.start <= second < result.end:
                        spare -= job.nodes
                        per_job[row] += busy[plain][row][result.level]
            past = [step for step in run.states.get(plain, ()) if step.time <= second]
            now = past[-1] if past else NodeStep(second, 0, 0, 0)
            rates = nodes[plain]
            idle += rates.idle * max(0, spare - now.shutting_down - now.asleep - now.waking)
            falling += rates.shutting_down * now.shutting_down
            asleep += rates.asleep * now.asleep
            waking += rates.waking * now.waking
    return Joules(sum(per_job), idle, falling, asleep, waking, tuple(per_job))


def _check_whole(case: Case, run: Run) -> None:
    times = [time for result in run.results for time in (result.start, result.end) if time is not None]
    times += [step.time for steps in run.states.values() for step in steps]
    times += [change.time for change in changes_of(case.groups, case.outages, case.reservations)]
    odd = [time for time in times if time != int(time)]
    if odd or any(group.shared for group in case.groups):
        raise ValueError(f"only whole nodes and whole seconds can be added up so, not {odd[:3]}")
