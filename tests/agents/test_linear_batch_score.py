"""The score of the linear agent uses requests; a prediction counts as a few ended jobs."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.agents import LinearAgent
from kilowait.agents.linear_batch import UserHistory, default_weights, parameters_for, user_histories
from kilowait.agents.linear_batch_score import PREDICTION_WEIGHT, SHRINKAGE, compiled_statistics
from kilowait.engine.interface import JOB
from kilowait.jobs import JobTable

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(400, 32, load=1.0, seed=3, estimates="rounded").with_columns(user=np.arange(400) % 5)


def starts(jobs, agent, machine=MACHINE):
    return kw.simulate(jobs, machine, agent.policy, "easy").jobs()["start_s"]


def test_history_uses_requested_limits_not_predictions():
    limited = JOBS.with_columns(limit_s=JOBS["estimate_s"], planned_s=JOBS["estimate_s"])
    predicted_jobs = limited.with_columns(estimate_s=JOBS["runtime_s"])
    agent = LinearAgent(default_weights(), user_history=user_histories(JOBS, [200])[200])
    same = LinearAgent(default_weights(), user_history=user_histories(predicted_jobs, [200])[200])
    np.testing.assert_array_equal(starts(limited, same), starts(JOBS, agent))


def waiting(predicted_s, before=()):
    """One node: jobs of `before` seconds of user 0 end one after another, then users 0 and 1 have one waiting each."""
    ran = [*before, *([10.0] if before else [100.0]), 600.0, 600.0]
    ahead = len(ran) - 2
    return JobTable(
        job_id=range(1, len(ran) + 1),
        submit_s=[float(n) for n in range(len(ran))],
        runtime_s=ran,
        limit_s=[3600.0] * len(ran),
        estimate_s=[3600.0] * ahead + list(predicted_s),
        planned_s=[3600.0] * len(ran),
        nodes=[1] * len(ran),
        user=[0] * (ahead - 1) + [2, 0, 1],
    )


def first(jobs):
    start_s = starts(jobs, LinearAgent(default_weights()), kw.Cluster.from_nodes(1))
    return int(np.argmin(start_s[-2:]))


def test_job_predicted_shorter_goes_first():
    assert first(waiting([60.0, 1200.0])) == 0
    assert first(waiting([1200.0, 60.0])) == 1


def test_ended_jobs_outweigh_prediction():
    assert first(waiting([700.0, 900.0])) == 0
    assert first(waiting([700.0, 900.0], before=[3600.0] * 12)) == 1


def test_prediction_weight_in_ended_jobs():
    jobs = waiting([36.0, 3600.0])
    parameters = parameters_for(default_weights(), jobs, 1, UserHistory(), 0.0)

    def predicted_jobs(estimate_s, expected_inverse_runtime):
        job = np.zeros(1, JOB)[0]
        job["limit_s"], job["estimate_s"], job["expected_inverse_runtime"], job["number"] = (
            3600.0,
            estimate_s,
            expected_inverse_runtime,
            1,
        )
        return compiled_statistics()(job, 0.0, parameters)

    usual, used, quick_usual, quick = predicted_jobs(36.0, 0.5)
    assert predicted_jobs(3600.0, 0.5) == (usual, usual, quick_usual, quick_usual)
    assert used == pytest.approx(
        (SHRINKAGE * usual + PREDICTION_WEIGHT * np.log(0.01)) / (SHRINKAGE + PREDICTION_WEIGHT)
    )
    assert quick == pytest.approx((SHRINKAGE * quick_usual + PREDICTION_WEIGHT * 0.5) / (SHRINKAGE + PREDICTION_WEIGHT))


def test_reservations_use_predictions():
    agent = LinearAgent(default_weights())
    predicted_jobs = JOBS.with_columns(limit_s=JOBS["estimate_s"], planned_s=JOBS["runtime_s"])
    assert not np.array_equal(starts(predicted_jobs, agent), starts(JOBS, agent))
