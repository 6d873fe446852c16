"""Laws with power controls, checked on the reference simulator, which gives the same logs as the engine."""

from __future__ import annotations

from dataclasses import replace

from tests.laws import laws
from tests.oracle.model import ReferencePowerControls
from tests.oracle.power_workloads import power_case
from tests.oracle.workloads import Case, run_reference

CASES = 400


def easy_case(case: Case) -> Case:
    """As `laws.easy_case`: nobody is held, and a slower level never draws more."""
    assert case.power_controls is not None
    jobs = tuple(replace(job, begin=None, hold=None) for job in case.jobs)
    return laws.easy_case(replace(case, jobs=jobs, schedule_per="instant", power_controls=falling(case.power_controls)))


def falling(power_controls: ReferencePowerControls) -> ReferencePowerControls:
    if power_controls.watts is None:
        return power_controls
    watts = tuple(tuple(tuple(sorted(row, reverse=True)) for row in group) for group in power_controls.watts)
    return replace(power_controls, watts=watts)


def test_easy_keeps_the_reservation_of_the_first_job_with_power_controls() -> None:
    """Whatever sleeps, whatever level jobs run at, under a budget that does not change; they may yet have to wake."""
    reserved_jobs = slept = 0
    for seed in range(CASES):
        case = easy_case(power_case(seed))
        assert case.power_controls is not None
        if case.power_controls.budget is not None and len(case.power_controls.budget) > 1:
            continue
        run = run_reference(case)
        first_reservation: dict[int, float] = {}
        for reservation in run.job_reservations:
            if reservation.head:
                first_reservation.setdefault(reservation.job_id, reservation.start)
        for job_id, time in first_reservation.items():
            assert job_id in run.taken and run.taken[job_id] <= time, f"seed {seed}, job {job_id}"
        reserved_jobs += len(first_reservation)
        slept += sum(map(len, run.states.values()))
    assert reserved_jobs > CASES and slept > CASES


def test_power_budget_is_never_exceeded() -> None:
    """Where it does not fall: what jobs draw from the moment they hold their nodes never exceeds it."""
    tried = 0
    for seed in range(CASES):
        case = power_case(seed)
        power_controls = case.power_controls
        if power_controls is None or power_controls.budget is None or power_controls.watts is None:
            continue
        watts = [value for _, value in power_controls.budget]
        if watts != sorted(watts):
            continue
        run = run_reference(case)
        parents = [group.name for group in case.groups]
        like = [*range(len(parents)), *(parents.index(r.group) for r in case.reservations)]
        spans = [
            (run.taken[job.job_id], result.end, power_controls.watts[like[result.group]][row][result.level])
            for row, (job, result) in enumerate(zip(case.jobs, run.results, strict=True))
            if result.group is not None and result.end is not None
        ]
        for time, _, _ in spans:
            drawn = sum(draw for begin, end, draw in spans if begin <= time < end)
            allowed = [value for begin, value in power_controls.budget if begin <= time][-1]
            assert drawn <= allowed, f"seed {seed} at {time}"
            tried += 1
    assert tried > CASES
