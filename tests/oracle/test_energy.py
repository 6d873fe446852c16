"""Energy of reference runs, summed second by second."""

from __future__ import annotations

import math
from random import Random

import pytest

from tests.oracle.energy import Joules, NodeWatts, joules
from tests.oracle.model import Outage, ReferenceGroup, ReferenceJob, ReferencePowerControls, ReferenceSleep
from tests.oracle.power_workloads import power_case
from tests.oracle.workloads import Case, run_reference


def small(**more: object) -> Case:
    """Four nodes with sleep timeout 5 s, shutdown 2 s and wake 3 s; two jobs, the second at a lower level."""
    return Case(
        seed=0,
        jobs=(ReferenceJob(1, 0, 2, 2, 1), ReferenceJob(2, 20, 4, 4, 4)),
        groups=(ReferenceGroup("g", 4),),
        queues={},
        power_controls=ReferencePowerControls(
            sleep={"g": ReferenceSleep(5, 2, 3, ((-math.inf, 1),))},
            factor=(((1.0, 1.0), (1.0, 2.0)),),
            preferred_level=(0, 1),
        ),
        **more,  # type: ignore[arg-type]
    )


BUSY = (((100, 90), (1000, 700)),)
NODES = [NodeWatts(idle=10, shutting_down=5, asleep=1, waking=20)]


def test_by_hand() -> None:
    case = small()
    run = run_reference(case)
    # Three are idle from 0 to 5, one (job 1's) from 2 on. At 5 the three fall, until 7; they sleep until 20, when job 2
    # wakes them; until 23 its fourth node, the reserve, is idle. It runs from 23 to 31.
    assert [(r.start, r.end) for r in run.results] == [(0, 2), (23, 31)]
    assert joules(case, run, BUSY, NODES, 0, 33) == Joules(
        jobs=2 * 100 + 8 * 700,
        idle=10 * (3 * 5 + 1 * 21 + 4 * 2),
        shutting_down=5 * 3 * 2,
        asleep=1 * 3 * 13,
        waking=20 * 3 * 3,
        per_job=(200, 5600),
    )


def test_jobs_draw_on_into_an_outage_and_nodes_that_are_out_draw_nothing() -> None:
    case = small(outages=(Outage("g", 4, 1, 4, 1),))
    spent = joules(case, run_reference(case), BUSY, NODES, 0, 6)
    assert (spent.jobs, spent.idle) == (200, 10 * (3 + 4 * 2))


def test_windows_add_up_and_every_node_second_is_somewhere() -> None:
    for seed in range(60):
        case = power_case(seed, whole=True)
        run = run_reference(case)
        first = int(min(job.submit for job in case.jobs)) - 5
        last = min(int(run.end) + 5, first + 300)
        middle = (first + last) // 2
        rng = Random(seed)
        rows = tuple(tuple(rng.randint(1, 9) for _ in range(4)) for _ in case.jobs)
        busy, rates = (rows,) * len(case.groups), [NodeWatts(3, 5, 7, 11)] * len(case.groups)
        whole = joules(case, run, busy, rates, first, last)
        parts = [joules(case, run, busy, rates, *window) for window in ((first, middle), (middle, last))]
        assert [sum(pair) for pair in zip(*(part[:5] for part in parts), strict=True)] == [*whole[:5]]
        assert sum(whole.per_job) == whole.jobs
        if case.outages or case.reservations:  # capacity may be below what runs
            continue
        seconds = tuple(tuple(job.nodes for _ in range(4)) for job in case.jobs)
        one = joules(case, run, (seconds,) * len(case.groups), [NodeWatts(1, 1, 1, 1)] * len(case.groups), first, last)
        assert sum(one[:5]) == (last - first) * sum(group.nodes for group in case.groups)


def test_only_whole_seconds() -> None:
    case = small(outages=(Outage("g", 1, 0.5, 4, 1),))
    with pytest.raises(ValueError, match="whole seconds"):
        joules(case, run_reference(case), BUSY, NODES, 0, 6)
