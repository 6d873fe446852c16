"""The linear GPU agent: policies as special cases, file format, training."""

import json

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents.evolution.gpu import GpuObjective, GpuSearchSettings, best_policy
from kilowait.agents.evolution.search import train_linear_agent
from kilowait.agents.linear_gpu import (
    FEATURES,
    GPU_TYPE_FEATURES,
    POLICY_WEIGHTS,
    LinearGpuAgent,
    agent_equal_to_policy,
)
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_options import run_speeds, simulate_arguments
from kilowait.experiments.settings import GpuOptions
from kilowait.policies import as_policy
from kilowait.synth import GpuWorkloadSettings, gpu_workload

CLUSTER = kw.Cluster.preset("gpu-mixed")
GPUS = 56
JOBS = gpu_workload(300, CLUSTER, GpuWorkloadSettings(shared=0.3), load=1.4, seed=5)
COUNT = len(FEATURES) + len(GPU_TYPE_FEATURES)


def run(policy, jobs=JOBS, **options):
    policy = as_policy(policy)
    fixed = {"at_limit": "extend", "on_oversized": "drop", "dependencies": False, "placement": None}
    options = simulate_arguments({**fixed, "gpu": GpuOptions(**options)}, jobs, CLUSTER, policy, "skip")
    return kw.simulate(jobs, CLUSTER, policy, "skip", **options)


def same_schedule(one, other):
    return np.array_equal(one.start_s, other.start_s) and np.array_equal(one.end_s, other.end_s)


@pytest.mark.parametrize("types", ["any", "fastest"])
@pytest.mark.parametrize("policy", list(POLICY_WEIGHTS))
def test_policy_agent_gives_same_schedule_as_policy(policy, types):
    assert same_schedule(
        run(agent_equal_to_policy(policy, GPUS, gpu_type_order=types)), run(policy, gpu_type_order=types)
    )


def test_policy_agent_with_migration_and_placement():
    log = run(agent_equal_to_policy("las", GPUS, gpu_type_order="fastest", placement="best", migrate=True))
    settings = {"placement": "best", "gpu_type_order": "fastest"}
    assert log.run["migrate"] and log.run["placement"] == "best" and log.run["preempt"]
    speeds = run_speeds("auto", JOBS, CLUSTER)
    from kilowait.policies.simulation import gpu_settings_for

    gpu_settings = gpu_settings_for("las", "skip", migrate=True, **settings)
    assert same_schedule(log, kw.simulate(JOBS, CLUSTER, "las", "skip", settings=gpu_settings, speeds=speeds))


def test_unsorted_jobs_are_scored_correctly():
    weights = np.random.default_rng(0).normal(size=COUNT)
    agent = LinearGpuAgent(weights, {"preempt": True})
    shuffled = np.random.default_rng(1).permutation(len(JOBS))
    reordered_end_s = run(agent, JOBS[shuffled]).jobs()["end_s"]
    assert np.array_equal(run(agent).jobs()["end_s"][shuffled], reordered_end_s)


def test_explicit_gpu_settings_override_agent():
    agent = agent_equal_to_policy("srtf", GPUS, gpu_type_order="fastest", placement="best")
    log = run(agent, gpu_type_order="any", preempt=False)
    assert log.run["gpu_type_order"] == "any" and not log.run["preempt"]
    assert run(agent).run["placement"] == "best"
    assert kw.simulate(JOBS, CLUSTER, agent, backfill="none").run["placement"] == "best"
    assert kw.simulate(JOBS, CLUSTER, agent, placement="first", backfill="none").run["placement"] == "first"


def test_save_and_load_are_exact(tmp_path):
    weights = np.random.default_rng(2).normal(size=COUNT)
    agent = LinearGpuAgent(weights, {"preempt": True, "round_interval_s": 60.0}, provenance={"seed": 2})
    again = kw.load_agent(agent.save(tmp_path / "agent.json"))
    assert isinstance(again, LinearGpuAgent) and np.array_equal(again.weights, weights)
    assert again.overrides == agent.overrides and again.provenance == {"seed": 2}
    assert same_schedule(run(agent), run(again))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "version 9"),
        ({"weights": {"remaining": 1.0}}, "needs remaining, length"),
        ({"gpu_settings": {"preempted": True}}, "preempted"),
        ({"gpu_settings": {"placement": "nowhere"}}, "nowhere"),
        ({"gpu_settings": None}, "train it again"),
    ],
)
def test_damaged_file_is_an_error(tmp_path, change, message):
    path = agent_equal_to_policy("sjf", GPUS).save(tmp_path / "agent.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=message):
        kw.load_agent(path)


def test_invalid_weights_and_policies_are_errors():
    with pytest.raises(InputError, match="finite"):
        LinearGpuAgent([1.0])
    with pytest.raises(UnknownNameError, match="srtf"):
        agent_equal_to_policy("srtff", GPUS)


QUICK = {
    "generations": 3, "population": 4, "windows": 2, "window_jobs": 60, "placements": ("first",),
    "speeds": lambda jobs: run_speeds("auto", jobs, CLUSTER),
}  # fmt: skip


def train_agent(seed=1, threads=1, log=JOBS):
    settings = GpuSearchSettings(seed=seed, threads=threads, **QUICK)
    return train_linear_agent(GpuObjective(log[:60], log[60:], CLUSTER, settings))


def test_agent_does_not_depend_on_threads():
    one, history = train_agent()
    two, again = train_agent(threads=2)
    assert np.array_equal(one.weights, two.weights) and [h.training for h in history] == [h.training for h in again]
    other = train_agent(seed=2)[1]
    assert [h.training for h in other] != [h.training for h in history]


def test_best_policy_is_start_and_kept_unless_clearly_beaten():
    agent, _ = train_agent()
    start = agent.provenance["start"]
    best = best_policy(JOBS[:60], CLUSTER, GpuSearchSettings(seed=1, **QUICK))
    assert start == dict(best.provenance)
    if agent.provenance["policy_kept"]:
        assert np.array_equal(agent.weights, best.weights) and agent.overrides == best.overrides
    else:
        assert agent.provenance["validation_relative_to_policy"] < 1


def test_too_few_validation_windows_is_an_error():
    with pytest.raises(InputError, match="--window"):
        train_agent(log=JOBS[:200])
    with pytest.raises(UnknownNameError, match="mean_jct_s"):
        GpuSearchSettings(seed=0, objective="mean_jct")
