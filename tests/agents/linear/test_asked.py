"""The search's score looks at what users asked for, also where run times are predicted."""

from __future__ import annotations

import numpy as np

import kilowait as kw
from kilowait.agents import LinearAgent
from kilowait.agents.linear import usual_weights
from kilowait.agents.linear.memory import memories

MACHINE = kw.Cluster.from_nodes(32)
JOBS = kw.lublin(400, 32, load=1.0, seed=3, estimates="rounded").with_columns(user=np.arange(400) % 5)
TOLD = JOBS.with_columns(
    limit_s=JOBS["estimate_s"], planned_s=JOBS["estimate_s"], estimate_s=JOBS["runtime_s"]
)


def test_order_and_memory_are_those_of_the_requests():
    agent = LinearAgent(usual_weights(), memory=memories(JOBS, [200])[200])
    told = LinearAgent(usual_weights(), memory=memories(TOLD, [200])[200])
    plain, predicted = (
        kw.simulate(jobs, MACHINE, who.rule, "easy").jobs()["start_s"]
        for jobs, who in ((JOBS, agent), (TOLD, told))
    )
    np.testing.assert_array_equal(predicted, plain)


def test_planners_use_predictions_all_the_same():
    agent = LinearAgent(usual_weights())
    plain = kw.simulate(JOBS, MACHINE, agent.rule, "easy").jobs()["start_s"]
    safe = TOLD.with_columns(planned_s=JOBS["runtime_s"])
    assert not np.array_equal(kw.simulate(safe, MACHINE, agent.rule, "easy").jobs()["start_s"], plain)
