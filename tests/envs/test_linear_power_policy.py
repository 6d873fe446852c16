"""Linear power policy inside the engine."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.linear_batch import LinearAgent, named_weights
from kilowait.agents.linear_power import WEIGHT_MEANINGS, LinearPowerAgent, agent_from_controls, saf_order_weights
from kilowait.energy.controls import resolve_controls
from kilowait.energy.power import PowerModel
from kilowait.envs.power_setup import PowerConfig
from tests.envs.energy_workloads import MACHINE, quiet, signals

FREE = "sleep=timeout:600+dvfs=3"


def untied(jobs, seed, pace=1.6):
    """All areas differ, so that the order does not depend on the rounding of a logarithm."""
    random = np.random.default_rng(seed)
    return jobs.with_columns(estimate_s=jobs["estimate_s"] + random.random(len(jobs)), submit_s=jobs["submit_s"] * pace)


def with_weights(agent, **changed):
    weights = dict(zip(WEIGHT_MEANINGS, agent.weights, strict=True)) | changed
    return LinearPowerAgent(np.array(list(weights.values())), agent.power_controls, changed and agent.signal)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("slowdown", "when_crowded", "timeout_s", "reserve"),
    [(1.1, False, 100, 2), (1.5, True, 300, 0), (1.3, False, 10, 5)],
)
def test_linear_policy_reproduces_hand_tuned_controls(seed, slowdown, when_crowded, timeout_s, reserve):
    jobs = untied(quiet(200, seed), seed)
    order = saf_order_weights(16)
    if seed:
        known = (
            "length",
            "width",
            "length_squared",
            "share",
            "age",
            "patience",
        )  # features of the linear batch agent too
        random_weights = np.random.default_rng(seed).normal(0, 0.3, len(known)).tolist()
        order = {name: order.get(name, 0.0) + by for name, by in zip(known, random_weights, strict=True)}
    linear = named_weights(**{**order, "width": order["width"] * 3 / np.log(17)})  # its width is ln(nodes) / 3
    text = f"sleep=timeout:{timeout_s}:reserve={reserve}+dvfs={slowdown}{':always' if when_crowded else ''}"
    resolved = resolve_controls(text, jobs, MACHINE, PowerModel.preset("taurus"))
    expected = kw.simulate(jobs, MACHINE, LinearAgent(linear).policy, "easy", power_controls=resolved.controls)
    agent = agent_from_controls(
        16, order=order, slowdown=slowdown - 1, when_crowded=when_crowded, timeout_s=timeout_s, reserve=reserve / 16
    )
    log = kw.simulate(jobs, MACHINE, agent.bind_power(PowerConfig("taurus", power_controls=FREE)), "easy")
    assert np.array_equal(log.jobs()["start_s"], expected.jobs()["start_s"])
    assert np.array_equal(log.level, expected.level)
    for name in ("time_s", "group", "shutting_down", "asleep", "waking"):
        assert np.allclose(getattr(log.states, name), getattr(expected.states, name), rtol=1e-12), name


def test_only_long_jobs_are_slowed_down():
    jobs = untied(quiet(150, 3), 3).with_columns(beta=None, power_w=None)
    agent = with_weights(agent_from_controls(16, timeout_s=300), slowdown=0.2, slowdown_length=1.0, crowded=0.0)
    log = kw.simulate(jobs, MACHINE, agent.bind_power(PowerConfig("taurus", power_controls=FREE)), "easy")
    slow = log.level > 0
    by_job = jobs["estimate_s"][log.job]
    assert slow.any() and not slow.all()
    assert by_job[slow].min() > 3600 * np.exp(-3 * 0.2)  # shorter jobs may not be slowed down


def test_spare_nodes_follow_demand():
    jobs = untied(quiet(150, 4), 4, pace=4.0)
    default = agent_from_controls(16, timeout_s=60)
    more_spare = with_weights(default, spare_demand=4.0)
    waits = [
        kw.simulate(jobs, MACHINE, agent.bind_power(PowerConfig("taurus", power_controls=FREE)), "easy")
        .jobs()["wait_s"]
        .mean()
        for agent in (default, more_spare)
    ]
    assert waits[1] < waits[0]


def test_jobs_are_shifted_while_the_signal_is_high_and_all_run():
    jobs = untied(quiet(120, 5), 5, pace=8.0)
    power = PowerConfig("taurus", power_controls=FREE, **signals())
    plain = LinearPowerAgent(agent_from_controls(16, timeout_s=300).weights, signal="carbon")
    holding = LinearPowerAgent(with_weights(plain, hold=1.0).weights, signal="carbon")
    logs = [kw.simulate(jobs, MACHINE, agent.bind_power(power), "easy") for agent in (plain, holding)]
    grams = [
        float((signals()["carbon"].mean(log.start_s, log.end_s) * (log.end_s - log.start_s)).sum()) for log in logs
    ]
    assert grams[1] < 0.9 * grams[0]
    waits = logs[1].jobs()["wait_s"]
    assert np.isfinite(logs[1].jobs()["end_s"]).all() and waits.max() < 3 * 86400
    assert waits.mean() > logs[0].jobs()["wait_s"].mean()


def test_decisions_do_not_depend_on_row_order():
    jobs = untied(quiet(80, 6), 6)
    order = np.random.default_rng(0).permutation(80)
    agent = agent_from_controls(16, slowdown=0.5, when_crowded=True, timeout_s=100).bind_power(
        PowerConfig("taurus", power_controls=FREE)
    )
    first = kw.simulate(jobs, MACHINE, agent, "easy").jobs()["end_s"]
    again = kw.simulate(jobs[order], MACHINE, agent, "easy").jobs()["end_s"]
    assert np.array_equal(first[order], again)
