"""The agent: its score, its file."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents import FEATURES, LinearAgent, features, load_agent
from kilowait.agents.linear import saf_weights
from kilowait.engine.ports import JOB
from kilowait.errors import InputError

CLUSTER = kw.Cluster.from_nodes(64)


@pytest.fixture(scope="module")
def jobs():
    return kw.lublin(400, 64, load=1.0, seed=3, estimates="rounded")


def plain_score(weights, estimate_s, nodes, wait_s, machine):
    """The formula of the documentation once more, by hand."""
    length = np.log(estimate_s / 3600) / 3
    width = np.log(nodes) / np.log(1 + machine)
    share = nodes / machine
    values = [
        length,
        width,
        length**2,
        width**2,
        length * width,
        share,
        length * share,
        np.sqrt(estimate_s / 86400),
    ]
    values += [np.log(1 + wait_s / 3600) / 3, np.log(1 + wait_s / estimate_s) / 3]
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def test_the_compiled_score_is_the_formula():
    random = np.random.default_rng(0)
    weights = random.normal(size=len(FEATURES))
    rule = LinearAgent(weights).rule
    parameters = rule.prepare(None, CLUSTER)
    for _ in range(200):
        job = np.zeros(1, JOB).view(np.recarray)[0]  # attributes, compiled or not
        job["submit_s"], job["estimate_s"] = random.uniform(0, 1e6), random.uniform(1, 1e5)
        job["nodes"] = random.integers(1, 65)
        now = job["submit_s"] + random.uniform(0, 1e5)
        wait_s = now - job["submit_s"]
        wanted = plain_score(weights, job["estimate_s"], job["nodes"], wait_s, 64)
        assert rule.score(job, now, parameters) == pytest.approx(wanted, rel=1e-12)
        by_numpy = features(job["estimate_s"], job["nodes"], wait_s, 64)[0] @ weights
        assert by_numpy == pytest.approx(wanted, rel=1e-12)


def test_saf_weights_give_the_order_of_saf():
    """On jobs whose areas all differ, as sums of logarithms may round ties apart."""
    jobs = kw.JobTable(
        job_id=range(1, 7),
        submit_s=[0, 1, 1, 1, 1, 1],
        runtime_s=[100, 50, 20, 10, 400, 7],
        nodes=[64, 60, 40, 33, 64, 50],
    )
    ours = kw.simulate(jobs, CLUSTER, LinearAgent(saf_weights(64)).rule)
    theirs = kw.simulate(jobs, CLUSTER, "saf")
    assert np.array_equal(ours.start_s, theirs.start_s)
    assert np.array_equal(ours.job, theirs.job)


def test_three_jobs_whose_order_is_obvious():
    jobs = kw.JobTable(job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[100, 50, 10], nodes=[64, 64, 64])
    shortest = LinearAgent(np.eye(10)[0]).rule
    assert kw.simulate(jobs, CLUSTER, shortest).jobs()["start_s"].tolist() == [0, 110, 100]
    oldest = LinearAgent(-np.eye(10)[8]).rule
    assert kw.simulate(jobs, CLUSTER, oldest).jobs()["start_s"].tolist() == [0, 100, 150]


def test_only_proportions_matter(jobs):
    weights = np.random.default_rng(1).normal(size=10)
    one, other = (
        kw.simulate(jobs, CLUSTER, LinearAgent(weights * factor).rule, "easy") for factor in (1.0, 4.0)
    )
    assert np.array_equal(one.start_s, other.start_s)


def test_saved_and_loaded_to_the_bit(tmp_path):
    weights = np.random.default_rng(2).normal(size=10) / 3
    path = LinearAgent(weights, "mine", {"seed": 0, "trace": "x"}).save(tmp_path / "new" / "agent.json")
    again = load_agent(path)
    assert np.array_equal(again.weights, weights)
    assert (again.name, again.provenance, again.rule.name) == ("mine", {"seed": 0, "trace": "x"}, "mine")


def test_weights_are_checked_and_cannot_be_changed():
    for bad in ([1.0], [float("inf")] * 10):
        with pytest.raises(InputError, match="give 10 finite numbers"):
            LinearAgent(bad)
    with pytest.raises(ValueError, match="read-only"):
        LinearAgent(np.ones(10)).weights[0] = 2.0


def damaged(**changes):
    good = {
        "format": "kilowait linear agent",
        "version": 1,
        "name": "agent",
        "weights": dict.fromkeys(FEATURES, 0.5),
        "provenance": {},
    }
    return json.dumps({**good, **changes})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is not JSON, or is cut off"),
        (damaged()[:-40], "it is not JSON, or is cut off"),
        ("\x00\x01binary", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[1, 2]", "its format is 'list'"),
        ("{}", "its format is None"),
        (damaged(format="something"), "its format is 'something'"),
        (damaged(version=2), "version 2; this kilowait reads version 1"),
        (damaged(weights=[1, 2]), "has weights for"),
        (damaged(weights={"length": 1.0}), "has weights for length; this agent needs length, width"),
        (damaged(weights=dict.fromkeys(FEATURES, "1")), "they must be numbers"),
        (damaged(weights=dict.fromkeys(FEATURES, True)), "they must be numbers"),
        (damaged(weights=dict.fromkeys(FEATURES, float("nan"))), "give 10 finite numbers"),
        (damaged(weights=dict.fromkeys(FEATURES, 10**400)), "agent.json"),
        (damaged(provenance=3), "the provenance 3"),
    ],
)
def test_a_damaged_file_is_an_error_in_words(tmp_path, text, words):
    path = tmp_path / "agent.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        load_agent(path)


def test_no_file_and_no_text(tmp_path):
    with pytest.raises(InputError, match="train one with kilowait train"):
        load_agent(tmp_path / "none.json")
    (tmp_path / "agent.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="holds no agent"):
        load_agent(tmp_path / "agent.json")
    with pytest.raises(InputError, match="cannot write the agent"):
        LinearAgent(np.ones(10)).save(tmp_path / "agent.json" / "below.json")
