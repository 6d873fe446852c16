"""The laws hold for the reference simulator, and violations are detected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.laws import laws
from tests.oracle.model import JobReservation, ReferenceGroup, ReferenceJob, Result
from tests.oracle.workloads import Case, random_case, run_reference

CASES = 400


@pytest.mark.parametrize("law", laws.GENERAL, ids=lambda law: law.__name__)
def test_general_laws(law: Callable[[Case, Sequence[Result]], None]) -> None:
    for seed in range(CASES):
        case = random_case(seed)
        try:
            law(case, run_reference(case).results)
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from None


def test_easy_keeps_the_reservation_of_the_first_job() -> None:
    reserved_jobs = 0
    for seed in range(CASES):
        case = laws.easy_case(random_case(seed))
        run = run_reference(case)
        laws.first_jobs_start_by_their_first_reservation(case, run.results, run.job_reservations)
        reserved_jobs += len({reservation.job_id for reservation in run.job_reservations if reservation.head})
    assert reserved_jobs > CASES  # the law was tried


def test_conservative_keeps_all_reservations() -> None:
    """Whatever the order, the placement and the passes; the draw has cancellations and dependencies too."""
    reserved_jobs = 0
    for seed in range(CASES):
        case = laws.conservative_case(random_case(seed))
        run = run_reference(case)
        laws.all_jobs_start_by_their_first_reservation(case, run.results, run.job_reservations)
        laws.reservations_only_move_earlier(case, run.job_reservations)
        reserved_jobs += len({reservation.job_id for reservation in run.job_reservations})
    assert reserved_jobs > CASES


def test_conservative_equals_a_large_depth_with_exact_estimates() -> None:
    """With estimates that are the run times and in order of submission, a plan made anew is the one kept."""
    for seed in range(CASES // 2):
        case = laws.exact_case(random_case(seed))
        assert run_reference(case).results == run_reference(replace(case, depth=len(case.jobs))).results, f"seed {seed}"


def test_conservative_start_does_not_depend_on_jobs_behind() -> None:
    for seed in range(CASES // 2):
        case = laws.exact_case(random_case(seed))
        results = run_reference(case).results
        for job in case.jobs[:: max(1, len(case.jobs) // 3)]:
            laws.jobs_behind_delay_no_job(case, results, lambda c: run_reference(c).results, job.job_id)


# -- the laws can be broken ----------------------------------------------------------------------

PAIR = Case(
    seed=0,
    jobs=(ReferenceJob(1, 0.0, 10.0, 10.0, 3), ReferenceJob(2, 0.0, 10.0, 10.0, 2)),
    groups=(ReferenceGroup("g", 4),),
    queues={},
)
GOOD = (Result(0.0, 0.0, 10.0, 0, "completed"), Result(0.0, 10.0, 20.0, 0, "completed"))


def test_example_schedule_obeys_all_laws() -> None:
    for law in laws.GENERAL:
        law(PAIR, GOOD)


@pytest.mark.parametrize(
    ("law", "second"),
    [
        (laws.never_oversubscribed, Result(0.0, 9.0, 19.0, 0, "completed")),
        (laws.jobs_run_for_their_run_time, Result(0.0, 10.0, 21.0, 0, "completed")),
        (laws.no_job_starts_before_it_is_eligible, Result(0.0, -1.0, 9.0, 0, "completed")),
        (laws.no_job_starts_before_it_is_eligible, Result(1.0, 10.0, 20.0, 0, "completed")),
        (laws.every_job_is_accounted_for, Result(0.0, None, None, None, "completed")),
        (laws.every_job_is_accounted_for, Result(0.0, None, None, None, "rejected")),
        (laws.every_job_is_accounted_for, Result(0.0, None, None, None, "cancelled")),
        (laws.every_job_is_accounted_for, Result(0.0, 10.0, 20.0, 1, "completed")),
        (laws.every_job_is_accounted_for, Result(0.0, 10.0, 20.0, 0, "killed")),
    ],
)
def test_violated_law_is_detected(law: Callable[[Case, Sequence[Result]], None], second: Result) -> None:
    with pytest.raises(AssertionError):
        law(PAIR, (GOOD[0], second))


def test_violated_reservation_is_detected() -> None:
    early = JobReservation(1, 0.0, 2, 0, 9.0, True)
    with pytest.raises(AssertionError, match="started at 10"):
        laws.first_jobs_start_by_their_first_reservation(laws.easy_case(PAIR), GOOD, [early])
    with pytest.raises(AssertionError, match="started at 10"):
        laws.all_jobs_start_by_their_first_reservation(laws.conservative_case(PAIR), GOOD, [early])
    cancelled = laws.conservative_case(replace(PAIR, jobs=(PAIR.jobs[0], replace(PAIR.jobs[1], cancel=9.5))))
    with pytest.raises(AssertionError, match="waited until 9.5"):
        laws.all_jobs_start_by_their_first_reservation(
            cancelled, (GOOD[0], Result(0.0, None, None, None, "cancelled")), [early]
        )
    with pytest.raises(AssertionError, match="after"):
        laws.reservations_only_move_earlier(laws.conservative_case(PAIR), [early, early._replace(start=9.5)])


EARLY = Case(
    seed=0,
    jobs=(
        ReferenceJob(1, 0.0, 10.0, 10.0, 2),
        ReferenceJob(2, 0.0, 5.0, 20.0, 2),
        ReferenceJob(3, 0.0, 10.0, 10.0, 4),
        ReferenceJob(4, 0.0, 10.0, 10.0, 2),
    ),
    groups=(ReferenceGroup("g", 4),),
    queues={},
    depth=None,
)
"""Four nodes: job 1 has two until 10, job 2 two until 20; 3 wants all, 4 two. 3 is reserved for 20, 4 for 10
(beside job 2). But job 2 ends at 5."""


def test_conservative_keeps_reservations_after_an_early_finish() -> None:
    """At 5, job 4 stands in the way of 3, which stays at 20; then 4 goes at once; at 10, 3 moves to 15."""
    run = run_reference(EARLY)
    assert [(p.time, p.job_id, p.start) for p in run.job_reservations] == [
        (0, 3, 20),
        (0, 4, 10),
        (5, 3, 20),
        (10, 3, 15),
    ]
    assert [result.start for result in run.results] == [0.0, 0.0, 15.0, 5.0]
    laws.all_jobs_start_by_their_first_reservation(EARLY, run.results, run.job_reservations)


def test_large_depth_may_delay_a_reservation_after_an_early_finish() -> None:
    """The plan made anew at 5 brings job 3 forward to 10, where 4 was to be, and 4 comes only after it, at 20."""
    run = run_reference(replace(EARLY, depth=50))
    assert [(p.job_id, p.start) for p in run.job_reservations[:2]] == [(3, 20.0), (4, 10.0)]
    assert [result.start for result in run.results] == [0.0, 0.0, 10.0, 20.0]
    with pytest.raises(AssertionError, match="started at 20"):
        laws.all_jobs_start_by_their_first_reservation(EARLY, run.results, run.job_reservations)
