"""The laws hold for the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kilowait.policies import resolve
from tests.engine.stepwise_policy import Decider
from tests.laws import laws
from tests.oracle.conversion import run_engine, run_of
from tests.oracle.model import Result
from tests.oracle.workloads import Case, random_case

CASES = 1000
STEPPED = 300


def results(case: Case) -> Sequence[Result]:
    return run_engine(case).results


@pytest.mark.parametrize("law", laws.GENERAL, ids=lambda law: law.__name__)
def test_general_laws(law: Callable[[Case, Sequence[Result]], None]) -> None:
    for seed in range(CASES):
        case = random_case(seed)
        try:
            law(case, results(case))
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from None


def decided(case: Case) -> Decider:
    """The case run by steps, with the reservations that were handed out."""
    own = None if case.backfill_order is None else resolve(case.backfill_order)
    decider = Decider(case, resolve(case.policy), own)
    decider.run()
    return decider


def test_easy_keeps_its_promise_to_the_head() -> None:
    promised = 0
    for seed in range(STEPPED):
        case = laws.honest(random_case(seed))
        decider = decided(case)
        fared = run_of(decider.simulator.log()).results
        laws.heads_start_by_their_first_promise(case, fared, decider.promises)
        promised += len({promise.job_id for promise in decider.promises if promise.head})
    assert promised > STEPPED  # the law was tried


def test_conservative_keeps_all_promises_and_only_moves_them_forward() -> None:
    promised, again = 0, 0
    for seed in range(STEPPED):
        case = laws.kept(random_case(seed))
        decider = decided(case)
        fared = run_of(decider.simulator.log()).results
        laws.all_start_by_their_first_promise(case, fared, decider.promises)
        laws.promises_only_move_forward(case, decider.promises)
        promised += len({promise.job_id for promise in decider.promises})
        again += len(decider.promises)
    assert promised > STEPPED
    assert again > promised


def test_conservative_is_not_moved_by_those_behind() -> None:
    for seed in range(CASES // 2):
        case = laws.exact(random_case(seed))
        fared = results(case)
        for job in case.jobs[:: max(1, len(case.jobs) // 3)]:
            laws.none_is_moved_by_those_behind(case, fared, results, job.job_id)


def test_general_laws_hold_with_estimates_that_do_not() -> None:
    """Every job says that it runs for a second."""
    for seed in range(CASES // 2):
        case = random_case(seed)
        short = replace(case, jobs=tuple(replace(job, estimate=1.0) for job in case.jobs), depth=1)
        for law in laws.GENERAL:
            law(short, results(short))
