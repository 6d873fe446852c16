"""Weighted policies: single factors, usage decay and the boost of large jobs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.interface import Choice, PriorityPolicy
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies import policy, resolve, simulate
from kilowait.policies.fair_share import alcf, alcf_wfp, fair_share, multifactor
from tests.policies.waiting_jobs import TEN, order, seen, waiting

NOTHING = {"age": 0.0, "size": 0.0, "fair_share": 0.0, "qos": 0.0, "queue": 0.0}


def score(rule: PriorityPolicy, jobs: JobTable, now: float, **values: Any) -> float:
    """The score of one job of a log on ten nodes."""
    parameters = rule.parameters if rule.prepare is None else rule.prepare(jobs, TEN)
    return float(rule.score(seen(**values), now, np.ascontiguousarray(parameters)))


def alone(**weight: Any) -> PriorityPolicy:
    """Multifactor with one weight."""
    return multifactor(**(NOTHING | weight))


PLAIN = waiting((1, 6, 50), (2, 9, 50), (3, 8, 50))


def test_age_factor_is_at_most_one() -> None:
    rule = alone(age=1000.0, max_age_s=400.0)
    ages = [score(rule, PLAIN, now, submit_s=100.0) for now in (100.0, 200.0, 500.0, 9999.0)]
    assert ages == [0.0, -250.0, -1000.0, -1000.0]
    assert order(PLAIN, rule) == "ABC"


def test_size_factor_is_the_share_of_the_machine() -> None:
    rule = alone(size=100.0)
    assert [score(rule, PLAIN, 0.0, nodes=n) for n in (1, 5, 10)] == [-10.0, -50.0, -100.0]
    assert order(PLAIN, rule) == "BCA"
    assert order(PLAIN, alone(size=-100.0)) == "ACB"


def test_fair_share_halves_with_every_equal_share_used() -> None:
    jobs = waiting((1, 6, 50), (2, 9, 50), (3, 8, 50), user=[0, 1, 2, 3])  # an equal share is a quarter
    rule = alone(fair_share=1000.0)
    shares = [score(rule, jobs, 0.0, usage_share=share) for share in (0.0, 0.25, 0.5, 1.0)]
    assert shares == [-1000.0, -500.0, -250.0, -62.5]


def test_fair_share_orders_users_by_usage() -> None:
    jobs = waiting((1, 6, 50), (2, 9, 50), (3, 8, 50), user=[0, 0, 1, 0])
    assert order(jobs, alone(fair_share=1000.0)) == "BAC"
    assert order(jobs, "fair_share") == "BAC"


def test_usage_decays_with_its_half_life() -> None:
    """User 0 had 10 nodes from 0 to 100, user 1 six from 100 to 200.

    With h = 100 s usage at 200 is 10 h/ln2 (1 - 1/2) / 2 = 2.5 h/ln2 for user 0 and 6 h/ln2 (1 - 1/2) = 3 h/ln2 for
    user 1; without fading it would be 1000 and 600 node-seconds.
    """
    jobs = waiting((1, 6, 100), (150, 8, 50), (160, 8, 50), user=[0, 1, 1, 0])
    assert order(jobs, "fair_share:half_life_s=100") == "ACB"
    assert order(jobs, "fair_share:half_life_s=52w") == "ABC"


def test_usage_agrees_with_exact_decay() -> None:
    """Ten nodes for 100 s with a half-life of 50 s: at 100, 10 h/ln2 (1 - 1/4); at 150 half of it."""
    jobs = waiting((100, 5, 50.0), (150, 10, 1.0), user=[0, 1, 1])
    simulator = Simulator(jobs, TEN, policy=resolve("fair_share:half_life_s=50"))
    simulator.run()
    first, second, all_of_them = (float(u.amount) for u in simulator._state.usage)
    unit = 50.0 / math.log(2.0)
    # The first user's last change was at 100; the others' at 151.
    assert first == pytest.approx(10 * unit * 0.75, rel=1e-12)
    fade = 2.0 ** (-1 / 50)
    used = 5 * unit * 0.5 * fade + 10 * unit * (1 - fade)
    assert second == pytest.approx(used, rel=1e-12)
    assert all_of_them == pytest.approx(10 * unit * 0.75 * 0.5 * fade + used, rel=1e-12)


def test_qos_and_queue_factors_by_name() -> None:
    jobs = waiting(
        (1, 6, 50),
        (2, 9, 50),
        (3, 8, 50),
        qos=[-1, 0, 1, 2],
        queue=[-1, 2, 1, 0],
        labels={"qos": ("low", "normal", "high"), "queue": ("batch", "short", "debug")},
    )
    by_qos = alone(qos=1000.0, qos_factor={"low": 0.1, "high": 1.0, "normal": 0.5})
    assert [score(by_qos, jobs, 0.0, qos=q) for q in (-1, 0, 1, 2)] == [0.0, -100.0, -500.0, -1000.0]
    assert order(jobs, by_qos) == "CBA"
    by_queue = alone(queue=10.0, queue_factor={"debug": 1.0, "batch": 0.5})
    assert [score(by_queue, jobs, 0.0, queue=q) for q in (-1, 0, 1, 2)] == [0.0, -5.0, 0.0, -10.0]
    assert order(jobs, by_queue) == "ACB"
    both = replace(alone(qos=10.0, queue=10.0, qos_factor={"high": 0.5}, queue_factor={"batch": 1.0}))
    assert score(both, jobs, 0.0, qos=2, queue=0) == -15.0


def test_qos_and_queue_factors_by_number() -> None:
    jobs = waiting((1, 6, 50), (2, 9, 50), (3, 8, 50), qos=[0, 0, 3, 1])
    assert order(jobs, alone(qos=1.0, qos_factor={"3": 1.0, "1": 0.5})) == "BCA"


def test_multifactor_priority_is_the_weighted_sum() -> None:
    jobs = waiting((1, 6, 50), user=[0, 1], qos=[0, 0], labels={"qos": ("high",)})
    rule = multifactor(age=10, size=20, fair_share=40, qos=80, max_age_s=100, qos_factor={"high": 0.5})
    value = score(rule, jobs, 50.0, nodes=5, usage_share=0.5, qos=0)
    assert value == -(10 * 0.5 + 20 * 0.5 + 40 * 0.5 + 80 * 0.5)


def test_alcf_is_the_formula_of_polaris() -> None:
    """walltimes below 6 h and above 12 h count as 6 h and 12 h."""
    hour = 3600.0
    polaris = Cluster.from_nodes(560)
    rule = alcf(project_priority={"climate": 25.0})
    assert rule.prepare is not None
    jobs = waiting((1.0, 1, 1.0), account=[-1, 0], labels={"account": ("climate",)})
    values = rule.prepare(jobs, polaris)
    for walltime_h, counted_h, account, project in ((1, 6, -1, 1.0), (8, 8, 0, 25.0), (24, 12, 0, 25.0)):
        job = seen(submit_s=100.0, estimate_s=walltime_h * hour, nodes=56, account=account)
        score = rule.score(job, 100.0 + 5 * hour, values)
        assert -score == pytest.approx((5 * hour) ** 2 / (counted_h * hour) ** 3 * project * 0.1)
    with pytest.raises(InputError, match="the project priority of 'x' is -1"):
        alcf(project_priority={"x": -1})


def test_alcf_wfp_favours_large_jobs() -> None:
    # (wait / e)^3 n at 100: (99 / 100)^3 6 = 5.8, (60 / 100)^3 10 = 2.2, (95 / 100)^3 7 = 6.0
    jobs = waiting((1, 6, 100), (40, 10, 100), (5, 7, 100))
    assert order(jobs, "wfp3") == "CAB"
    assert order(jobs, "alcf_wfp:share=0.8:favour=1") == "CAB"
    assert order(jobs, "alcf_wfp:share=0.8:favour=10") == "BCA"  # 22 goes first; then C 52, A 47


def test_alcf_wfp_favours_jobs_above_its_share() -> None:
    rule = alcf_wfp(share=0.5, favour=4.0)
    values = [score(rule, PLAIN, 10.0, nodes=n, estimate_s=10.0) for n in (4, 5, 10)]
    assert values == [-4.0, -20.0, -40.0]


def test_balance_places_jobs_on_the_emptiest_group() -> None:
    cluster = Cluster((NodeGroup("a", 10), NodeGroup("b", 4)))
    jobs = JobTable(job_id=[1, 2, 3], submit_s=[0, 0, 0], runtime_s=[9, 9, 9], nodes=[5, 1, 1])
    assert simulate(jobs, cluster, "balance", backfill="none").jobs()["group"].tolist() == [0, 1, 1]
    assert simulate(jobs, cluster, "fcfs", backfill="none").jobs()["group"].tolist() == [0, 0, 0]
    assert simulate(jobs, cluster, "balance", backfill="none").run["placement"] == "balance"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: multifactor(age=math.nan), "the weight age of multifactor is nan; it must be a finite number"),
        (lambda: multifactor(qos=math.inf), "the weight qos of multifactor is inf"),
        (lambda: multifactor(max_age_s=0), "max_age_s is 0; it must be a positive duration"),
        (lambda: multifactor(half_life_s=-1.0), "half_life_s is -1.0; it must be a positive duration"),
        (lambda: fair_share(half_life_s=math.inf), "half_life_s is inf; it must be a positive duration"),
        (lambda: alcf_wfp(share=0), "alcf_wfp with share 0 and favour 10.0; need 0 < share <= 1"),
        (lambda: alcf_wfp(share=1.5), "alcf_wfp with share 1.5"),
        (lambda: alcf_wfp(favour=-1.0), "alcf_wfp with share 0.2 and favour -1.0"),
    ],
)
def test_invalid_weights_are_errors(make: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


# -- usage must be seen wherever a rule asks for it ----------------------------------------------

UNSEEN = "usage_share is brought up to date only for a compiled moving policy; elsewhere it stays 0"
SHARED = waiting((1, 6, 50), (2, 9, 50), (3, 8, 50), user=[0, 0, 1, 0])


def test_backfill_order_observes_usage() -> None:
    """Two nodes are free beside user 0's eight: user 1 goes first though numbered later."""
    jobs = JobTable(
        job_id=[1, 2, 3, 4], submit_s=[0, 1, 2, 2], nodes=[8, 10, 2, 2], runtime_s=[100, 9, 9, 9], user=[0, 2, 0, 1]
    )
    log = simulate(jobs, TEN, backfill="easy", backfill_order="fair_share")
    assert log.jobs()["start_s"].tolist() == [0, 100, 11, 2]


def test_python_policy_observes_usage() -> None:
    assert order(SHARED, replace(resolve("fair_share"), compiled=False)) == "BAC"


def test_fixed_policy_observes_usage() -> None:
    """User 0 has used the machine when their second job and the first job of user 1 arrive."""

    @policy(half_life_s=1000.0, time_dependent=False)
    def least_used(job: Any, now: float) -> float:
        return job.usage_share

    assert order(waiting((50, 10, 9), (60, 10, 9), user=[0, 0, 1]), least_used) == "BA"


def test_stepwise_policy_observes_usage() -> None:
    simulator = Simulator(SHARED, TEN, Settings(), policy=resolve("fair_share"))
    simulator.advance()
    simulator.apply(Choice.start(0))
    view = simulator.advance()
    assert view is not None
    assert view.waiting["usage_share"].tolist() == [1.0]


def test_usage_does_not_depend_on_the_time_origin() -> None:
    early = SHARED.with_columns(submit_s=SHARED["submit_s"] - 1e9)
    assert order(early, "fair_share:half_life_s=1h") == order(SHARED, "fair_share:half_life_s=1h") == "BAC"
