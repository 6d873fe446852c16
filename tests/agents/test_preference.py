"""One network for every preference between terms of the reward."""

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents import NetworkSizes, PPOSettings, train_ppo
from kilowait.agents.network_policies import (
    GpuNetworkAgent,
    NetworkAgent,
    engine_weights,
    network_agent,
    settings_to_dict,
    with_fixed_preference,
)
from kilowait.agents.networks import network, q_network
from kilowait.agents.networks.factory import save_network
from kilowait.agents.networks.heads import greedy_actions
from kilowait.agents.validation import preference_metrics, term_metrics, term_units, weighted_metric
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.policy import RunInputs
from kilowait.envs.batch_env import BatchVectorEnv, DecisionSettings, run_policy
from kilowait.envs.gpu_env import GpuDecisionSettings
from kilowait.envs.preferences import preference_grid
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison.pairwise import pareto_front
from tests.agents.support.two_user_env import best_metrics, two_users
from tests.envs.workloads import crowded

MACHINE = kw.Cluster.from_nodes(16)
UNITS = {"slowdown": 5.0, "wait": 0.1, "sla": 1.0}


def batch(copies=6, *, graph=False, jobs=None, **arguments):
    return BatchVectorEnv(
        copies, jobs=crowded(200, 0) if jobs is None else jobs, cluster=MACHINE, episode_jobs=40, queue_window=16,
        autoreset_mode="SameStep", backfill_order="agent", threads=1, graph=graph, **arguments,
    )  # fmt: skip


@pytest.mark.parametrize("make", [network, q_network])
@pytest.mark.parametrize("kind", ["kernel", "attention", "gat"])
def test_fixed_preference_equals_preference_input(make, kind):
    vec = batch(preferences=UNITS, graph=kind == "gat")
    conditioned = make(vec.observation_spec, kind, seed=1, width=16)
    plain = batch(graph=kind == "gat")
    first = np.arange(6) * 30
    choices = []
    for weights in preference_grid(3, 1):
        fixed = with_fixed_preference(conditioned, dict(zip(UNITS, weights, strict=True)))
        observation, _ = vec.reset(options={"first": first, "preference": weights})
        plain_observation, _ = plain.reset(options={"first": first})
        for _ in range(25):
            actions = greedy_actions(conditioned, observation)
            assert np.array_equal(actions, greedy_actions(fixed, plain_observation))
            choices.append(tuple(actions))
            observation, plain_observation = vec.step(actions)[0], plain.step(actions)[0]
    assert len(set(choices)) > 10


def test_engine_inference_agrees_and_depends_on_preference():
    decision_settings = DecisionSettings(queue_window=16, backfill_order="agent")
    vec = batch(preferences=UNITS)
    conditioned = network(vec.observation_spec, "kernel", seed=2, width=16)
    agent, jobs, logs = NetworkAgent(conditioned, decision_settings), crowded(150, 4), []
    assert agent.preferences == tuple(UNITS)
    for weights in preference_grid(3, 1):
        fixed_agent = agent.prefer(**dict(zip(UNITS, weights, strict=True)))
        assert engine_weights(fixed_agent.network) is not None and fixed_agent.preferences == ()
        inside = kw.simulate(jobs, MACHINE, fixed_agent, "easy").jobs()["start_s"]

        def outside(observation, weights=weights):
            summary = np.concatenate([observation["summary"], weights.astype(np.float32)[None]], axis=1)
            return greedy_actions(conditioned, {**observation, "summary": summary})

        assert np.array_equal(
            inside, run_policy(jobs, MACHINE, outside, decision_settings=decision_settings).jobs()["start_s"]
        )
        logs.append(tuple(inside))
    assert len(set(logs)) > 1
    assert np.array_equal(
        kw.simulate(jobs, MACHINE, agent.prefer(slowdown=3, wait=1), "easy").jobs()["start_s"],
        kw.simulate(jobs, MACHINE, agent.prefer(wait=0.25, slowdown=0.75), "easy").jobs()["start_s"],
    )


