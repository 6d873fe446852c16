"""Results of the reference simulator, computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.oracle.priority_rules import NAMES, rule_for
from tests.oracle.reference import JobReservation, Outage, ReferenceGroup, ReferenceJob, Reservation, Run, simulate


def job(job_id: int, submit: float, nodes: int, run: float, **more: Any) -> ReferenceJob:
    """A job; its estimate defaults to the run time."""
    return ReferenceJob(job_id, submit, run, more.pop("estimate", run), nodes, **more)


def go(
    jobs: list[ReferenceJob], *groups: ReferenceGroup, policy: str = "fcfs", own: str | None = None, **more: Any
) -> Run:
    """Run on the groups, or on one of four nodes."""
    rule, fixed = rule_for(policy, jobs)
    if own is not None:
        more["backfill_rule"], more["backfill_fixed"] = rule_for(own, jobs)
    settings: dict[str, Any] = {"queues": {}, "outages": (), "reservations": (), "depth": 1} | more
    return simulate(jobs, groups or (ReferenceGroup("g", 4),), rule=rule, fixed=fixed, **settings)


def starts(run: Run) -> list[float | None]:
    return [result.start for result in run.results]


def outcomes(run: Run) -> list[str]:
    return [result.outcome for result in run.results]


def reservations_of(run: Run, job_id: int) -> list[tuple[float, float]]:
    """(time, reserved start) of a job's reservations."""
    return [(p.time, p.start) for p in run.job_reservations if p.job_id == job_id]


# -- order and backfilling -----------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "run", "third"), [(0, 8.0, 20.0), (1, 8.0, 2.0), (1, 8.25, 20.0)])
def test_easy_backfills_a_job_that_ends_by_the_shadow_time(depth: int, run: float, third: float) -> None:
    jobs = [job(1, 0, 3, 10), job(2, 1, 4, 10), job(3, 2, 1, run)]  # shadow 10, extra 0
    assert starts(go(jobs, depth=depth)) == [0, 10, third]


def test_easy_uses_the_extra_nodes_once() -> None:
    jobs = [
        job(1, 0, 5, 10),
        job(2, 1, 6, 10),  # shadow 10, extra 2
        job(3, 2, 1, 100),  # leaves extra 1
        job(4, 2, 2, 100),  # fits now, but not beside job 2
        job(5, 2, 1, 100),
    ]
    assert starts(go(jobs, ReferenceGroup("g", 8))) == [0, 10, 2, 20, 2]


def test_all_releases_at_the_shadow_time_count_as_extra() -> None:
    jobs = [job(1, 0, 2, 10), job(2, 0, 1, 10), job(3, 1, 2, 10), job(4, 2, 1, 100)]
    run = go(jobs)
    assert starts(run) == [0, 0, 10, 2]
    assert run.job_reservations[0] == JobReservation(at_pass=2, time=1, job_id=3, group=0, start=10, head=True)


def test_ties_are_broken_by_submit_time_then_id() -> None:
    jobs = [job(7, 0, 4, 10), job(3, 0, 4, 10), job(9, -1, 4, 10)]
    run = go(jobs, depth=0, policy="sjf")
    assert starts(run) == [19, 9, -1]
    assert run.segments == [9, 3, 7]


FIVE = [job(1, 0, 3, 10), job(2, 1, 3, 10), job(3, 2, 5, 10), job(4, 3, 2, 30)]


@pytest.mark.parametrize(
    ("depth", "expected"), [(0, [0, 10, 20, 30]), (1, [0, 10, 33, 3]), (2, [0, 10, 20, 30]), (None, [0, 10, 20, 30])]
)
def test_backfilling_does_not_delay_reservations(depth: int | None, expected: list[float]) -> None:
    """Job 4 fits beside job 2 but would keep job 3 from its place, which EASY does not know of."""
    assert starts(go(FIVE, ReferenceGroup("g", 5), depth=depth)) == expected


@pytest.mark.parametrize(("depth", "expected"), [(2, [0, 10, 20, 55, 5]), (None, [0, 10, 20, 30, 40])])
def test_depth_two_makes_two_reservations_and_conservative_one_per_job(
    depth: int | None, expected: list[float]
) -> None:
    jobs = [job(1, 0, 3, 10), job(2, 1, 3, 10), job(3, 2, 4, 10), job(4, 3, 5, 10), job(5, 5, 1, 50)]
    run = go(jobs, ReferenceGroup("g", 5), depth=depth)
    assert starts(run) == expected
    assert reservations_of(run, 4)[0] == ((10, 55) if depth == 2 else (3, 30))  # too late: job 5 runs


