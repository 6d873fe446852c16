"""Checks by Gymnasium and Stable-Baselines3."""

import warnings

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import kilowait as kw
from tests.envs.energy_workloads import quiet, signals


def make_env(**arguments):
    return gymnasium.make(
        "kilowait/Energy-v0",
        jobs=quiet(120, 0),
        cluster=kw.Cluster.from_nodes(16),
        power="taurus",
        episode_jobs=20,
        queue_window=8,
        **signals(),
        **arguments,
    )


def test_gymnasium_env_checker():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(minimum|maximum|infinity).*")  # scales are not bounds
        check_env(make_env().unwrapped)


def test_make_vec_returns_the_native_vector_env():
    vec = gymnasium.make_vec(
        "kilowait/Energy-v0",
        num_envs=3,
        vectorization_mode="vector_entry_point",
        jobs=quiet(120, 0),
        cluster=kw.Cluster.from_nodes(16),
        power="taurus",
        episode_jobs=20,
    )
    assert type(vec.unwrapped).__name__ == "EnergyVectorEnv"
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
    model.learn(128)
    observation, _ = env.reset(seed=0)
    action, _ = model.predict(observation, action_masks=env.unwrapped.action_masks())
    assert observation["mask"][action] == 1
