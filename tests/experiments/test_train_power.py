"""Agents trained with power: binding to a power model, runs and evaluation."""

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.linear_power.agent import from_controls
from kilowait.errors import InputError
from kilowait.experiments.evaluate_power import (
    control_grid,
    evaluate_power_agent,
    hand_tuned_baselines,
    least_within_slowdown,
    pareto_margin,
    pareto_names,
    run_on,
)
from kilowait.experiments.policy_configs import contenders_of
from kilowait.experiments.power import PowerSettings
from kilowait.experiments.scenario import Scenario, run_scenario
from kilowait.experiments.train_power import (
    PowerTraining,
    bind_agent_power,
    check_reward,
    power_config,
)
from kilowait.experiments.train_rl import RLTraining, train_network

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(jobs=600, nodes=32, seed=3, load=0.5)
LEVERS = "sleep=timeout:600+dvfs=1.3"
POWERING = PowerTraining.of(PowerSettings("taurus"), LEVERS, JOBS, MACHINE)
QUICK = RLTraining(
    total_timesteps=256,
    num_envs=4,
    episode_jobs=30,
    queue_window=16,
    windows=2,
    window_jobs=50,
    reward={"energy": 1.0, "slowdown": 0.1},
    hyperparameters={"n_steps": 16, "validate_every": 2},
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("energy")
    how = replace(QUICK, constraint={"sla": 0.05})
    return train_network(JOBS[:360], JOBS[360:480], MACHINE, how, folder=folder, power=POWERING)[0], folder


def test_saved_network_runs_in_simulate(trained):
    player, folder = trained
    again = kw.load_agent(folder / "agent.pt")
    assert again.power_controls == LEVERS and again.provenance["env"] == "kilowait/Energy-v0"
    logs = [
        kw.simulate(JOBS[480:], MACHINE, bind_agent_power(each, POWERING.meter, LEVERS), "easy")
        for each in (player, again)
    ]
    assert np.array_equal(logs[0].end_s, logs[1].end_s)
    assert np.isfinite(logs[0].jobs()["end_s"]).all()


def test_training_with_other_power_is_not_resumed(trained):
    how = replace(QUICK, constraint={"sla": 0.05}, total_timesteps=512)
    others = {
        "power_controls sleep=timeout:600.*, and this is dvfs=1.3": replace(
            POWERING, power_controls="dvfs=1.3"
        ),
        "power .*taurus.*, and this is .*pue:1.5": replace(
            POWERING, settings=PowerSettings("taurus", cooling="pue:1.5")
        ),
    }
    for words, power in others.items():
        with pytest.raises(InputError, match=words):
            train_network(
                JOBS[:360], JOBS[360:480], MACHINE, how, folder=trained[1], resume=True, power=power
            )


def test_network_with_other_power_is_an_error(trained):
    with pytest.raises(InputError, match="--power and --power-controls"):
        kw.simulate(JOBS[480:], MACHINE, trained[0], "easy")
    with pytest.raises(InputError, match="uses power controls, and none are given"):
        bind_agent_power(trained[0], POWERING.meter, "none")
    with pytest.raises(InputError, match="trained with other DVFS states"):
        kw.simulate(JOBS[480:], MACHINE, bind_agent_power(trained[0], POWERING.meter, "dvfs=1.1"), "easy")


def test_graph_network_trains_and_runs(tmp_path):
    how = replace(QUICK, network="gat", total_timesteps=64)
    player = train_network(JOBS[:360], JOBS[360:480], MACHINE, how, folder=tmp_path, power=POWERING)[0]
    log = kw.simulate(JOBS[480:520], MACHINE, bind_agent_power(player, POWERING.meter, LEVERS), "easy")
    assert np.isfinite(log.jobs()["end_s"]).all()


def test_scenario_accepts_power_agent(tmp_path):
    path = from_controls(32, slowdown=0.1, timeout_s=600, power_controls=LEVERS).save(tmp_path / "agent.json")
    asked = Scenario(
        "lublin:300:32:0.5:3", policy=f"agent:{path}", power=PowerSettings("taurus"), power_controls=LEVERS
    )
    done = run_scenario(asked)
    assert done.accounts is not None and done.accounts.by_state["asleep"] > 0 and done.log.level.max() > 0
    with pytest.raises(InputError, match="none are given"):
        run_scenario(replace(asked, power_controls="none"))
    with pytest.raises(InputError, match="needs a power model"):
        run_scenario(Scenario("lublin:300:32:0.5:3", policy=f"agent:{path}"))
    names = [
        (who.kind, who.power_controls)
        for who in contenders_of(f"fcfs,agent:{path}", "easy", f"none,{LEVERS}", clairvoyant=False)
    ]
    assert ("agent", LEVERS) in names and ("agent", "none") not in names and ("rule", "none") in names


def test_load_shifting_is_left_to_agent():
    assert (
        power_config(POWERING.meter, "sleep=break-even+shift=carbon_time:6h").power_controls
        == "sleep=break-even"
    )


def test_power_terms_need_power_model():
    check_reward({"energy": 1.0}, True)
    check_reward({"slowdown": 1.0}, False)
    with pytest.raises(InputError, match="--power auto"):
        check_reward({"slowdown": 1.0, "co2": 1.0}, False)


def test_agent_is_compared_with_hand_tuned_controls():
    windows = [JOBS[0:150], JOBS[150:300], JOBS[300:450]]
    agent = from_controls(32, slowdown=0.1, timeout_s=600)
    found = evaluate_power_agent(
        bind_agent_power(agent, POWERING.meter, LEVERS),
        windows,
        MACHINE,
        POWERING.meter,
        power_controls=LEVERS,
        rules=("saf",),
        sets=("none", "sleep=timeout:600+dvfs=1.1"),
    )
    own, same = found["policies"]["agent"], found["policies"]["saf, sleep=timeout:600+dvfs=1.1"]
    assert own["energy"] == pytest.approx(same["energy"], rel=0.02)
    assert own["energy"] < found["policies"]["saf, none"]["energy"]
    assert 0.9 < found["beyond"]["spent"][0] < 1.1 and len(found["by_window"]["energy"]) == 3


def test_pareto_front_and_margin():
    def row(kwh, slow):
        return {"energy": np.full(4, kwh), "slowdown": np.full(4, slow)}

    hands = {"a": row(1.0, 9.0), "b": row(2.0, 5.0), "c": row(2.5, 6.0), "d": row(3.0, 4.0)}
    assert pareto_names(hands) == ["a", "b", "d"]
    assert least_within_slowdown(hands, 5.5) == "b" and least_within_slowdown(hands, 3.0) == "d"
    out = pareto_margin(row(1.8, 5.0), hands)
    assert out.spent[0] == pytest.approx(0.9) and out.waited[0] == pytest.approx(5 / 9) and out.outside == 1.0
    assert pareto_margin(row(2.0, 5.0), hands).outside == 0.0
    inside = pareto_margin(row(2.6, 6.5), hands)
    assert inside.spent[2] == pytest.approx(1.3) and inside.outside == 0.0


def test_control_grid_is_valid():
    grid = control_grid(POWERING.meter.model, 32)
    assert len(grid) == len(set(grid)) > 100
    points = hand_tuned_baselines([JOBS[:60]], MACHINE, POWERING.meter, ["fcfs"], grid[:: len(grid) // 12])
    assert all(np.isfinite(rows["energy"]).all() for rows in points.values())
    full = run_on(JOBS[:60], MACHINE, POWERING.meter, "fcfs", "easy", "none")
    slow = run_on(JOBS[:60], MACHINE, POWERING.meter, "fcfs", "easy", "dvfs=1.3:always")
    assert slow["slowdown"] > full["slowdown"] and np.isnan(full["co2"])
