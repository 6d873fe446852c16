"""The wait queue and the list of expected ends."""

from __future__ import annotations

from random import Random
from typing import Any

import numba
import pytest

from kilowait.cluster import Cluster
from kilowait.engine.kernels.queue import add_expected_end, enqueue, remove, remove_expected_end, renew_expected_ends
from kilowait.engine.kernels.state import CANCELLED, QUEUED, State
from tests.engine.stepwise_policy import initial_state, table

JOBS = table(*[(0.0, 1, 10.0)] * 12)


@numba.njit
def call_enqueue(s: Any, job: int) -> None:
    enqueue(s, job)


@numba.njit
def call_remove(s: Any, job: int, status: int) -> None:
    remove(s, job, status)


@numba.njit
def call_add_expected_end(s: Any, job: int, end: float) -> None:
    add_expected_end(s, job, end)


@numba.njit
def call_remove_expected_end(s: Any, job: int) -> None:
    remove_expected_end(s, job)


@numba.njit
def call_renew(s: Any) -> None:
    renew_expected_ends(s)


def state(*, time_dependent: bool = False) -> State:
    return initial_state(JOBS, Cluster.from_nodes(4), time_dependent=time_dependent)


def queue(s: State) -> list[int]:
    k = s.clock[0]
    return [int(job) for job in s.queue["job"][k.queue_lo : k.queue_hi]]


def expected_ends(s: State) -> list[tuple[float, int]]:
    return [(float(b.key), int(b.job)) for b in s.expected_ends[: s.clock[0].running]]


def test_fixed_queue_is_sorted_by_score_then_number() -> None:
    for seed in range(30):
        rng = Random(seed)
        s = state()
        keys = [float(rng.randint(0, 3)) for _ in range(12)]
        s.job_state["key"] = keys
        for job in rng.sample(range(12), 12):
            call_enqueue(s, job)
        assert queue(s) == sorted(range(12), key=lambda job: (keys[job], job))
        assert (s.job_state["status"] == QUEUED).all()


def test_time_dependent_queue_is_sorted_by_number() -> None:
    s = state(time_dependent=True)
    s.job_state["key"] = range(12, 0, -1)
    for job in (5, 2, 9, 0, 11):
        call_enqueue(s, job)
    assert queue(s) == [0, 2, 5, 9, 11]


def test_queue_entry_has_need_and_planned_time() -> None:
    s = initial_state(table((0.0, 3, 20.0, 70.0)), Cluster.from_nodes(4))
    call_enqueue(s, 0)
    assert (int(s.queue[0].need), float(s.queue[0].planned_s)) == (3, 70.0)


@pytest.mark.parametrize("gone", range(4))
def test_remove_closes_the_gap_and_changes_the_plan(gone: int) -> None:
    s = state()
    for job in range(4):
        call_enqueue(s, job)
    s.clock[0].unchanged = s.clock[0].reservations_tight = 1
    call_remove(s, gone, CANCELLED)
    assert queue(s) == [job for job in range(4) if job != gone]
    assert s.job_state[gone].status == CANCELLED
    assert not s.clock[0].unchanged and not s.clock[0].reservations_tight and s.clock[0].freed


def test_expected_ends_stay_sorted_by_end_then_number() -> None:
    for seed in range(30):
        rng = Random(seed)
        s, naive = state(), {}
        for _ in range(60):
            idle = [job for job in range(12) if job not in naive]
            if idle and (not naive or rng.random() < 0.6):
                job = rng.choice(idle)
                naive[job] = float(rng.randint(0, 4))
                call_add_expected_end(s, job, naive[job])
            else:
                job = rng.choice(sorted(naive))
                del naive[job]
                call_remove_expected_end(s, job)
            assert expected_ends(s) == sorted((end, job) for job, end in naive.items())


@pytest.mark.parametrize(
    ("now", "end"), [(9.0, 10.0), (10.0, 20.0), (19.0, 20.0), (20.0, 40.0), (39.5, 40.0), (1000.0, 1280.0)]
)
def test_overrun_doubles_the_estimate_until_the_end_is_in_the_future(now: float, end: float) -> None:
    """Started at 0 with an estimate of 10: the expected ends are 10, 20, 40, 80, ..."""
    s = state()
    s.job_state[0].start_s = 0.0
    call_add_expected_end(s, 0, 10.0)
    s.clock[0].now = now
    call_renew(s)
    assert expected_ends(s) == [(end, 0)]


def test_only_past_expected_ends_are_renewed() -> None:
    s = state()
    for job, end in enumerate([10.0, 12.0, 13.0]):
        s.job_state[job].start_s = end - 10.0
        call_add_expected_end(s, job, end)
    s.clock[0].now = 12.0
    call_renew(s)
    assert expected_ends(s) == [(13.0, 2), (20.0, 0), (22.0, 1)]
