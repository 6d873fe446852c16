"""Simulator: choices and their errors, views and logs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kilowait.cluster import Cluster, NodeGroup, Outage
from kilowait.engine.interface import Choice, PriorityPolicy
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator, run_simulation
from kilowait.errors import ChoiceError, InputError
from kilowait.jobs.execution_log import Outcome
from kilowait.policies import resolve, simulate
from tests.engine.stepwise_policy import as_bytes, snapshot, starts, table

FOUR = Cluster.from_nodes(4)
JOBS = table((0, 3, 10), (0, 4, 10), (0, 2, 5), (2, 1, 5), (3, 1, 99))


def simulator_at_start(settings: Settings | None = None) -> Simulator:
    """A simulator at 0 s: the first job has started, the others of that time wait."""
    simulator = Simulator(JOBS, FOUR, settings)
    assert simulator.advance() is not None
    simulator.apply(Choice.start(0))
    return simulator


WRONG: list[tuple[Choice, str]] = [
    (Choice.start(0), "cannot start job 1 (number 0) at 0 s: it is not waiting"),
    (Choice.start(4), "cannot start job 5 (number 4) at 0 s: it is not waiting"),
    (Choice.start(-1), "cannot start job ? (number -1) at 0 s: it is not waiting"),
    (Choice.start(99), "cannot start job ? (number 99) at 0 s: it is not waiting"),
    (
        Choice.start(1),
        "cannot start job 2 (number 1) at 0 s: it needs 4 nodes for 10 s; free are {'nodes': 1}, "
        "and reservations and outages must not be delayed",
    ),
    (Choice.start(1, group=1), "cannot start job 2 (number 1) at 0 s: there is no group 1"),
    (Choice.start(1, group=-2), "cannot start job 2 (number 1) at 0 s: there is no group -2"),
    (Choice.reserve(0), "cannot reserve job 1 (number 0) at 0 s: it is not waiting"),
    (
        Choice.hold(1, until_s=0.0),
        "cannot hold job 2 (number 1) at 0 s: it would be held until 0 s, which is not ahead",
    ),
    (
        Choice.hold(1, until_s=math.nan),
        "cannot hold job 2 (number 1) at 0 s: it would be held until nan s, which is not ahead",
    ),
    (Choice.hold(0, until_s=9.0), "cannot hold job 1 (number 0) at 0 s: it is not waiting"),
    (
        Choice.backfill(np.zeros(3)),
        "at 0 s: backfill takes one score, not NaN, for each of the 2 waiting jobs in the view's order; got shape (3,)",
    ),
    (
        Choice.backfill(np.array([1.0, math.nan])),
        "at 0 s: backfill takes one score, not NaN, for each of the 2 waiting jobs in the view's order; got shape (2,)",
    ),
]


@pytest.mark.parametrize(("choice", "message"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_choice_error_names_job_time_and_reason_and_keeps_the_state(choice: Choice, message: str) -> None:
    simulator = simulator_at_start(Settings("easy"))
    before = snapshot(simulator)
    with pytest.raises(ChoiceError) as caught:
        simulator.apply(choice)
    assert str(caught.value) == message
    assert snapshot(simulator) == before


def test_start_on_a_group_outside_the_queue_is_an_error() -> None:
    cluster = Cluster((NodeGroup("a", 4), NodeGroup("b", 4)), queues={"q": ("a",)})
    simulator = Simulator(table((0, 1, 9), queue=[0], labels={"queue": ("q",)}), cluster)
    simulator.advance()
    with pytest.raises(ChoiceError, match="at 0 s: its queue does not use that group, or the group is too small"):
        simulator.apply(Choice.start(0, group=1))


def test_number_of_reservations_is_limited_by_depth() -> None:
    simulator = simulator_at_start(Settings("easy"))
    assert simulator.apply(Choice.reserve(1)) == 10.0
    before = snapshot(simulator)
    with pytest.raises(ChoiceError, match=r"cannot reserve job 3 .* at 0 s: its groups hold 1 reservation"):
        simulator.apply(Choice.reserve(2))
    assert snapshot(simulator) == before
    with pytest.raises(ChoiceError, match="cannot reserve job 2"):
        simulator_at_start(Settings("none")).apply(Choice.reserve(1))


def test_second_reservation_of_a_job_is_an_error() -> None:
    simulator = simulator_at_start(Settings(2))
    assert simulator.apply(Choice.reserve(1)) == 10.0
    with pytest.raises(ChoiceError, match="cannot reserve job 2"):
        simulator.apply(Choice.reserve(1))


def test_repeated_conservative_reservation_is_unchanged() -> None:
    simulator = simulator_at_start(Settings("conservative"))
    assert [simulator.apply(Choice.reserve(1)) for _ in range(3)] == [10.0] * 3
    assert simulator.apply(Choice.reserve(2)) == 20.0


def test_view_shows_conservative_reservations() -> None:
    simulator = simulator_at_start(Settings("conservative"))
    simulator.apply(Choice.reserve(1))
    view = simulator.advance()
    assert view is not None
    assert view.waiting["number"].tolist() == [1, 2, 3]
    assert view.reserved_s[0] == 10.0 and np.isnan(view.reserved_s[1:]).all()
    assert not view.freed


def test_rejected_choices_do_not_affect_the_run() -> None:
    def go(attempt: Callable[[Simulator], None]) -> dict[str, bytes]:
        simulator = Simulator(JOBS, FOUR, Settings("easy"))
        while (view := simulator.advance()) is not None:
            for number in view.waiting["number"]:
                attempt(simulator)
                if simulator.can_start(int(number)):
                    simulator.apply(Choice.start(int(number)))
                elif simulator.can_reserve(int(number)):
                    simulator.apply(Choice.reserve(int(number)))
                attempt(simulator)
        return as_bytes(simulator.log())

    tried = []

    def attempt(simulator: Simulator) -> None:
        for choice in (Choice.start(1), Choice.start(2, 5), Choice.hold(1, -1.0), Choice.backfill(np.zeros(9))):
            if choice.job == 1 and simulator.can_start(1):
                continue
            with pytest.raises(ChoiceError):
                simulator.apply(choice)
            tried.append(choice)

    assert go(attempt) == go(lambda simulator: None)
    assert len(tried) > 20


def test_can_start_is_false_for_jobs_that_are_not_waiting() -> None:
    simulator = simulator_at_start()
    assert [simulator.can_start(job) for job in (0, 1, 3)] == [False, False, False]


@pytest.mark.parametrize("ask", [lambda s: s.can_start(99), lambda s: s.can_reserve(99)])
def test_unknown_job_cannot_start_or_reserve(ask: Callable[[Simulator], bool]) -> None:
    assert not ask(simulator_at_start(Settings("easy")))


def test_can_start_is_false_on_an_unknown_group() -> None:
    simulator = simulator_at_start(Settings("easy"))
    assert simulator.advance() is not None  # job number 3 has come
    assert simulator.can_start(3, 0)
    assert not simulator.can_start(3, 1)
    assert not simulator.can_start(3, 64)


def test_view_is_a_copy_of_the_state_at_an_instant() -> None:
    simulator = simulator_at_start()
    view = simulator.advance()
    assert view is not None
    assert view.now_s == 2.0
    assert view.waiting["number"].tolist() == [1, 2, 3]
    assert view.waiting["estimate_s"].tolist() == [10, 5, 5]
    assert (view.running_job.tolist(), view.running_end_s.tolist()) == ([0], [10.0])
    assert (view.free.tolist(), view.capacity.tolist()) == ([1], [4])
    view.free[:] = 99
    view.waiting["nodes"] = 1
    assert simulator.view().free.tolist() == [1]
    assert not simulator.can_start(1)


def test_view_shows_expected_ends_not_true_ends() -> None:
    simulator = Simulator(table((0, 1, 70, 10), (15, 1, 1)), FOUR)
    simulator.advance()
    simulator.apply(Choice.start(0))
    view = simulator.advance()
    assert view is not None
    assert view.running_end_s.tolist() == [20.0]


def test_held_job_returns_to_the_queue_at_its_time() -> None:
    simulator = Simulator(table((0, 4, 5), (1, 1, 5)), FOUR)
    simulator.advance()
    simulator.apply(Choice.hold(0, until_s=3.5))
    seen = []
    while (view := simulator.advance()) is not None:
        seen.append((view.now_s, view.waiting["number"].tolist()))
        simulator.apply(Choice.backfill())
    assert seen == [(1.0, [1]), (3.5, [0]), (6.0, [0])]
    assert starts(simulator.log()) == [6.0, 1.0]


def test_held_job_can_be_cancelled_or_held_without_end() -> None:
    simulator = Simulator(table((0, 4, 5), (0, 1, 5), cancel_s=[2.0, math.inf]), FOUR)
    simulator.advance()
    simulator.apply(Choice.hold(0, until_s=50.0))
    simulator.apply(Choice.hold(1, until_s=math.inf))
    assert simulator.advance() is None
    assert simulator.log().job_outcome.tolist() == [Outcome.CANCELLED, Outcome.UNSTARTED]


def test_backfill_choice_starts_fitting_jobs_by_score() -> None:
    jobs = table((0, 2, 9), (0, 3, 9), (0, 1, 9), (0, 2, 9))
    for scores, first in ((None, [0, 2]), (np.array([3.0, 1.0, 2.0, 0.0]), [3, 2]), (np.zeros(4), [0, 2])):
        simulator = Simulator(jobs, FOUR)
        simulator.advance()
        simulator.apply(Choice.backfill(scores))
        assert simulator.log().job.tolist() == first


def test_advance_stops_only_at_instants_with_waiting_jobs() -> None:
    simulator = Simulator(table((0, 1, 5), (20, 1, 5)), FOUR.with_outages(Outage("nodes", 1, 10.0, 12.0)))
    times = []
    while (view := simulator.advance()) is not None:
        times.append(view.now_s)
        simulator.apply(Choice.backfill())
    assert times == [0.0, 20.0]
    assert simulator.advance() is None


def test_log_of_an_unfinished_run() -> None:
    simulator = simulator_at_start()
    log = simulator.log()
    assert starts(log) == [0.0, None, None, None, None]
    assert log.eligible_s.tolist()[:3] == [0.0, 0.0, 0.0] and np.isnan(log.eligible_s[3:]).all()


def test_log_records_policy_and_settings() -> None:
    log = simulate(JOBS, FOUR, "sjf", "easy", backfill_order="saf", at_limit="kill", schedule_per="event")
    assert dict(log.run) == {
        "policy": "sjf",
        "backfill": "easy",
        "backfill_order": "saf",
        "at_limit": "kill",
        "overrun": "double",
        "schedule_per": "event",
        "placement": "first",
        "dependencies": True,
        "max_wait_s": None,
    }
    assert log.groups == ("nodes",)


def test_run_simulation_equals_simulate() -> None:
    one = run_simulation(JOBS, FOUR, resolve("sjf"), Settings("easy"), resolve("saf"))
    assert as_bytes(one) == as_bytes(simulate(JOBS, FOUR, "sjf", "easy", backfill_order="saf"))


def test_second_run_changes_nothing() -> None:
    simulator = Simulator(JOBS, FOUR, policy=resolve("fcfs"))
    simulator.run()
    once = as_bytes(simulator.log())
    simulator.run()
    assert as_bytes(simulator.log()) == once


def never(job: Any, now: float, parameters: Any) -> float:
    return math.nan if job["number"] == 2 else 0.0


@pytest.mark.parametrize("time_dependent", [False, True])
def test_nan_score_error_names_the_job(time_dependent: bool) -> None:
    rule = PriorityPolicy("mine", never, time_dependent=time_dependent, compiled=False)
    with pytest.raises(InputError) as caught:
        run_simulation(table((0, 4, 9), (1, 4, 9), (2, 4, 9)), FOUR, rule, Settings())
    assert str(caught.value) == ("policy 'mine' gave job 3 the score NaN at 2 s; a score must be a number (inf is one)")


def test_uncompiled_backfill_order_is_an_error() -> None:
    own = PriorityPolicy("mine", lambda job, now, parameters: 0.0, compiled=False)
    with pytest.raises(InputError, match="the backfill order 'mine' is not compiled; only policies may run"):
        run_simulation(JOBS, FOUR, resolve("fcfs"), Settings("easy"), own)


def test_fixed_policy_scores_once_and_time_dependent_policy_at_every_pass() -> None:
    scored: list[tuple[int, float]] = []

    def score(job: Any, now: float, parameters: Any) -> float:
        scored.append((int(job["number"]), now))
        return float(job["submit_s"])

    run_simulation(JOBS, FOUR, PriorityPolicy("fixed", score, compiled=False), Settings("easy"))
    assert sorted(scored) == [(0, 0.0), (1, 0.0), (2, 0.0), (3, 2.0), (4, 3.0)]
    scored.clear()
    run_simulation(
        JOBS, FOUR, PriorityPolicy("time_dependent", score, time_dependent=True, compiled=False), Settings("easy")
    )
    assert len(scored) > 10
    assert all((1, now) in scored for now in (0.0, 2.0, 3.0))


def test_held_job_loses_its_conservative_reservation() -> None:
    simulator = simulator_at_start(Settings("conservative"))
    assert simulator.apply(Choice.reserve(1)) == 10.0
    simulator.apply(Choice.hold(1, 100.0))
    assert simulator.apply(Choice.reserve(2)) == 10.0
    while (view := simulator.advance()) is not None and 1 not in view.waiting["number"]:
        pass
    assert view is not None
    assert np.isnan(view.reserved_s[view.waiting["number"] == 1]).all()