def test_preference_errors(tmp_path):
    decision_settings = DecisionSettings(queue_window=16)
    conditioned = network(batch(preferences=UNITS).observation_spec, "kernel", width=16)
    agent = NetworkAgent(conditioned, decision_settings, "mine")
    with pytest.raises(
        InputError, match=r"agent 'mine' needs a preference between slowdown and wait and sla.*:prefer=slowdown=0.33"
    ):
        kw.simulate(crowded(30, 1), MACHINE, agent, "easy")
    with pytest.raises(UnknownNameError, match="unknown preference 'waits'; did you mean 'wait'"):
        agent.prefer(waits=1)
    with pytest.raises(InputError, match="takes no preference"):
        agent.prefer(wait=1).prefer(sla=1)
    with pytest.raises(InputError, match="all preferences are 0"):
        agent.prefer()
    save_network(
        conditioned, tmp_path / "agent.pt", provenance={"decision_settings": settings_to_dict(decision_settings)}
    )
    again = network_agent(tmp_path / "agent.pt")
    assert again.prefer(sla=1).provenance["preference"] == {"slowdown": 0.0, "wait": 0.0, "sla": 1.0}
    gpu = GpuNetworkAgent(conditioned, GpuDecisionSettings(queue_window=16))
    with pytest.raises(InputError, match="none is set"):
        gpu.run(RunInputs(crowded(30, 1), MACHINE, GpuSettings()))


def test_units_are_means_of_saf():
    jobs = crowded(200, 0)
    vec = batch(3, reward={"wait": 1.0})
    units = term_units(vec, [0, 50, 100], ["wait", "sla"])
    waits = [kw.simulate(jobs[lo : lo + 40], MACHINE, "saf", "easy").jobs()["wait_s"].mean() for lo in (0, 50, 100)]
    assert units["wait"] == pytest.approx(np.mean(waits) / 3600)
    assert units["sla"] == 1.0, "no job waits four hours"
    with pytest.raises(UnknownNameError, match="unknown reward term 'wiat'"):
        term_units(vec, [0, 50, 100], ["wiat", "sla"])


def test_one_network_learns_optimum_of_every_preference():
    jobs, cluster, first = two_users()
    arguments = {
        "jobs": jobs,
        "cluster": cluster,
        "episode_jobs": 5,
        "queue_window": 6,
        "backfill": "none",
        "threads": 1,
    }
    units = {"slowdown": 1.0, "fairness": 1.0}
    vec = BatchVectorEnv(64, autoreset_mode="SameStep", preferences=units, **arguments)
    settings = PPOSettings(
        total_timesteps=80_000, n_steps=16, n_epochs=4, n_minibatches=4, learning_rate=3e-3, gamma=1.0, gae_lambda=1.0,
        ent_coef=0.01, sizes=NetworkSizes(width=32), validate_every=10,
    )  # fmt: skip
    validation_envs = BatchVectorEnv(len(first), autoreset_mode="SameStep", **arguments)
    trained = train_ppo(
        vec, settings, seed=1, threads=1, validate=lambda net: weighted_metric(net, validation_envs, first, units)
    ).network
    preferences = preference_grid(2, 10)
    metrics = preference_metrics(trained, validation_envs, first, preferences)
    best = best_metrics(jobs, first, preferences)
    for end in (0, -1):  # the right choice, in all episodes or all but one
        optimal = np.isclose(metrics[end] @ preferences[end], best[end] @ preferences[end], rtol=1e-9)
        assert optimal.sum() >= len(first) - 1
    means, best_means = metrics.mean(axis=1), best.mean(axis=1)
    relative_loss = (means * preferences).sum(axis=1) / (best_means * preferences).sum(axis=1)
    assert relative_loss.max() < 1.05 and relative_loss[[0, -1]].max() < 1.01
    assert (np.diff(means[:, 0]) >= 0).all() and (np.diff(means[:, 1]) <= 0).all()
    assert pareto_front(means).all() and len(np.unique(means[:, 0])) > 3
    other = term_metrics(with_fixed_preference(trained, {"fairness": 1}), validation_envs, first)
    assert np.array_equal(other[:, [0, 3]], metrics[-1])
