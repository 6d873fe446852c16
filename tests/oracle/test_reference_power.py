"""Results of the reference simulator with power controls, computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.oracle.model import NodeStep, ReferencePowerControls, ReferenceSleep, changes_of
from tests.oracle.power_workloads import power_case
from tests.oracle.reference import Outage, ReferenceGroup, ReferenceJob, Reservation, Run
from tests.oracle.test_reference import go, job, outcomes, reservations_of, starts
from tests.oracle.workloads import run_reference

EVER = -math.inf
FOUR = ReferenceGroup("g", 4)


def ends(run: Run) -> list[float | None]:
    return [result.end for result in run.results]


def levels(run: Run) -> list[int]:
    return [result.level for result in run.results]


def slept(run: Run, g: int = 0) -> list[tuple[float, int, int, int]]:
    """(time, shutting_down, asleep, waking) of a group."""
    return [(step.time, step.shutting_down, step.asleep, step.waking) for step in run.states[g]]


def resting(jobs: list[ReferenceJob], timeout: float, shutdown: float = 0.0, wake: float = 0.0, **more: Any) -> Run:
    """Run on a group of four nodes with node sleep; `reserve` is a number or steps."""
    reserve = more.pop("reserve", 0)
    steps = ((EVER, reserve),) if isinstance(reserve, int) else reserve
    rule = ReferenceSleep(timeout, shutdown, wake, steps, more.pop("wake_ahead", False))
    return go(jobs, FOUR, power_controls=ReferencePowerControls(sleep={"g": rule}), **more)


def table(*rows: tuple[Any, ...]) -> Any:
    """For one group: a row of levels for each job."""
    return (rows,)


# -- holds ---------------------------------------------------------------------------------------


def test_held_job_is_eligible_but_not_in_the_queue() -> None:
    run = go([job(1, 0, 4, 10, hold=7), job(2, 3, 4, 2, hold=3), job(3, 4, 4, 1, hold=1)])
    assert [r.eligible for r in run.results] == [0, 3, 4]
    assert starts(run) == [7, 3, 5]


def test_fixed_policy_scores_a_held_job_on_arrival() -> None:
    run = go([job(1, 0, 4, 10), job(2, 1, 4, 1, hold=5), job(3, 2, 4, 1)])
    assert starts(run) == [0, 10, 11]


def test_begin_time_and_dependencies_precede_the_hold() -> None:
    jobs = [job(1, 0, 1, 5), job(2, 0, 1, 1, after=1, think=2, hold=9), job(3, 0, 1, 1, begin=6, hold=4)]
    run = go(jobs)
    assert [r.eligible for r in run.results] == [0, 7, 6]
    assert starts(run) == [0, 9, 6]


@pytest.mark.parametrize(("cancel", "outcome"), [(4, "cancelled"), (5, "cancelled"), (6, "completed")])
def test_held_job_can_be_cancelled_until_its_hold_ends(cancel: float, outcome: str) -> None:
    run = go([job(1, 0, 4, 10, hold=5, cancel=cancel), job(2, 0, 1, 1, after=1, think=1)])
    assert outcomes(run)[0] == outcome
    assert run.results[1].eligible == (16 if outcome == "completed" else cancel + 1)


@pytest.mark.parametrize(("schedule_per", "expected"), [("instant", [6, 5]), ("event", [5, 15])])
def test_simultaneous_ends_of_hold_are_ordered_by_job(schedule_per: str, expected: list[float]) -> None:
    jobs = [job(1, 0, 4, 10, hold=5), job(2, 1, 4, 1, hold=5)]
    assert starts(go(jobs, policy="sjf", schedule_per=schedule_per)) == expected


def test_hold_that_ends_on_arrival_has_no_effect() -> None:
    jobs = [job(1, 0, 4, 10, hold=0), job(2, 0, 4, 10)]
    assert starts(go(jobs, schedule_per="event")) == [0, 10]


def test_cancelled_held_job_frees_nothing() -> None:
    """At 5 job 4 is cancelled; job 3 could start, but there is no pass before 10, when job 1 ends."""
    jobs = [job(1, 0, 2, 10), job(2, 0, 2, 5, estimate=20), job(3, 0, 4, 10), job(4, 0, 2, 10)]
    run = go([*jobs, job(5, 0, 1, 1, hold=50, cancel=7)], depth=None)
    assert reservations_of(run, 3) == [(0, 20), (5, 20), (10, 15)]
    run = go([*jobs, job(5, 0, 4, 1, cancel=7)], depth=None)
    assert reservations_of(run, 3) == [(0, 20), (5, 20), (7, 15), (10, 15)]


# -- levels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at_limit", "end"), [("extend", 30), ("kill", 15)])
def test_lower_dvfs_level_runs_longer(at_limit: str, end: float) -> None:
    power_controls = ReferencePowerControls(factor=table((1.0, 1.5)), preferred_level=(1,))
    run = go([job(1, 0, 4, 20, estimate=10)], at_limit=at_limit, power_controls=power_controls)
    assert (ends(run), levels(run)) == ([end], [1])
    assert outcomes(run) == ["killed" if at_limit == "kill" else "completed"]


@pytest.mark.parametrize(("factor", "third"), [(1.25, 2.0), (1.5, 20.0)])
def test_planned_time_depends_on_the_level(factor: float, third: float) -> None:
    """From 2 on, a run of 6 s at a lower level ends by the shadow time, 10, or does not."""
    jobs = [job(1, 0, 3, 10), job(2, 1, 4, 10), job(3, 2, 1, 6)]
    power_controls = ReferencePowerControls(
        factor=table((1.0, 9.0), (1.0, 9.0), (1.0, factor)), preferred_level=(0, 0, 1)
    )
    assert starts(go(jobs, power_controls=power_controls)) == [0, 10, third]


def test_overrun_doubles_the_planned_time_at_the_level() -> None:
    jobs = [job(1, 0, 3, 40, estimate=10), job(2, 1, 4, 1), job(3, 16, 1, 1)]
    power_controls = ReferencePowerControls(factor=table((1.0, 1.5), (1.0, 1.0), (1.0, 1.0)), preferred_level=(1, 0, 0))
    assert reservations_of(go(jobs, power_controls=power_controls), 2)[:2] == [(1, 15), (16, 30)]


@pytest.mark.parametrize(("full_speed_backlog_nodes", "level"), [(-1, 1), (0, 0), (3, 0), (4, 1)])
def test_jobs_run_at_full_speed_with_a_large_backlog(full_speed_backlog_nodes: int, level: int) -> None:
    """Two jobs need eight nodes and four are free: the backlog is four nodes. The second alone is no backlog."""
    power_controls = ReferencePowerControls(
        factor=table((1.0, 2.0), (1.0, 2.0)), preferred_level=(1, 1), full_speed_backlog_nodes=full_speed_backlog_nodes
    )
    run = go([job(1, 0, 4, 10), job(2, 0, 4, 10)], power_controls=power_controls)
    assert levels(run) == [level, 1]
    assert starts(run) == [0, 20 if level else 10]


def test_backlog_uses_minimum_need_and_free_nodes_of_all_groups() -> None:
    """Held jobs and debts: the job asks for 2 cores or 1 node; one group is one node short."""
    groups = ReferenceGroup("a", 2), ReferenceGroup("s", 2, cores=2, shared=True)
    jobs = [job(1, 0, 2, 9, queue="a"), job(2, 1, 1, 1), job(3, 1, 1, 1), job(4, 0, 1, 1, hold=90)]
    outages = [Outage("a", 1, 0.5, 50, 0.5)]
    for full_speed_backlog_nodes, level in ((-1, 1), (0, 1)):
        factor = (((1.0, 2.0),) * 4,) * 2
        power_controls = ReferencePowerControls(
            factor=factor, preferred_level=(0, 1, 1, 1), full_speed_backlog_nodes=full_speed_backlog_nodes
        )
        run = go(jobs, *groups, queues={"a": ("a",)}, outages=outages, power_controls=power_controls)
        assert levels(run)[1:] == [level, level, 1]  # they ask for two; free are 4 - 1 = 3
    more = [*jobs, job(5, 1, 1, 1), job(6, 1, 1, 1)]  # four, one more than is free
    power_controls = ReferencePowerControls(
        factor=(((1.0, 2.0),) * 6,) * 2, preferred_level=(0, 1, 1, 1, 1, 1), full_speed_backlog_nodes=0
    )
    run = go(more, *groups, queues={"a": ("a",)}, outages=outages, power_controls=power_controls)
    assert levels(run)[1:3] == [0, 0]


def test_run_time_factors_depend_on_the_group() -> None:
    factor = (((1.0,), (1.0,), (1.0,)), ((3.0,), (2.0,), (5.0,)))
    jobs = [job(1, 0, 2, 10), job(2, 0, 2, 10), job(3, 30, 1, 1, queue="r")]
    run = go(
        jobs,
        ReferenceGroup("a", 2),
        ReferenceGroup("b", 2),
        reservations=[Reservation("r", "b", 1, 30, 40, 30)],
        power_controls=ReferencePowerControls(factor=factor),
    )
    assert ends(run) == [10, 20, 35]


def test_reservation_keeps_its_level() -> None:
    """No crowd at 1: job 2 is planned for 20 s from 10 on. At 2 there is one: job 3 is planned for 10 s after that.
    At 10 four nodes are free for eight, no crowd again."""
    power_controls = ReferencePowerControls(
        factor=table(*[(1.0, 2.0)] * 3), preferred_level=(0, 1, 1), full_speed_backlog_nodes=4
    )
    run = go([job(1, 0, 4, 10), job(2, 1, 4, 10), job(3, 2, 4, 10)], depth=None, power_controls=power_controls)
    assert [reservations_of(run, 2)[0], reservations_of(run, 3)[0]] == [(1, 10), (2, 30)]
    assert levels(run) == [0, 1, 1]
    assert ends(run) == [10, 30, 50]


def test_score_does_not_depend_on_the_level() -> None:
    power_controls = ReferencePowerControls(factor=table((1.0, 1.0), (1.0, 9.0), (1.0, 1.0)), preferred_level=(0, 1, 0))
    jobs = [job(1, 0, 4, 10), job(2, 1, 4, 5), job(3, 1, 4, 6)]
    assert starts(go(jobs, policy="sjf", power_controls=power_controls)) == [0, 10, 55]


# -- a budget of power ---------------------------------------------------------------------------


A, B = ReferenceGroup("a", 2), ReferenceGroup("b", 2)
ONLY = {"a": ("a",), "b": ("b",)}


def test_all_groups_share_one_power_budget() -> None:
    watts = (((10,), (99,), (99,)), ((99,), (10,), (5,)))
    jobs = [job(1, 0, 2, 10, queue="a"), job(2, 1, 1, 10, queue="b"), job(3, 2, 1, 8, queue="b")]
    power_controls = ReferencePowerControls(watts=watts, budget=((EVER, 15),))
    run = go(jobs, A, B, queues=ONLY, power_controls=power_controls)
    assert starts(run) == [0, 10, 2]
    assert reservations_of(run, 2) == [(1, 10), (2, 10)]
    assert starts(go(jobs, A, B, queues=ONLY, depth=0, power_controls=power_controls)) == [0, 10, 10]


@pytest.mark.parametrize(("watts", "third"), [(5, 2), (6, 20)])
def test_reservation_on_one_group_reserves_the_shared_budget(watts: int, third: float) -> None:
    """Job 2 is to have 10 W of 15 from 10 on: what job 3 draws elsewhere, for longer, must leave them."""
    jobs = [job(1, 0, 2, 10, queue="a"), job(2, 1, 2, 10, queue="a"), job(3, 2, 1, 30, queue="b")]
    power_controls = ReferencePowerControls(watts=(((9,), (10,), (watts,)),) * 2, budget=((EVER, 15),))
    assert starts(go(jobs, A, B, queues=ONLY, power_controls=power_controls)) == [0, 10, third]


def test_job_cannot_use_a_group_where_no_level_fits_the_budget() -> None:
    """Job 2 waits for group a alone and does not block b."""
    watts = (((1,), (1,), (1,)), ((99,), (99,), (1,)))
    jobs = [job(1, 0, 2, 10, queue="a"), job(2, 1, 2, 10), job(3, 2, 1, 1, queue="b")]
    run = go(jobs, A, B, queues=ONLY, depth=0, power_controls=ReferencePowerControls(watts=watts, budget=((EVER, 50),)))
    assert starts(run) == [0, 10, 2]


def test_job_starts_at_the_first_level_within_the_budget() -> None:
    jobs = [job(1, 0, 1, 10), job(2, 0, 1, 10), job(3, 0, 1, 10)]
    rows = [(10, 6, 3)] * 3
    power_controls = ReferencePowerControls(
        factor=table(*[(1.0, 1.5, 2.0)] * 3), watts=table(*rows), budget=((EVER, 20),)
    )
    run = go(jobs, power_controls=power_controls)
    assert (starts(run), levels(run)) == ([0, 0, 10], [0, 0, 0])
    power_controls = ReferencePowerControls(
        factor=power_controls.factor, watts=power_controls.watts, preferred_level=(0, 1, 0), budget=((EVER, 20),)
    )
    run = go(jobs, power_controls=power_controls)
    assert (starts(run), levels(run)) == ([0, 0, 0], [0, 1, 2])
    assert ends(run) == [10, 15, 20]


@pytest.mark.parametrize(("watts", "third"), [(3, 1), (4, 20)])
def test_reservation_uses_the_first_level(watts: int, third: float) -> None:
    """Job 2 will have 10 W of 13 from 10 on, though at its lower level 9 would do."""
    jobs = [job(1, 0, 1, 10), job(2, 0, 1, 10), job(3, 1, 1, 30)]
    draws = table((9, 9), (10, 9), (watts, watts))
    run = go(jobs, power_controls=ReferencePowerControls(watts=draws, budget=((EVER, 13),)))
    assert reservations_of(run, 2)[0] == (0, 10)
    assert starts(run) == [0, 10, third]
    assert levels(run) == [0, 0, 0]


def test_falling_budget_is_known_in_advance_and_does_not_stop_jobs() -> None:
    jobs = [job(1, 0, 1, 10), job(2, 0, 1, 4), job(3, 1, 1, 4), job(4, 1, 1, 5), job(5, 6, 1, 1)]
    power_controls = ReferencePowerControls(
        watts=table((10,), (10,), (10,), (10,), (10,)), budget=((EVER, 40), (5, 10), (20, 30))
    )
    run = go(jobs, power_controls=power_controls, depth=3)
    # 3 ends by 5; 4 does not, and job 1, which does not either, was there when nobody could be asked.
    assert starts(run) == [0, 0, 1, 10, 15]


def test_budget_steps_before_the_first_event_are_not_events() -> None:
    budget = ((EVER, 40), (-5, 0), (3, 10), (20, 40))
    run = go(
        [job(1, 3, 1, 5)],
        power_controls=ReferencePowerControls(watts=table((11,)), budget=budget),
        schedule_per="event",
    )
    assert starts(run) == [20]
    assert [reservation.time for reservation in run.job_reservations] == [3]


def test_rejected_if_no_level_fits_the_largest_budget() -> None:
    budget = ((EVER, 5), (100, 9))
    watts = table((10, 10), (11, 9), (10, 1))
    power_controls = ReferencePowerControls(
        factor=table(*[(1.0, 2.0)] * 3), watts=watts, preferred_level=(0, 0, 1), budget=budget
    )
    run = go([job(1, 0, 1, 10), job(2, 0, 1, 10), job(3, 0, 1, 10)], power_controls=power_controls)
    assert outcomes(run) == ["rejected", "completed", "completed"]
    assert (starts(run), levels(run)) == ([None, 100, 0], [0, 1, 1])


def test_job_counts_against_the_budget_from_its_allocation() -> None:
    """Job 2 gets sleeping nodes at 20 and starts at 25; job 3, on another group, waits for its end."""
    sleep = {"a": ReferenceSleep(timeout=5, wake=5)}
    watts = (((1,), (10,), (10,)),) * 2
    power_controls = ReferencePowerControls(sleep=sleep, watts=watts, budget=((EVER, 10),))
    jobs = [job(1, 0, 1, 1), job(2, 20, 4, 5, queue="a"), job(3, 21, 1, 1, queue="b")]
    run = go(
        jobs,
        ReferenceGroup("a", 4),
        ReferenceGroup("b", 1),
        queues={"a": ("a",), "b": ("b",)},
        power_controls=power_controls,
    )
    assert starts(run) == [0, 25, 30]
    assert run.taken[2] == 20


# -- sleep ---------------------------------------------------------------------------------------


def test_idle_nodes_sleep_and_wake_for_a_job() -> None:
    run = resting([job(1, 0, 1, 10), job(2, 30, 4, 5)], timeout=7, shutdown=2, wake=5)
    assert starts(run) == [0, 35]
    assert ends(run) == [10, 40]
    assert slept(run) == [(7, 3, 0, 0), (9, 0, 3, 0), (17, 1, 3, 0), (19, 0, 4, 0), (30, 0, 0, 4), (35, 0, 0, 0)]
    assert run.end == 40


def test_job_arriving_at_the_sleep_timeout_gets_awake_nodes() -> None:
    run = resting([job(1, 0, 1, 20), job(2, 7, 2, 5)], timeout=7, shutdown=2, wake=5)
    assert starts(run) == [0, 7]
    assert slept(run)[:2] == [(7, 1, 0, 0), (9, 0, 1, 0)]


def test_released_nodes_are_used_before_they_sleep() -> None:
    run = resting([job(1, 0, 4, 7), job(2, 7, 4, 7), job(3, 14, 4, 1)], timeout=0, wake=5)
    assert starts(run) == [0, 7, 14]
    assert slept(run) == [(15, 0, 4, 0)]


@pytest.mark.parametrize("schedule_per", ["instant", "event"])
def test_zero_timeout_shutdown_and_wake_time(schedule_per: str) -> None:
    run = resting([job(1, 0, 1, 3), job(2, 5, 3, 1)], timeout=0, schedule_per=schedule_per)
    assert starts(run) == [0, 5]
    assert slept(run) == [(0, 0, 3, 0), (3, 0, 4, 0), (5, 0, 1, 0), (6, 0, 4, 0)]


def test_job_gets_the_nodes_idle_for_the_shortest_time_first() -> None:
    """Of nodes idle since 0, 4 and 6 job 4 takes those since 6 and 4; the one since 0 sleeps at 10."""
    jobs = [job(1, 0, 1, 4), job(2, 0, 1, 6), job(3, 0, 1, 50), job(4, 8, 2, 50)]
    assert slept(resting(jobs, timeout=10, shutdown=1)) == [(10, 1, 0, 0), (11, 0, 1, 0)]


# Five nodes at 12. One, idle since 0, fell at 2 and is woken at 9 for the reserve of that moment: waking until 13.
# Job 1's falls at 8: asleep since 11. Job 2's falls at 10: falling until 13. Job 3's is awake, job 4's busy.
MIXED = [job(1, 0, 1, 6), job(2, 0, 1, 8), job(3, 0, 1, 11.5), job(4, 0, 1, 40)]
FIVE = ReferenceGroup("g", 5)
MIXING = ReferencePowerControls(
    sleep={"g": ReferenceSleep(timeout=2, shutdown=3, wake=4, reserve=((EVER, 0), (9, 2), (9.5, 0)))}
)
UNTIL_11 = [(2, 1, 0, 0), (5, 0, 1, 0), (8, 1, 1, 0), (9, 1, 0, 1), (10, 2, 0, 1), (11, 1, 1, 1)]


@pytest.mark.parametrize(
    ("nodes", "start", "steps"),
    [
        (1, 12, [(13, 0, 2, 0), (15, 2, 2, 0)]),
        (2, 13, [(13, 0, 2, 0), (16, 2, 2, 0)]),
        (3, 16, [(12, 1, 0, 2), (13, 0, 1, 1), (16, 0, 1, 0)]),
        (4, 17, [(12, 1, 0, 2), (13, 0, 0, 2), (16, 0, 0, 1), (17, 0, 0, 0)]),
    ],
)
def test_allocation_prefers_awake_then_waking_then_asleep_nodes(
    nodes: int, start: float, steps: list[tuple[float, int, int, int]]
) -> None:
    run = go([*MIXED, job(5, 12, nodes, 1)], FIVE, power_controls=MIXING)
    assert starts(run)[-1] == start
    assert run.taken[5] == 12
    assert slept(run)[:6] == UNTIL_11
    assert slept(run)[6 : 6 + len(steps)] == steps


def test_shutdown_completes_before_a_node_wakes() -> None:
    run = resting([job(1, 0, 1, 30), job(2, 8, 3, 2)], timeout=7, shutdown=4, wake=5)
    assert starts(run) == [0, 16]
    assert slept(run)[:3] == [(7, 3, 0, 0), (11, 0, 0, 3), (16, 0, 0, 0)]


def test_expected_end_counts_from_the_start() -> None:
    """Job 2 gets its nodes at 20 and starts at 25: its expected end is 35, then 45."""
    jobs = [job(1, 0, 1, 1), job(2, 20, 4, 15, estimate=10), job(3, 21, 4, 1), job(4, 36, 4, 1)]
    run = resting(jobs, timeout=5, wake=5)
    assert starts(run)[:2] == [0, 25]
    assert reservations_of(run, 3)[:2] == [(21, 35), (36, 45)]


@pytest.mark.parametrize(("timeout", "length", "second"), [(50, 6, 20), (5, 5, 25), (5, 6, 35)])
def test_backfilling_takes_wake_time_into_account(timeout: float, length: float, second: float) -> None:
    """All nodes are out from 30 to 35, and awake afterwards. At 20 they sleep, unless the timeout is long."""
    jobs = [job(1, 0, 1, 1), job(2, 20, 4, length)]
    run = resting(jobs, timeout, wake=5, outages=[Outage("g", 4, 30, 35, EVER)])
    assert starts(run) == [0, second]
    # A reservation does not ask whether nodes are awake: job 2 has one for 20 that it cannot use.
    assert reservations_of(run, 2) == ([(20, 20), (30, 35)] if second == 35 else [])


def test_wake_ahead_lets_a_job_be_backfilled() -> None:
    """Its reservation, 20, is due: the nodes are woken at once, and awake at 23 leave 6 s of the 7."""
    jobs = [job(1, 0, 1, 1), job(2, 20, 4, 7)]
    outages = [Outage("g", 4, 30, 35, EVER)]
    assert starts(resting(jobs, 5, wake=3.5, outages=outages)) == [0, 35]
    run = resting([jobs[0], job(2, 20, 4, 6.5)], 5, wake=3.5, wake_ahead=True, outages=outages)
    assert starts(run) == [0, 23.5]
    assert run.taken[2] == 20
    run = resting(jobs, 5, wake=3.5, wake_ahead=True, outages=outages)
    assert slept(run)[:3] == [(5, 0, 3, 0), (6, 0, 4, 0), (20, 0, 0, 4)]
    assert starts(run) == [0, 35]


def test_zero_length_job_starts_when_its_nodes_are_awake() -> None:
    run = resting([job(1, 0, 1, 1), job(2, 20, 4, 0)], timeout=5, wake=5)
    assert (starts(run), ends(run)) == ([0, 25], [1, 25])
    assert slept(run)[-2:] == [(20, 0, 0, 4), (25, 0, 0, 0)]


def test_node_states_after_the_last_event_are_not_simulated() -> None:
    run = resting([job(1, 0, 1, 10)], timeout=8, shutdown=5)
    assert slept(run) == [(8, 3, 0, 0)]
    assert run.end == 10
    run = resting([job(1, 0, 1, 10, cancel=30)], timeout=8, shutdown=5)  # a timer is an event, though idle
    assert slept(run) == [(8, 3, 0, 0), (13, 0, 3, 0), (18, 1, 3, 0), (23, 0, 4, 0)]
    assert run.end == 30


# -- the reserve ---------------------------------------------------------------------------------


def test_reserve_keeps_the_most_recently_used_nodes_awake() -> None:
    run = resting([job(1, 0, 2, 3), job(2, 50, 3, 1)], timeout=10, wake=5, reserve=3)
    assert slept(run) == [(10, 0, 1, 0), (50, 0, 0, 1)]  # at 50 three are busy, and the last is the reserve
    assert starts(run) == [0, 50]


def test_reserve_steps_wake_nodes_and_let_them_sleep() -> None:
    steps = ((EVER, 9), (4, 1), (20, 3), (21, 0), (30, 1))
    run = resting([job(1, 0, 4, 1), job(2, 60, 1, 1)], timeout=2, shutdown=1, wake=5, reserve=steps)
    assert slept(run) == [
        (4, 3, 0, 0),  # idle for long when the reserve lets them
        (5, 0, 3, 0),
        (20, 0, 1, 2),  # two wake; one is awake already
        (21, 1, 1, 2),  # and falls; those that wake go on
        (22, 0, 2, 2),
        (25, 0, 2, 0),
        (27, 2, 2, 0),  # idle for 2 s
        (28, 0, 4, 0),
        (30, 0, 3, 1),
        (35, 0, 3, 0),
        (60, 0, 2, 1),  # job 2 took the reserve
    ]
    assert starts(run)[1] == 60


def test_waking_nodes_count_towards_the_reserve() -> None:
    steps = ((EVER, 0), (10, 2), (12, 3))
    run = resting([job(1, 0, 1, 40), job(2, 11, 1, 1, cancel=11)], timeout=2, wake=5, reserve=steps)
    assert slept(run)[:5] == [(2, 0, 3, 0), (10, 0, 1, 2), (12, 0, 0, 3), (15, 0, 0, 1), (17, 0, 0, 0)]


def test_sleep_timeout_is_an_instant_only_if_nodes_may_sleep() -> None:
    jobs = [job(1, 0, 1, 9)]
    assert [count.time for count in resting(jobs, timeout=5, reserve=2).counts] == [0, 5, 9]
    assert [count.time for count in resting(jobs, timeout=5, reserve=3).counts] == [0, 9]


def test_end_of_shutdown_is_not_an_instant() -> None:
    steps = ((EVER, 0), (3, 2))
    run = resting([job(1, 0, 1, 10)], timeout=2, shutdown=4, wake=1, reserve=steps)
    # All three fall at 2, the reserve rises at 3; asleep at 6, they wake when something happens: at 10.
    assert slept(run) == [(2, 3, 0, 0), (6, 0, 3, 0), (10, 0, 2, 1)]


def test_reserve_steps_before_the_first_event_are_not_instants() -> None:
    run = resting([job(1, 0, 1, 9)], timeout=5, reserve=((EVER, 2), (-50, 1)))
    assert slept(run) == [(5, 0, 2, 0), (9, 0, 3, 0)]  # idle since 0, not -50; at 9 job 1's node is the reserve
    assert [count.time for count in run.counts] == [0, 5, 9]


# -- waking ahead --------------------------------------------------------------------------------


def test_nodes_wake_ahead_for_the_earliest_reservation() -> None:
    """Job 2 is reserved for 20: it needs the three sleeping nodes, which wake from 15 on."""
    jobs = [job(1, 0, 1, 20), job(2, 8, 4, 5)]
    assert starts(resting(jobs, timeout=2, wake=5)) == [0, 25]
    run = resting(jobs, timeout=2, wake=5, wake_ahead=True)
    assert starts(run) == [0, 20]
    assert slept(run) == [(2, 0, 3, 0), (15, 0, 0, 3), (20, 0, 0, 0)]
    run = resting([job(1, 0, 1, 20), job(2, 18, 4, 5)], timeout=2, wake=5, wake_ahead=True)  # too late
    assert slept(run)[1:] == [(18, 0, 0, 3), (23, 0, 0, 0)]
    assert starts(run) == [0, 23]


def test_nodes_wake_ahead_for_the_earliest_of_several_reservations() -> None:
    """Job 2 is reserved for 20, job 3 for 25; job 3 needs no wake-up, because all nodes are free then."""
    jobs = [job(1, 0, 1, 20), job(2, 8, 4, 5), job(3, 9, 4, 5)]
    run = resting(jobs, timeout=2, wake=5, wake_ahead=True, depth=2)
    assert slept(run) == [(2, 0, 3, 0), (15, 0, 0, 3), (20, 0, 0, 0)]
    assert starts(run) == [0, 20, 25]


def test_wake_ahead_wakes_only_the_needed_nodes() -> None:
    """Job 1 leaves two: of the two that sleep job 2 needs one."""
    jobs = [job(1, 0, 2, 20), job(2, 8, 3, 5)]
    run = resting(jobs, timeout=2, wake=5, wake_ahead=True)
    assert slept(run)[:3] == [(2, 0, 2, 0), (15, 0, 1, 1), (20, 0, 1, 0)]
    assert starts(run) == [0, 20]


def test_nodes_woken_for_a_reservation_stay_awake() -> None:
    """Woken at 15 and awake at 20, while job 1 runs until 24, longer than expected."""
    jobs = [job(1, 0, 1, 24, estimate=20), job(2, 8, 4, 5)]
    run = resting(jobs, timeout=0, wake=5, wake_ahead=True)
    # At 20 the belief is renewed to 40: not due, they fall at once; and at 24 job 2 must wake them.
    assert slept(run)[:4] == [(0, 0, 3, 0), (15, 0, 0, 3), (20, 0, 3, 0), (24, 0, 0, 3)]
    assert starts(run) == [0, 29]
    jobs = [job(1, 0, 1, 20), job(2, 8, 4, 5), job(3, 16, 1, 1), job(4, 17, 1, 1)]
    run = resting(jobs, timeout=0, wake=4, wake_ahead=True, depth=0)  # no reservation, nobody wakes
    assert starts(run)[1] == 24


# -- capacity ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "left"), [(1, (1, 1, 1)), (2, (1, 0, 1)), (3, (0, 0, 1)), (4, (0, 0, 0)), (5, (0, 0, 0))]
)
def test_outage_removes_awake_then_asleep_then_waking_nodes(nodes: int, left: tuple[int, int, int]) -> None:
    """The fifth is a debt, which the end of the outage pays before job 4 does."""
    run = go(MIXED, FIVE, power_controls=MIXING, outages=[Outage("g", nodes, 12, 30, 12)])
    assert [step for step in slept(run) if step[0] <= 12][-1][1:] == left
    assert [count.out for count in run.counts if count.time in (12, 30)] == [min(nodes, 4), 0]


def test_outage_removes_the_longest_idle_nodes() -> None:
    """Of three nodes, idle since 0, 4 and 6, the outage takes the first; the others sleep at 14 and 16."""
    jobs = [job(1, 0, 1, 4), job(2, 0, 1, 6), job(3, 0, 1, 50)]
    run = resting(jobs, timeout=10, outages=[Outage("g", 1, 8, 90, 8)])
    assert slept(run)[:2] == [(14, 0, 1, 0), (16, 0, 2, 0)]


def test_released_nodes_first_serve_a_pending_outage() -> None:
    run = resting([job(1, 0, 4, 10), job(2, 1, 1, 40, begin=12)], timeout=5, outages=[Outage("g", 3, 4, 30, 4)])
    # At 10 four fall free and three pay; at 30 three come back, awake since then.
    assert [(c.time, c.held, c.idle, c.out) for c in run.counts][:5] == [
        (0, 4, 0, 0),
        (4, 4, 0, 0),
        (10, 0, 1, 3),
        (12, 1, 0, 3),
        (30, 1, 3, 0),
    ]
    assert slept(run) == [(35, 0, 3, 0)]


def test_nodes_returning_from_an_outage_first_serve_a_pending_one() -> None:
    """Two are busy, two go at 4, when three should; at 6 one more should. At 20 three come back: one is there then."""
    outages = [Outage("g", 3, 4, 20, 4), Outage("g", 1, 6, 30, 6)]
    run = resting([job(1, 0, 2, 40)], timeout=5, outages=outages)
    assert [(c.time, c.held, c.idle, c.asleep, c.out) for c in run.counts] == [
        (0, 2, 2, 0, 0),
        (4, 2, 0, 0, 2),
        (6, 2, 0, 0, 2),
        (20, 2, 1, 0, 1),
        (25, 2, 0, 1, 1),
        (30, 2, 1, 1, 0),
        (35, 2, 0, 2, 0),
        (40, 0, 2, 2, 0),
    ]


def test_advance_reservation_uses_sleeping_nodes() -> None:
    jobs = [job(1, 0, 1, 40), job(2, 20, 2, 3, queue="r")]
    run = resting(jobs, timeout=5, wake=9, reservations=[Reservation("r", "g", 2, 20, 30, EVER)])
    assert starts(run) == [0, 20]
    assert slept(run) == [(5, 0, 3, 0), (20, 0, 1, 0), (35, 0, 3, 0)]


# -- passes per event ----------------------------------------------------------------------------


def test_per_event_nodes_sleep_after_all_events_of_the_instant() -> None:
    """Job 1 ends at 7; job 2, an event later, still finds its nodes awake."""
    run = resting([job(1, 0, 4, 7), job(2, 7, 4, 7)], timeout=0, wake=5, schedule_per="event")
    assert starts(run) == [0, 7]


def test_per_event_the_last_instant_is_completed() -> None:
    run = resting([job(1, 0, 1, 9)], timeout=1, reserve=((EVER, 4), (9, 0)), schedule_per="event")
    assert slept(run) == [(9, 0, 3, 0)]


def test_per_event_a_waking_node_is_ready_before_its_event() -> None:
    steps = ((EVER, 0), (5, 4), (6, 0))
    run = resting([job(1, 0, 1, 9), job(2, 1, 4, 1, begin=9)], timeout=1, wake=4, reserve=steps, schedule_per="event")
    assert starts(run) == [0, 9]
    assert slept(run)[-2:] == [(5, 0, 0, 3), (9, 0, 0, 0)]


# -- no node is lost -----------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_every_node_has_exactly_one_state(first: int) -> None:
    seen = 0
    for seed in range(first, first + 100):
        case = power_case(seed)
        run = run_reference(case)
        changes = changes_of(case.groups, case.outages, case.reservations)
        jobs = [(j, r, run.taken[j.job_id]) for j, r in zip(case.jobs, run.results, strict=True) if r.start is not None]
        last = {(count.time, count.group): count for count in run.counts}  # a time may be an instant more than once
        for (time, g), count in last.items():
            assert sum(count[2:]) == case.groups[g].nodes
            held = sum(j.nodes for j, r, taken in jobs if r.group == g and taken <= time < (r.end or 0.0))
            away = -sum(c.nodes for c in changes if c.group == g and c.time <= time)
            debt = max(0, held + away - case.groups[g].nodes)
            assert (count.held, count.out) == (held, away - debt), (seed, count)
            step = [s for s in run.states[g] if s.time <= time][-1:] or [NodeStep(time, 0, 0, 0)]
            assert count.asleep == step[0].asleep
            assert (count.shutting_down <= step[0].shutting_down) and (count.waking <= step[0].waking)
            seen += 1
    assert seen > 500
