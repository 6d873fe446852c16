"""Expected end of jobs that run longer than planned, for every overrun rule, with and without a limit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kilowait.cluster import Cluster, PowerControls
from kilowait.engine.interface import Choice
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.jobs import JobTable
from tests.oracle.priority_rules import rule_for
from tests.oracle.reference import ReferenceGroup, ReferenceJob, simulate
from tests.oracle.reservations import Planner

HOUR = 3600.0
TWO = Cluster.from_nodes(2)

CASES = [
    # overrun, planned, limit, overrun_planned; (time of a view, expected end at that time) ...
    ("double", 100, None, None, [(100, 200), (199, 200), (200, 400), (1700, 3200)]),
    ("double", 100, 350, None, [(100, 200), (200, 350), (349, 350), (350, 700), (700, 1400)]),
    ("double", 100, 350, 120, [(100, 200), (900, 1400)]),
    ("steps", 100, None, None, [(100, 160), (160, 460), (459, 460), (460, 1360), (1360, 3160), (3160, 6760)]),
    ("steps", 100, None, None, [(6760, 6760 + 2 * HOUR), (14000, 6760 + 7 * HOUR)]),
    ("steps", 100, None, None, [(100 * HOUR, 6760 + 187 * HOUR), (187 * HOUR, 6760 + 187 * HOUR)]),
    ("steps", 100, None, None, [(200 * HOUR, 6760 + 287 * HOUR), (300 * HOUR, 6760 + 387 * HOUR)]),
    ("steps", 100, 400, None, [(100, 160), (160, 400), (400, 800)]),
    ("quantile", 100, None, 250, [(100, 250), (249, 250), (250, 500), (500, 1000)]),
    ("quantile", 100, None, None, [(100, 200)]),
    ("quantile", 100, None, 40, [(100, 200)]),
    ("quantile", 100, 600, 250, [(100, 250), (250, 600), (600, 1200)]),
    ("quantile", 100, 600, None, [(100, 600), (600, 1200)]),
    ("quantile", 100, 200, 250, [(100, 200), (200, 400)]),
]
"""Computed by hand. Before the overrun the expected run time is the planned time."""


def jobs_of(planned: float, limit: float | None, overrun_planned: float | None, views: list[float]) -> JobTable:
    """One long job, and at each time of `views` a job that needs both nodes."""
    count = 1 + len(views)
    return JobTable(
        job_id=range(1, count + 1),
        submit_s=[0.0, *views],
        runtime_s=[1e7] + [1.0] * len(views),
        estimate_s=[7.0] + [1.0] * len(views),
        planned_s=[planned] + [math.nan] * len(views),
        limit_s=[math.nan if limit is None else limit] + [math.nan] * len(views),
        overrun_planned_s=[math.nan if overrun_planned is None else overrun_planned] + [math.nan] * len(views),
        nodes=[1] + [2] * len(views),
    )


def expected_ends(jobs: JobTable, overrun: str, power_controls: PowerControls | None = None) -> list[float]:
    simulator = Simulator(jobs, TWO, Settings("easy", overrun=overrun), power_controls=power_controls)
    simulator.advance()
    simulator.apply(Choice.start(0))
    found = [float(simulator.view().running_end_s[0])]
    for _ in range(len(jobs) - 1):
        view = simulator.advance()
        assert view is not None
        found.append(float(view.running_end_s[0]))
    return found


@pytest.mark.parametrize(("overrun", "planned", "limit", "overrun_planned", "views"), CASES)
def test_expected_ends_of_overrun_rules(
    overrun: str, planned: float, limit: Any, overrun_planned: Any, views: Any
) -> None:
    table = jobs_of(planned, limit, overrun_planned, [time for time, _ in views])
    assert expected_ends(table, overrun) == [planned, *(end for _, end in views)]


@pytest.mark.parametrize(("overrun", "planned", "limit", "overrun_planned", "views"), CASES)
def test_reference_has_the_same_expected_ends(
    overrun: str, planned: float, limit: Any, overrun_planned: Any, views: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[float] = []
    renew = Planner.update_expected_ends

    def noting(self: Planner) -> bool:
        renewed = renew(self)
        found.extend(state.expected_end for state in self.running)
        return renewed

    monkeypatch.setattr(Planner, "update_expected_ends", noting)
    jobs = [ReferenceJob(1, 0.0, 1e7, 7.0, 1, planned=planned, limit=limit, overrun_planned=overrun_planned)]
    jobs += [ReferenceJob(2 + i, time, 1.0, 1.0, 2) for i, (time, _) in enumerate(views)]
    rule, fixed = rule_for("fcfs", jobs)
    simulate(
        jobs, (ReferenceGroup("g", 2),), queues={}, outages=(), reservations=(), rule=rule, fixed=fixed, depth=1,
        overrun=overrun,
    )  # fmt: skip
    assert found[: len(views)] == [end for _, end in views]


@pytest.mark.parametrize(
    ("overrun", "views"),
    [
        ("double", [(150, 300), (300, 450), (450, 900)]),
        ("steps", [(150, 210), (510, 450 * 2)]),
        ("quantile", [(150, 375)]),
    ],
)
def test_dvfs_levels_scale_planned_limit_and_overrun_times(overrun: str, views: Any) -> None:
    table = jobs_of(100, 300, 250, [time for time, _ in views])
    slow = PowerControls(factor=np.full((1, len(table), 1), 1.5))
    assert expected_ends(table, overrun, slow) == [150, *(end for _, end in views)]


def test_planned_time_is_at_most_the_limit() -> None:
    assert expected_ends(jobs_of(500, 200, None, []), "double") == [200]
    assert expected_ends(jobs_of(0.1, None, None, []), "double") == [1.0]
