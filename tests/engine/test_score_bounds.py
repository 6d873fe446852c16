"""Bounds of scores change the speed of a run, but not its log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kilowait as kw
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.errors import InputError
from kilowait.policies import resolve
from tests.engine.stepwise_policy import INTERPRETED, as_bytes, table
from tests.oracle import conversion
from tests.oracle.workloads import random_case

CASES = 3 if INTERPRETED else 60
POLICIES = [
    "lxf",
    "wfp3",
    "unicef",
    "alcf_wfp",
    "fair_share:half_life_s=60",
    "multifactor:max_age_s=100:half_life_s=60",
    "multifactor:max_age_s=7d:half_life_s=1h:size=-300",
]


def with_users(jobs: kw.JobTable, seed: int, users: int) -> kw.JobTable:
    return jobs.with_columns(user=np.random.default_rng(seed).integers(-1, users, len(jobs)))


def assert_same_log(jobs: kw.JobTable, cluster: kw.Cluster, policy: str, where: str, **settings: Any) -> None:
    monotone = resolve(policy)
    assert monotone.monotone
    with_bounds = kw.simulate(jobs, cluster, monotone, on_oversized="drop", **settings)
    without = kw.simulate(jobs, cluster, replace(monotone, monotone=False), on_oversized="drop", **settings)
    assert as_bytes(with_bounds) == as_bytes(without), where


@pytest.mark.parametrize("policy", POLICIES)
def test_log_is_the_same_with_bounds_on_random_workloads(policy: str) -> None:
    """With ties, zero run times, outages, dependencies, cancellations, backfill orders and longest waits."""
    for seed in range(50000, 50000 + CASES):
        case = random_case(seed)
        jobs = with_users(conversion.job_table(case.jobs), seed, 1 + seed % 7)
        cluster = conversion.cluster(replace(case, groups=case.groups[:1], queues={}, outages=(), reservations=()))
        outages = [outage for outage in case.outages if outage.group == case.groups[0].name]
        cluster = cluster.with_outages(*conversion.cluster(replace(case, outages=tuple(outages))).outages)
        assert_same_log(
            jobs,
            cluster,
            policy,
            f"seed {seed}",
            backfill=("none", "easy")[seed % 4 > 0],
            backfill_order=case.backfill_order if seed % 4 else None,
            schedule_per=case.schedule_per,
            at_limit=case.at_limit,
            max_wait_s=case.max_wait,
        )


@pytest.mark.parametrize("policy", ["wfp3", "lxf", "multifactor", "multifactor:half_life_s=1h", "fair_share"])
def test_log_is_the_same_with_bounds_on_long_queues(policy: str) -> None:
    """Hundreds of jobs wait, for weeks: bounds are kept, loosened, tightened and found invalid."""
    jobs = kw.lublin(40 if INTERPRETED else 4000, nodes=64, load=1.4, seed=2)
    for users in (3, 500):
        for backfill in ("none", "easy"):
            assert_same_log(
                with_users(jobs, 4, users), kw.Cluster.from_nodes(64), policy, f"{users} {backfill}", backfill=backfill
            )


def test_bounds_are_used_only_where_they_are_valid() -> None:
    jobs = table((0, 4, 60), (1, 4, 60))

    def uses_bounds(policy: PriorityPolicy, backfill: str | int, cluster: kw.Cluster, **more: Any) -> bool:
        simulator = Simulator(jobs, cluster, Settings(backfill), policy=policy, **more)
        simulator.run()
        return bool(simulator.state.clock["bounded"][0])

    four = kw.Cluster.from_nodes(4)
    wfp3 = resolve("wfp3")
    assert uses_bounds(wfp3, "easy", four) and uses_bounds(wfp3, "none", four)
    assert not uses_bounds(wfp3, 2, four) and not uses_bounds(wfp3, "conservative", four)
    assert not uses_bounds(wfp3, "easy", kw.Cluster((*four.groups, kw.NodeGroup("more", 4))))
    assert not uses_bounds(wfp3, "easy", four, power_controls=kw.PowerControls())
    assert not uses_bounds(resolve("sjf"), "easy", four)
    assert not uses_bounds(resolve("multifactor:age=-1"), "easy", four)
    assert not uses_bounds(resolve("multifactor:fair_share=-1"), "easy", four)


def test_score_that_is_no_number_is_an_error_with_bounds_too() -> None:
    @kw.policy(time_dependent=True)
    def undefined(job, now):  # type: ignore[no-untyped-def]
        return 0.0 * (now / job.estimate_s) if now < 100 else np.nan

    with pytest.raises(InputError, match="policy 'undefined' gave job 3 the score NaN at 120 s"):
        jobs = table((0, 4, 120), (130, 4, 60), (1, 4, 60))
        kw.simulate(jobs, kw.Cluster.from_nodes(4), replace(undefined, monotone=True))