def test_separate_backfill_order() -> None:
    jobs = [job(1, 0, 3, 10), job(2, 1, 4, 10), job(3, 2, 1, 8), job(4, 2, 1, 4)]
    assert starts(go(jobs)) == [0, 10, 2, 20]
    assert starts(go(jobs, own="sjf")) == [0, 10, 20, 2]


def test_time_dependent_policy_is_scored_at_every_pass() -> None:
    jobs = [job(1, 0, 4, 10), job(2, 1, 4, 100), job(3, 8, 4, 2)]
    assert starts(go(jobs, depth=0)) == [0, 10, 110]
    assert starts(go(jobs, depth=0, policy="wfp3")) == [0, 12, 10]  # (9/100)^3 against (2/2)^3


# -- conservative: persistent reservations -------------------------------------------------------


@pytest.mark.parametrize(("depth", "expected"), [(None, [0, 0, 15, 5]), (50, [0, 0, 10, 20])], ids=["kept", "anew"])
def test_early_finish_delays_no_reservation(depth: int | None, expected: list[float]) -> None:
    """Reserved: job 3 at 20, job 4 at 10. Job 2 ends at 5: new reservations delay job 4, kept ones do not."""
    jobs = [job(1, 0, 2, 10), job(2, 0, 2, 5, estimate=20), job(3, 0, 4, 10), job(4, 0, 2, 10)]
    run = go(jobs, depth=depth)
    assert [reservations_of(run, 3)[0], reservations_of(run, 4)[0]] == [(0, 20), (0, 10)]
    assert starts(run) == expected
    assert reservations_of(run, 3) == ([(0, 20), (5, 20), (10, 15)] if depth is None else [(0, 20), (5, 10)])


def test_only_the_reservation_that_can_start_earlier_moves() -> None:
    """Job 3 is reserved for 20, job 4 (two nodes, 15 s) for 30. When job 2 ends at 4, nothing changes for job 3."""
    jobs = [job(1, 0, 2, 20), job(2, 0, 1, 4, estimate=20), job(3, 1, 4, 10), job(4, 2, 2, 15)]
    run = go(jobs, depth=None)
    assert reservations_of(run, 3) == [(1, 20), (4, 20), (19, 20)]
    assert reservations_of(run, 4) == [(2, 30)]
    assert starts(run) == [0, 0, 20, 4]


def test_reservations_stay_when_nothing_is_freed() -> None:
    """A later job with a better score gets a reservation after the existing ones."""
    jobs = [job(1, 0, 4, 10), job(2, 1, 4, 100), job(3, 2, 4, 5)]
    run = go(jobs, depth=None, policy="sjf")
    assert [reservations_of(run, 2), reservations_of(run, 3)] == [[(1, 10)], [(2, 110), (10, 110)]]
    assert starts(run) == [0, 10, 110]
    assert starts(go(jobs, depth=50, policy="sjf")) == [0, 15, 10]


def test_cancellation_moves_reservations_earlier() -> None:
    jobs = [job(1, 0, 4, 10), job(2, 1, 4, 10, cancel=5), job(3, 2, 4, 10)]
    run = go(jobs, depth=None)
    assert reservations_of(run, 3) == [(2, 20), (5, 10)]
    assert starts(run) == [0, None, 10]


def test_new_expected_end_invalidates_the_plan() -> None:
    """At 12, the expected end of job 1, reservations are made again: job 3, now first, gets the time of job 2."""
    jobs = [job(1, 0, 4, 20, estimate=10), job(2, 1, 4, 100), job(3, 2, 4, 5), job(4, 12, 4, 200)]
    run = go(jobs, depth=None, policy="sjf")
    assert reservations_of(run, 2) == [(1, 10), (12, 25), (20, 25)]
    assert reservations_of(run, 3) == [(2, 110), (12, 20)]
    assert starts(run) == [0, 25, 20, 125]


@pytest.mark.parametrize("announced", [-math.inf, 3.5, 60])
def test_capacity_change_or_its_announcement_invalidates_the_plan(announced: float) -> None:
    """Job 4 arrives at 4: job 3, first in the order, gets the time of job 2 if the outage was announced since 2."""
    jobs = [job(1, 0, 4, 10), job(2, 1, 4, 40), job(3, 2, 4, 5), job(4, 4, 4, 300)]
    run = go(jobs, depth=None, policy="sjf", outages=[Outage("g", 1, 60, 61, announced)])
    if announced == 3.5:
        assert [reservations_of(run, 3)[:2], reservations_of(run, 2)[:2]] == [[(2, 50), (4, 10)], [(1, 10), (4, 15)]]
        assert starts(run) == [0, 15, 10, 61]
    else:
        assert reservations_of(run, 2) == [(1, 10)]
        assert reservations_of(run, 3)[0] == (2, 50)
        assert starts(run) == [0, 10, 50, 61 if announced < 0 else 55]


