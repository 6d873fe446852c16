"""Behavior cloning: the network learns the decisions of the expert."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import kilowait as kw
from kilowait.agents.network_policies import NetworkAgent
from kilowait.agents.networks import network, q_network
from kilowait.agents.networks.heads import greedy_actions
from kilowait.agents.rl.behavior_cloning import HISTORY, BehaviorCloningSettings, _choice_loss, imitate
from kilowait.envs.batch_env import BatchVectorEnv
from kilowait.envs.gpu_env import GpuVectorEnv
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.training.environments import make_expert_env
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.rl_settings import RLTraining
from kilowait.synth import gpu_workload

MACHINE = kw.Cluster.from_nodes(64)
JOBS = kw.lublin(3000, 64, load=1.1, seed=3)
GPUS = kw.Cluster.preset("gpu-mixed")
GPU_JOBS = gpu_workload(500, GPUS, load=1.1, seed=2)


def batch(jobs, copies=16, **settings):
    return BatchVectorEnv(
        copies, jobs=jobs, cluster=MACHINE, episode_jobs=100, queue_window=32, autoreset_mode="SameStep",
        backfill_order="agent", **settings,
    )  # fmt: skip


def agreement(agent, expert_env, steps=60) -> float:
    """Share of the expert's decisions on other jobs that the greedy network makes too."""
    observation, _ = expert_env.vec.reset(seed=5)
    same = []
    for _ in range(steps):
        expert_actions = expert_env.choose()
        same.append(greedy_actions(agent, observation) == expert_actions)
        observation = expert_env.vec.step(expert_actions)[0]
    expert_env.close()
    return float(np.mean(same))


@pytest.mark.parametrize("make", [network, q_network])
def test_cloned_saf_agrees_with_saf_on_later_jobs(make):
    expert_env = make_expert_env("saf", batch(JOBS[:2000]), MACHINE)
    agent = make(expert_env.vec.spec_of_observation, width=32)
    before = agreement(agent, make_expert_env("saf", batch(JOBS[2000:]), MACHINE))
    history = imitate(agent, expert_env, BehaviorCloningSettings("saf", 16_000), algorithm="any", seed=1)
    expert_env.close()
    after = agreement(agent, make_expert_env("saf", batch(JOBS[2000:]), MACHINE))
    assert before < 0.8 and after > 0.9
    slowdown = {
        name: kw.metrics(kw.simulate(JOBS[2000:], MACHINE, policy, "easy"))["mean_bsld"]
        for name, policy in (
            ("agent", NetworkAgent(agent, expert_env.vec.decision_settings)),
            ("saf", "saf"),
            ("fcfs", "fcfs"),
        )
    }
    assert abs(slowdown["agent"] - slowdown["saf"]) < 0.1 * (slowdown["fcfs"] - slowdown["saf"])
    assert history[-1].losses["agreement"] > 0.85 > history[0].losses["agreement"]


def test_cloned_srtf_agrees_on_gpu_cluster():
    def vec(jobs):
        return GpuVectorEnv(8, jobs=jobs, cluster=GPUS, episode_jobs=60, queue_window=16, autoreset_mode="SameStep")

    expert_env = make_expert_env("srtf", vec(GPU_JOBS[:300]), GPUS)
    agent = network(expert_env.vec.spec_of_observation, width=32)
    imitate(agent, expert_env, BehaviorCloningSettings("srtf", 8_000), algorithm="any", seed=1)
    expert_env.close()
    assert agreement(agent, make_expert_env("srtf", vec(GPU_JOBS[300:]), GPUS)) > 0.9


def test_gpu_expert_schedules_as_engine():
    vec = GpuVectorEnv(1, jobs=GPU_JOBS[:80], cluster=GPUS, episode_jobs=80, autoreset_mode="Disabled")
    expert_env = make_expert_env("sjf", vec, GPUS)
    vec.reset(options={"first": 0})
    while not vec.step(expert_env.choose())[2][0]:
        pass
    start_s = vec.simulator.states.job_state["start_s"][0, :80].copy()
    log = kw.simulate(GPU_JOBS[:80], GPUS, "sjf", "skip")
    assert np.array_equal(start_s, log.jobs()["start_s"])
    expert_env.close()


