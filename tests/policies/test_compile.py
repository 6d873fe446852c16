"""User-defined policies: compiled with Numba if possible, else run in Python after a warning."""

from __future__ import annotations

import json
import math
import warnings
from functools import partial
from typing import Any

import pytest

import kilowait
from kilowait.errors import InputError, KilowaitError
from kilowait.policies import policy, simulate
from tests.engine.stepwise_policy import INTERPRETED, as_bytes
from tests.engine.test_stepwise import whole
from tests.oracle.workloads import random_case
from tests.policies.waiting_jobs import TEN, order, waiting

ABC = waiting((1, 6, 200), (2, 9, 100), (3, 8, 110))
compiling = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")


def shortest(job: Any, now: float) -> float:
    return job.estimate_s


def wfp(job: Any, now: float) -> float:
    return -(((now - job.submit_s) / job.estimate_s) ** 3 * job.units)


def by_detour(job: Any, now: float) -> float:
    """A score that Numba cannot compile, because it uses text."""
    return float(json.loads(json.dumps(float(job.estimate_s))))


def slow(function: Any, **settings: Any) -> Any:
    """The policy of a function that cannot be compiled, and its warning."""
    with pytest.warns(UserWarning, match="cannot be compiled and will run in Python, many times slower") as seen:
        rule = policy(**settings)(function) if settings else policy(function)
    assert len(seen) == 1
    return rule


def test_user_defined_policy() -> None:
    rule = kilowait.policy(shortest)
    assert (rule.name, rule.time_dependent, rule.compiled) == ("shortest", False, True)
    assert order(ABC, rule) == "BCA"


def test_policy_that_reads_now_is_time_dependent() -> None:
    rule = policy(wfp)
    assert rule.time_dependent and rule.compiled
    assert policy(time_dependent=False)(wfp).time_dependent is False
    assert policy(time_dependent=True, name="own name")(shortest).time_dependent is True
    assert policy(name="own name")(shortest).name == "own name"


def test_policy_whose_nested_function_reads_now_is_time_dependent() -> None:
    def outer(job: Any, now: float) -> float:
        def inner() -> float:
            return now

        return job.submit_s - inner()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert policy(outer).time_dependent


def test_user_defined_policies_reproduce_built_in_ones() -> None:
    mine, time_dependent = policy(shortest), policy(wfp)
    for seed in range(3 if INTERPRETED else 60):
        case = random_case(seed)
        assert as_bytes(whole(case, mine)) == as_bytes(whole(case, "sjf")), f"seed {seed}"
        assert as_bytes(whole(case, time_dependent)) == as_bytes(whole(case, "wfp3")), f"seed {seed}"


@compiling
def test_uncompilable_policy_warns_and_gives_the_same_log() -> None:
    rule = slow(by_detour)
    assert (rule.name, rule.compiled, rule.time_dependent) == ("by_detour", False, False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no second one
        for seed in range(40):
            case = random_case(seed)
            assert as_bytes(whole(case, rule)) == as_bytes(whole(case, "sjf")), f"seed {seed}"


@compiling
def test_fixed_python_policy_scores_each_job_once() -> None:
    calls: list[int] = []

    def counting(job: Any, now: float) -> float:
        calls.append(int(job.number))
        return float(job.estimate_s)

    order(ABC, slow(counting))
    assert sorted(calls) == [0, 1, 2, 3]
    calls.clear()
    order(ABC, slow(counting, time_dependent=True))
    assert len(calls) > 4


def test_wrong_number_of_arguments_is_an_error() -> None:
    with pytest.raises(InputError, match="takes 1 arguments; write it as a function of"):
        policy(lambda job: 0.0)  # type: ignore[arg-type, misc]
    with pytest.raises(InputError, match="takes 3 arguments"):
        policy(lambda job, now, more: 0.0)  # type: ignore[arg-type, misc]
    with pytest.raises(InputError, match="is 3; write a plain function of"):
        policy(3)  # type: ignore[call-overload]


def test_unknown_job_attribute_error_lists_the_known_ones() -> None:
    def hindsight(job: Any, now: float) -> float:
        return job.runtime_s

    def misspelt(job: Any, now: float) -> float:
        return now - job.submitted_s

    with pytest.raises(InputError, match="policy 'hindsight' reads job.runtime_s; a waiting job has submit_s, "):
        policy(hindsight)
    with pytest.raises(InputError, match="policy 'misspelt' reads job.submitted_s"):
        policy(misspelt)


@compiling
def test_unknown_job_attribute_is_detected_in_nested_reads() -> None:
    def roundabout(job: Any, now: float) -> float:
        it = job
        return it.runtime_s

    with pytest.raises(Exception) as caught:
        policy(roundabout)
    assert isinstance(caught.value, KilowaitError)


class Callable2:
    def __call__(self, job: Any, now: float) -> float:
        return float(job.estimate_s)


def weighted(weight: float, job: Any, now: float) -> float:
    return weight * job.estimate_s


@pytest.mark.parametrize("function", [Callable2(), partial(weighted, 2.0)], ids=["object", "partial"])
def test_callables_that_are_not_plain_functions(function: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            rule = policy(function)
        except InputError:
            return
        assert order(ABC, rule) == "BCA"


def test_usage_share_needs_a_half_life() -> None:
    def least(job: Any, now: float) -> float:
        return job.usage_share

    with pytest.raises(InputError, match="reads job.usage_share; give the half-life of usage"):
        policy(least)
    rule = policy(half_life_s=3600.0)(least)
    assert (rule.time_dependent, rule.half_life_s) == (True, 3600.0)
    jobs = waiting((1, 6, 50), (2, 9, 50), (3, 8, 50), user=[0, 0, 1, 0])
    assert order(jobs, rule) == order(jobs, "fair_share:half_life_s=1h") == "BAC"


@pytest.mark.parametrize("time_dependent", [False, True])
def test_nan_score_error_names_the_job(time_dependent: bool) -> None:
    @policy(time_dependent=time_dependent)
    def broken(job: Any, now: float) -> float:
        return math.nan if job.nodes == 9 else 0.0

    with pytest.raises(InputError) as caught:
        simulate(ABC, TEN, broken, backfill="none")
    when = 100 if time_dependent else 2  # a moving rule is not asked while nothing is free
    assert str(caught.value) == (
        f"policy 'broken' gave job 2 the score NaN at {when} s; a score must be a number (inf is one)"
    )


def test_infinite_scores_are_allowed() -> None:
    @policy
    def last(job: Any, now: float) -> float:
        return math.inf if job.nodes == 6 else (-math.inf if job.nodes == 8 else 0.0)

    assert order(ABC, last) == "CBA"


def test_nan_score_error_names_the_backfill_order() -> None:
    @policy
    def broken(job: Any, now: float) -> float:
        return math.nan

    with pytest.raises(InputError, match="'broken' gave job"):
        simulate(ABC, TEN, "fcfs", "easy", backfill_order=broken)
