"""Networks trained on a GPU cluster."""

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.envs.expert import GpuPolicyExpert
from kilowait.errors import InputError
from kilowait.experiments.training.environments import env_factory_for
from kilowait.experiments.training.evaluate import evaluate_gpu_agent
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.rl_settings import RLTraining
from kilowait.experiments.training.trainer import later_windows
from kilowait.synth import gpu_workload

CLUSTER = kw.Cluster.preset("gpu-mixed")
JOBS = gpu_workload(400, CLUSTER, load=1.1, seed=2)
QUICK = RLTraining(
    algo="sac",
    total_timesteps=600,
    num_envs=4,
    episode_jobs=30,
    queue_window=16,
    windows=2,
    window_jobs=50,
    hyperparameters={
        "learning_starts": 100,
        "batch_size": 32,
        "gradient_steps": 1,
        "buffer_size": 1000,
        "validate_every": 5,
        "checkpoint_every": 2,
    },
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    return train_network(JOBS[:240], JOBS[240:320], CLUSTER, QUICK, folder=folder)[0], folder


def test_saved_agent_runs_in_simulate(agent):
    network_agent, folder = agent
    log = kw.simulate(JOBS[320:], CLUSTER, network_agent, backfill="none")
    again = kw.simulate(JOBS[320:], CLUSTER, kw.load_agent(folder / "agent.pt"), backfill="none")
    assert np.array_equal(log.jobs()["start_s"], again.jobs()["start_s"])
    assert log.run["policy"] == "agent" and np.isfinite(log.jobs()["end_s"]).all()


def test_agent_declares_its_gpu_settings(agent):
    log = kw.simulate(JOBS[320:], CLUSTER, agent[0], backfill="none")
    assert log.run["migrate"] and log.run["gpu_type_order"] == "fastest" and log.run["placement"] == "best"


class Killed(Exception):
    pass


@pytest.mark.parametrize("updates", [(1,), (7, 15)])
def test_resumed_after_kill_gives_same_agent(agent, tmp_path, updates):
    """Killed once before learning starts, once during the training, and twice."""

    def kill_at(number):
        def kill(update):
            if update.number == number:
                raise Killed

        return kill

    for number, resume in zip(updates, (False, True), strict=False):
        with pytest.raises(Killed):
            train_network(
                JOBS[:240], JOBS[240:320], CLUSTER, QUICK, folder=tmp_path, resume=resume, progress=kill_at(number)
            )
    updates_seen = []
    train_network(JOBS[:240], JOBS[240:320], CLUSTER, QUICK, folder=tmp_path, resume=True, progress=updates_seen.append)
    assert updates_seen[0].number == (updates[-1] // 2 * 2 or 1) + 1 and updates_seen[-1].number == updates_seen[-1].of
    assert (tmp_path / "agent.pt").read_bytes() == (agent[1] / "agent.pt").read_bytes()


def test_time_limit_returns_best_network(tmp_path):
    training = replace(QUICK, algo="ppo", time_limit_s=0.0, hyperparameters={"n_steps": 8, "validate_every": 1})
    trained, history = train_network(JOBS[:240], JOBS[240:320], CLUSTER, training, folder=tmp_path)
    assert len(history) == 1 < history[0].of
    again = kw.load_agent(tmp_path / "agent.pt")
    times, times_again = (
        kw.simulate(JOBS[320:], CLUSTER, policy, backfill="none").jobs()["end_s"] for policy in (trained, again)
    )
    assert np.array_equal(times, times_again)


def test_preemptive_expert_schedules_as_its_policy():
    factory = env_factory_for(CLUSTER, RLTraining(queue_window=32))
    vec = factory.envs(JOBS, 1, 200, False)
    expert = GpuPolicyExpert(kw.policies.resolve("srtf"), vec)
    vec.reset(options={"first": np.array([0])})
    preemptions, done = 0, False
    while not done:
        action = expert.choose()
        assert vec.action_masks()[0, action[0]]
        preemptions += int(vec.decision_settings.queue_window <= action[0] < vec.decision_settings.rows)
        _, _, terminated, _, info = vec.step(action)
        done = bool(terminated[0])
    log = kw.simulate(
        JOBS[:200],
        CLUSTER,
        "srtf",
        "skip",
        placement="best",
        gpu_type_order="fastest",
        migrate=True,
        on_oversized="drop",
    )
    metrics = kw.gpu_metrics(log, CLUSTER)
    assert preemptions > 0
    assert info["episode"]["metric"][0] * 3600 == pytest.approx(metrics["mean_jct_s"], rel=0.03)
    with pytest.raises(InputError, match="srtf, srsf or las"):
        GpuPolicyExpert(kw.policies.resolve("sjf"), vec)


def test_agent_is_compared_with_policies(agent):
    windows = later_windows(JOBS, 40)
    result = evaluate_gpu_agent(agent[0], windows, CLUSTER, policies=("fcfs", "srtf"))
    variants = ("", ", fastest", ", fastest, migration")
    assert set(result["policies"]) == {
        "agent",
        *(policy + variant for policy in ("fcfs", "srtf") for variant in variants),
    }
    expected = {
        speeds: np.mean(
            [
                kw.gpu_metrics(kw.simulate(window, CLUSTER, "fcfs", "skip", gpu_speeds=speeds), CLUSTER)["mean_jct_s"]
                for window in (JOBS[320:360], JOBS[360:400])  # the last 20 %
            ]
        )
        for speeds in ("auto", "none")
    }
    value, low, high = result["ratios"]["agent"]
    assert low <= value <= high
    assert result["policies"]["fcfs"]["mean_jct_s"] == pytest.approx(expected["auto"])
    assert result["policies"]["fcfs"]["mean_jct_s"] != pytest.approx(expected["none"])  # GPU types differ in speed
    assert result["policies"]["fcfs, fastest"]["mean_jct_s"] <= result["policies"]["fcfs"]["mean_jct_s"]


def test_other_gpu_types_are_an_error(agent):
    with pytest.raises(InputError, match="other GPU types"):
        kw.simulate(JOBS[:20], kw.Cluster.preset("gavel"), agent[0], backfill="none")