def test_large_margin_loss_values():
    q_net = q_network(BatchVectorEnv(1, jobs=JOBS[:50], cluster=MACHINE, episode_jobs=20).observation_spec)
    scores = torch.tensor([[1.0, 0.1, -torch.inf], [1.0, 0.9, -torch.inf], [0.0, 3.0, -torch.inf]])
    loss = _choice_loss(q_net, scores, torch.tensor([0, 0, 0]), margin=0.8)
    assert loss.tolist() == pytest.approx([0.0, 0.7, 3.8])


QUICK = RLTraining(
    total_timesteps=16 * 4 * 4,
    num_envs=4,
    episode_jobs=40,
    queue_window=16,
    windows=2,
    window_jobs=60,
    expert="saf",
    expert_steps=32 * 4 * 14,
    hyperparameters={"n_steps": 16, "validate_every": 2, "checkpoint_every": 2},
)


def trained(folder, settings=QUICK, **arguments):
    return train_network(JOBS[:300], JOBS[300:500], MACHINE, settings, folder=folder, **arguments)


class Killed(Exception):
    pass


Q_SETTINGS = {
    "train_freq": 16, "gradient_steps": 1, "batch_size": 16, "learning_starts": 64, "buffer_size": 500,
    "validate_every": 2, "checkpoint_every": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted_runs(tmp_path_factory):
    """Uninterrupted trainings, by algorithm."""
    settings = {"ppo": QUICK, "d3qn": replace(QUICK, algo="d3qn", hyperparameters=Q_SETTINGS)}
    return {name: (one, *trained(tmp_path_factory.mktemp(name), one)) for name, one in settings.items()}


@pytest.mark.parametrize(
    ("algo", "stop"),
    [("ppo", ("imitation", 12)), ("ppo", ("imitation", 14)), ("ppo", ("after", 3)), ("d3qn", ("imitation", 12))],
)
def test_resumed_after_kill_equals_uninterrupted(tmp_path, uninterrupted_runs, algo, stop):
    settings, uninterrupted, history = uninterrupted_runs[algo]
    stage, number = stop

    def kill(update):
        if update.number == number and ("imitation" in update.losses) == (stage == "imitation"):
            raise Killed

    with pytest.raises(Killed):
        trained(tmp_path / "cut", settings, progress=kill)
    updates = []
    resumed, again = trained(tmp_path / "cut", settings, resume=True, progress=updates.append)
    first = updates[0].number if "imitation" in updates[0].losses else -updates[0].number
    assert first == {("imitation", 12): 11, ("imitation", 14): -1, ("after", 3): -3}[stop]
    one, other = uninterrupted.network.state_dict(), resumed.network.state_dict()
    assert len(again) == len(history) and all(torch.equal(one[name], other[name]) for name in one)
    assert uninterrupted.provenance["training"]["expert"] == "saf"
    record = json.loads((tmp_path / "cut" / HISTORY).read_text())
    assert len(record["updates"]) == 14 and record["expert"] == "saf"


def test_cloned_network_is_kept_if_training_is_worse(tmp_path):
    settings = replace(
        QUICK, hyperparameters={**QUICK.hyperparameters, "learning_rate": 0.5}
    )  # which ruins any network
    agent, history = trained(tmp_path / "run", settings)
    assert max(update.validation for update in history if update.validation == update.validation) > history[-1].best
    assert agreement(agent.network, make_expert_env("saf", expert_vec(), MACHINE), 30) > 0.8


def expert_vec():
    return BatchVectorEnv(
        4, jobs=JOBS[300:500], cluster=MACHINE, episode_jobs=40, queue_window=16, autoreset_mode="SameStep",
        backfill_order="agent",
    )  # fmt: skip


def test_errors(tmp_path):
    for expert, error, message in (
        ("saff", UnknownNameError, "did you mean 'saf'"),
        ("lookahead:base=saf:widht=3", UnknownNameError, "did you mean 'width'"),
        ("fair_share", InputError, "depends on the usage of users"),
    ):
        with pytest.raises(error, match=message):
            trained(tmp_path / "x", replace(QUICK, expert=expert))
    gpu = GpuVectorEnv(1, jobs=GPU_JOBS[:80], cluster=GPUS, episode_jobs=40)
    for expert, message in (("lookahead", "does not support GPU clusters"), ("wfp3", "changes while jobs wait")):
        with pytest.raises(InputError, match=message):
            make_expert_env(expert, gpu, GPUS)
    trained(tmp_path / "saf")
    with pytest.raises(InputError, match="was started with warm start"):
        trained(tmp_path / "saf", replace(QUICK, expert="sjf"), resume=True)
