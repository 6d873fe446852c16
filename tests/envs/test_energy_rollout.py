"""Whole runs with power controls and decisions from observations."""

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, Outage
from kilowait.engine.settings import Settings
from kilowait.envs.energy_env import EnergyDecisionSettings, run_energy_policy
from kilowait.envs.kernels import state_stack
from kilowait.envs.observation_spec import ENERGY_FEATURES as FEATURES
from kilowait.envs.power_setup import PowerConfig
from tests.envs.energy_workloads import MACHINE, NEVER, crowded, quiet

AREA, LENGTH = list(FEATURES).index("area"), list(FEATURES).index("length")


def policy_at(column, levels, level=0, queue_window=128):
    """A decision function: the slot of the smallest feature at a DVFS state, or hold."""

    def decide(observation):
        mask = observation["mask"][0, : queue_window * levels].reshape(queue_window, levels)[:, level]
        scores = np.where(mask == 1, observation["jobs"][0, :, column], np.inf)
        best = int(np.argmin(scores))
        return np.array([queue_window * levels if np.isinf(scores[best]) else best * levels + level])

    return decide


def assert_same_schedule(log, engine_log):
    assert np.array_equal(log.jobs()["start_s"], engine_log.jobs()["start_s"], equal_nan=True)
    assert np.array_equal(log.level, engine_log.level) and np.array_equal(log.end_s, engine_log.end_s)
    assert (log.states is None) == (engine_log.states is None)
    if log.states is not None:
        for name in ("time_s", "group", "shutting_down", "asleep", "waking"):
            assert np.array_equal(getattr(log.states, name), getattr(engine_log.states, name)), name


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    "power_controls", ["dvfs=1.1", "sleep=timeout:100:reserve=2+dvfs=1.1", "sleep=predictive+dvfs=1.1"]
)
def test_policy_from_observations_matches_its_log(level, power_controls):
    jobs = quiet(150, 1).with_columns(beta=None, power_w=None)
    decision_settings = EnergyDecisionSettings(hold_s=NEVER)
    power = PowerConfig("taurus", power_controls=power_controls)
    resolved = power.setup(jobs, MACHINE, len(jobs))
    assert resolved.power_tables.may.shape[1] == 3 and resolved.power_tables.may.all()
    log = run_energy_policy(jobs, MACHINE, policy_at(AREA, 3, level), power=power, decision_settings=decision_settings)
    controls = replace(resolved.power_controls, preferred_level=np.full(len(jobs), level))
    assert_same_schedule(log, kw.simulate(jobs, MACHINE, "saf", "easy", power_controls=controls))
    assert log.run["policy"] == "agent" and (log.level == level).all()


def test_row_order_does_not_matter():
    jobs = quiet(60, 2)
    order = np.random.default_rng(0).permutation(60)
    power = PowerConfig("taurus", power_controls="sleep=timeout:50+dvfs=1.3")
    levels = power.setup(jobs, MACHINE, 60).power_tables.may.shape[1]
    plain = run_energy_policy(jobs, MACHINE, policy_at(AREA, levels), power=power)
    mixed = run_energy_policy(jobs[order], MACHINE, policy_at(AREA, levels), power=power)
    assert np.array_equal(plain.jobs()["start_s"][order], mixed.jobs()["start_s"])
    spent = [power.setup(log.jobs_table.sorted(), MACHINE, 60) for log in (plain, mixed)]
    assert spent[0].account(plain).it_kwh == pytest.approx(spent[1].account(plain).it_kwh)


def test_run_continues_when_the_node_state_array_is_full(monkeypatch):
    jobs = quiet(150, 3).with_columns(beta=None, power_w=None)
    power = PowerConfig("taurus", power_controls="sleep=timeout:20")
    engine_log = kw.simulate(
        jobs, MACHINE, "saf", "easy", power_controls=power.setup(jobs, MACHINE, 150).power_controls
    )
    monkeypatch.setattr(state_stack, "SPARE", 3)
    small_array_log = run_energy_policy(
        jobs, MACHINE, policy_at(AREA, 1), power=power, decision_settings=EnergyDecisionSettings(hold_s=NEVER)
    )
    assert len(engine_log.states) > 250
    assert_same_schedule(small_array_log, engine_log)


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
    machine = Cluster(groups=MACHINE.groups, outages=[Outage(MACHINE.groups[0].name, start_s=300, end_s=900, nodes=6)])
    power = PowerConfig("taurus", power_controls="sleep=timeout:30")
    log = run_energy_policy(
        jobs,
        machine,
        policy_at(LENGTH, 1),
        power=power,
        decision_settings=EnergyDecisionSettings(hold_s=NEVER),
        settings=Settings("easy"),
    )
    engine_log = kw.simulate(jobs, machine, "sjf", "easy", power_controls=power.setup(jobs, machine, n).power_controls)
    assert_same_schedule(log, engine_log)
    assert (log.job_outcome == engine_log.job_outcome).all() and len(np.unique(engine_log.job_outcome)) > 1
