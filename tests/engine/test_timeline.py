"""The timeline, compared with availability computed instant by instant."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numba
import pytest

from kilowait.cluster import Cluster, NodeGroup, Outage
from kilowait.engine.kernels import timeline
from kilowait.engine.kernels.queue import add_expected_end
from kilowait.engine.kernels.state import State
from kilowait.engine.settings import Settings
from tests.engine.stepwise_policy import initial_state, table

NODES = 8


@numba.njit
def call_build(s: Any) -> None:
    timeline.build(s)


@numba.njit
def call_earliest(s: Any, job: int, g: int) -> float:
    return timeline.earliest(s, job, g)


@numba.njit
def call_fits_from(s: Any, job: int, g: int, at: int, start: float) -> int:
    return timeline.fits_until(s, job, g, at, start + s.jobs[job].estimate_s)


@numba.njit
def call_occupy(s: Any, job: int, g: int, start: float, times: int) -> None:
    timeline.occupy(s, job, g, start, start + s.jobs[job].estimate_s, times)


@numba.njit
def call_move_up(s: Any) -> None:
    timeline.advance(s)


@numba.njit
def call_believe(s: Any, job: int, end: float) -> None:
    add_expected_end(s, job, end)


def line(s: State) -> list[tuple[float, list[int]]]:
    k = s.clock[0]
    return [(float(s.timeline_s[i]), s.timeline_free[i].tolist()) for i in range(k.timeline_lo, k.timeline_hi)]


def run_job(s: State, job: int, end: float) -> None:
    """Start the job now with this expected end."""
    s.pools[0].free -= s.need[job, 0]
    s.job_state[job].group = 0
    call_believe(s, job, end)


def test_timeline_contains_expected_ends_and_announced_changes() -> None:
    cluster = Cluster.from_nodes(8).with_outages(
        Outage("nodes", 2, 15.0, 25.0), Outage("nodes", 1, 40.0, math.inf, announced_s=30.0)
    )
    s = initial_state(table((0, 3, 10), (0, 2, 10), (0, 1, 10)), cluster, Settings("easy"))
    run_job(s, 0, 10.0)
    run_job(s, 1, 15.0)
    run_job(s, 2, 15.0)
    call_build(s)
    # The second outage is not known yet; at 15 three nodes come back and two go.
    assert line(s) == [(0.0, [2]), (10.0, [5]), (15.0, [6]), (25.0, [8])]


def test_job_fits_if_all_its_breakpoints_have_enough_free() -> None:
    cluster = Cluster.from_nodes(8).with_outages(Outage("nodes", 6, 15.0, 25.0))
    jobs = table((0, 5, 10), (0, 3, 15), (0, 3, 15.5), (0, 8, 1), (0, 2, 99))
    s = initial_state(jobs, cluster, Settings("easy"))
    run_job(s, 0, 10.0)
    call_build(s)
    assert line(s) == [(0.0, [3]), (10.0, [8]), (15.0, [2]), (25.0, [8])]
    assert [call_earliest(s, job, 0) for job in (1, 2, 3, 4)] == [0.0, 25.0, 10.0, 0.0]
    assert call_fits_from(s, 2, 0, 0, 0.0) == 2  # the outage, third breakpoint, is in the way
    assert call_fits_from(s, 1, 0, 0, 0.0) == -1  # it ends as the outage begins


def test_earliest_time_of_a_job_that_never_fits_is_infinite() -> None:
    cluster = Cluster.from_nodes(8).with_outages(Outage("nodes", 6, 15.0))
    s = initial_state(table((0, 8, 20), (0, 8, 15)), cluster, Settings("easy"))
    call_build(s)
    assert call_earliest(s, 0, 0) == math.inf
    assert call_earliest(s, 1, 0) == 0.0


def test_occupy_splits_breakpoints_and_subtracts_the_need() -> None:
    s = initial_state(table((0, 3, 10), (0, 2, 5)), Cluster.from_nodes(8), Settings(2))
    call_build(s)
    call_occupy(s, 0, 0, 4.0, 1)
    assert line(s) == [(0.0, [8]), (4.0, [5]), (14.0, [8])]
    call_occupy(s, 1, 0, 9.0, 1)
    assert line(s) == [(0.0, [8]), (4.0, [5]), (9.0, [3]), (14.0, [8])]  # ends meet at 14
    call_occupy(s, 0, 0, 4.0, -1)  # given back; the breakpoints stay
    assert line(s) == [(0.0, [8]), (4.0, [8]), (9.0, [6]), (14.0, [8])]


def test_advance_keeps_future_breakpoints() -> None:
    s = initial_state(table((0, 3, 10), (0, 2, 5)), Cluster.from_nodes(8), Settings(2))
    call_build(s)
    call_occupy(s, 0, 0, 4.0, 1)
    for now, left in [
        (2.0, [(2.0, [8]), (4.0, [5]), (14.0, [8])]),
        (4.0, [(4.0, [5]), (14.0, [8])]),
        (9.0, [(9.0, [5]), (14.0, [8])]),
        (99.0, [(99.0, [8])]),
    ]:
        s.clock[0].now = now
        call_move_up(s)
        assert line(s) == left


def test_all_pools_of_a_shared_group_are_checked() -> None:
    cluster = Cluster((NodeGroup("a", 2, cores=4, memory_gb=1.0, gpus=1, shared=True),))
    jobs = table((0, 1, 10), (0, 1, 10), (0, 1, 10), cores=[2, 2, 2], memory_mb=[1500, 0, 600], gpus=[0, 2, 1])
    s = initial_state(jobs, cluster, Settings(2))
    call_build(s)
    assert line(s) == [(0.0, [8, 2000, 2])]
    call_occupy(s, 0, 0, 0.0, 1)
    assert line(s)[0] == (0.0, [6, 500, 2])
    assert call_earliest(s, 1, 0) == 0.0
    assert call_earliest(s, 2, 0) == 10.0  # 600 MB are free again then


@pytest.mark.parametrize("seed", range(25))
def test_earliest_agrees_with_exhaustive_search(seed: int) -> None:
    rng = Random(seed)
    rows = [(0.0, rng.randint(1, NODES), float(rng.randint(1, 12))) for _ in range(14)]
    away = [
        Outage("nodes", rng.randint(1, 4), float(a := rng.randint(1, 30)), float(a + rng.randint(1, 15)))
        for _ in range(rng.randint(0, 3))
    ]
    s = initial_state(table(*rows), Cluster.from_nodes(NODES).with_outages(*away), Settings(99))
    # availability at each whole second, naively
    free = [NODES - sum(o.nodes for o in away if o.start_s <= t < o.end_s) for t in range(200)]
    now_free = NODES
    for job in range(5):
        end = rng.randint(1, 20)
        if rows[job][1] <= now_free:
            now_free -= int(rows[job][1])
            run_job(s, job, float(end))
            for t in range(end):
                free[t] -= int(rows[job][1])
    call_build(s)
    for job in range(5, 14):
        nodes, length = int(rows[job][1]), int(rows[job][2])
        naive = next(t for t in range(150) if all(free[u] >= nodes for u in range(t, t + length)))
        assert call_earliest(s, job, 0) == naive
        if rng.random() < 0.7:
            call_occupy(s, job, 0, float(naive), 1)
            for u in range(naive, naive + length):
                free[u] -= nodes
    for time, (level,) in line(s):
        assert free[int(time)] == level