# -- estimates and truth -------------------------------------------------------------------------


def test_expected_run_time_doubles_on_overrun() -> None:
    jobs = [
        job(1, 0, 3, 35, estimate=10),
        job(2, 1, 4, 10),
        job(3, 12, 1, 5),  # ends by 20
        job(4, 25, 1, 15),  # ends by 40, the next belief
    ]
    run = go(jobs)
    assert starts(run) == [0, 40, 12, 25]
    assert reservations_of(run, 2) == [(1, 10), (12, 20), (17, 20), (25, 40), (35, 40)]


def test_job_overruns_at_its_expected_end() -> None:
    jobs = [job(1, 0, 3, 35, estimate=10), job(2, 1, 4, 10), job(3, 20, 1, 20)]
    assert starts(go(jobs)) == [0, 40, 20]


def test_repeated_doubling_and_estimates_below_one_second() -> None:
    jobs = [job(1, 0, 3, 1000, estimate=0.25), job(2, 0, 4, 1), job(3, 600, 1, 424)]  # 1 * 2**10 = 1024
    run = go(jobs)
    assert starts(run) == [0, 1024, 600]
    assert reservations_of(run, 2) == [(0, 1), (600, 1024), (1000, 1024)]


def test_at_limit_kill() -> None:
    jobs = [job(1, 0, 4, 20, estimate=10), job(2, 0, 4, 5, estimate=0.25), job(3, 0, 4, 3, estimate=3)]
    run = go(jobs, at_limit="kill")
    assert [(r.start, r.end, r.outcome) for r in run.results] == [
        (0, 10, "killed"),
        (10, 11, "killed"),
        (11, 14, "completed"),
    ]
    assert [r.end for r in go(jobs).results] == [20, 25, 28]


# -- coming and going ----------------------------------------------------------------------------


def test_dependency_with_think_time() -> None:
    jobs = [
        job(1, 0, 1, 10),
        job(2, 0, 1, 1, after=1, think=5),
        job(3, 3, 99, 1),
        job(4, 0, 1, 1, after=3, think=2),
        job(5, 20, 1, 1, after=1, think=5),
    ]
    run = go(jobs)
    assert [r.eligible for r in run.results] == [0, 15, 3, 5, 20]
    assert starts(run) == [0, 15, None, 5, 20]
    assert outcomes(run)[2] == "rejected"


def test_chain_of_zero_length_jobs_takes_one_instant() -> None:
    jobs = [job(1, 5, 4, 0), job(2, 0, 4, 0, after=1), job(3, 0, 4, 7, after=2), job(4, 5, 4, 1)]
    run = go(jobs, depth=0)
    assert [r.eligible for r in run.results] == [5, 5, 5, 5]
    # Numbers are 2, 3, 1, 4: job 2 arrives when 1 is through and goes before 4, and so does 3.
    assert starts(run) == [5, 5, 5, 12]


def test_begin_time() -> None:
    run = go([job(1, 0, 4, 10, begin=7), job(2, 3, 4, 10, begin=1), job(3, 5, 4, 1)], depth=0)
    assert [r.eligible for r in run.results] == [7, 3, 5]
    assert starts(run) == [14, 3, 13]


def test_cancellation() -> None:
    jobs = [
        job(1, 0, 4, 10),
        job(2, 1, 4, 10, cancel=5),
        job(3, 0, 4, 10, after=2, think=1),
        job(4, 3, 4, 10, cancel=-1),
        job(5, 4, 4, 10, cancel=17),
    ]
    run = go(jobs, depth=0)
    assert outcomes(run) == ["completed", "cancelled", "completed", "cancelled", "completed"]
    assert [r.eligible for r in run.results] == [0, 1, 6, 3, 4]
    assert starts(run) == [0, None, 20, None, 10]
    assert run.results[1].end is None


@pytest.mark.parametrize(("schedule_per", "second"), [("instant", "cancelled"), ("event", "completed")])
def test_cancellation_in_the_second_of_a_finish(schedule_per: str, second: str) -> None:
    jobs = [job(1, 0, 4, 10), job(2, 1, 4, 10, cancel=10)]
    assert outcomes(go(jobs, schedule_per=schedule_per))[1] == second


