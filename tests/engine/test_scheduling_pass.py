"""Scheduling passes: start times computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kilowait.cluster import Cluster, NodeGroup, Outage
from kilowait.policies import simulate
from tests.engine.stepwise_policy import starts, table
from tests.oracle.conversion import difference, run_engine
from tests.oracle.workloads import random_case, run_reference

EIGHT = Cluster.from_nodes(8)


def test_without_backfilling_jobs_start_in_order() -> None:
    jobs = table((0, 5, 10), (1, 6, 10), (2, 1, 1))
    assert starts(simulate(jobs, EIGHT, backfill="none")) == [0, 10, 10]


@pytest.mark.parametrize(("run", "start"), [(8.0, 2.0), (8.25, 10.0)])
def test_easy_backfills_jobs_that_end_by_the_shadow_time(run: float, start: float) -> None:
    jobs = table((0, 5, 10), (1, 8, 10), (2, 3, run))  # shadow 10, extra 0
    log = simulate(jobs, EIGHT, backfill="easy")
    assert starts(log) == [0, 10, start if start < 10 else 20]


def test_easy_uses_the_extra_nodes_once() -> None:
    jobs = table((0, 5, 10), (1, 6, 10), (2, 1, 99), (2, 2, 99), (2, 1, 99))  # shadow 10, extra 2
    assert starts(simulate(jobs, EIGHT, backfill="easy")) == [0, 10, 2, 20, 2]


def test_depth_two_makes_a_second_reservation() -> None:
    """Behind the first job (8 nodes at 10) the second needs 5 at 20: a job of 4 nodes for 20 s must not delay it."""
    jobs = table((0, 4, 10), (1, 8, 10), (2, 5, 10), (3, 4, 20))
    assert starts(simulate(jobs, EIGHT, backfill="easy")) == [0, 10, 20, 30]
    jobs = table((0, 4, 10), (1, 5, 10), (2, 6, 5), (3, 3, 12))
    assert starts(simulate(jobs, EIGHT, backfill="easy")) == [0, 10, 20, 3]
    jobs = table((0, 4, 10), (1, 5, 10), (2, 6, 5), (3, 3, 18))
    assert starts(simulate(jobs, EIGHT, backfill="easy")) == [0, 10, 21, 3]
    assert starts(simulate(jobs, EIGHT, backfill=2)) == [0, 10, 20, 25]


def test_conservative_reserves_for_all_jobs() -> None:
    jobs = table((0, 4, 10), (1, 5, 10), (2, 6, 5), (3, 3, 18))
    assert starts(simulate(jobs, EIGHT, backfill="conservative")) == [0, 10, 20, 25]


def test_separate_backfill_order() -> None:
    jobs = table((0, 6, 10), (1, 8, 10), (2, 2, 8), (2, 2, 3), (2, 2, 5))
    assert starts(simulate(jobs, EIGHT, backfill="easy")) == [0, 10, 2, 20, 20]
    assert starts(simulate(jobs, EIGHT, backfill="easy", backfill_order="sjf")) == [0, 10, 20, 2, 5]


def test_blocked_job_closes_only_its_groups() -> None:
    cluster = Cluster(
        (NodeGroup("a", 4), NodeGroup("b", 4), NodeGroup("c", 4)), queues={"ab": ("a", "b"), "b": ("b",), "c": ("c",)}
    )
    jobs = table(
        (0, 3, 10),
        (0, 3, 10),
        (1, 2, 10),
        (2, 1, 10),
        (2, 1, 10),
        queue=[0, 0, 0, 1, 2],
        labels={"queue": ("ab", "b", "c")},
    )
    assert starts(simulate(jobs, cluster, backfill="none")) == [0, 0, 10, 10, 2]


def test_simultaneous_jobs_are_ordered_by_id() -> None:
    jobs = table((0, 8, 10), (0, 8, 10), (0, 8, 10)).with_columns(job_id=[9, 3, 5])
    log = simulate(jobs, EIGHT, backfill="none")
    assert starts(log) == [20, 0, 10]
    assert log.job.tolist() == [1, 2, 0]


def test_one_pass_per_instant_or_per_event() -> None:
    """At 10 the first ends and a short one arrives; per event the long one starts before that arrival."""
    jobs = table((0, 8, 10), (5, 8, 20), (10, 8, 5))
    assert starts(simulate(jobs, EIGHT, "sjf", backfill="none")) == [0, 15, 10]
    assert starts(simulate(jobs, EIGHT, "sjf", schedule_per="event", backfill="none")) == [0, 10, 30]


def test_expected_run_time_doubles_on_overrun() -> None:
    """The first has the estimate 10 and runs for 35. At 12 its expected end is 20: 8 s fit before, 8.5 s do not.

    At 20 the planner believes in 40.
    """
    jobs = table((0, 6, 35, 10), (1, 8, 10), (12, 1, 8), (12, 1, 8.5))
    assert starts(simulate(jobs, EIGHT, backfill="easy")) == [0, 35, 12, 20]


def test_unannounced_outage_takes_nodes_as_jobs_release_them() -> None:
    cluster = EIGHT.with_outages(Outage("nodes", 6, 5.0, 30.0, announced_s=5.0))
    jobs = table((0, 4, 10), (0, 4, 20), (6, 2, 5), (6, 3, 5))
    # From 5 on two nodes are left, with eight in use; at 10 four pay the debt, at 20 two are free.
    assert starts(simulate(jobs, cluster, backfill="easy")) == [0, 0, 20, 30]


def test_conservative_handles_a_reservation_in_the_past() -> None:
    """The first has the estimate 4 and runs for 60; the second, reserved for 32 at 20, starts when the first ends."""
    jobs = table((0, 8, 60, 4), (20, 8, 5))
    assert starts(simulate(jobs, EIGHT, backfill="conservative")) == [0, 60]


def test_conservative_drops_reservations_that_have_passed_on_an_idle_cluster() -> None:
    """Four nodes, shortest first. Job 1 runs for 20, not 8; job 2 is reserved for 8 to 14, job 3 for 14 to 22.

    At 20 either of them would block the other if its reservation were kept.
    """
    jobs = table((0, 3, 20, 8), (1, 2, 6, 6), (2, 4, 2, 8))
    assert starts(simulate(jobs, Cluster.from_nodes(4), "sjf", "conservative")) == [0, 20, 26]


@pytest.mark.parametrize("seed", [42, 57, 104, 168, 283, 426, 1316])
def test_conservative_starts_every_job_where_capacity_does_not_change(seed: int) -> None:
    """In each of these cases reservations that had passed once blocked one another on an idle cluster."""
    case = replace(random_case(seed), depth=None, outages=(), reservations=())
    run = run_engine(case)
    assert not [result for result in run.results if result.outcome == "unstarted"]
    assert difference(case, run_reference(case), run) is None


def test_conservative_keeps_a_reservation_that_another_job_could_use() -> None:
    """Four nodes: two until 10, two until 20 (really 5). Job 3 (four) is reserved for 20, job 4 (two) for 10.

    At 5 the third could go at 10 if the fourth gave way; it does not, and may itself go now.
    """
    jobs = table((0, 2, 10), (0, 2, 5, 20), (0, 4, 10), (0, 2, 10))
    four = Cluster.from_nodes(4)
    assert starts(simulate(jobs, four, backfill="conservative")) == [0, 0, 15, 5]
    assert starts(simulate(jobs, four, backfill=99)) == [0, 0, 10, 20]  # all is planned anew


@pytest.mark.parametrize("seed", [9005, 9021, 9076, 9108, 9136, 9143, 9179, 9322])
def test_timeline_has_space_for_moved_reservations(seed: int) -> None:
    """Random workloads that once exceeded the timeline array; another test run checks array bounds."""
    case = replace(random_case(seed), depth=None, backfill_order=None)
    assert difference(case, run_reference(case), run_engine(case)) is None


def test_expected_ends_are_renewed_when_nothing_is_free() -> None:
    """A pass per event, two nodes. The first runs for 100 s, estimate 1 s; the second uses the other until 50.

    At 40 the third (two nodes) arrives; the first is expected to end at 64. At 50 the third is reserved for 64, so that
    the fourth (5 s) may go before it, and it does before its cancellation is looked at.
    """
    jobs = table((0, 1, 100, 1), (5, 1, 45), (40, 2, 10), (50, 1, 5), cancel_s=[float("inf")] * 3 + [50.0])
    assert starts(simulate(jobs, Cluster.from_nodes(2), backfill="easy", schedule_per="event")) == [0, 5, 100, 50]


@pytest.mark.parametrize("seed", [2436, 7827, 15254, 17118, 18441])
def test_regression_cases_of_expected_ends(seed: int) -> None:
    """Random workloads with a pass per event on which engine and reference differed."""
    case = random_case(seed)
    assert difference(case, run_reference(case), run_engine(case)) is None
