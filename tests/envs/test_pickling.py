"""Pickled environments continue as the original does; actions that are not integers are refused. All environments."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import kilowait as kw
from kilowait.envs import ENVIRONMENTS, Feature, RewardTerm
from kilowait.errors import InputError
from kilowait.synth import gpu_workload
from tests.envs.workloads import crowded

GPUS = kw.Cluster.preset("gpu-mixed")
ARGUMENTS = {
    "kilowait/Batch-v0": {"jobs": crowded(120, 0), "cluster": kw.Cluster.from_nodes(16)},
    "kilowait/Energy-v0": {"jobs": crowded(120, 0), "cluster": kw.Cluster.from_nodes(16), "power": "taurus"},
    "kilowait/Gpu-v0": {"jobs": gpu_workload(120, GPUS, seed=1), "cluster": GPUS},
}
PREFERENCES = {
    "kilowait/Batch-v0": {"slowdown": 20.0, "wait": 100.0},
    "kilowait/Energy-v0": {"turnaround": 1000.0, "energy": 1.0},
    "kilowait/Gpu-v0": {"jct": 1000.0, "wait": 100.0},
}


def cost_of_wide_jobs(started):
    return started.sum_per_env(started.wait_s * started["nodes"])


def nodes_of_shown(shown):
    return shown["nodes"]


CUSTOM = {
    "reward": {RewardTerm("wide", cost_of_wide_jobs): 0.1},
    "features": [Feature("own_nodes", nodes_of_shown)],
    "job_info": True,
}


def single(name, **arguments):
    return gymnasium.make(name, **{**ARGUMENTS[name], "episode_jobs": 30, "queue_window": 16, **arguments})


def vector(name, **arguments):
    return gymnasium.make_vec(
        name,
        num_envs=3,
        vectorization_mode="vector_entry_point",
        **{**ARGUMENTS[name], "episode_jobs": 30, "queue_window": 16, **arguments},
    )


def same(first, second):
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    return np.array_equal(first, second, equal_nan=np.asarray(first).dtype.kind == "f")


def random_actions(observation, random):
    """One allowed action per copy; of a single environment, one action."""
    mask = observation["mask"]
    if mask.ndim == 1:
        return random.choice(np.flatnonzero(mask))
    return np.array([random.choice(np.flatnonzero(row)) if row.any() else 0 for row in mask])


def check_same_steps(env, other, observation, steps=120):
    random = np.random.default_rng(0)
    ends = 0
    for _ in range(steps):
        actions = random_actions(observation, random)
        results = [each.step(actions) for each in (env, other)]
        for one, two in zip(*results, strict=True):
            assert same(one, two)
        observation, _, terminated, truncated, _ = results[0]
        ended = np.asarray(terminated) | np.asarray(truncated)
        ends += int(ended.sum())
        if ended.ndim == 0 and ended:
            starts = [each.reset() for each in (env, other)]
            assert same(starts[0][0], starts[1][0])
            observation = starts[0][0]
    assert ends


@pytest.mark.parametrize("make", [single, vector])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_unpickled_env_begins_the_same_episodes(name, make):
    env = make(name)
    other = pickle.loads(pickle.dumps(env))
    (observation, info), (other_observation, other_info) = (each.reset(seed=5) for each in (env, other))
    assert same(observation, other_observation) and same(info, other_info)
    assert (other.observation_space, other.action_space) == (env.observation_space, env.action_space)
    assert other.unwrapped.spec.id == env.unwrapped.spec.id
    check_same_steps(env, other, observation)


@pytest.mark.parametrize("duplicate", [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy])
@pytest.mark.parametrize("make", [single, vector])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_unpickled_env_continues_in_the_middle_of_an_episode(name, make, duplicate):
    env = make(name)
    observation, _ = env.reset(seed=2)
    random = np.random.default_rng(1)
    for _ in range(9):
        observation = env.step(random_actions(observation, random))[0]
    check_same_steps(env, duplicate(env), observation)


@pytest.mark.parametrize("arguments", [CUSTOM, "preferences"], ids=["custom", "preferences"])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_pickling_keeps_custom_functions_and_preferences(name, arguments):
    arguments = {"preferences": PREFERENCES[name]} if arguments == "preferences" else arguments
    env = vector(name, autoreset_mode=AutoresetMode.SAME_STEP, threads=1, **arguments)
    observation, _ = env.reset(seed=3)
    observation = env.step(random_actions(observation, np.random.default_rng(1)))[0]
    check_same_steps(env, pickle.loads(pickle.dumps(env)), observation)


def test_pickling_keeps_what_was_set_after_the_construction():
    env = vector("kilowait/Batch-v0").unwrapped
    env.set_episode_ranges([(0, 40), (60, 100)], [0.5, 0.5])
    env.set_arrival_rate(2.0)
    env.draw_preferences(PREFERENCES["kilowait/Batch-v0"], seed=7)
    other = pickle.loads(pickle.dumps(env))
    observation, other_observation = (each.reset(seed=4)[0] for each in (env, other))
    assert same(observation, other_observation)
    check_same_steps(env, other, observation)


WRONG = [1.5, np.float64(0.7), float("nan"), np.float32(2.0), True, np.bool_(False), "1", None, 2**70, -1, 10**6]


@pytest.mark.parametrize("action", WRONG, ids=repr)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_action_that_is_no_integer_in_range_is_refused(name, action):
    env = single(name, disable_env_checker=True)
    env.reset(seed=0)
    before = env.unwrapped.vector.snapshot()
    with pytest.raises(InputError, match=r"give whole numbers from 0 to \d+, of an integer type, .* \(1\)"):
        env.step(action)
    assert same(before, env.unwrapped.vector.snapshot())
    vec = vector(name)
    vec.reset(seed=0)
    with pytest.raises(InputError, match=r"of an integer type, one per environment copy \(3\)"):
        vec.step([0, action, 0])


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.int64, np.uint64, int, np.array])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_type_of_integer_is_an_action(name, kind):
    env = single(name, disable_env_checker=True)
    observation, _ = env.reset(seed=0)
    action = int(observation["mask"].argmax())
    expected = single(name)
    expected.reset(seed=0)
    assert same(env.step(kind(action))[0], expected.step(np.int64(action))[0])


def test_a_policy_of_observations_is_refused_a_fraction():
    policy = kw.envs.ObservationPolicy("half", lambda observation: np.array([0.5]))
    with pytest.raises(InputError, match="give whole numbers from 0 to"):
        kw.simulate(crowded(20, 0), kw.Cluster.from_nodes(16), policy)
