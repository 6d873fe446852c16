"""Policies that predict: engine and reference use the same predicted times, on arrival and at every pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.jit_entry import SCORE_SIGNATURE
from kilowait.engine.kernels.jit import compile_entry
from kilowait.policies import simulate as engine_simulate
from tests.oracle import conversion, priority_rules
from tests.oracle.model import ReferenceJob
from tests.oracle.power_workloads import power_case
from tests.oracle.reference import simulate
from tests.oracle.workloads import Case, random_case

BLOCK = 50


def guesses(job: Any, now: float, parameters: Any) -> float:
    """What jobs of as many nodes ran for, fading; half of it, and a part of the last guess, is what is planned."""
    seen = job.nodes % 4
    if job.ran_s > 0.0:
        parameters[seen] = 0.5 * parameters[seen] + 0.5 * job.ran_s
        return 0.0
    if job.ran_s < 0.0:
        parameters[4] = parameters[4] + 1.0
        return 0.0
    guess = parameters[seen] + 0.25 * (parameters[4] % 3.0)
    job.planned_s = 0.5 * guess + 0.125 * job.planned_s
    job.estimate_s = guess
    return job.estimate_s * job.nodes


class Guesses:
    """The same for the reference simulator."""

    def __init__(self) -> None:
        self.memory = [3.0, 5.0, 0.0, 8.0, 0.0]

    def predict(self, job: ReferenceJob, now: float, eligible: float) -> tuple[float, float]:
        before = max(job.estimate, 1.0) if job.planned is None else max(job.planned, 1.0)
        if job.limit is not None:
            before = min(before, max(job.limit, 1.0))
        guess = self.memory[job.nodes % 4] + 0.25 * (self.memory[4] % 3.0)
        return guess, 0.5 * guess + 0.125 * before

    def __call__(self, job: ReferenceJob, now: float, eligible: float) -> float:
        return (self.memory[job.nodes % 4] + 0.25 * (self.memory[4] % 3.0)) * job.nodes

    def observe(self, job: ReferenceJob, ran: float | None) -> None:
        if ran is None:
            self.memory[4] += 1.0
        else:
            self.memory[job.nodes % 4] = 0.5 * self.memory[job.nodes % 4] + 0.5 * ran


def rule(moving: bool) -> PriorityPolicy:
    memory = np.array([3.0, 5.0, 0.0, 8.0, 0.0])
    return PriorityPolicy(
        "guesses",
        compile_entry(guesses, SCORE_SIGNATURE),
        memory,
        time_dependent=moving,
        observes_jobs=True,
        predicts=True,
    )


def reference_run(case: Case, mine: Any, fixed: bool) -> Any:
    own = (None, True) if case.backfill_order is None else priority_rules.rule_for(case.backfill_order, case.jobs)
    return simulate(
        case.jobs, case.groups, queues=case.queues, outages=case.outages, reservations=case.reservations,
        rule=mine, fixed=fixed, depth=case.depth, backfill_rule=own[0], backfill_fixed=own[1],
        at_limit=case.at_limit, schedule_per=case.schedule_per, placement=case.placement,
        overrun=case.overrun or "double", power_controls=case.power_controls,
    )  # fmt: skip


def engine(case: Case, mine: Any) -> Any:
    return conversion.run_of(
        engine_simulate(
            conversion.job_table(case.jobs),
            conversion.cluster(case),
            mine,
            conversion.DEPTHS.get(case.depth, case.depth),
            backfill_order=case.backfill_order,
            at_limit=case.at_limit,
            schedule_per=case.schedule_per,
            placement=case.placement,
            overrun=case.overrun or "double",
            on_oversized="drop",
            power_controls=None if case.power_controls is None else conversion.power_controls_of(case.power_controls),
        )
    )


@pytest.mark.parametrize("first", range(0, 300, BLOCK))
def test_engine_and_reference_use_the_same_predictions(first: int) -> None:
    for seed in range(first, first + BLOCK):
        case, moving = random_case(seed), bool(seed % 2)
        differs = conversion.difference(case, reference_run(case, Guesses(), not moving), engine(case, rule(moving)))
        assert differs is None, differs


@pytest.mark.parametrize("first", range(0, 150, BLOCK))
def test_engine_and_reference_use_the_same_predictions_with_power_controls(first: int) -> None:
    for seed in range(first, first + BLOCK):
        case, moving = power_case(seed), bool(seed % 2)
        differs = conversion.difference(case, reference_run(case, Guesses(), not moving), engine(case, rule(moving)))
        assert differs is None, differs


def test_predictions_change_the_schedule() -> None:
    """Shows that the tests above can fail."""
    differing = 0
    for seed in range(60):
        case = replace(random_case(seed), depth=1)
        unobserving = Guesses()
        unobserving.predict = lambda job, now, eligible: (max(job.estimate, 1.0), job.estimate)  # type: ignore[method-assign]
        differing += (
            conversion.difference(case, reference_run(case, unobserving, True), engine(case, rule(False))) is not None
        )
    assert differing > 10
