"""Batch runs end: an error where a policy starts no job, a warning where jobs can never start."""

from __future__ import annotations

import logging
import math
import re

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, Outage, PowerControls, Reservation, SleepPolicy
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.errors import NoProgressError
from kilowait.jobs.execution_log import Outcome

FOUR = Cluster.from_nodes(4)
BACKFILLS = ["none", "easy", "conservative"]


def table(n: int = 2, **columns: object) -> kw.JobTable:
    """Jobs of 2 nodes and 60 s, submitted at 0, 1, 2, ... s."""
    times = {"submit_s": np.arange(n), "runtime_s": [60] * n, "nodes": [2] * n}
    return kw.JobTable(job_id=7 + np.arange(n), **{**times, **columns})


def never(view: kw.View) -> None:
    """Start no job."""


def hold(view: kw.View) -> kw.Choice | None:
    """Hold every job for a second."""
    return kw.Choice.hold(int(view.waiting[0]["number"]), view.now_s + 1) if len(view.waiting) else None


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_policy_that_starts_no_job(backfill: str) -> None:
    with pytest.raises(NoProgressError) as caught:
        kw.simulate(table(), FOUR, never, backfill)
    assert str(caught.value).startswith(
        "policy 'never' starts no job: at 1 s job 7, which needs 2 node(s) for 60 s, and 1 more wait, nothing runs, "
        "and no arrival or completion is due; start a waiting job whenever the cluster is idle"
    )


def test_policy_that_only_makes_reservations() -> None:
    for backfill in ("easy", "conservative"):
        calls = iter([kw.Choice.reserve(0)])
        with pytest.raises(NoProgressError, match="starts no job: at 0 s job 7, .*, waits, nothing runs"):
            kw.simulate(table(1), FOUR, lambda view, calls=calls: next(calls, None), backfill)


@pytest.mark.parametrize("controls", [None, PowerControls(sleep={"nodes": SleepPolicy(5.0, 2.0, 9.0)})])
def test_policy_that_starts_no_job_on_sleeping_nodes(controls: PowerControls | None) -> None:
    with pytest.raises(NoProgressError, match="policy 'never' starts no job"):
        kw.simulate(table(), FOUR, never, power_controls=controls)


def test_policy_that_holds_jobs_again_and_again() -> None:
    with pytest.raises(NoProgressError, match="policy 'hold' holds jobs again and again, 10,010 times .* job 7, "):
        kw.simulate(table(1), FOUR, hold)


def test_holds_before_another_event_do_not_count() -> None:
    late = table(2, submit_s=[0, 30_000])

    def hold_until_late(view: kw.View) -> kw.Choice | None:
        if view.now_s < 30_000:
            return hold(view)
        return kw.Choice.start(int(view.waiting[0]["number"])) if len(view.waiting) else None

    assert kw.simulate(late, FOUR, hold_until_late).jobs()["start_s"].tolist() == [30_000, 30_000]
    cancelled = kw.simulate(table(1, cancel_s=[20_000.0]), FOUR, hold)
    assert cancelled.job_outcome.tolist() == [Outcome.CANCELLED]


def test_external_scheduler_that_starts_no_job() -> None:
    simulator = Simulator(table(), FOUR, Settings("easy"))
    while simulator.advance() is not None:
        pass
    with pytest.raises(NoProgressError, match="policy 'steps' starts no job"):
        simulator.check_end()


BUDGET = PowerControls(watts=np.full((1, 2, 1), 100), budget=((-math.inf, 300), (0.5, 50)))
DEPENDENT = {"after_id": [-1, 7]}


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(
    ("cluster", "columns", "controls", "words"),
    [
        (FOUR.with_outages(Outage("nodes", 3, 0.0)), {}, None, r"2 job\(s\) never start .* free: nodes 1\."),
        (
            FOUR.with_outages(Outage("nodes", 3, 0.0)),
            DEPENDENT,
            None,
            r"1 job\(s\) never start under policy 'fcfs', and 1 that depend on them are never submitted; the first is",
        ),
        (FOUR, {"submit_s": [1, 2]}, BUDGET, r"2 job\(s\) never start .* the power budget"),
    ],
    ids=["outage", "dependent", "power budget"],
)
def test_jobs_that_can_never_start_are_reported(
    backfill: str,
    cluster: Cluster,
    columns: dict[str, object],
    controls: PowerControls | None,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "kilowait"):
        log = kw.simulate(table(**columns), cluster, "fcfs", backfill, power_controls=controls)
    assert (log.job_outcome == Outcome.UNSTARTED).any()
    [message] = [record.getMessage() for record in caplog.records if "never start" in record.getMessage()]
    assert re.match(words, message), message


def test_no_warning_without_unstarted_jobs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kilowait"):
        kw.simulate(table(cancel_s=[math.inf, 30.0], nodes=[4, 4]), FOUR)
    assert not [record for record in caplog.records if "never start" in record.getMessage()]


COURSE = Cluster(FOUR.groups, reservations=(Reservation("course", "nodes", 2, 10, 20),))


@pytest.mark.parametrize("schedule_per", ["instant", "event"])
@pytest.mark.parametrize("controls", [None, PowerControls()])
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_jobs_of_a_reservation_that_has_ended_are_rejected(
    backfill: str, controls: PowerControls | None, schedule_per: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Job 7 runs; job 8 waits at the end, 9 arrives at the end, 10 later; 11 depends on 8, 12 is of another queue."""
    jobs = kw.JobTable(
        job_id=[7, 8, 9, 10, 11, 12],
        submit_s=[0, 1, 20, 30, 0, 40],
        runtime_s=[9, 5, 5, 5, 5, 5],
        nodes=[2] * 6,
        after_id=[-1, -1, -1, -1, 8, -1],
        think_s=[0, 0, 0, 0, 3, 0],
        queue=[0, 0, 0, 0, 1, 1],
        labels={"queue": ("course", "other")},
    )
    with caplog.at_level(logging.WARNING, "kilowait"):
        log = kw.simulate(jobs, COURSE, "fcfs", backfill, power_controls=controls, schedule_per=schedule_per)
    assert log.jobs()["start_s"].tolist() == pytest.approx([10, math.nan, math.nan, math.nan, 23, 40], nan_ok=True)
    assert log.job_outcome.tolist() == [Outcome.COMPLETED, *[Outcome.REJECTED] * 3, *[Outcome.COMPLETED] * 2]
    assert log.eligible_s.tolist() == [0, 1, 20, 30, 23, 40]
    metrics = kw.metrics(log)
    assert (metrics["rejected"], metrics["unstarted"], metrics["started"]) == (3, 0, 3)
    [message] = [record.getMessage() for record in caplog.records if "never start" in record.getMessage()]
    assert message == (
        "3 job(s) never start under policy 'fcfs': the reservation of their queue ended before; the first is job 8, "
        "which needs 2 node(s) for 5 s, and reservation 'course' ended at 20 s. The log lists them as rejected. Extend "
        "the reservation, or rename it if the jobs of the queue may use other nodes too"
    )


def test_held_job_of_a_reservation_that_has_ended_is_rejected() -> None:
    jobs = table(1, queue=[0], labels={"queue": ("course",)}, hold_until_s=[30.0])
    log = kw.simulate(jobs, COURSE)
    assert log.job_outcome.tolist() == [Outcome.REJECTED]
