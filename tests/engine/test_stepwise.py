"""A stepwise run gives exactly the log of the whole run."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kilowait
from kilowait.engine.interface import PriorityPolicy
from kilowait.jobs import ExecutionLog
from kilowait.policies import resolve
from tests.engine.stepwise_policy import INTERPRETED, StepwiseScheduler, as_bytes
from tests.oracle import conversion
from tests.oracle.workloads import Case, random_case

CASES = 3 if INTERPRETED else 50
DEPTHS = (0, 1, 2, None)
RULES = ("fcfs", "sjf", "wfp3")


def whole(case: Case, policy: str | PriorityPolicy | None = None) -> ExecutionLog:
    return kilowait.simulate(
        conversion.job_table(case.jobs),
        conversion.cluster(case),
        policy=policy or case.policy,
        backfill=conversion.DEPTHS.get(case.depth, case.depth),  # type: ignore[arg-type]
        backfill_order=case.backfill_order,
        at_limit=case.at_limit,
        schedule_per=case.schedule_per,
        placement=case.placement,
        overrun=case.overrun or "double",
        on_oversized="drop",
    )


@pytest.mark.parametrize("depth", DEPTHS, ids=["none", "easy", "2", "conservative"])
@pytest.mark.parametrize("policy", RULES)
def test_stepwise_run_gives_the_log_of_the_whole_run(policy: str, depth: int | None) -> None:
    """Six hundred cases in all: every combination has its own seeds."""
    first = 1000 * (1 + RULES.index(policy) * len(DEPTHS) + DEPTHS.index(depth))
    started = 0
    for seed in range(first, first + CASES):
        drawn = random_case(seed)
        case = replace(drawn, policy=policy, depth=depth, backfill_order=drawn.backfill_order if depth else None)
        own = None if case.backfill_order is None else resolve(case.backfill_order)
        log = StepwiseScheduler(case, resolve(policy), own).run()
        assert as_bytes(log) == as_bytes(whole(case)), f"seed {seed}"
        started += len(log)
    assert started > 5 * CASES


@pytest.mark.parametrize("seed", [42, 57, 426])
def test_stepwise_run_drops_reservations_that_have_passed(seed: int) -> None:
    case = replace(random_case(seed), policy="sjf", depth=None, outages=(), reservations=(), backfill_order=None)
    assert as_bytes(StepwiseScheduler(case, resolve("sjf")).run()) == as_bytes(whole(case))


@pytest.mark.parametrize("policy", ["sjf", "wfp3"])
def test_python_policy_gives_the_log_of_the_compiled_one(policy: str) -> None:
    compiled = resolve(policy)
    slow = replace(compiled, compiled=False)
    for seed in range(20000, 20000 + 2 * CASES):
        case = random_case(seed)
        assert as_bytes(whole(case, slow)) == as_bytes(whole(case, compiled)), f"seed {seed}"