def test_oversized_job_is_an_error_by_default() -> None:
    with pytest.raises(ValueError, match="job 1 fits none"):
        go([job(1, 0, 5, 1)], on_oversized="error")


# -- capacity ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "expected"), [(0, [20, 20]), (1, [20, 0])])
def test_announced_outage_is_avoided(depth: int, expected: list[float]) -> None:
    jobs = [job(1, 0, 2, 15), job(2, 0, 2, 10)]
    assert starts(go(jobs, depth=depth, outages=[Outage("g", 4, 10, 20, -math.inf)])) == expected


def test_outage_is_avoided_after_its_announcement() -> None:
    jobs = [job(1, 0, 2, 15), job(2, 5, 2, 15), job(3, 6, 2, 4)]
    assert starts(go(jobs, outages=[Outage("g", 4, 10, 20, 5)])) == [0, 20, 6]


def test_unannounced_outage_takes_nodes_as_jobs_release_them() -> None:
    jobs = [job(1, 0, 4, 15), job(2, 11, 2, 5), job(3, 12, 4, 5), job(4, 13, 1, 5)]
    run = go(jobs, outages=[Outage("g", 2, 10, 30, 10)])
    assert starts(run) == [0, 15, 30, 20]
    assert reservations_of(run, 2) == [(11, 15), (12, 15), (13, 15)]


def test_outage_without_end() -> None:
    jobs = [job(1, 0, 3, 10), job(2, 6, 4, 10), job(3, 7, 1, 1, after=2), job(4, 8, 1, 10)]
    run = go(jobs, outages=[Outage("g", 1, 5, math.inf, 5)])
    assert outcomes(run) == ["completed", "unstarted", "unstarted", "completed"]
    assert [r.eligible for r in run.results] == [0, 6, None, 8]
    assert starts(run)[3] == 10
    assert reservations_of(run, 2) == [] and reservations_of(run, 4) == [
        (8, 10)
    ]  # job 2 gets none, so job 4 gets the one


def test_reservation() -> None:
    jobs = [
        job(1, 0, 2, 5, queue="r"),
        job(2, 0, 4, 10),
        job(3, 1, 4, 10),
        job(4, 1, 3, 1, queue="r"),
        job(5, 1, 2, 20, queue="r"),
        job(6, 2, 2, 5, queue="r"),
        job(7, 3, 2, 10),
    ]
    run = go(jobs, reservations=[Reservation("r", "g", 2, 10, 20, -math.inf)])
    assert starts(run) == [10, 0, 20, None, None, 15, 10]
    assert [r.group for r in run.results] == [1, 0, 0, None, None, 1, 0]
    assert outcomes(run)[3:5] == ["rejected", "rejected"]


def test_shared_pools() -> None:
    group = ReferenceGroup("s", 2, cores=4, memory_gb=1.2505, gpus=1, shared=True)  # 8 cores, 2500 MB, 2 GPUs
    jobs = [
        job(1, 0, 1, 10, cores=2, memory_mb=0.0, gpus=2),
        job(2, 0, 1, 10, cores=1, memory_mb=0.5, gpus=1),
        job(3, 0, 1, 5, cores=6, memory_mb=2499.5, gpus=0),
        job(4, 0, 1, 5, cores=1, memory_mb=2500.5, gpus=0),
        job(5, 0, 1, 50, cores=1, memory_mb=1.0, gpus=0),
    ]
    run = go(jobs, group)
    assert starts(run) == [0, 10, 0, None, 5]
    assert outcomes(run)[3] == "rejected"


def test_shared_group_without_core_column_allocates_whole_nodes() -> None:
    group = ReferenceGroup("s", 3, cores=4, memory_gb=8.0, gpus=1, shared=True)
    assert starts(go([job(1, 0, 2, 10), job(2, 0, 2, 10), job(3, 0, 1, 10)], group)) == [0, 10, 0]


# -- several groups ------------------------------------------------------------------------------

A, B = ReferenceGroup("a", 2), ReferenceGroup("b", 2)
ONLY = {"qa": ("a",), "qb": ("b",), "ba": ("b", "a")}


def test_reservation_is_made_on_the_group_with_the_earliest_start() -> None:
    jobs = [
        job(1, 0, 2, 10, queue="qa"),
        job(2, 0, 2, 5, queue="qb"),
        job(3, 1, 2, 7),
        job(4, 2, 2, 9, queue="qa"),
        job(5, 3, 2, 1, queue="qb"),
    ]
    run = go(jobs, A, B, queues=ONLY)
    assert [p[2:5] for p in run.job_reservations if p.time == 3] == [(3, 1, 5), (4, 0, 10)]
    assert [(r.start, r.group) for r in run.results] == [(0, 0), (0, 1), (5, 1), (10, 0), (12, 1)]


