"""Events: their order, arrivals, dependencies, cancellations, the end."""

from __future__ import annotations

import math

import pytest

from kilowait.cluster import Cluster, Outage, Reservation
from kilowait.jobs.execution_log import Outcome
from kilowait.policies import simulate
from tests.engine.stepwise_policy import starts, table

FOUR = Cluster.from_nodes(4)


def test_one_job() -> None:
    log = simulate(table((7.5, 4, 2.25)), FOUR, backfill="none")
    assert (log.start_s.tolist(), log.end_s.tolist(), log.eligible_s.tolist()) == ([7.5], [9.75], [7.5])


def test_end_is_exactly_start_plus_run_time() -> None:
    jobs = table((0.1, 4, 0.2, 1), (0.15, 4, 0.7, 1))
    log = simulate(jobs, FOUR, backfill="none")
    assert log.start_s.tolist() == [0.1, 0.1 + 0.2]
    assert log.end_s.tolist() == [0.1 + 0.2, 0.1 + 0.2 + 0.7]


def test_finishes_come_before_arrivals_of_the_same_instant() -> None:
    assert starts(simulate(table((0, 4, 10), (10, 4, 1)), FOUR, backfill="none")) == [0, 10]


def test_zero_length_job_releases_its_nodes_at_the_same_instant() -> None:
    log = simulate(table((3, 4, 0), (3, 4, 0), (3, 4, 5)), FOUR, backfill="none")
    assert starts(log) == [3, 3, 3]
    assert log.end_s.tolist() == [3, 3, 8]


def test_results_keep_the_order_of_an_unsorted_table() -> None:
    jobs = table((9, 4, 1), (0, 4, 10), (4, 4, 1))
    log = simulate(jobs, FOUR, backfill="none")
    assert starts(log) == [11, 0, 10]
    assert log.job.tolist() == [1, 2, 0]
    assert log.eligible_s.tolist() == [9, 0, 4]


def test_wait_counts_from_the_begin_time() -> None:
    log = simulate(table((0, 4, 5), (1, 4, 5), begin_s=[20.0, -math.inf]), FOUR, backfill="none")
    assert starts(log) == [20, 1]
    assert log.jobs()["wait_s"].tolist() == [0, 0]


def test_dependent_arrives_after_end_and_think_time() -> None:
    jobs = table((0, 4, 5), (1, 1, 5), (30, 1, 5), after_id=[-1, 1, 1], think_s=[0.0, 2.5, 2.5])
    log = simulate(jobs, FOUR, backfill="none")
    assert log.eligible_s.tolist() == [0, 7.5, 30]


def test_dependents_of_cancelled_and_rejected_jobs_arrive() -> None:
    jobs = table(
        (0, 4, 50),
        (1, 4, 5),
        (2, 9, 5),
        (0, 1, 5),
        (0, 1, 5),
        after_id=[-1, -1, -1, 2, 3],
        think_s=[0.0, 0.0, 0.0, 1.0, 1.0],
        cancel_s=[math.inf, 10.0, math.inf, math.inf, math.inf],
    )
    log = simulate(jobs, FOUR, on_oversized="drop", backfill="none")
    assert log.eligible_s.tolist() == [0, 1, 2, 11, 3]
    assert log.job_outcome.tolist()[1:3] == [Outcome.CANCELLED, Outcome.REJECTED]


@pytest.mark.parametrize(
    ("cancel", "start", "outcome"),
    [
        (5.0, None, Outcome.CANCELLED),
        (10.0, None, Outcome.CANCELLED),  # before the pass of the instant at which it could have started
        (10.5, 10.0, Outcome.COMPLETED),
        (-3.0, None, Outcome.CANCELLED),  # on arrival
    ],
)
def test_only_waiting_jobs_are_cancelled(cancel: float, start: float | None, outcome: Outcome) -> None:
    log = simulate(table((0, 4, 10), (1, 4, 5), cancel_s=[math.inf, cancel]), FOUR, backfill="none")
    assert starts(log) == [0, start]
    assert log.job_outcome[1] == outcome


def test_job_cancelled_before_its_arrival_is_cancelled_on_arrival() -> None:
    jobs = table((0, 4, 10), (5, 4, 5), (0, 1, 5), after_id=[-1, -1, 2], cancel_s=[math.inf, -3.0, math.inf])
    log = simulate(jobs, FOUR, backfill="none")
    assert log.job_outcome[1] == Outcome.CANCELLED
    assert log.eligible_s.tolist() == [0, 5, 5]


def test_jobs_waiting_at_the_end_are_unstarted() -> None:
    cluster = FOUR.with_outages(Outage("nodes", 4, 5.0))
    log = simulate(table((0, 4, 10), (1, 1, 4)), cluster, backfill="easy")
    assert starts(log) == [None, 1]
    assert log.job_outcome.tolist() == [Outcome.UNSTARTED, Outcome.COMPLETED]


def test_dependent_of_an_unstarted_job_never_arrives() -> None:
    cluster = FOUR.with_outages(Outage("nodes", 4, 0.0))
    log = simulate(table((0, 4, 10), (1, 1, 5), after_id=[-1, 1]), cluster, backfill="none")
    assert starts(log) == [None, None]
    assert math.isnan(log.eligible_s[1]) and log.eligible_s[0] == 0
    assert log.job_outcome.tolist() == [Outcome.UNSTARTED] * 2


def test_advance_reservation_gives_its_queue_exclusive_nodes() -> None:
    cluster = Cluster(FOUR.groups, reservations=(Reservation("r", "nodes", 3, 10.0, 20.0),))
    jobs = table((0, 2, 12), (0, 4, 5), (0, 3, 5), (12, 1, 99), queue=[1, 1, 0, 1], labels={"queue": ("r", "x")})
    log = simulate(jobs, cluster, backfill="easy")
    # The first would run on into the reservation, and waits until it is over.
    assert starts(log) == [20, 0, 10, 12]
    assert log.jobs()["group"].tolist() == [0, 0, 1, 0]
