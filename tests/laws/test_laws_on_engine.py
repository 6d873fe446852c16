"""The laws hold for the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kilowait.policies import resolve
from tests.engine.stepwise_policy import StepwiseScheduler
from tests.laws import laws
from tests.oracle.conversion import run_engine, run_of
from tests.oracle.model import Result
from tests.oracle.workloads import Case, random_case

CASES = 1000
STEPPED = 300


def engine_results(case: Case) -> Sequence[Result]:
    return run_engine(case).results


@pytest.mark.parametrize("law", laws.GENERAL, ids=lambda law: law.__name__)
def test_general_laws(law: Callable[[Case, Sequence[Result]], None]) -> None:
    for seed in range(CASES):
        case = random_case(seed)
        try:
            law(case, engine_results(case))
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from None


def run_stepwise(case: Case) -> StepwiseScheduler:
    """The case run step by step, with the reservations that were made."""
    own = None if case.backfill_order is None else resolve(case.backfill_order)
    scheduler = StepwiseScheduler(case, resolve(case.policy), own)
    scheduler.run()
    return scheduler


def test_easy_keeps_the_reservation_of_the_first_job() -> None:
    reserved_jobs = 0
    for seed in range(STEPPED):
        case = laws.easy_case(random_case(seed))
        scheduler = run_stepwise(case)
        results = run_of(scheduler.simulator.log()).results
        laws.first_jobs_start_by_their_first_reservation(case, results, scheduler.job_reservations)
        reserved_jobs += len({reservation.job_id for reservation in scheduler.job_reservations if reservation.head})
    assert reserved_jobs > STEPPED  # the law was tried


def test_conservative_reservations_only_move_earlier() -> None:
    reserved_jobs, again = 0, 0
    for seed in range(STEPPED):
        case = laws.conservative_case(random_case(seed))
        scheduler = run_stepwise(case)
        results = run_of(scheduler.simulator.log()).results
        laws.all_jobs_start_by_their_first_reservation(case, results, scheduler.job_reservations)
        laws.reservations_only_move_earlier(case, scheduler.job_reservations)
        reserved_jobs += len({reservation.job_id for reservation in scheduler.job_reservations})
        again += len(scheduler.job_reservations)
    assert reserved_jobs > STEPPED
    assert again > reserved_jobs


def test_conservative_start_does_not_depend_on_jobs_behind() -> None:
    for seed in range(CASES // 2):
        case = laws.exact_case(random_case(seed))
        results = engine_results(case)
        for job in case.jobs[:: max(1, len(case.jobs) // 3)]:
            laws.jobs_behind_delay_no_job(case, results, engine_results, job.job_id)


def test_general_laws_hold_with_underestimates() -> None:
    """Every job has an estimate of one second."""
    for seed in range(CASES // 2):
        case = random_case(seed)
        short = replace(case, jobs=tuple(replace(job, estimate=1.0) for job in case.jobs), depth=1)
        for law in laws.GENERAL:
            law(short, engine_results(short))