@pytest.mark.parametrize(("queue", "group"), [(None, 0), ("ba", 1)])
def test_ties_between_groups_are_broken_by_preference(queue: str | None, group: int) -> None:
    jobs = [job(1, 0, 2, 10, queue="qa"), job(2, 0, 2, 10, queue="qb"), job(3, 1, 2, 1, queue=queue)]
    run = go(jobs, A, B, queues=ONLY)
    assert run.job_reservations[0].group == run.results[2].group == group


def test_without_backfilling_a_job_blocks_only_its_groups() -> None:
    jobs = [job(1, 0, 1, 10, queue="qa"), job(2, 1, 2, 10, queue="qa"), job(3, 2, 1, 10, queue="qa"), job(4, 3, 1, 10)]
    run = go(jobs, A, B, queues=ONLY, depth=0)
    assert [(r.start, r.group) for r in run.results] == [(0, 0), (10, 0), (20, 0), (3, 1)]


@pytest.mark.parametrize(("placement", "groups"), [("first", [0, 0, 0]), ("balance", [0, 1, 0])])
def test_placement(placement: str, groups: list[int]) -> None:
    jobs = [job(1, 0, 1, 10), job(2, 1, 1, 10), job(3, 2, 1, 10)]
    run = go(jobs, ReferenceGroup("a", 4), ReferenceGroup("b", 4), placement=placement)
    assert [r.group for r in run.results] == groups


# -- passes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("schedule_per", "expected"), [("instant", [1, 0]), ("event", [0, 100])])
def test_one_pass_per_instant_or_per_event(schedule_per: str, expected: list[float]) -> None:
    jobs = [job(1, 0, 4, 100), job(2, 0, 4, 1)]
    assert starts(go(jobs, depth=0, policy="sjf", schedule_per=schedule_per)) == expected


def test_per_event_a_due_release_can_be_reserved_but_not_used() -> None:
    jobs = [job(1, 0, 2, 10), job(2, 0, 2, 10), job(3, 1, 3, 10), job(4, 2, 2, 100), job(5, 2, 1, 100)]
    run = go(jobs, schedule_per="event")
    assert starts(run) == [0, 0, 10, 20, 10]
    assert run.segments == [1, 2, 5, 3, 4]  # job 5 goes after the first finish of second 10, job 3 after the other
    assert reservations_of(run, 3)[-1] == (10, 10)


def test_no_pass_is_made_while_the_queue_is_empty() -> None:
    """Job 2 ends at 12, when job 1 has overrun its 10 s, but no pass is made. At 15 the first of three passes still
    expect job 1 to have ended and reserve for job 3 at once; only the last one renews its end, and job 5 starts first.
    """
    jobs = [job(1, 0, 3, 35, estimate=10), job(2, 0, 1, 12), job(3, 15, 4, 10), job(4, 15, 1, 5), job(5, 15, 1, 2)]
    run = go(jobs, schedule_per="event", own="sjf")
    assert reservations_of(run, 3)[:3] == [(15, 15), (15, 15), (15, 20)]
    assert starts(run) == [0, 0, 35, 45, 15]


# -- rules ---------------------------------------------------------------------------------------

SCORES = {
    "fcfs": 140.0,
    "sjf": 100.0,
    "ljf": -100.0,
    "saf": 400.0,
    "saf_short": 400.0 / 0.1**0.5,
    "laf": -400.0,
    "smallest": 4.0,
    "largest": -4.0,
    "lxf": -3.0,
    "wfp3": -32.0,
    "unicef": -1.0,
    "f1": 2 * 4 + 870 * 2.0,
    "f2": 10 * 4 + 25600 * 2.0,
    "f3": 400 + 6860000 * 2.0,
    "f4": 200 + 530000 * 2.0,
}


@pytest.mark.parametrize("name", NAMES)
def test_scores(name: str) -> None:
    """100 s on 4 nodes, eligible 100 s after the first submit of the table, seen after 200 s of waiting."""
    one = replace(job(1, 90, 4, 1, estimate=100), size=4)
    rule, fixed = rule_for(name, [one, job(2, 40, 1, 1)])
    assert rule(one, 340.0, 140.0) == SCORES[name]
    assert fixed == (name not in ("lxf", "wfp3", "unicef"))
