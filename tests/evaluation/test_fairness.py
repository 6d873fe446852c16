from __future__ import annotations

import json
import math

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.evaluation.fairness import fairness
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.example_logs import NEVER, example_log

HOUR, DAY = 3600, 86400


def served(*bsld, nodes=None, **columns):
    """Jobs of 100 s with these bounded slowdowns."""
    sizes = nodes or [1] * len(bsld)
    rows = [(0, 100 * (x - 1), 100, size) for x, size in zip(bsld, sizes, strict=True)]
    return example_log(*rows, capacity=((0, 10**6),), **columns)


def test_users():
    """Means 2, 6 and 1; the job of an unknown user is left out."""
    found = fairness(served(1, 3, 6, 1, 50, user=[4, 4, 7, 9, -1]))
    assert found["users"] == 3
    assert found["jain_user_bsld"] == pytest.approx(9**2 / (3 * (4 + 36 + 1)))
    assert found["worst_user_bsld"] == 6
    assert found["p95_user_bsld"] == pytest.approx(2 + 0.9 * 4)


def test_worst_user_has_jobs_enough():
    ten, nine = [3] * 10, [8] * 9
    found = fairness(served(*ten, *nine, user=[0] * 10 + [1] * 9))
    assert (found["worst_user_bsld"], found["p95_user_bsld"]) == (3, pytest.approx(3 + 0.95 * 5))
    assert fairness(served(*nine, *ten[:9], user=[1] * 9 + [0] * 9))["worst_user_bsld"] == 8


def test_sizes():
    """One node: mean 2; 2-4 nodes: 4; 17-64 nodes: 5."""
    found = fairness(served(1, 3, 4, 4, 5, nodes=[1, 1, 2, 4, 30]))
    assert found["jain_size_bsld"] == pytest.approx(11**2 / (3 * (4 + 16 + 25)))
    assert found["worst_size_bsld"] == 5


def test_one_user_is_treated_like_himself():
    found = fairness(served(1, 3, 99, user=[2, 2, 2]))
    assert (found["users"], found["jain_user_bsld"], found["jain_size_bsld"]) == (1, 1, 1)


def test_equal_users_have_index_one():
    found = fairness(served(7, 7, 7, 7, nodes=[1, 4, 16, 64], user=[0, 1, 2, 3]))
    assert found["jain_user_bsld"] == pytest.approx(1)
    assert found["jain_size_bsld"] == pytest.approx(1)


def test_one_bears_everything():
    found = fairness(served(1, 1, 1, 1, 1e12, user=range(5)))
    assert found["jain_user_bsld"] == pytest.approx(1 / 5)


def test_index_ignores_the_scale():
    few, many = (fairness(served(*(k * x for x in (1, 2, 5)), user=[0, 1, 2])) for k in (1, 1e9))
    assert few["jain_user_bsld"] == pytest.approx(many["jain_user_bsld"])


def test_no_users():
    for log in (served(1, 3), served(1, 3, user=[-1, -1])):
        found = fairness(log)
        assert found["users"] == 0
        assert all(math.isnan(found[f"{name}_user_bsld"]) for name in ("jain", "worst", "p95"))
        assert found["jain_size_bsld"] == 1


def test_nothing_started():
    found = fairness(example_log((0, NEVER, 5, 2), user=[0]))
    assert found["users"] == 0
    for name in ("jain_user_bsld", "worst_user_bsld", "p95_user_bsld", "jain_size_bsld", "worst_size_bsld"):
        assert math.isnan(found[name])
    assert (found["share_wait_over_bound"], found["starved_jobs"], found["starved_share"]) == (1, 1, 1)


@pytest.mark.parametrize("log", [example_log(), example_log(capacity=())])
def test_no_jobs(log):
    found = fairness(log)
    assert (found["users"], found["starved_jobs"]) == (0, 0)
    assert math.isnan(found["share_wait_over_bound"])
    assert math.isnan(found["starved_share"])


def test_waits_over_the_bound():
    log = example_log((0, DAY, 5, 1), (0, DAY + 1, 5, 1), (0, 0, 5, 1), (0, NEVER, 5, 1))
    assert fairness(log)["share_wait_over_bound"] == 2 / 4
    assert fairness(log, wait_bound_s=DAY + 1)["share_wait_over_bound"] == 1 / 4
    assert fairness(log, wait_bound_s=0)["share_wait_over_bound"] == 3 / 4


