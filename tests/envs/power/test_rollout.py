"""Whole runs with power controls and decisions from observations."""

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, Outage
from kilowait.engine.settings import Settings
from kilowait.envs.kernels import state_stack_power
from kilowait.envs.power.batched_sim import EnergyDecisionSettings
from kilowait.envs.power.observation_spec import FEATURES
from kilowait.envs.power.power_setup import PowerConfig
from kilowait.envs.power.rollout import run_energy_policy
from tests.envs.power.workloads import (
    MACHINE,
    NEVER,
    crowded,
    quiet,
)

AREA, LENGTH = list(FEATURES).index("area"), list(FEATURES).index("length")


def rule_at(column, levels, level=0, queue_window=128):
    """A decision function: the slot of the smallest feature at a DVFS state, or hold."""

    def decide(seen):
        mask = seen["mask"][0, : queue_window * levels].reshape(queue_window, levels)[:, level]
        scores = np.where(mask == 1, seen["jobs"][0, :, column], np.inf)
        best = int(np.argmin(scores))
        return np.array([queue_window * levels if np.isinf(scores[best]) else best * levels + level])

    return decide


def same(log, rule):
    assert np.array_equal(log.jobs()["start_s"], rule.jobs()["start_s"], equal_nan=True)
    assert np.array_equal(log.level, rule.level) and np.array_equal(log.end_s, rule.end_s)
    assert (log.states is None) == (rule.states is None)
    if log.states is not None:
        for name in ("time_s", "group", "shutting_down", "asleep", "waking"):
            assert np.array_equal(getattr(log.states, name), getattr(rule.states, name)), name


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    "power_controls", ["dvfs=1.1", "sleep=timeout:100:reserve=2+dvfs=1.1", "sleep=predictive+dvfs=1.1"]
)
def test_policy_from_observations_matches_its_log(level, power_controls):
    jobs = quiet(150, 1).with_columns(beta=None, power_w=None)
    asking = EnergyDecisionSettings(hold_s=NEVER)
    power = PowerConfig("taurus", power_controls=power_controls)
    pulled = power.setup(jobs, MACHINE, len(jobs))
    assert pulled.power_tables.may.shape[1] == 3 and pulled.power_tables.may.all()
    log = run_energy_policy(jobs, MACHINE, rule_at(AREA, 3, level), power=power, decision_settings=asking)
    own = replace(pulled.power_controls, preferred_level=np.full(len(jobs), level))
    same(log, kw.simulate(jobs, MACHINE, "saf", "easy", power_controls=own))
    assert log.run["policy"] == "agent" and (log.level == level).all()


def test_row_order_does_not_matter():
    jobs = quiet(60, 2)
    order = np.random.default_rng(0).permutation(60)
    power = PowerConfig("taurus", power_controls="sleep=timeout:50+dvfs=1.3")
    levels = power.setup(jobs, MACHINE, 60).power_tables.may.shape[1]
    plain = run_energy_policy(jobs, MACHINE, rule_at(AREA, levels), power=power)
    mixed = run_energy_policy(jobs[order], MACHINE, rule_at(AREA, levels), power=power)
    assert np.array_equal(plain.jobs()["start_s"][order], mixed.jobs()["start_s"])
    spent = [power.setup(log.jobs_table.sorted(), MACHINE, 60) for log in (plain, mixed)]
    assert spent[0].account(plain).it_kwh == pytest.approx(spent[1].account(plain).it_kwh)


def test_run_continues_when_the_node_state_array_is_full(monkeypatch):
    jobs = quiet(150, 3).with_columns(beta=None, power_w=None)
    power = PowerConfig("taurus", power_controls="sleep=timeout:20")
    rule = kw.simulate(
        jobs, MACHINE, "saf", "easy", power_controls=power.setup(jobs, MACHINE, 150).power_controls
    )
    monkeypatch.setattr(state_stack_power, "SPARE", 3)
    few = run_energy_policy(
        jobs, MACHINE, rule_at(AREA, 1), power=power, decision_settings=EnergyDecisionSettings(hold_s=NEVER)
    )
    assert len(rule.states) > 250
    same(few, rule)


def test_outages_dependencies_and_cancellations_are_simulated():
    jobs = crowded(80, 5)
    n = len(jobs)
    after = np.full(n, -1)
    after[10::7] = jobs["job_id"][3 : 3 + len(after[10::7])]
    jobs = jobs.with_columns(
        after_id=after,
        think_s=np.full(n, 5.0),
        cancel_s=np.where(np.arange(n) % 9 == 4, jobs["submit_s"] + 100, np.inf),
        hold_until_s=np.where(np.arange(n) % 11 == 5, jobs["submit_s"] + 200, -np.inf),
    )
    machine = Cluster(
        groups=MACHINE.groups, outages=[Outage(MACHINE.groups[0].name, start_s=300, end_s=900, nodes=6)]
    )
    power = PowerConfig("taurus", power_controls="sleep=timeout:30")
    log = run_energy_policy(
        jobs,
        machine,
        rule_at(LENGTH, 1),
        power=power,
        decision_settings=EnergyDecisionSettings(hold_s=NEVER),
        settings=Settings("easy"),
    )
    rule = kw.simulate(
        jobs, machine, "sjf", "easy", power_controls=power.setup(jobs, machine, n).power_controls
    )
    same(log, rule)
    assert (log.job_outcome == rule.job_outcome).all() and len(np.unique(rule.job_outcome)) > 1
