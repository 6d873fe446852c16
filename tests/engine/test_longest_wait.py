"""The longest wait of the settings: jobs that have waited longer go first under every priority policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.engine.settings import Settings
from kilowait.errors import InputError
from kilowait.policies import resolve
from kilowait.policies.simulation import gpu_settings_for
from tests.engine.stepwise_policy import starts, table
from tests.oracle.conversion import difference, run_engine
from tests.oracle.workloads import random_case, run_reference

FOUR = kw.Cluster.from_nodes(4)
POLICIES = ["fcfs", "sjf", "smallest", "f1", "random", "easy+", "lxf", "wfp3", "unicef", "alcf_wfp", "multifactor"]
BACKFILLS = ["none", "easy", 2, "conservative"]


@kw.policy
def latest(job, now):  # type: ignore[no-untyped-def]
    """Last come, first served."""
    return -job.submit_s


@kw.policy
def latest_by_wait(job, now):  # type: ignore[no-untyped-def]
    """The same, scored at every pass."""
    return now - job.submit_s


STREAM = table((0, 4, 9), *[(1 + 2 * i, 4, 10) for i in range(30)])
"""Jobs of the whole machine arrive five times as fast as they run."""


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("policy", [latest, latest_by_wait], ids=["fixed", "time-dependent"])
def test_no_job_is_overtaken_after_the_longest_wait(policy: kw.PriorityPolicy, backfill: str | int) -> None:
    """Last come, first served: the first waits to the end. After 50 s it goes before all others."""
    without = starts(kw.simulate(STREAM, FOUR, policy, backfill))
    assert backfill == "conservative" or without[1] == max(start or 0.0 for start in without)
    bounded = kw.simulate(STREAM, FOUR, policy, backfill, max_wait_s=50)
    start = bounded.jobs()["start_s"]
    assert backfill == "conservative" or start[1] == 59  # at 49 it has waited for 48 s
    late = start - STREAM["submit_s"] > 60  # late at an earlier pass too
    assert late.any() and (np.diff(start[late]) > 0).all()  # in order of submission
    assert bounded.run["max_wait_s"] == 50 and kw.simulate(STREAM, FOUR).run["max_wait_s"] is None


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_longest_wait_of_zero_is_first_come_first_served(policy: str, compiled: bool, backfill: str | int) -> None:
    """All jobs of an instant have waited for zero seconds then, and all others for longer."""
    jobs = kw.lublin(60, nodes=4, load=1.3, seed=3)
    rule = resolve(policy)
    if rule.predicts:
        if not compiled:
            pytest.skip("a policy that predicts is compiled")
    elif not compiled:
        rule = replace(rule, compiled=False)
    log = kw.simulate(jobs, FOUR, rule, backfill, max_wait_s=0, overrun="double")
    if not rule.predicts:
        assert starts(log) == starts(kw.simulate(jobs, FOUR, "fcfs", backfill))


@pytest.mark.parametrize("backfill_order", ["sjf", "lxf"])
def test_backfill_candidates_that_have_waited_too_long_go_first(backfill_order: str) -> None:
    """Job 2 is the head until 100. At 21 job 3 (40 s) and job 5 (5 s) fit; job 3 has waited for 19 s."""
    jobs = table((0, 2, 100), (1, 4, 10), (2, 2, 40), (1, 2, 20), (12, 2, 5))
    assert starts(kw.simulate(jobs, FOUR, backfill_order=backfill_order)) == [0, 100, 26, 1, 21]
    assert starts(kw.simulate(jobs, FOUR, backfill_order=backfill_order, max_wait_s=15)) == [0, 100, 21, 1, 61]


def test_engine_and_reference_agree_with_a_longest_wait() -> None:
    for seed in range(40000, 40060):
        drawn = random_case(seed)
        case = replace(drawn, max_wait=drawn.jobs[0].estimate)
        differs = difference(case, run_reference(case), run_engine(case))
        assert differs is None, differs


def test_settings_without_a_sense() -> None:
    with pytest.raises(InputError, match="max_wait_s is -1; give 0 or more seconds, or infinity for no bound"):
        Settings(max_wait_s=-1)
    with pytest.raises(InputError, match="max_wait_s is nan"):
        Settings(max_wait_s=float("nan"))
    with pytest.raises(InputError, match="max_wait_s is 60, and policy '<lambda>' chooses single jobs itself"):
        kw.simulate(STREAM, FOUR, lambda view: None, max_wait_s=60)
    with pytest.raises(InputError, match="max_wait_s is 60.0; GPU clusters have no such setting"):
        gpu_settings_for("fcfs", max_wait_s=60.0)
