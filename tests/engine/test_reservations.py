"""Starts and reservations: known results, and shadow time compared with the timeline."""

from __future__ import annotations

import math
from random import Random

import pytest

from kilowait.cluster import Cluster, NodeGroup, Outage
from kilowait.engine.interface import Choice
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.jobs import JobTable
from tests.engine.stepwise_policy import INTERPRETED, table


def at_first(jobs: JobTable, cluster: Cluster, settings: Settings, *started: int) -> Simulator:
    """A simulator at its first instant, with some jobs started."""
    simulator = Simulator(jobs, cluster, settings)
    assert simulator.advance() is not None
    for job in started:
        simulator.apply(Choice.start(job))
    return simulator


def test_shadow_time_and_extra() -> None:
    """Eight nodes; five until 10. Six wait for 10 and leave two extra."""
    jobs = table((0, 5, 10), (0, 6, 10), (0, 3, 10), (0, 3, 10.5), (0, 2, 99), (0, 1, 99))
    simulator = at_first(jobs, Cluster.from_nodes(8), Settings("easy"), 0)
    assert simulator.apply(Choice.reserve(1)) == 10.0
    assert [simulator.can_start(job) for job in (2, 3, 4, 5)] == [True, False, True, True]
    simulator.apply(Choice.start(4))  # the extra is gone
    assert [simulator.can_start(job) for job in (2, 3, 5)] == [False, False, False]


def test_all_releases_at_the_shadow_time_count_as_extra() -> None:
    jobs = table((0, 3, 10), (0, 3, 10), (0, 4, 10), (0, 3, 99), (0, 2, 99))
    simulator = at_first(jobs, Cluster.from_nodes(8), Settings("easy"), 0, 1)
    assert simulator.apply(Choice.reserve(2)) == 10.0
    assert not simulator.can_start(3)  # two are free now
    assert simulator.can_start(4)  # four are left over at 10


def test_group_takes_at_most_depth_reservations() -> None:
    jobs = table((0, 8, 10), (0, 8, 10), (0, 8, 10), (0, 8, 10))
    for depth, times in ((1, [10.0]), (2, [10.0, 20.0]), (3, [10.0, 20.0, 30.0])):
        simulator = at_first(jobs, Cluster.from_nodes(8), Settings(depth), 0)
        assert [simulator.apply(Choice.reserve(1 + i)) for i in range(depth)] == times
        assert not simulator.can_reserve(depth)


def test_reservation_is_made_on_the_group_with_the_earliest_start() -> None:
    cluster = Cluster((NodeGroup("a", 4), NodeGroup("b", 4)))
    jobs = table((0, 4, 30), (0, 4, 20), (0, 4, 10), (0, 1, 5), (0, 4, 10))
    simulator = at_first(jobs, cluster, Settings("easy"))
    simulator.apply(Choice.start(0, group=0))
    simulator.apply(Choice.start(1, group=1))
    assert simulator.apply(Choice.reserve(2)) == 20.0  # on b
    assert simulator.can_reserve(4)  # a is still open
    assert simulator.apply(Choice.reserve(4)) == 30.0
    assert not simulator.can_reserve(3)


def test_job_that_never_fits_gets_no_reservation() -> None:
    cluster = Cluster.from_nodes(4).with_outages(Outage("nodes", 3, 5.0))
    simulator = at_first(table((0, 4, 10), (0, 1, 99)), cluster, Settings("easy"))
    assert simulator.apply(Choice.reserve(0)) == math.inf
    assert simulator.can_start(1)


def test_only_announced_outages_delay_long_jobs() -> None:
    jobs = table((0, 4, 5), (0, 4, 6))
    for announced, fits in ((-math.inf, [True, False]), (5.0, [True, True])):
        cluster = Cluster.from_nodes(4).with_outages(Outage("nodes", 1, 5.0, 50.0, announced))
        simulator = at_first(jobs, cluster, Settings("easy"))
        assert [simulator.can_start(0), simulator.can_start(1)] == fits


def test_placement_first_and_balance() -> None:
    cluster = Cluster((NodeGroup("a", 10), NodeGroup("b", 4)))
    jobs = table((0, 5, 9), (0, 1, 9), (0, 1, 9))
    for placement, groups in (("first", [0, 0, 0]), ("balance", [0, 1, 1])):
        simulator = at_first(jobs, cluster, Settings("easy", placement=placement), 0, 1, 2)
        assert simulator.log().group.tolist() == groups  # b has 4/4, then 3/4, a 5/10


def test_balance_uses_the_first_of_equally_empty_groups() -> None:
    cluster = Cluster((NodeGroup("a", 4), NodeGroup("b", 8), NodeGroup("c", 4)), queues={"q": ("c", "b", "a")})
    jobs = table((0, 2, 9), (0, 4, 9), (0, 2, 9), (0, 1, 9), queue=[0, 0, 0, 0], labels={"queue": ("q",)})
    simulator = at_first(jobs, cluster, Settings("easy", placement="balance"), 0, 1, 2, 3)
    assert simulator.log().group.tolist() == [2, 1, 0, 2]  # all empty; then b and a; then a; then halves all


@pytest.mark.parametrize("shared", [False, True])
def test_shadow_time_and_timeline_give_the_same_results(shared: bool) -> None:
    """Depth 1 uses shadow time and extra, depth 2 the timeline; with one reservation they must agree."""
    compared = 0
    for seed in range(15 if INTERPRETED else 80):
        rng = Random(seed)
        groups = tuple(
            NodeGroup(f"g{i}", rng.randint(2, 6), cores=2, gpus=1, shared=shared) for i in range(1 if seed % 2 else 2)
        )
        rows = [(0.0, rng.randint(1, 5), float(rng.randint(1, 9))) for _ in range(12)]
        jobs = table(*rows, cores=[rng.randint(1, 8) for _ in rows], gpus=[rng.randint(0, 2) for _ in rows])
        both = [at_first(jobs, Cluster(groups), Settings(depth, on_oversized="drop")) for depth in (1, 2)]
        for job in range(6):
            if both[0].can_start(job):
                for simulator in both:
                    simulator.apply(Choice.start(job))
        head = next((job for job in range(12) if both[0].can_reserve(job) and not both[0].can_start(job)), None)
        if head is None:
            continue
        assert both[0].apply(Choice.reserve(head)) == both[1].apply(Choice.reserve(head))
        for job in range(12):
            if job != head:
                assert both[0].can_start(job) == both[1].can_start(job), f"seed {seed}, job {job}"
                compared += 1
            if both[0].can_start(job) and job != head:
                for simulator in both:
                    simulator.apply(Choice.start(job))
    assert compared > 100
