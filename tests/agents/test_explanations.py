"""Explanations of agents: contributions add up, and unused features have none."""

import json

import numpy as np
import pytest
import torch

import kilowait as kw
from kilowait.agents import integrated_gradients
from kilowait.agents.explanations import TYPICAL_DECISIONS, explain_linear_agent, typical_decisions
from kilowait.agents.integrated_gradients import attribute, explain_network, record_decisions
from kilowait.agents.linear_batch import FEATURES, LinearAgent
from kilowait.agents.networks import network, q_network
from kilowait.envs.batch_env import BatchVectorEnv
from tests.envs.workloads import crowded

NODES = 16
MACHINE = kw.Cluster.from_nodes(NODES)
JOBS = crowded(200, 3)
FIRST = [0, 50, 100]


def envs(kind="kernel", **more):
    return BatchVectorEnv(
        3, jobs=JOBS, cluster=MACHINE, episode_jobs=80, queue_window=12, backfill_order="agent", graph=kind == "gat",
        autoreset_mode="SameStep", **more,
    )  # fmt: skip


def trained_network(make, kind, vec):
    """A network with clearly different scores."""
    net = make(vec.spec_of_observation, kind, seed=2, width=16)
    with torch.no_grad():
        net.outputs.job.weight.mul_(100 if make is network else 1)
    return net.eval()


@pytest.mark.parametrize("make", [network, q_network])
@pytest.mark.parametrize("kind", ["kernel", "attention", "gat"])
def test_contributions_sum_to_margin_difference(make, kind):
    vec = envs(kind)
    net = trained_network(make, kind, vec)
    decisions = record_decisions(net, vec, FIRST, max_decisions=60)
    rows = np.arange(0, len(decisions), 7)
    attributions = attribute(net, decisions, rows, steps=256)
    margin_change = attributions.margin - attributions.usual
    assert np.abs(margin_change).max() > 0.01
    sums = attributions.job.sum(axis=1) + attributions.summary.sum(axis=1)
    assert np.abs(sums - margin_change).max() < 0.01 * np.abs(margin_change).max()
    assert np.allclose(attributions.margin, decisions.margin[rows], atol=1e-4)


def test_unused_features_have_no_contribution():
    vec = envs()
    net = network(vec.spec_of_observation, "kernel", seed=0, width=16, depth=1)
    with torch.no_grad():  # the score is one number of the job, and no more
        for each in net.parameters():
            each.zero_()
        net.body.job.weight[0, 0] = -1.0
        net.body.job.bias[0] = 10.0
        net.outputs.job.weight[0, 0] = 1.0
    explanation = explain_network(net, vec, FIRST, MACHINE)
    assert [part.name for part in explanation.usual if part.mean > 0] == ["length"]
    assert explanation.usual[0].leaning == pytest.approx(-1.0, rel=1e-3)
    for case in explanation.cases:
        length = next(part for part in case.parts if part.name == "length")
        assert length.moved == pytest.approx(length.usual - length.value, rel=1e-3, abs=1e-5)
        assert case.chosen["estimate_s"] <= case.other["estimate_s"]


@pytest.mark.parametrize(("kind", "with_summary"), [("attention", True), ("gat", False)])
def test_attention_rows_sum_to_1(kind, with_summary):
    vec = envs(kind)
    explanation = explain_network(trained_network(network, kind, vec), vec, FIRST, MACHINE)
    assert [case.which for case in explanation.cases] == list(TYPICAL_DECISIONS)
    for case in explanation.cases:
        assert case.attention.whole == with_summary
        assert 2 <= len(case.attention.jobs) <= integrated_gradients.ATTENTION_JOBS
        weights = np.array(case.attention.weights)
        assert weights.shape == (len(case.attention.jobs) + with_summary, len(case.attention.jobs) + with_summary + 1)
        assert np.allclose(weights.sum(axis=1), 1.0, atol=1e-5)
        assert case.attention.jobs[0] == case.chosen


def test_explanation_is_deterministic_and_small():
    vec = envs()
    net = trained_network(network, "kernel", vec)
    net.train()
    once = explain_network(net, vec, FIRST, MACHINE)
    assert net.training
    assert once == explain_network(net, vec, FIRST, MACHINE)
    text = json.dumps(once.to_dict(), allow_nan=False)
    assert len(text) < 20_000
    assert once.cases[0].attention is None
    assert once.choices >= once.measured > 10


def test_jobs_are_described_in_plain_units():
    vec = envs()
    net = trained_network(network, "kernel", vec)
    known = set(zip(JOBS["nodes"].tolist(), np.maximum(JOBS["estimate_s"], 1).tolist(), strict=True))
    for case in explain_network(net, vec, FIRST, MACHINE).cases:
        for job in (case.chosen, case.other):
            assert (job["nodes"], round(job["estimate_s"])) in known
            assert job["wait_s"] >= 0


def test_no_explanation_without_choices():
    lonely = JOBS.with_columns(submit_s=np.arange(200) * 1e5)
    vec = BatchVectorEnv(1, jobs=lonely, cluster=MACHINE, episode_jobs=20, queue_window=4, autoreset_mode="SameStep")
    assert explain_network(network(vec.spec_of_observation, "kernel"), vec, [0], MACHINE) is None
    weights = np.eye(len(FEATURES))[0]
    assert explain_linear_agent(LinearAgent(weights), lonely, MACHINE) is None


# -- weights -------------------------------------------------------------------------------------------


def test_linear_contributions_are_weight_times_difference():
    weights = np.linspace(0.5, -0.5, len(FEATURES)) + 0.1
    explanation = explain_linear_agent(LinearAgent(weights), JOBS, MACHINE)
    assert len(explanation.cases) == 3
    for case in explanation.cases:
        moved = {part.name: part.moved for part in case.parts}
        assert list(moved) == list(FEATURES)
        assert sum(moved.values()) == pytest.approx(case.margin - case.usual)
        for weight, part in zip(weights, case.parts, strict=True):
            assert part.moved == pytest.approx(weight * (part.usual - part.value))
        assert case.margin > 0
    assert np.allclose([part.leaning for part in explanation.usual if part.mean > 0],
                       [-w for w, part in zip(weights, explanation.usual, strict=True) if part.mean > 0])  # fmt: skip


def test_explanation_uses_agents_own_run(monkeypatch):
    from kilowait.agents import explanations

    logs = []

    def simulate(*arguments):
        logs.append(kw.simulate(*arguments))
        return logs[-1]

    monkeypatch.setattr(explanations, "simulate", simulate)
    agent = LinearAgent(np.linspace(0.9, -0.5, len(FEATURES)))
    explain_linear_agent(agent, JOBS, MACHINE)
    own = kw.simulate(JOBS, MACHINE, agent.policy, "easy")
    assert np.array_equal(logs[0].jobs()["start_s"], own.jobs()["start_s"])


def test_each_decision_is_explained_once():
    one = typical_decisions(np.array([5]), np.array([1.0]), np.array([True]))
    assert one == [(TYPICAL_DECISIONS[0], 0)]
    assert typical_decisions(np.array([5]), np.array([1.0]), np.array([False])) == []
