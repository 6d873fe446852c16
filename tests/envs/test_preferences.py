"""Preference weights sampled for every episode: observation, reward, snapshot."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from kilowait.cluster import Cluster
from kilowait.envs.batch_env import BatchVectorEnv
from kilowait.envs.energy_env import EnergyVectorEnv
from kilowait.envs.gpu_env import GpuVectorEnv
from kilowait.envs.preferences import preference_grid, weights_from
from kilowait.errors import InputError, UnknownNameError
from tests.envs.workloads import crowded

UNITS = {"fairness": 3.0, "slowdown": 0.5}


def batch(copies=3, mode=AutoresetMode.SAME_STEP, **arguments):
    arguments = {"preferences": UNITS, **arguments}
    return BatchVectorEnv(
        copies, jobs=crowded(200, 0), cluster=Cluster.from_nodes(16), episode_jobs=30, queue_window=16,
        autoreset_mode=mode, threads=1, **arguments,
    )  # fmt: skip


def energy(copies=3, mode=AutoresetMode.SAME_STEP):
    return EnergyVectorEnv(
        copies, jobs=crowded(200, 0), cluster=Cluster.from_nodes(16), power="taurus", episode_jobs=20, queue_window=16,
        autoreset_mode=mode, threads=1, preferences={"slowdown": 2.0, "energy": 0.01},
    )  # fmt: skip


def gpu(copies=3, mode=AutoresetMode.SAME_STEP):
    from kilowait.experiments.scenario_inputs import read_workload

    return GpuVectorEnv(
        copies, jobs=read_workload("gpu:60:gpu-mixed:0.9:0").jobs, cluster=Cluster.preset("gpu-mixed"), episode_jobs=12,
        queue_window=16, autoreset_mode=mode, threads=1, preferences={"jct": 2.0, "wait": 3.0, "makespan": 10.0},
    )  # fmt: skip


def choices(observation, random):
    return np.array([random.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in observation["mask"]])


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("make", [batch, energy, gpu])
def test_return_is_minus_the_metric_weighted_by_the_shown_preference(make, mode):
    vec, random = make(mode=mode), np.random.default_rng(1)
    terms = vec.episode_preferences.preferences.terms
    units = np.array([vec.episode_preferences.preferences.units[name] for name in terms])
    places = [list(vec.reward.terms).index(name) for name in terms]
    assert vec.observation_spec.summary[-len(terms) :] == tuple(f"prefers_{name}" for name in terms)
    observation, _ = vec.reset(seed=4)
    total, ended, preferences_seen = np.zeros(3), 0, []
    for _ in range(3000):
        weights = observation["summary"][:, -len(terms) :].copy()
        assert weights.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-6)
        exact = vec.episode_preferences.weights.copy()
        observation, reward, over, _, infos = vec.step(choices(observation, random))
        total += reward
        if over.any():
            for copy in np.flatnonzero(over):
                metrics = infos["episode"]["terms"][copy][places]
                assert total[copy] == pytest.approx(-(exact[copy] * metrics / units).sum(), abs=1e-9, rel=1e-9)
                assert infos["episode"]["r"][copy] == pytest.approx(total[copy], abs=1e-9, rel=1e-9)
                assert infos["episode"]["metric"][copy] == pytest.approx(-total[copy], abs=1e-9, rel=1e-9)
                assert np.array_equal(infos["episode"]["preference"][copy], exact[copy])
                preferences_seen.append(tuple(exact[copy]))
            if mode is AutoresetMode.SAME_STEP:
                assert np.array_equal(infos["final_obs"]["summary"][over][:, -len(terms) :], weights[over])
            else:
                assert np.array_equal(observation["summary"][:, -len(terms) :][over], weights[over])
            total[over] = 0.0
            ended += int(over.sum())
        if ended > 8:
            break
    assert len(set(preferences_seen)) == len(preferences_seen) > 8, "every episode has its own preference"


def test_windows_and_observations_are_the_same_without_preferences():
    plain, with_preferences = batch(preferences=None), batch()
    before, _ = plain.reset(seed=9)
    after, _ = with_preferences.reset(seed=9)
    random = np.random.default_rng(0)
    for _ in range(200):
        actions = choices(before, random)
        assert np.array_equal(before["summary"], after["summary"][:, :-2])
        before, _, _, _, infos = plain.step(actions)
        after, _, _, _, same = with_preferences.step(actions)
        assert np.array_equal(infos["terms"], same["terms"])


@pytest.mark.parametrize("make", [batch, energy, gpu])
def test_snapshot_includes_preferences_and_their_random_stream(make):
    first, second = make(), make()
    random = np.random.default_rng(3)
    observation, _ = first.reset(seed=1)
    for _ in range(25):
        observation = first.step(choices(observation, random))[0]
    again = second.restore(first.snapshot())
    ended = 0
    for _ in range(400):
        assert all(np.array_equal(observation[name], again[name]) for name in observation)
        actions = choices(observation, random)
        observation, reward, over, _, _ = first.step(actions)
        again, same, *_ = second.step(actions)
        assert np.array_equal(reward, same)
        ended += int(over.sum())
    assert ended > 1
    with pytest.raises(InputError, match="no preferences of these terms"):
        batch().restore(batch(preferences=None).snapshot())
    with pytest.raises(InputError, match="snapshot is of an environment of another size"):
        batch(preferences=None).restore(batch().snapshot())


def test_reset_takes_a_preference():
    vec = batch()
    observation, _ = vec.reset(options={"preference": {"slowdown": 3, "fairness": 1}})
    assert observation["summary"][:, -2:].tolist() == [[0.25, 0.75]] * 3
    rows = preference_grid(2, 2)
    observation, _ = vec.reset(options={"preference": rows, "first": 5})
    assert np.array_equal(observation["summary"][:, -2:], rows)
    with pytest.raises(UnknownNameError, match="unknown preference 'fairnes'; did you mean 'fairness'"):
        vec.reset(options={"preference": {"fairnes": 1}})
    with pytest.raises(InputError, match="with a sum of 1"):
        vec.reset(options={"preference": [0.5, 0.6]})
    with pytest.raises(InputError, match="samples no preferences"):
        batch(preferences=None).reset(options={"preference": rows})


def test_single_env_shows_its_preference():
    env = gymnasium.make(
        "kilowait/Batch-v0", jobs=crowded(60, 1), cluster=Cluster.from_nodes(16), episode_jobs=20,
        preferences=UNITS,
    )  # fmt: skip
    observation, _ = env.reset(seed=2, options={"preference": {"fairness": 1}})
    assert env.observation_space.contains(observation)
    assert observation["summary"][-2:].tolist() == [1.0, 0.0]
    total, over = 0.0, False
    while not over:
        observation, reward, over, _, infos = env.step(int(np.flatnonzero(observation["mask"])[-1]))
        total += reward
    assert total == pytest.approx(-infos["episode_terms"][3] / 3.0, abs=1e-9)
    other, _ = env.reset(seed=2)
    assert 0 < other["summary"][-2] < 1 and other["summary"][-2:].sum() == pytest.approx(1)


def test_input_errors():
    with pytest.raises(InputError, match="both reward and preferences"):
        batch(reward={"slowdown": 1.0})
    with pytest.raises(InputError, match="name at least two of slowdown, wait, sla, fairness"):
        batch(preferences={"slowdown": 1.0})
    with pytest.raises(UnknownNameError, match="unknown reward term 'energy'"):
        batch(preferences={"slowdown": 1.0, "energy": 1.0})
    with pytest.raises(InputError, match="the unit of wait is 0"):
        batch(preferences={"slowdown": 1.0, "wait": 0.0})
    with pytest.raises(InputError, match="all preferences are 0"):
        weights_from({"slowdown": 0}, ["slowdown", "wait"])
    with pytest.raises(InputError, match="preference of wait is -1"):
        weights_from({"wait": -1}, ["slowdown", "wait"])