def test_starving():
    """Patience is 10 h for the short ones, 30 h for the one that asks for 3 h."""
    log = example_log(
        (0, 10 * HOUR, 5, 1),
        (0, 10 * HOUR + 1, 5, 1),
        (0, 30 * HOUR, 5, 1),
        (0, 30 * HOUR + 1, 5, 1),
        (0, NEVER, 5, 1),
        estimate_s=[60, 60, 3 * HOUR, 3 * HOUR, 100 * HOUR],
    )
    found = fairness(log)
    assert (found["starved_jobs"], found["starved_share"]) == (3, 3 / 5)
    assert fairness(log, starving=9.9)["starved_jobs"] == 5


def test_withdrawn_and_rejected_jobs():
    """A job withdrawn after a minute did not starve; one withdrawn after two days did; a rejected one cannot."""
    log = example_log(
        (0, NEVER, 5, 1),
        (0, NEVER, 5, 1),
        (0, NEVER, 5, 99),
        (0, NEVER, 5, 1),
        cancel_s=[60, 2 * DAY, math.inf, math.inf],
        outcome={0: Outcome.CANCELLED, 1: Outcome.CANCELLED, 2: Outcome.REJECTED},
        eligible={3: NEVER},
    )
    found = fairness(log)
    assert (found["starved_jobs"], found["share_wait_over_bound"]) == (1, 1 / 4)


def test_waiting_counts_from_the_queue_not_the_submission():
    log = example_log((0, 3 * DAY, 5, 1), eligible={0: 3.0 * DAY - 10})
    assert (fairness(log)["starved_jobs"], fairness(log)["share_wait_over_bound"]) == (0, 0)


def test_counted_jobs():
    log = served(1, 3000, 2, 4, nodes=[1, 1, 2, 1], user=[0, 0, 1, 2])
    found = fairness(log, counted=np.array([True, False, True, False]))
    assert found["users"] == 2
    assert found["jain_user_bsld"] == pytest.approx(9 / 10)
    assert (found["worst_user_bsld"], found["worst_size_bsld"]) == (2, 2)
    assert (found["starved_jobs"], found["share_wait_over_bound"]) == (0, 0)
    assert fairness(log)["share_wait_over_bound"] == 1 / 4


def test_values_are_plain_numbers():
    found = fairness(served(1, 2, user=[0, 1]))
    assert all(type(value) in (int, float) for value in found.values())
    json.dumps(found)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"wait_bound_s": -1.0}, "wait_bound_s is -1.0"),
        ({"wait_bound_s": math.nan}, "wait_bound_s is nan"),
        ({"starving": 0.0}, "starving is 0.0"),
        ({"starving": math.inf}, "starving is inf"),
        ({"bound_s": 0.0}, "bound_s is 0.0"),
        ({"counted": [True]}, "counted has the shape"),
    ],
)
def test_bad_arguments(wrong, message):
    with pytest.raises(InputError, match=message):
        fairness(served(1, 2), **wrong)


def test_all_waits_of_a_preempted_job_count():
    """Half a day before it starts, three quarters of one before it goes on: over a day, and starving."""
    again = [(0, 0.5 * DAY + 100 + 0.75 * DAY, 2 * DAY)]
    found = fairness(example_log((0, 0.5 * DAY, 100, 1), (0, 0.5 * DAY, 100, 1), segments=again))
    assert (found["share_wait_over_bound"], found["starved_jobs"]) == (0.5, 2)
    assert fairness(example_log((0, 0.5 * DAY, 100, 1)), starving=20)["starved_jobs"] == 0
    assert fairness(example_log((0, 0.5 * DAY, 100, 1), segments=again), starving=20)["starved_jobs"] == 1


def test_a_preempted_job_that_never_goes_on_waits_for_ever():
    found = fairness(example_log((0, 0, 10, 4), (0, 0, 30, 1), outcome={0: Outcome.UNSTARTED}))
    assert (found["starved_jobs"], found["share_wait_over_bound"]) == (1, 0.5)
