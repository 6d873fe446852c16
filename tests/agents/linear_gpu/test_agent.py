"""The linear agent of placed nodes: rules are points of its space; its file; its search."""

import json

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.linear_gpu.agent import (
    FEATURES,
    RULES,
    TYPE_FEATURES,
    LinearGpuAgent,
    rule_agent,
)
from kilowait.agents.linear_gpu.train import best_rule, train_placed
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_settings import GpuOptions, arguments, run_speeds
from kilowait.synth import gpu_workload

CLUSTER = kw.Cluster.preset("gpu-mixed")
GPUS = 56
JOBS = gpu_workload(300, CLUSTER, load=1.4, seed=5, shared=0.3)
COUNT = len(FEATURES) + len(TYPE_FEATURES)


def run(policy, jobs=JOBS, **way):
    fixed = {"at_limit": "extend", "on_oversized": "drop", "dependencies": False, "placement": None}
    told = arguments({**fixed, "gpu": GpuOptions(**way)}, jobs, CLUSTER, policy, "skip")
    return kw.simulate(jobs, CLUSTER, policy, "skip", **told)


def same(one, other):
    return np.array_equal(one.start_s, other.start_s) and np.array_equal(one.end_s, other.end_s)


@pytest.mark.parametrize("types", ["any", "fastest"])
@pytest.mark.parametrize("rule", list(RULES))
def test_rules_are_points_of_the_space(rule, types):
    assert same(run(rule_agent(rule, GPUS, types=types)), run(rule, types=types))


def test_rules_with_moves_and_a_placement():
    log = run(rule_agent("las", GPUS, types="fastest", placement="best", migrate=True))
    settings = {"placement": "best", "types": "fastest"}
    assert log.run["migrate"] and log.run["placement"] == "best" and log.run["preempt"]
    speeds = run_speeds("auto", JOBS, CLUSTER)
    from kilowait.policies.simulation import default_gpu_settings

    placing = default_gpu_settings("las", "skip", migrate=True, **settings)
    assert same(log, kw.simulate(JOBS, CLUSTER, "las", "skip", placing=placing, speeds=speeds))


def test_jobs_in_another_order_are_scored_by_their_own_numbers():
    weights = np.random.default_rng(0).normal(size=COUNT)
    agent = LinearGpuAgent(weights, {"preempt": True})
    shuffled = np.random.default_rng(1).permutation(len(JOBS))
    back = run(agent, JOBS[shuffled]).jobs()["end_s"]
    assert np.array_equal(run(agent).jobs()["end_s"][shuffled], back)


def test_what_is_asked_for_goes_before_the_agents_own_way():
    agent = rule_agent("srtf", GPUS, types="fastest", placement="best")
    log = run(agent, types="any", preempt=False)
    assert log.run["types"] == "any" and not log.run["preempt"]
    assert run(agent).run["placement"] == "best"
    assert kw.simulate(JOBS, CLUSTER, agent).run["placement"] == "best"
    assert kw.simulate(JOBS, CLUSTER, agent, placement="first").run["placement"] == "first"


def test_its_file_gives_it_back_to_the_bit(tmp_path):
    weights = np.random.default_rng(2).normal(size=COUNT)
    agent = LinearGpuAgent(weights, {"preempt": True, "round_interval_s": 60.0}, provenance={"seed": 2})
    again = kw.load_agent(agent.save(tmp_path / "agent.json"))
    assert isinstance(again, LinearGpuAgent) and np.array_equal(again.weights, weights)
    assert again.gpu_settings == agent.gpu_settings and again.provenance == {"seed": 2}
    assert same(run(agent), run(again))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 9}, "version 9"),
        ({"weights": {"remaining": 1.0}}, "needs remaining, length"),
        ({"way": {"preempted": True}}, "preempted"),
        ({"way": {"placement": "nowhere"}}, "nowhere"),
        ({"way": None}, "train it again"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(tmp_path, change, words):
    path = rule_agent("sjf", GPUS).save(tmp_path / "agent.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=words):
        kw.load_agent(path)


def test_weights_and_rules_that_are_none():
    with pytest.raises(InputError, match="finite"):
        LinearGpuAgent([1.0])
    with pytest.raises(UnknownNameError, match="srtf"):
        rule_agent("srtff", GPUS)


QUICK = {"generations": 3, "population": 4, "windows": 2, "window_jobs": 60, "placements": ("first",)}


def trained(seed=1, threads=1, log=JOBS):
    speeds = {"speeds": lambda jobs: run_speeds("auto", jobs, CLUSTER)}
    return train_placed(log[:60], log[60:], CLUSTER, seed=seed, threads=threads, **speeds, **QUICK)


def test_same_seed_same_agent_on_any_number_of_threads():
    one, history = trained()
    two, again = trained(threads=2)
    assert np.array_equal(one.weights, two.weights) and [h.training for h in history] == [
        h.training for h in again
    ]
    other = trained(seed=2)[1]
    assert [h.training for h in other] != [h.training for h in history]


def test_the_start_is_the_best_rule_and_is_kept_unless_surely_beaten():
    agent, _ = trained()
    start = agent.provenance["start"]
    best = best_rule(
        JOBS[:60], CLUSTER, windows=2, window_jobs=60, placements=("first",),
        speeds=lambda jobs: run_speeds("auto", jobs, CLUSTER),
    )  # fmt: skip
    assert start == dict(best.provenance)
    if agent.provenance["kept_the_rule"]:
        assert np.array_equal(agent.weights, best.weights) and agent.gpu_settings == best.gpu_settings
    else:
        assert agent.provenance["validation_relative_to_the_rule"] < 1


def test_too_few_jobs_to_be_sure_are_told():
    with pytest.raises(InputError, match="--window"):
        trained(log=JOBS[:200])
    with pytest.raises(UnknownNameError, match="mean_jct_s"):
        train_placed(JOBS[:60], JOBS[60:], CLUSTER, seed=0, objective="mean_jct")
