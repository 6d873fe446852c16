"""EASY+ and EASY++: predictions from the user's last jobs, and their effect on backfilling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kilowait as kw
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.simulator import Simulator
from kilowait.errors import InputError
from kilowait.policies import resolve, simulate
from tests.engine.stepwise_policy import starts, table

FOUR = kw.Cluster.from_nodes(4)


def predicted(user: list[int], *rows: tuple[float, ...]) -> list[float]:
    """Planned time of each job in a run on a machine that fits all jobs."""
    simulator = Simulator(table(*rows, user=user), kw.Cluster.from_nodes(64), policy=resolve("easy+"))
    simulator.run()
    seen = simulator.state.jobs
    assert seen["estimate_s"].tolist() == seen["planned_s"].tolist()
    return [float(span) for span in seen["planned_s"]]


def test_prediction_is_the_mean_of_the_last_two_ended_jobs() -> None:
    rows = [(0, 1, 10, 900), (20, 1, 30, 900), (100, 1, 50, 900), (200, 1, 70, 900)]
    assert predicted([5, 5, 5, 5], *rows) == [900, 10, 20, 40]


def test_last_jobs_are_those_that_ended_last() -> None:
    """Of the first two jobs the second ends first; the third is running when the fourth arrives."""
    rows = [(0, 1, 100, 900), (1, 1, 10, 900), (20, 1, 1000, 900), (150, 1, 5, 900)]
    assert predicted([0, 0, 0, 0], *rows) == [900, 900, 10, 55]


def test_users_without_history_keep_their_estimates() -> None:
    rows = [(0, 1, 10, 900), (50, 1, 10, 800), (100, 1, 10, 700), (150, 1, 10, 600)]
    assert predicted([3, 4, -1, -1], *rows) == [900, 800, 700, 600]


def test_prediction_is_at_most_the_estimate_and_at_least_one_second() -> None:
    rows = [(0, 1, 300, 900), (400, 1, 0, 60), (500, 1, 0, 900), (600, 1, 5, 900)]
    assert predicted([0, 0, 0, 0], *rows) == pytest.approx([900, 60, 150, 1])


def test_job_ending_at_the_arrival_counts() -> None:
    assert predicted([0, 0], (0, 1, 10, 900), (10, 1, 10, 900)) == [900, 10]


def test_job_predicted_short_is_backfilled() -> None:
    """The third has the machine reserved at 120. The fourth has the estimate 500 s; its user's last job took 8."""
    jobs = table((0, 1, 8, 500), (20, 3, 100), (30, 4, 10), (40, 1, 8, 500), user=[1, 2, 3, 1])
    assert starts(simulate(jobs, FOUR, "fcfs", "easy")) == [0, 20, 120, 130]
    assert starts(simulate(jobs, FOUR, "easy+", "easy")) == [0, 20, 120, 40]


def test_easy_plus_plus_tries_the_shortest_prediction_first() -> None:
    """One node is free: the last job arrives later, with a longer estimate and a shorter prediction."""
    jobs = table(
        (0, 1, 8, 500), (0, 1, 20, 500), (30, 3, 100), (40, 4, 10), (50, 1, 20, 100), (50, 1, 8, 500),
        user=[1, 2, 3, 4, 2, 1],
    )  # fmt: skip
    assert starts(simulate(jobs, FOUR, "easy+", "easy"))[4:] == [50, 70]
    assert starts(simulate(jobs, FOUR, "easy++", "easy"))[4:] == [58, 50]
    assert starts(simulate(jobs, FOUR, "easy++", "easy", backfill_order="fcfs"))[4:] == [50, 70]


def test_overrun_predictions_increase_in_steps_by_default() -> None:
    jobs = table((0, 1, 8, 500), user=[1])
    for asked, used in ((None, "steps"), ("double", "double"), ("quantile", "quantile")):
        assert simulate(jobs, FOUR, "easy+", "easy", overrun=asked).run["overrun"] == used
    assert simulate(jobs, FOUR, "fcfs", "easy").run["overrun"] == "double"
    assert simulate(jobs, FOUR, "easy++", "easy").run["backfill_order"] == "sjf"


def test_predictions_do_not_kill_jobs() -> None:
    jobs = table((0, 1, 8, 500), (20, 1, 300, 500), (30, 1, 900, 500), user=[1, 1, 1])
    log = simulate(jobs, FOUR, "easy+", "easy", at_limit="kill")
    assert log.jobs()["run_s"].tolist() == [8, 300, 500]


def test_learned_state_is_reset_for_every_run() -> None:
    jobs = kw.lublin(300, 16, load=1.0, seed=3)
    jobs = jobs.with_columns(user=np.arange(len(jobs)) % 7, estimate_s=3 * jobs["runtime_s"])
    rule, cluster = resolve("easy++"), kw.Cluster.from_nodes(16)
    one, other = (starts(simulate(jobs, cluster, rule, "easy")) for _ in range(2))
    assert one == other


def slow(**more: Any) -> PriorityPolicy:
    return replace(resolve("easy+"), name="mine", **more)


def test_predicting_policy_errors() -> None:
    jobs = table((0, 1, 8, 500), user=[1])
    with pytest.raises(
        InputError, match="policy 'mine' predicts run times but is not compiled; make it compilable by Numba"
    ):
        simulate(jobs, FOUR, slow(compiled=False), "easy")
    with pytest.raises(InputError, match="'mine' observes jobs or predicts run times, which only the policy may do"):
        simulate(jobs, FOUR, "fcfs", "easy", backfill_order=slow(observes_jobs=False))
