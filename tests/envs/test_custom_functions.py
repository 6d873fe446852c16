"""Reward terms and observation features written by the user, and what `info` reports."""

from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.envs import Feature, RewardTerm
from kilowait.envs.batch_env import BatchEnv, BatchVectorEnv
from kilowait.envs.energy_env import EnergyVectorEnv
from kilowait.envs.gpu_env import GpuVectorEnv
from kilowait.envs.reward_terms import TERMS
from kilowait.errors import InputError, UnknownNameError
from kilowait.synth import gpu_workload
from tests.envs.workloads import crowded

MACHINE = Cluster.from_nodes(16)


def my_wait(started):
    """The built-in term "wait" of jobs that have started: mean over the jobs of the episode, hours."""
    return started.sum_per_env(started.wait_s) / started.episode_jobs / 3600


def my_share(shown):
    return shown["nodes"] / 16


def batch(copies=1, **arguments):
    arguments.setdefault("autoreset_mode", AutoresetMode.DISABLED if copies == 1 else AutoresetMode.SAME_STEP)
    arguments.setdefault("episode_jobs", 40)
    return BatchVectorEnv(copies, jobs=crowded(150, 0), cluster=MACHINE, **arguments)


def episodes(vec, steps=200):
    """Rewards, ended episodes and final infos of a fixed sequence of actions."""
    observation, _ = vec.reset(seed=3)
    rewards, ended = [], []
    for i in range(steps):
        allowed = observation["mask"].sum(axis=1)
        action = np.where(allowed > 0, (allowed - 1) * (i % 3) // 2, 0)
        observation, reward, over, cut, info = vec.step(action)
        rewards.append(reward)
        if (over | cut).any():
            ended += [
                (i, int(env), info["episode"]["r"][env], info["episode"]["l"][env])
                for env in np.flatnonzero(over | cut)
            ]
    return np.array(rewards), ended


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_custom_term_that_repeats_a_built_in_one_gives_the_same_returns(mode):
    own = batch(3, reward={my_wait: 1.0}, autoreset_mode=mode)
    built_in = batch(3, reward={"wait": 1.0}, autoreset_mode=mode)
    rewards, ended = episodes(own)
    expected, expected_ended = episodes(built_in)
    assert len(ended) > 3
    assert [row[:2] + row[3:] for row in ended] == [row[:2] + row[3:] for row in expected_ended]
    assert [row[2] for row in ended] == pytest.approx([row[2] for row in expected_ended])
    if mode is AutoresetMode.NEXT_STEP:  # the cost of the step that begins an episode is 0
        for step, env, *_ in ended[:2]:
            assert rewards[step + 1, env] == expected[step + 1, env] == 0


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_custom_functions_do_not_change_other_outputs(mode):
    zero = RewardTerm("zero", lambda started: np.zeros(started.num_envs))
    own = batch(3, reward={"slowdown": 1.0, zero: 5.0}, features=[Feature("share16", my_share)], autoreset_mode=mode)
    plain = batch(3, reward={"slowdown": 1.0}, autoreset_mode=mode)
    a, _ = own.reset(seed=1)
    b, _ = plain.reset(seed=1)
    for i in range(150):
        assert np.array_equal(a["jobs"][:, :, :-1], b["jobs"])
        assert np.array_equal(a["mask"], b["mask"]) and np.array_equal(a["summary"], b["summary"])
        action = (a["mask"].sum(axis=1) * (i % 4)) // 4
        a, reward, over, _, info = own.step(action)
        b, expected, expected_over, _, expected_info = plain.step(action)
        assert np.array_equal(over, expected_over) and np.array_equal(reward, expected)
        if over.any() and mode is AutoresetMode.SAME_STEP:
            assert np.array_equal(info["final_obs"]["summary"][over], expected_info["final_obs"]["summary"][over])
            assert not info["final_obs"]["mask"][over].any()


def test_the_event_records_cover_every_job_of_the_episode_once():
    seen_rows, times = [], []

    def record(started):
        seen_rows.extend(started.row.tolist())
        times.append((started.before_s[0], started.after_s[0]))
        assert (started.start_s >= started.before_s[started.env]).all()
        assert (started.start_s <= started.after_s[started.env]).all()
        assert (started.wait_s >= 0).all()
        assert np.array_equal(started["estimate_s"], started.jobs["estimate_s"][started.row])
        assert np.array_equal(started["start_s"], started.start_s)
        return np.zeros(started.num_envs)

    vec = batch(reward={"slowdown": 1.0, RewardTerm("record", record): 1.0})
    vec.reset(options={"first": 7})
    over = False
    while not over:
        (*_,) = stepped = vec.step(vec.simulator.buffers.mask.argmax(axis=1))
        over = bool(stepped[2][0])
    assert sorted(seen_rows) == list(range(7, 47))
    assert times[0][0] == vec.jobs["submit_s"][7]
    assert all(earlier[1] == later[0] for earlier, later in pairwise(times))


def test_a_custom_feature_is_the_last_column_of_the_shown_jobs():
    feature = Feature("age", lambda shown: shown.wait_s, scale=3600.0)
    vec = batch(2, features=[Feature("share16", my_share), feature], job_info=True)
    observation, info = vec.reset(seed=0)
    assert vec.observation_spec.features[-2:] == ("share16", "age")
    assert observation["jobs"].shape == vec.observation_space["jobs"].shape and vec.observation_space.contains(
        observation
    )
    for _ in range(30):
        shown = info["job_id"] >= 0
        nodes = np.where(shown, vec.jobs["nodes"][np.maximum(info["job_id"], 0)], 0)
        assert observation["jobs"][:, :, -2] == pytest.approx(nodes / 16)
        now = vec.simulator.states.clock["now"]
        wait = np.where(shown, now - vec.jobs["submit_s"][np.maximum(info["job_id"], 0)], 0)
        assert observation["jobs"][:, :, -1] == pytest.approx(wait / 3600, rel=1e-6)
        observation, *_, info = vec.step(observation["mask"].argmax(axis=1))


def test_info_names_the_shown_jobs_and_the_reward_terms():
    env = gymnasium.make(
        "kilowait/Batch-v0",
        jobs=crowded(150, 0),
        cluster=MACHINE,
        episode_jobs=40,
        queue_window=8,
        reward={"slowdown": 1.0, my_wait: 0.5},
    ).unwrapped
    assert isinstance(env, BatchEnv)
    observation, info = env.reset(seed=0)
    total, over = dict.fromkeys([*TERMS, "my_wait"], 0.0), False
    earned = 0.0
    while not over:
        shown = observation["jobs"].any(axis=1)
        assert info["job_id"].shape == info["user"].shape == (8,)
        assert np.array_equal(info["job_id"] >= 0, shown)
        users = env.vector.jobs["user"][info["job_id"][shown]]  # crowded() numbers its jobs from 0
        assert np.array_equal(info["user"][shown], users)
        observation, reward, over, _, info = env.step(int(observation["mask"].argmax()))
        earned += reward
        for name in total:
            total[name] += info[name]
    assert info["episode_terms"].tolist() == pytest.approx([total[name] for name in TERMS])
    assert info["episode_custom_terms"].tolist() == pytest.approx([total["my_wait"]])
    assert total["my_wait"] == pytest.approx(total["wait"])
    assert earned == pytest.approx(-(total["slowdown"] + 0.5 * total["my_wait"]))


def test_a_snapshot_includes_the_custom_terms():
    vec = batch(2, reward={my_wait: 1.0})
    observation, _ = vec.reset(seed=4)
    for _ in range(20):
        observation, *_ = vec.step(observation["mask"].argmax(axis=1))
    saved = vec.snapshot()

    def rest(vec, observation):
        rows = []
        for _ in range(100):
            observation, reward, over, _, info = vec.step(observation["mask"].argmax(axis=1))
            rows += [reward, info["episode"]["r"] if over.any() else reward]
        return np.array(rows)

    expected = rest(vec, observation)
    other = batch(2, reward={my_wait: 1.0})
    assert np.array_equal(rest(other, other.restore(saved)), expected)


@pytest.mark.parametrize("environment", ["gpu", "energy"])
def test_the_other_environments_take_custom_functions_too(environment):
    feature, count = Feature("users", lambda shown: shown["user"] + 1.0), RewardTerm("starts", starts)
    if environment == "gpu":
        cluster = Cluster.preset("gpu-mixed")
        vec = GpuVectorEnv(
            2, jobs=gpu_workload(100, cluster, seed=1), cluster=cluster, episode_jobs=30, queue_window=8,
            preempt=True, reward={"jct": 1.0, count: 1.0}, features=[feature], job_info=True, horizon_s=86400.0,
            autoreset_mode="SameStep",
        )  # fmt: skip
    else:
        vec = EnergyVectorEnv(
            2, jobs=crowded(100, 1), cluster=MACHINE, power="taurus", episode_jobs=30, queue_window=8,
            reward={"energy": 1.0, count: 1.0}, features=[feature], job_info=True, autoreset_mode="SameStep",
        )  # fmt: skip
    observation, info = vec.reset(seed=0)
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(400):
        assert np.array_equal(observation["jobs"][:, :, -1] > 0, info["job_id"] >= 0)
        assert observation["jobs"][:, :, -1][info["job_id"] >= 0] == pytest.approx(
            info["user"][info["job_id"] >= 0] + 1
        )
        allowed = [np.flatnonzero(mask) for mask in observation["mask"]]
        action = np.array([random.choice(each) if len(each) else 0 for each in allowed])
        observation, _, over, _, info = vec.step(action)
        for env in np.flatnonzero(over):
            ended += 1
            assert info["episode"]["custom_terms"][env, 0] >= 30  # a preempted job starts more than once
            if environment == "energy":
                assert info["episode"]["custom_terms"][env, 0] == 30
    assert ended > 1


def starts(started):
    return started.sum_per_env(np.ones(len(started)))


def test_custom_terms_can_be_the_only_ones_and_are_named_after_their_function():
    vec = batch(reward={my_wait: 1.0})
    vec.reset(seed=0)
    *_, info = vec.step(np.zeros(1, int))
    assert "my_wait" in info and info["custom_terms"].shape == (1, 1)


@pytest.mark.parametrize(
    ("reward", "error", "message"),
    [
        ({lambda started: 0.0: 1.0}, InputError, r"has no name.*RewardTerm\(name, function\)"),
        ({RewardTerm: 1.0}, InputError, "RewardTerm is a class"),
        ({3: 1.0}, InputError, "reward term 3 is an int; give the name of a built-in term"),
        ({RewardTerm("wait", my_wait): 1.0}, InputError, "two reward terms are named 'wait'"),
        ({my_wait: 1.0, RewardTerm("my_wait", starts): 1.0}, InputError, "two reward terms are named 'my_wait'"),
        ({my_wait: np.nan}, InputError, "weight of reward term 'my_wait' is nan"),
        ({"my_wait": 1.0}, UnknownNameError, "unknown reward term 'my_wait'.*'wait'"),
    ],
)
def test_wrong_reward_terms(reward, error, message):
    with pytest.raises(error, match=message):
        batch(reward=reward)


def test_wrong_definitions():
    with pytest.raises(InputError, match="function of reward term 'x' is 3"):
        RewardTerm("x", 3)
    with pytest.raises(InputError, match="function of feature 'x' is 'y'"):
        Feature("x", "y")
    with pytest.raises(InputError, match="name.*''"):
        Feature("", my_share)
    with pytest.raises(InputError, match="scale of feature 'x' is 0"):
        Feature("x", my_share, scale=0)
    with pytest.raises(InputError, match="two features are named 'fits'"):
        batch(features=[Feature("fits", my_share)])
    with pytest.raises(InputError, match="features are given as.*Feature"):
        batch(features=[my_share])
    with pytest.raises(InputError, match="preferences.*built-in"):
        batch(preferences={my_wait: 1.0, "wait": 1.0})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda started: np.zeros(5), r"shape \(5,\).*\(2,\)"),
        (lambda started: 0.0, r"shape \(\).*\(2,\)"),
        (lambda started: np.array([0.0, np.nan]), "nan for environment copy 1"),
        (lambda started: ["a", "b"], "not numbers"),
        (lambda started: None, "None"),
        (lambda started: started["nodez"], "nodez"),
    ],
)
def test_wrong_results_of_a_reward_term(function, message):
    vec = batch(2, reward={RewardTerm("bad", function): 1.0})
    observation, _ = vec.reset(seed=0)
    with pytest.raises((InputError, UnknownNameError), match=message):
        vec.step(observation["mask"].argmax(axis=1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda shown: np.zeros(1000), r"feature 'bad' returned shape \(1000,\)"),
        (lambda shown: shown["nodes"] * np.inf, "inf for job"),
        (lambda shown: "x", "not numbers"),
    ],
)
def test_wrong_results_of_a_feature(function, message):
    vec = batch(2, features=[Feature("bad", function)])
    with pytest.raises(InputError, match=message):
        vec.reset(seed=0)


def test_run_policy_shows_the_custom_features():
    from kilowait.envs.batch_env import run_policy

    jobs = crowded(40, 2)
    expected = kw.simulate(jobs, MACHINE, "sjf", "easy", backfill_order="saf").jobs()["start_s"]
    shortest = Feature("estimate_s", lambda shown: shown["estimate_s"])

    def decide(observation):
        return np.argmin(np.where(observation["mask"] == 1, observation["jobs"][:, :, -1], np.inf), axis=1)

    assert np.array_equal(run_policy(jobs, MACHINE, decide, features=[shortest]).jobs()["start_s"], expected)
