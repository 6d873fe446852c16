"""Training of linear agents on a small workload, and evaluation on later jobs."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents import BatchObjective, BatchSearchSettings, mean_bsld, train_linear_agent
from kilowait.agents.evolution.batch import LogPart, _relative, mean_wait_s
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison import split

CLUSTER = kw.Cluster.from_nodes(64)
SMALL = {"generations": 4, "population": 6, "windows": 3, "window_jobs": 150}


def train(jobs, validation, cluster=CLUSTER, *, synthetic_mix=None, progress=None, checkpoint_dir=None, **settings):
    """Train a linear batch agent with these settings of the search."""
    objective = BatchObjective(jobs, validation, cluster, BatchSearchSettings(**settings), synthetic_mix=synthetic_mix)
    return train_linear_agent(objective, progress=progress, checkpoint_dir=checkpoint_dir)


@pytest.fixture(scope="module")
def jobs():
    return kw.lublin(2000, 64, load=1.0, seed=5, estimates="rounded")


@pytest.fixture(scope="module")
def split_jobs(jobs):
    results = split(jobs)
    return results.train, results.validation


def test_weights_do_not_depend_on_threads(split_jobs):
    results = [train(*split_jobs, seed=seed, threads=threads, **SMALL) for seed, threads in ((0, 1), (0, 3), (1, 1))]
    weights = [agent.weights.tobytes() for agent, _ in results]
    histories = [[g.training for g in history] for _, history in results]
    assert weights[0] == weights[1]
    assert histories[0] == histories[1] != histories[2]


def test_training_learns_custom_objective(jobs, split_jobs):
    """With an objective that favours long jobs, training must reverse the initial order (smallest area first)."""

    def long_ones_wait(log):
        records = log.jobs()
        return float(np.average(records["wait_s"], weights=records["run_s"] ** 2)) + 1.0

    agent, history = train(
        *split_jobs, seed=0, objective=long_ones_wait, generations=15, population=8, windows=3, window_jobs=200
    )
    assert history[-1].best < 0.9
    assert agent.provenance["objective"] == "long_ones_wait"
    later = split(jobs).test
    agent_value, policy_value = (
        long_ones_wait(kw.simulate(later, CLUSTER, policy, "easy")) for policy in (agent, "saf")
    )
    assert agent_value < 0.9 * policy_value


def test_clearly_better_policy_becomes_fallback(jobs, split_jobs):
    """If the objective is the order of arrival, no search beats first come, first served."""

    def disorder(log):
        records = log.jobs()
        return 1.0 + float(np.maximum(0.0, -np.diff(records["start_s"])).mean())

    agent, _ = train(*split_jobs, seed=0, objective=disorder, backfill="none", **SMALL)
    assert agent.fallback_policy == "fcfs"
    agent_value, policy_value = (
        kw.simulate(jobs, CLUSTER, policy, backfill="none").jobs()["start_s"] for policy in (agent.policy, "fcfs")
    )
    assert np.array_equal(agent_value, policy_value)


def test_history_contains_users_of_training_and_validation(split_jobs):
    first, second = (
        part.with_columns(user=np.arange(len(part)) % 3 + shift) for part, shift in zip(split_jobs, (0, 2), strict=True)
    )
    agent, _ = train(first, second, seed=0, **SMALL)
    assert sorted(agent.user_history.users) == ["0", "1", "2", "3", "4"]


def test_window_history_does_not_depend_on_later_jobs(split_jobs):
    """Changing later jobs does not change the user history at the start of the window."""
    jobs = split_jobs[0].with_columns(user=np.arange(len(split_jobs[0])) % 7)
    changed = jobs.with_columns(runtime_s=np.where(np.arange(len(jobs)) < 600, jobs["runtime_s"], 1.0))
    for lag in (0, 50, 400):
        one, other = (LogPart(table, CLUSTER, 150).lagged_window(600, lag).parameters for table in (jobs, changed))
        assert np.array_equal(one, other)
    later = LogPart(changed, CLUSTER, 150).lagged_window(900, 0).parameters
    assert not np.array_equal(later, LogPart(jobs, CLUSTER, 150).lagged_window(900, 0).parameters)


def test_progress_and_provenance(split_jobs):
    reported = []
    agent, history = train(*split_jobs, seed=0, trace="a log", progress=reported.append, **SMALL)
    assert reported == history
    assert [g.number for g in history] == [1, 2, 3, 4]
    assert history[-1].best in (1.0, pytest.approx(agent.provenance["validation_relative_to_start"]))
    assert np.isfinite(history[-1].validation)
    assert agent.provenance["seed"] == 0
    assert agent.provenance["trace"] == "a log"
    assert agent.provenance["trained_on_jobs"] == 1200


def test_objectives_equal_metrics(jobs):
    log = kw.simulate(jobs, CLUSTER, "sjf", "easy")
    assert mean_bsld(log) == pytest.approx(kw.metrics(log)["mean_bsld"], rel=1e-12)
    assert mean_wait_s(log) == pytest.approx(kw.metrics(log)["mean_wait_s"], rel=1e-12)


def test_relative_score_is_symmetric():
    assert _relative(np.array([2.0, 1.0]), np.array([1.0, 2.0])) == pytest.approx(1.0)
    assert _relative(np.array([0.0, 5.0]), np.array([0.0, 10.0])) == pytest.approx(0.5**0.75)


@pytest.mark.parametrize(
    ("changes", "problem", "message"),
    [
        ({"objective": "mean_bslt"}, UnknownNameError, "did you mean 'mean_bsld'"),
        ({"window_jobs": 1500}, InputError, "longer than the 1,200 jobs available"),
        ({"generations": 0}, InputError, "0 generations"),
        ({"windows": 0}, InputError, "0 windows"),
        ({"population": 2}, InputError, "at least 4"),
        ({"seed": -1}, InputError, "must be 0 or more"),
    ],
)
def test_invalid_training_settings_are_errors(split_jobs, changes, problem, message):
    with pytest.raises(problem, match=message):
        train(*split_jobs, **{"seed": 0, **SMALL, **changes})
