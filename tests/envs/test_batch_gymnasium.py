"""Checks by Gymnasium and Stable-Baselines3."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import kilowait as kw
import kilowait.envs
from tests.envs.workloads import crowded

MACHINE = kw.Cluster.from_nodes(16)


def make_env(**arguments):
    return gymnasium.make(
        "kilowait/Batch-v0", jobs=crowded(120, 0), cluster=MACHINE, episode_jobs=40, queue_window=16, **arguments
    )


def test_gymnasium_env_checker():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(minimum|maximum|infinity).*")  # scales are not bounds
        check_env(make_env().unwrapped)


def test_make_vec_returns_the_native_vector_env():
    vec = gymnasium.make_vec(
        "kilowait/Batch-v0",
        num_envs=3,
        vectorization_mode="vector_entry_point",
        jobs=crowded(120, 0),
        cluster=MACHINE,
        episode_jobs=40,
    )
    assert type(vec.unwrapped).__name__ == "BatchVectorEnv"
    observation, _ = vec.reset(seed=1)
    assert vec.observation_space.contains(observation)
    vec.close()


def test_stable_baselines_checker_and_maskable_ppo_training():
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
    from sb3_contrib import MaskablePPO

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its advice about images and ranges
        sb3.check_env(make_env().unwrapped)
    env = make_env()
    model = MaskablePPO("MultiInputPolicy", env, n_steps=64, batch_size=32, n_epochs=1, seed=0, device="cpu")
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(128)
    assert any(not np.array_equal(a, b.detach()) for a, b in zip(before, model.policy.parameters(), strict=True))
    observation, _ = env.reset(seed=0)
    action, _ = model.predict(observation, action_masks=env.unwrapped.action_masks())
    assert observation["mask"][action] == 1
