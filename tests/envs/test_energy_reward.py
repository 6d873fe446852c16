"""The return equals the episode metric: waits, energy, CO2 and cost, almost to the last digit."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.envs.energy_env import EnergyDecisionSettings, run_energy_policy
from kilowait.envs.power_setup import PowerConfig
from kilowait.envs.reward_terms import ENERGY_TERMS as TERMS
from tests.envs.energy_workloads import MACHINE, energy, quiet, signals
from tests.envs.workloads import two_groups


def random_episode(vec, first, seed):
    """Run an episode with random actions; returns the actions, and the terms of all steps."""
    vec.reset(options={"first": first})
    random = np.random.default_rng(seed)
    actions, rewards, terms, over = [], [], [], False
    while not over:
        mask = vec.action_masks()[0]
        extras = np.flatnonzero(mask[-vec.observation_spec.extra :]) + len(mask) - vec.observation_spec.extra
        some = extras if len(extras) and random.random() < 0.3 else np.flatnonzero(mask)
        actions.append(int(random.choice(some)))
        _, reward, ended, _, infos = vec.step(np.array(actions[-1:]))
        rewards.append(reward[0])
        terms.append(infos["terms"][0])
        over = bool(ended[0])
    return actions, np.array(rewards), np.array(terms), infos["episode"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("machine", [MACHINE, two_groups()], ids=lambda cluster: cluster.name)
@pytest.mark.parametrize(
    "power_controls", ["none", "sleep=timeout:90:reserve=2+dvfs=1.5", "sleep=predictive+budget=90%"]
)
def test_terms_match_accounts_and_metrics_of_the_log(seed, machine, power_controls):
    jobs, first = quiet(120, seed), 11 * seed
    weights = {name: 1.0 + i for i, name in enumerate(TERMS)}
    arguments = {"power": "taurus", "cooling": "pue:1.17", "power_controls": power_controls, **signals()}
    # The reserve of predictive sleep is that of the whole log, so the whole log is one episode.
    window = jobs[first : first + 70]
    vec = energy(window, cluster=machine, episode_jobs=70, reward=weights, sla_s=900.0, **arguments)
    actions, rewards, terms, episode = random_episode(vec, 0, seed)
    left = iter(actions)
    hold = vec.observation_spec.actions - vec.observation_spec.extra
    log = run_energy_policy(
        window,
        machine,
        lambda observation: np.array([next(left, hold)]),
        power=PowerConfig(**arguments),
        decision_settings=EnergyDecisionSettings(),
    )
    ran = log.jobs()
    started = ~np.isnan(ran["start_s"])
    assert np.array_equal(ran["start_s"][started], vec.simulator.states.job_state["start_s"][0][started])
    spent, count = vec.power_setup.account(log), int(started.sum())
    full = np.maximum(window["runtime_s"], 10.0)
    slowdown = np.maximum(ran["turnaround_s"] / full, 1.0)
    users = window["user"]
    metrics = {
        "slowdown": slowdown[started].mean() - 1,
        "wait": kw.metrics(log)["mean_wait_s"] / 3600,
        "sla": (ran["wait_s"][started] > 900).mean(),
        "fairness": np.mean([slowdown[started & (users == user)].mean() for user in np.unique(users[started])]) - 1,
        "turnaround": kw.metrics(log)["mean_turnaround_s"] / 3600,
        "energy": spent.it_kwh / count,
        "co2": spent.co2_kg / count,
        "cost": spent.cost / count,
        "backlog": np.mean((ran["wait_s"] * window["nodes"] * window["runtime_s"])[started]) / machine.nodes / 3600**2,
    }
    assert terms.sum(axis=0) == pytest.approx([metrics[name] for name in TERMS], rel=1e-9)
    total = -sum(weights[name] * metrics[name] for name in TERMS)
    assert rewards.sum() == pytest.approx(total, rel=1e-9)
    assert episode["r"][0] == pytest.approx(total, rel=1e-9)
    assert episode["metric"][0] == pytest.approx(-total, rel=1e-9)
    assert episode["terms"][0] == pytest.approx(terms.sum(axis=0), rel=1e-9)
    if "sleep" in power_controls:
        assert spent.by_state["asleep"] > 0 and spent.by_state["waking"] > 0
    if "dvfs" in power_controls:
        assert len(np.unique(log.level)) > 2


def test_slowdown_at_full_speed_matches_the_metrics():
    jobs = quiet(80, 4)
    vec = energy(jobs, episode_jobs=80, power_controls="none")
    actions, *_, episode = random_episode(vec, 0, 1)
    left = iter(actions)
    log = run_energy_policy(
        jobs,
        MACHINE,
        lambda observation: np.array([next(left, 128)]),
        power=PowerConfig("taurus", power_controls="none"),
    )
    assert episode["terms"][0, 0] == pytest.approx(kw.metrics(log)["mean_bsld"] - 1, rel=1e-12)


def test_precision_late_in_a_long_log():
    """Ten years into a log and its signals no precision is lost."""
    jobs = quiet(60, 1)
    late = 10 * 365 * 86400.0
    signal_series = {name: series.shifted(late) for name, series in signals().items()}
    far = jobs.with_columns(submit_s=jobs["submit_s"] + late)
    both = []
    for table, series in ((jobs, signals()), (far, signal_series)):
        vec = energy(table, episode_jobs=60, power="taurus", **series)
        both.append(random_episode(vec, 0, 3)[3]["terms"][0])
    assert both[0] == pytest.approx(both[1], rel=1e-7)  # start times themselves are rounded to 2e-8 s there


def test_energy_is_charged_at_the_decision():
    """A job's power above its idle nodes is charged when it starts, idle power as time passes."""
    jobs = quiet(200, 0)[:2].with_columns(
        submit_s=np.array([0.0, 3600.0]),
        nodes=np.array([4, 16]),
        runtime_s=np.array([1800.0, 600.0]),
        power_w=np.array([1000.0, 3000.0]),
    )
    vec = energy(jobs, episode_jobs=2, power_controls="none", reward={"energy": 2.0}, **signals())
    vec.reset()
    _, reward, *_ = vec.step(np.array([0]))
    assert reward[0] == pytest.approx(-2 * (16 * 95 * 3600 + (1000 - 4 * 95) * 1800) / 3.6e6 / 2)
    _, reward, over, _, _ = vec.step(np.array([0]))
    assert over[0] and reward[0] == pytest.approx(-2 * (3000 * 600) / 3.6e6 / 2)
