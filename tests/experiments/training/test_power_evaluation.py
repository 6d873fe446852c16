"""Agents trained with power: binding to a power model, runs and evaluation."""

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.linear_power import agent_from_controls
from kilowait.errors import InputError
from kilowait.evaluation.comparison import single_window
from kilowait.experiments.policies import make_policy_configs
from kilowait.experiments.power import PowerTraining
from kilowait.experiments.power_controls import bind_agent_power, check_reward, power_config
from kilowait.experiments.scenario import run_scenario
from kilowait.experiments.settings import PowerSettings, Scenario
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.power_evaluation import (
    control_grid,
    evaluate_power_agent,
    hand_tuned_runs,
    least_within_slowdown,
    pareto_margin,
    pareto_names,
    power_metrics,
)
from kilowait.experiments.training.rl_settings import RLTraining

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(jobs=600, nodes=32, seed=3, load=0.5)
CONTROLS = "sleep=timeout:600+dvfs=1.3"
POWER = PowerTraining.of(PowerSettings("taurus"), CONTROLS, JOBS, MACHINE)
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
    training = replace(QUICK, constraint={"sla": 0.05})
    return train_network(JOBS[:360], JOBS[360:480], MACHINE, training, folder=folder, power=POWER)[0], folder


def test_saved_network_runs_in_simulate(trained):
    agent, folder = trained
    again = kw.load_agent(folder / "agent.pt")
    assert again.power_controls == CONTROLS and again.provenance["env"] == "kilowait/Energy-v0"
    logs = [
        kw.simulate(JOBS[480:], MACHINE, bind_agent_power(policy, POWER.context, CONTROLS), "easy")
        for policy in (agent, again)
    ]
    assert np.array_equal(logs[0].end_s, logs[1].end_s)
    assert np.isfinite(logs[0].jobs()["end_s"]).all()


def test_training_with_other_power_is_not_resumed(trained):
    training = replace(QUICK, constraint={"sla": 0.05}, total_timesteps=512)
    others = {
        "power_controls sleep=timeout:600.*, not dvfs=1.3": replace(POWER, power_controls="dvfs=1.3"),
        "power cooling None, not pue:1.5": replace(POWER, settings=PowerSettings("taurus", cooling="pue:1.5")),
    }
    for message, power in others.items():
        with pytest.raises(InputError, match=message):
            train_network(JOBS[:360], JOBS[360:480], MACHINE, training, folder=trained[1], resume=True, power=power)


def test_network_with_other_power_is_an_error(trained):
    with pytest.raises(InputError, match="--power and --power-controls"):
        kw.simulate(JOBS[480:], MACHINE, trained[0], "easy")
    with pytest.raises(InputError, match="uses power controls, but none are given"):
        bind_agent_power(trained[0], POWER.context, "none")
    with pytest.raises(InputError, match="trained with other DVFS states"):
        kw.simulate(JOBS[480:], MACHINE, bind_agent_power(trained[0], POWER.context, "dvfs=1.1"), "easy")


def test_graph_network_trains_and_runs(tmp_path):
    training = replace(QUICK, network="gat", total_timesteps=64)
    agent = train_network(JOBS[:360], JOBS[360:480], MACHINE, training, folder=tmp_path, power=POWER)[0]
    log = kw.simulate(JOBS[480:520], MACHINE, bind_agent_power(agent, POWER.context, CONTROLS), "easy")
    assert np.isfinite(log.jobs()["end_s"]).all()


def test_scenario_accepts_power_agent(tmp_path):
    path = agent_from_controls(32, slowdown=0.1, timeout_s=600, power_controls=CONTROLS).save(tmp_path / "agent.json")
    scenario = Scenario(
        "lublin:300:32:0.5:3", policy=f"agent:{path}", power=PowerSettings("taurus"), power_controls=CONTROLS
    )
    run = run_scenario(scenario)
    assert run.accounts is not None and run.accounts.by_state["asleep"] > 0 and run.log.level.max() > 0
    with pytest.raises(InputError, match="none are given"):
        run_scenario(replace(scenario, power_controls="none"))
    with pytest.raises(InputError, match="needs a power model"):
        run_scenario(Scenario("lublin:300:32:0.5:3", policy=f"agent:{path}"))
    names = [
        (config.kind, config.power_controls)
        for config in make_policy_configs(f"fcfs,agent:{path}", "easy", f"none,{CONTROLS}", clairvoyant=False)
    ]
    assert ("agent", CONTROLS) in names and ("agent", "none") not in names and ("rule", "none") in names


def test_load_shifting_is_left_to_agent():
    assert power_config(POWER.context, "sleep=break-even+shift=carbon_time:6h").power_controls == "sleep=break-even"


def test_power_terms_need_power_model():
    check_reward({"energy": 1.0}, True)
    check_reward({"slowdown": 1.0}, False)
    with pytest.raises(InputError, match="--power auto"):
        check_reward({"slowdown": 1.0, "co2": 1.0}, False)


def test_agent_is_compared_with_hand_tuned_controls():
    windows = kw.cut_windows(JOBS, 3, window_jobs=150, seed=0)
    agent = agent_from_controls(32, slowdown=0.1, timeout_s=600)
    result = evaluate_power_agent(
        agent, windows, POWER, policies=("saf",), control_sets=("none", "sleep=timeout:600+dvfs=1.1")
    )
    ours, similar = result["policies"]["agent"], result["policies"]["saf, sleep=timeout:600+dvfs=1.1"]
    assert ours["energy"] == pytest.approx(similar["energy"], rel=0.02)
    assert ours["energy"] < result["policies"]["saf, none"]["energy"]
    assert 0.9 < result["margin"]["objective_ratio"][0] < 1.1 and len(result["by_window"]["energy"]) == 3


def test_pareto_front_and_margin():
    def row(kwh, slow):
        return {"energy": np.full(4, kwh), "slowdown": np.full(4, slow)}

    points = {"a": row(1.0, 9.0), "b": row(2.0, 5.0), "c": row(2.5, 6.0), "d": row(3.0, 4.0)}
    assert pareto_names(points) == ["a", "b", "d"]
    assert least_within_slowdown(points, 5.5) == "b" and least_within_slowdown(points, 3.0) == "d"
    dominating = pareto_margin(row(1.8, 5.0), points)
    assert dominating.objective_ratio[0] == pytest.approx(0.9)
    assert dominating.delay_ratio[0] == pytest.approx(5 / 9) and dominating.nondominated_share == 1.0
    assert pareto_margin(row(2.0, 5.0), points).nondominated_share == 0.0
    dominated = pareto_margin(row(2.6, 6.5), points)
    assert dominated.objective_ratio[2] == pytest.approx(1.3) and dominated.nondominated_share == 0.0


def test_control_grid_is_valid():
    grid = control_grid(POWER.context.model, 32)
    assert len(grid) == len(set(grid)) > 100
    control_sets = ["none", "dvfs=1.3:always", *grid[:: len(grid) // 12]]
    points = power_metrics(single_window(JOBS[:60]), POWER.context, hand_tuned_runs(["fcfs"], control_sets))
    assert all(np.isfinite(rows["energy"]).all() for rows in points.values())
    full, slow = points["fcfs, none"], points["fcfs, dvfs=1.3:always"]
    assert slow["slowdown"] > full["slowdown"] and np.isnan(full["co2"])
