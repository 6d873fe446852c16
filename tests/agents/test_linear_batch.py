"""The linear batch agent: score and file format."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents import FEATURES, LinearAgent, features, load_agent
from kilowait.agents.linear_batch import UserHistory, default_weights, saf_weights, user_histories
from kilowait.engine.interface import JOB
from kilowait.errors import InputError, UnknownNameError

CLUSTER = kw.Cluster.from_nodes(64)


@pytest.fixture(scope="module")
def jobs():
    return kw.lublin(400, 64, load=1.0, seed=3, estimates="rounded")


def plain_score(weights, estimate_s, nodes, wait_s, machine, usual=-1.0, used=-1.0, quick_usual=0.02, quick=0.02):
    """The documented formula in plain Python; without user history."""
    length = np.log(estimate_s / 3600) / 3
    expected_s = max(estimate_s * np.exp(used), 10)
    values = [length, np.log(nodes) / 3, length**2, length * np.log(nodes / machine) / 3, nodes / machine]
    values += [np.log(1 + wait_s / span) / 3 for span in (3600, estimate_s, expected_s)]
    values += [usual / 3, (used - usual) / 3, np.log(quick_usual) / 3, np.log(quick / quick_usual) / 3]
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def waiting(number=0, **known):
    job = np.zeros(1, JOB).view(np.recarray)[0]  # attributes, compiled or not
    job.limit_s = np.inf
    for name, value in {"number": number, **known}.items():
        job[name] = value
    job.units = job.nodes
    return job


def test_compiled_score_equals_formula():
    random = np.random.default_rng(0)
    weights = random.normal(size=len(FEATURES))
    policy = LinearAgent(weights).policy
    unknown_user = kw.JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1])
    parameters = policy.prepare(unknown_user, CLUSTER)
    for _ in range(200):
        job = waiting(submit_s=random.uniform(0, 1e6), estimate_s=random.uniform(1, 1e5), nodes=random.integers(1, 65))
        now = job["submit_s"] + random.uniform(0, 1e5)
        wait_s = now - job["submit_s"]
        expected_score = plain_score(weights, job["estimate_s"], job["nodes"], wait_s, 64)
        assert policy.score(job, now, parameters) == pytest.approx(expected_score, rel=1e-12)
        by_numpy = features(job["estimate_s"], job["nodes"], wait_s, 64)[0] @ weights
        assert by_numpy == pytest.approx(expected_score, rel=1e-12)


def test_ended_jobs_change_score_of_their_user_most():
    """Three ended jobs and a running one of one user, with values computed by hand."""
    jobs = kw.JobTable(
        job_id=range(3), submit_s=[0, 0, 0], runtime_s=[1] * 3, estimate_s=[1024] * 3, nodes=[1] * 3, user=[4, 4, 9]
    )
    weights = np.random.default_rng(3).normal(size=len(FEATURES))
    policy = LinearAgent(weights).policy
    parameters = policy.prepare(jobs, CLUSTER)
    same = {"estimate_s": 1024.0, "nodes": 1}
    policy.score(waiting(1, ran_s=-1.0, **same), 0.0, parameters)
    for ran_s in (4.0, 512.0, 1024.0):
        policy.score(waiting(0, ran_s=-1.0, **same), 2000.0 - ran_s, parameters)
        policy.score(waiting(0, ran_s=ran_s, **same), 2000.0, parameters)
    used, quick = np.log([4 / 1024, 0.5, 1.0]), np.array([1.0, 10 / 512, 10 / 1024])

    def mean(values, fade, prior, weight):
        weights_ = fade ** np.arange(len(values))[::-1]
        return ((weights_ * values).sum() + weight * prior) / (weights_.sum() + weight), weights_.sum() + weight

    usual, _ = mean(used, 0.999, -1.0, 5.0)
    quick_usual, _ = mean(quick, 0.999, 0.02, 5.0)
    user_used, user_quick = (
        mean(values, 0.85, mean(values, 0.85, general, 2.0)[0], 2.0)
        for values, general in ((used, usual), (quick, quick_usual))
    )
    since = 2100.0  # run time so far of the running job
    known, counts = user_used[1], 5.0
    expected = (known * user_used[0] + counts * max(user_used[0], np.log(min(since / 1024, 1)))) / (known + counts)
    expected_inverse_runtime = (known * user_quick[0] + counts * min(user_quick[0], 10 / since)) / (known + counts)
    for number, predicted_jobs in (
        (0, (usual, expected, quick_usual, expected_inverse_runtime)),
        (2, (usual, usual, quick_usual, quick_usual)),
    ):
        found = policy.score(waiting(number, submit_s=2000.0, **same), 2100.0, parameters)
        assert found == pytest.approx(plain_score(weights, 1024.0, 1, 100.0, 64, *predicted_jobs), rel=1e-12)


def test_overestimating_user_is_learned_during_run():
    """Both users request an hour; user 0's jobs take a minute, so that its third job precedes an earlier job of user
    1."""
    jobs = kw.JobTable(
        job_id=range(1, 7), submit_s=[0, 1, 2, 3, 4, 5], runtime_s=[60, 60, 3600, 3600, 3600, 60],
        estimate_s=[3600] * 6, nodes=[64] * 6, user=[0, 0, 1, 1, 1, 0],
    )  # fmt: skip
    start = kw.simulate(jobs, CLUSTER, LinearAgent(default_weights()).policy, backfill="none").jobs()["start_s"]
    assert start[5] < start[2]
    saf_starts = kw.simulate(jobs, CLUSTER, LinearAgent(saf_weights()).policy, backfill="none").jobs()["start_s"]
    assert saf_starts[5] > saf_starts[2]


def test_max_wait_bounds_waits():
    """A wide job among a stream of small ones starves under SAF, but not with the bound."""
    small = 400
    jobs = kw.JobTable(
        job_id=range(small + 1), submit_s=[0, *range(0, 10 * small, 10)], runtime_s=[600, *[640] * small],
        nodes=[64, *[1] * small],
    )  # fmt: skip
    starving, bound = (
        kw.simulate(jobs, CLUSTER, LinearAgent(saf_weights(), max_wait_s=longest).policy, backfill="none").jobs()[
            "wait_s"
        ][0]
        for longest in (np.inf, 1200.0)
    )
    assert starving > 3600
    assert 1200 < bound <= 1200 + 640 + 10
    by_age = LinearAgent(saf_weights(), max_wait_s=0.0).policy
    synthetic_jobs = kw.lublin(300, 64, load=1.2, seed=3)
    agent_starts, policy_starts = (
        kw.simulate(synthetic_jobs, CLUSTER, policy, backfill="none").jobs()["start_s"] for policy in (by_age, "fcfs")
    )
    assert np.array_equal(agent_starts, policy_starts)


def test_fallback_policy_is_used():
    agent = LinearAgent(default_weights(), fallback_policy="f2")
    jobs = kw.lublin(300, 64, load=1.2, seed=3)
    agent_starts, policy_starts = (
        kw.simulate(jobs, CLUSTER, policy, "easy").jobs()["start_s"] for policy in (agent.policy, "f2")
    )
    assert np.array_equal(agent_starts, policy_starts)
    assert agent.policy.name == "agent"
    with pytest.raises(UnknownNameError, match="policy"):
        LinearAgent(default_weights(), fallback_policy="f22")


def test_saf_weights_give_order_of_saf():
    """On jobs with different areas, as rounding of logarithms may break ties differently."""
    jobs = kw.JobTable(
        job_id=range(1, 7),
        submit_s=[0, 1, 1, 1, 1, 1],
        runtime_s=[100, 50, 20, 10, 400, 7],
        nodes=[64, 60, 40, 33, 64, 50],
    )
    agent_starts = kw.simulate(jobs, CLUSTER, LinearAgent(saf_weights()).policy, backfill="none")
    policy_starts = kw.simulate(jobs, CLUSTER, "saf", backfill="none")
    assert np.array_equal(agent_starts.start_s, policy_starts.start_s)
    assert np.array_equal(agent_starts.job, policy_starts.job)


def test_order_of_three_jobs_by_one_weight():
    jobs = kw.JobTable(job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[100, 50, 10], nodes=[64, 64, 64])
    shortest = LinearAgent(np.eye(12)[0]).policy
    assert kw.simulate(jobs, CLUSTER, shortest, backfill="none").jobs()["start_s"].tolist() == [0, 110, 100]
    oldest = LinearAgent(-np.eye(12)[5]).policy
    assert kw.simulate(jobs, CLUSTER, oldest, backfill="none").jobs()["start_s"].tolist() == [0, 100, 150]


def test_scaled_weights_give_same_schedule(jobs):
    weights = np.random.default_rng(1).normal(size=12)
    one, other = (kw.simulate(jobs, CLUSTER, LinearAgent(weights * factor).policy, "easy") for factor in (1.0, 4.0))
    assert np.array_equal(one.start_s, other.start_s)


def test_save_and_load_are_exact(tmp_path):
    weights = np.random.default_rng(2).normal(size=12) / 3
    jobs = kw.JobTable(
        job_id=range(4), submit_s=range(4), runtime_s=[5, 50, 500, 5], estimate_s=[7200, 60, 7200, 60],
        nodes=[1] * 4, user=[1, 0, 1, -1], labels={"user": ("ann", "bob \"b\"")},
    )  # fmt: skip
    agent = LinearAgent(weights, "mine", {"seed": 0, "trace": "x"}, user_histories(jobs, [4])[4], 0.3, "f1")
    path = agent.save(tmp_path / "new" / "agent.json")
    again = load_agent(path)
    assert np.array_equal(again.weights, weights)
    assert np.array_equal(again.parameters(jobs, CLUSTER), agent.parameters(jobs, CLUSTER))
    assert sorted(again.user_history.users) == ["ann", 'bob "b"']
    assert (again.prior_weight, again.fallback_policy) == (0.3, "f1")
    assert (again.name, again.provenance, again.policy.name) == ("mine", {"seed": 0, "trace": "x"}, "mine")


def test_weights_are_validated_and_read_only():
    for bad in ([1.0], [float("inf")] * 12):
        with pytest.raises(InputError, match="give 12 finite numbers"):
            LinearAgent(bad)
    with pytest.raises(ValueError, match="read-only"):
        LinearAgent(np.ones(12)).weights[0] = 2.0


def damaged(**changes):
    good = {
        "format": "kilowait linear agent",
        "version": 3,
        "name": "agent",
        "weights": dict.fromkeys(FEATURES, 0.5),
        "prior_weight": 0.25,
        "fallback_policy": None,
        "provenance": {},
        "user_history": UserHistory().to_dict(),
    }
    return json.dumps({**good, **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON, or is cut off"),
        (damaged()[:-40], "it is not JSON, or is cut off"),
        ("\x00\x01binary", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[1, 2]", "its format is 'list'"),
        ("{}", "its format is None"),
        (damaged(format="something"), "its format is 'something'"),
        (damaged(version=2), "version 2; this kilowait reads version 3"),
        (damaged(weights=[1, 2]), "weights is a list of 2; it must be an object"),
        (damaged(weights={"length": 1.0}), "has weights for length; this agent needs length, width"),
        (damaged(weights=dict.fromkeys(FEATURES, "1")), "weights.length is '1'; it must be a number"),
        (damaged(weights=dict.fromkeys(FEATURES, True)), "weights.length is true; it must be a number"),
        (damaged(weights=dict.fromkeys(FEATURES, float("nan"))), "NaN is not a JSON number"),
        (damaged(weights=dict.fromkeys(FEATURES, 10**400)), "agent.json"),
        (damaged(provenance=3), "provenance is 3; it must be an object"),
        (damaged(prior_weight="much"), "prior_weight is 'much'; it must be a number"),
        (damaged(prior_weight=2.0), "prior_weight is 2.0; it must be a number, at least 0, at most 1"),
        (damaged(fallback_policy="f9"), "'f9'"),
        (damaged(max_wait_s=-1.0), "max_wait_s is -1.0; it must be null, or a number"),
        (damaged(max_wait_s="long"), "max_wait_s is 'long'"),
        (damaged(fallback_policy=["f1"]), "fallback_policy is a list of 1"),
        (damaged(user_history=None), "user_history is null; it must be an object"),
        (
            damaged(user_history={"all_users": {"0": [1.0]}, "users": {}}),
            r"user_history.all_users.0 is a list of 1; it must be a list of 3",
        ),
        (
            damaged(user_history={"all_users": {"0": [-1.0, 0.0, 0.0]}, "users": {}}),
            "weights or inverse run times below 0",
        ),
        (
            damaged(user_history={"all_users": {"99": [1.0, 0.0, 0.0]}, "users": {}}),
            "has the row '99'; rows are 0 to 63",
        ),
    ],
)
def test_damaged_file_is_an_error(tmp_path, text, message):
    path = tmp_path / "agent.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_agent(path)


def test_missing_and_binary_files_are_errors(tmp_path):
    with pytest.raises(InputError, match="train one with kilowait train"):
        load_agent(tmp_path / "none.json")
    (tmp_path / "agent.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="contains no agent"):
        load_agent(tmp_path / "agent.json")
    with pytest.raises(InputError, match="cannot write the agent"):
        LinearAgent(np.ones(12)).save(tmp_path / "agent.json" / "below.json")
