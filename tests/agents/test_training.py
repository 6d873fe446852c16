"""Training on a small workload, and judging on what it has not seen."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents import LinearAgent, judge, mean_bsld, split, spread_windows, train
from kilowait.agents.judging import ratio_interval
from kilowait.agents.training import _relative, mean_wait_s
from kilowait.errors import InputError, UnknownNameError

CLUSTER = kw.Cluster.from_nodes(64)
SMALL = {"generations": 4, "population": 6, "windows": 3, "window_jobs": 150}


@pytest.fixture(scope="module")
def jobs():
    return kw.lublin(2000, 64, load=1.0, seed=5, estimates="rounded")


def test_same_seed_same_weights_on_any_number_of_threads(jobs):
    found = [
        train(jobs, CLUSTER, seed=seed, threads=threads, **SMALL)
        for seed, threads in ((0, 1), (0, 3), (1, 1))
    ]
    weights = [agent.weights.tobytes() for agent, _ in found]
    histories = [[g.training for g in history] for _, history in found]
    assert weights[0] == weights[1]
    assert histories[0] == histories[1] != histories[2]


def test_it_learns_what_there_is_to_learn(jobs):
    """Asked to make long jobs go first, it must turn the order it starts with (smallest area first) round."""

    def long_ones_wait(log):
        records = log.jobs()
        return float(np.average(records["wait_s"], weights=records["run_s"] ** 2)) + 1.0

    agent, history = train(
        jobs,
        CLUSTER,
        seed=0,
        objective=long_ones_wait,
        generations=15,
        population=8,
        windows=3,
        window_jobs=200,
    )
    assert history[-1].best < 0.8
    assert agent.provenance["objective"] == "long_ones_wait"
    windows = spread_windows(split(jobs).test, 2, 200)
    (verdict,) = judge(agent, ["saf"], windows, CLUSTER, seed=0, objective=long_ones_wait)
    assert verdict.ratio < 0.9


def test_the_test_part_is_not_touched(jobs):
    """Other later jobs, same weights."""
    later = len(split(jobs).train) + len(split(jobs).validate)
    runtime = jobs["runtime_s"].copy()
    runtime[later:] = 1.0
    changed = jobs.with_columns(
        runtime_s=runtime, nodes=np.where(np.arange(len(jobs)) < later, jobs["nodes"], 64)
    )
    one, _ = train(jobs, CLUSTER, seed=2, **SMALL)
    other, _ = train(changed, CLUSTER, seed=2, **SMALL)
    assert one.weights.tobytes() == other.weights.tobytes()


def test_training_reports_and_records(jobs):
    heard = []
    agent, history = train(jobs, CLUSTER, seed=0, trace="a log", progress=heard.append, **SMALL)
    assert heard == history
    assert [g.number for g in history] == [1, 2, 3, 4]
    assert min(1.0, *(g.validation for g in history)) == history[-1].best
    assert agent.provenance["seed"] == 0
    assert agent.provenance["trace"] == "a log"
    assert agent.provenance["trained_on_jobs"] == 1200
    assert np.sqrt((agent.weights**2).sum()) == pytest.approx(1.0)


def test_objectives_are_those_of_the_metrics(jobs):
    log = kw.simulate(jobs, CLUSTER, "sjf", "easy")
    assert mean_bsld(log) == pytest.approx(kw.metrics(log)["mean_bsld"], rel=1e-12)
    assert mean_wait_s(log) == pytest.approx(kw.metrics(log)["mean_wait_s"], rel=1e-12)


def test_relative_prefers_neither_of_two_equals():
    assert _relative(np.array([2.0, 1.0]), np.array([1.0, 2.0])) == pytest.approx(1.0)
    assert _relative(np.array([0.0, 5.0]), np.array([0.0, 10.0])) == pytest.approx(np.sqrt(0.5))


@pytest.mark.parametrize(
    ("changes", "problem", "words"),
    [
        ({"objective": "mean_bslt"}, UnknownNameError, "did you mean 'mean_bsld'"),
        ({"window_jobs": 500}, InputError, "does not fit into a part of 400"),
        ({"generations": 0}, InputError, "0 generations"),
        ({"windows": 0}, InputError, "0 windows"),
        ({"population": 2}, InputError, "at least 4"),
        ({"seed": -1}, InputError, "must be 0 or more"),
    ],
)
def test_impossible_trainings_are_refused(jobs, changes, problem, words):
    with pytest.raises(problem, match=words):
        train(jobs, CLUSTER, **{"seed": 0, **SMALL, **changes})


def test_parts_are_in_time_and_apart(jobs):
    turned = jobs[np.arange(len(jobs))[::-1]]
    parts = split(turned)
    assert parts.train["submit_s"].max() <= parts.validate["submit_s"].min()
    assert parts.validate["submit_s"].max() <= parts.test["submit_s"].min()
    ids = np.concatenate([part["job_id"] for part in (parts.train, parts.validate, parts.test)])
    assert sorted(ids) == sorted(jobs["job_id"])
    with pytest.raises(InputError, match="leave something for the test"):
        split(jobs, train=0.8, validate=0.2)
    with pytest.raises(InputError, match="too few"):
        split(jobs[:2])


def test_an_agent_against_itself_is_undecided(jobs):
    agent = LinearAgent(np.eye(10)[0])
    windows = spread_windows(jobs, 5, 200)
    (verdict,) = judge(agent, {"twin": agent.rule}, windows, CLUSTER, seed=0)
    assert (verdict.ratio, verdict.ratio_low, verdict.ratio_high, verdict.words) == (1, 1, 1, "undecided")
    (verdict,) = judge(agent, ["ljf"], windows, CLUSTER, seed=0)
    assert verdict.words == "wins"
    assert verdict.to_dict()["words"] == "wins"
    (verdict,) = judge(LinearAgent(-np.eye(10)[0]), ["sjf"], windows, CLUSTER, seed=0)
    assert verdict.words == "loses"
    with pytest.raises(InputError, match="no window"):
        judge(agent, ["sjf"], [], CLUSTER, seed=0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    hits = 0
    for seed in range(200):
        theirs = random.gamma(8.0, 1.0, 40)
        ours = 0.9 * theirs * random.gamma(50.0, 1 / 50, 40)
        low, high = ratio_interval(ours, theirs, seed=seed)
        hits += low < 0.9 < high
    assert 178 <= hits <= 199
