"""Policies by name, their parameters and error messages."""

from __future__ import annotations

import pytest

from kilowait.engine.interface import PriorityPolicy
from kilowait.errors import InputError, KilowaitError, UnknownNameError
from kilowait.policies import POLICIES, describe_policies, resolve, simulate
from tests.policies.waiting_jobs import TEN, order, waiting

JOBS = waiting((1, 6, 50), (2, 9, 50), (3, 8, 50), user=[0, 0, 1, 0], qos=[0, 0, 0, 0])


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_resolves_and_has_a_description(name: str) -> None:
    assert resolve(name).name == name
    assert describe_policies()[name].endswith(".")
    if not resolve(name).node_level:
        assert sorted(order(JOBS, name)) == ["A", "B", "C"]


def test_policy_names_are_case_insensitive() -> None:
    assert resolve(" SJF ").name == "sjf"


def test_resolve_returns_a_policy_unchanged() -> None:
    rule = PriorityPolicy("mine", lambda job, now, parameters: 0.0)
    assert resolve(rule) is rule


def test_policies_without_parameters_are_cached() -> None:
    assert resolve("sjf") is resolve("sjf")


def test_parameters_in_a_policy_name() -> None:
    rule = resolve("multifactor:age=500:max_age_s=3d:half_life_s=2-12")
    assert rule.name == "multifactor:age=500:max_age_s=3d:half_life_s=2-12"
    assert rule.half_life_s == 216000.0
    assert rule.prepare is not None
    assert rule.prepare(JOBS, TEN)[:2].tolist() == [500.0, 259200.0]
    assert simulate(JOBS, TEN, "alcf_wfp:favour=2.5", backfill="none").run["policy"] == "alcf_wfp:favour=2.5"


def test_parameters_change_the_schedule() -> None:
    assert order(JOBS, "multifactor:age=0:fair_share=0:size=100") == "BCA"
    assert order(JOBS, "multifactor:age=0:fair_share=0:size=-100") == "ACB"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sjff", "unknown policy 'sjff'; did you mean 'sjf'? known: alcf, alcf_wfp, balance,"),
        ("fairshare", "unknown policy 'fairshare'; did you mean 'fair_share'?"),
        ("", "unknown policy ''; known:"),
        ("multifactor:agee=1", "unknown parameter of policy 'multifactor' 'agee'; did you mean 'age'?"),
        ("sjf:x=1", "unknown parameter of policy 'sjf' 'x';"),
    ],
)
def test_unknown_policy_error_suggests_the_nearest_name(name: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve(name)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("multifactor:age", "policy 'multifactor:age': 'age' is not written as name=value"),
        ("multifactor:age=x", "policy 'multifactor:age=x': age is 'x', which is not a number"),
        ("multifactor:age=nan", "the weight age of multifactor is nan"),
        ("multifactor:max_age_s=soon", "'soon' is not a span of time"),
        ("fair_share:half_life_s=0", "half_life_s is '0'; it must be a positive duration"),
        ("alcf_wfp:share=2", "alcf_wfp with share 2"),
        ("random:seed=-1", "the seed is -1; it must be 0 or more"),
    ],
)
def test_invalid_parameter_text_is_an_error(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        simulate(JOBS, TEN, name, backfill="none")
    assert message in str(caught.value)


@pytest.mark.parametrize("wrong", [3, None, ["sjf"], lambda job, now: 0.0])
def test_object_that_is_no_policy_is_an_error(wrong: object) -> None:
    with pytest.raises(InputError, match="the name of a priority policy, or a function decorated with kilowait.policy"):
        resolve(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["multifactor:qos_factor=3", "random:seed=1.5"])
def test_invalid_parameter_values_are_errors(name: str) -> None:
    with pytest.raises(Exception) as caught:
        simulate(JOBS, TEN, name, backfill="none")
    assert isinstance(caught.value, KilowaitError)
