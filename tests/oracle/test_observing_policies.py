"""Policies that observe jobs: engine and reference report the same starts and ends, in the same order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.jit_entry import SCORE_SIGNATURE
from kilowait.engine.kernels.jit import compile_entry
from kilowait.policies import simulate as engine_simulate
from tests.oracle import conversion
from tests.oracle.model import ReferenceJob
from tests.oracle.reference import simulate
from tests.oracle.workloads import Case, random_case

BLOCK = 50


def nearest(job: Any, now: float, parameters: Any) -> float:
    """Jobs whose estimate is nearest to a decaying mean of the observed values go first."""
    if job.ran_s > 0.0:
        parameters[0] = 0.5 * parameters[0] + 0.5 * job.ran_s
        return 0.0
    if job.ran_s < 0.0:
        parameters[0] = 0.9 * parameters[0] + 0.1 * job.nodes
        return 0.0
    return abs(job.estimate_s - parameters[0])


class Nearest:
    """The same for the reference simulator."""

    def __init__(self) -> None:
        self.memory = 3.0

    def __call__(self, job: ReferenceJob, now: float, eligible: float) -> float:
        return abs(max(job.estimate, 1.0) - self.memory)

    def observe(self, job: ReferenceJob, ran: float | None) -> None:
        if ran is None:
            self.memory = 0.9 * self.memory + 0.1 * job.nodes
        else:
            self.memory = 0.5 * self.memory + 0.5 * ran


def rule(moving: bool) -> PriorityPolicy:
    return PriorityPolicy(
        "nearest", compile_entry(nearest, SCORE_SIGNATURE), np.array([3.0]), time_dependent=moving, observes_jobs=True
    )


def reference_run(case: Case, moving: bool) -> Any:
    return simulate(
        case.jobs, case.groups, queues=case.queues, outages=case.outages, reservations=case.reservations,
        rule=Nearest(), fixed=not moving, depth=case.depth, at_limit=case.at_limit, schedule_per=case.schedule_per,
        placement=case.placement, overrun=case.overrun or "double",
    )  # fmt: skip


def engine(case: Case, moving: bool) -> Any:
    depth = conversion.DEPTHS.get(case.depth, case.depth)
    return conversion.run_of(
        engine_simulate(
            conversion.job_table(case.jobs),
            conversion.cluster(case),
            rule(moving),
            depth,
            at_limit=case.at_limit,
            schedule_per=case.schedule_per,
            placement=case.placement,
            overrun=case.overrun or "double",
            on_oversized="drop",
        )
    )


@pytest.mark.parametrize("first", range(0, 300, BLOCK))
def test_observing_policy_runs_equally_in_engine_and_reference(first: int) -> None:
    for seed in range(first, first + BLOCK):
        case = replace(random_case(seed), backfill_order=None)
        differs = conversion.difference(case, reference_run(case, bool(seed % 2)), engine(case, bool(seed % 2)))
        assert differs is None, differs


def test_learned_state_is_reset_for_every_run() -> None:
    case = replace(random_case(7), backfill_order=None)
    mine = rule(True)
    table, machine = conversion.job_table(case.jobs), conversion.cluster(case)
    starts = [engine_simulate(table, machine, mine, "easy", on_oversized="drop").jobs()["start_s"] for _ in range(2)]
    np.testing.assert_array_equal(*starts)
    assert mine.parameters.tolist() == [3.0]


def test_observations_change_the_schedule() -> None:
    """Shows that the tests above can fail."""
    differing = 0
    for seed in range(60):
        case = replace(random_case(seed), backfill_order=None)
        unobserving = Nearest()
        unobserving.observe = lambda job, ran: None  # type: ignore[method-assign]
        forgetful = simulate(
            case.jobs, case.groups, queues=case.queues, outages=case.outages, reservations=case.reservations,
            rule=unobserving, fixed=True, depth=case.depth, at_limit=case.at_limit, schedule_per=case.schedule_per,
            placement=case.placement, overrun=case.overrun or "double",
        )  # fmt: skip
        differing += conversion.difference(case, forgetful, engine(case, False)) is not None
    assert differing > 10


def test_python_policy_observes_the_same_jobs() -> None:
    slow = PriorityPolicy("slow", nearest, np.array([3.0]), time_dependent=True, observes_jobs=True, compiled=False)
    for seed in range(40):
        case = replace(random_case(seed), backfill_order=None, schedule_per="instant")
        table, machine = conversion.job_table(case.jobs), conversion.cluster(case)
        starts = [
            engine_simulate(table, machine, each, "easy", on_oversized="drop").jobs()["start_s"]
            for each in (slow, rule(True))
        ]
        np.testing.assert_array_equal(*starts)
