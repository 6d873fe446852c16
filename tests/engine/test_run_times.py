"""Estimate, planned time, limit and run time, and which part of the engine uses which."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.engine.run_times import resolve_run_times
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from kilowait.policies import simulate
from tests.engine.stepwise_policy import initial_state, starts, table

NAN = math.nan
FOUR = Cluster.from_nodes(4)


def test_policies_use_estimates_and_backfilling_planned_times() -> None:
    """All four nodes for the first two; then by estimate the third goes first, planned as the longest."""
    jobs = table((0, 4, 10), (1, 4, 10, 30), (2, 4, 10, 20), planned_s=[NAN, 5, 100])
    seen = initial_state(jobs, FOUR).jobs
    assert seen["estimate_s"].tolist() == [10, 30, 20]
    assert seen["planned_s"].tolist() == [10, 5, 100]
    assert starts(simulate(jobs, FOUR, "sjf", "easy")) == [0, 20, 10]


@pytest.mark.parametrize("backfill", ["easy", 3, "conservative"])
def test_backfilling_uses_the_planned_time(backfill: str | int) -> None:
    """The second has the machine at 10; one node is free until then. The third asks for 100 s and is planned with 8."""
    jobs = table((0, 3, 10), (1, 4, 10), (2, 1, 8, 100), planned_s=[NAN, NAN, 8])
    assert starts(simulate(jobs, FOUR, backfill=backfill)) == [0, 10, 2]
    assert starts(simulate(jobs.with_columns(planned_s=None), FOUR, backfill=backfill)) == [0, 10, 20]


def test_unknown_planned_time_is_the_estimate_and_unknown_limit_infinite() -> None:
    jobs = table((0, 1, 5, 0), (0, 1, 50, 30), (0, 1, 5, 9), planned_s=[NAN, 60, 0], limit_s=[NAN, 40, 0.2])
    times = resolve_run_times(jobs)
    assert times.estimate_s.tolist() == [1, 30, 9]
    assert times.planned_s.tolist() == [1, 40, 1]
    assert times.limit_s.tolist() == [np.inf, 40, 1]
    assert times.run_s.tolist() == [5, 50, 5]
    assert resolve_run_times(jobs.with_columns(limit_s=None), limited=True).limit_s.tolist() == [1, 30, 9]


def test_kill_ends_jobs_at_limit_or_estimate() -> None:
    jobs = table((0, 1, 50, 10), (0, 1, 50, 10), (0, 1, 50, 10), limit_s=[30, NAN, 80], planned_s=[5, 5, 5])
    log = simulate(jobs, FOUR, backfill="easy", at_limit="kill")
    assert log.jobs()["run_s"].tolist() == [30, 10, 50]
    assert log.job_outcome.tolist() == [Outcome.KILLED, Outcome.KILLED, Outcome.COMPLETED]


def test_gpu_engine_kills_jobs_at_limit_or_estimate() -> None:
    jobs = JobTable(
        job_id=[1, 2, 3],
        submit_s=[0, 0, 0],
        runtime_s=[50, 50, 50],
        estimate_s=[10, 10, 10],
        limit_s=[30, NAN, 80],
        nodes=[1, 1, 1],
        gpus=[1, 1, 1],
    )
    log = simulate(jobs, Cluster.preset("gpu-mixed"), at_limit="kill", backfill="none", gpu_speeds="none")
    assert log.jobs()["run_s"].tolist() == [30, 10, 50]
    assert log.job_outcome.tolist() == [Outcome.KILLED, Outcome.KILLED, Outcome.COMPLETED]
