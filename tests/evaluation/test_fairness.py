from __future__ import annotations

import json
import math

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.evaluation.metrics import fairness
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.example_logs import NEVER, example_log

HOUR, DAY = 3600, 86400


def log_of(*bsld, nodes=None, **columns):
    """Jobs of 100 s with these bounded slowdowns."""
    sizes = nodes or [1] * len(bsld)
    rows = [(0, 100 * (x - 1), 100, size) for x, size in zip(bsld, sizes, strict=True)]
    return example_log(*rows, capacity=((0, 10**6),), **columns)


def test_users():
    """Means 2, 6 and 1; the job of an unknown user is left out."""
    result = fairness(log_of(1, 3, 6, 1, 50, user=[4, 4, 7, 9, -1]))
    assert result["users"] == 3
    assert result["jain_user_bsld"] == pytest.approx(9**2 / (3 * (4 + 36 + 1)))
    assert result["worst_user_bsld"] == 6
    assert result["p95_user_bsld"] == pytest.approx(2 + 0.9 * 4)


def test_worst_user_needs_ten_jobs():
    ten, nine = [3] * 10, [8] * 9
    result = fairness(log_of(*ten, *nine, user=[0] * 10 + [1] * 9))
    assert (result["worst_user_bsld"], result["p95_user_bsld"]) == (3, pytest.approx(3 + 0.95 * 5))
    assert fairness(log_of(*nine, *ten[:9], user=[1] * 9 + [0] * 9))["worst_user_bsld"] == 8


def test_sizes():
    """One node: mean 2; 2-4 nodes: 4; 17-64 nodes: 5."""
    result = fairness(log_of(1, 3, 4, 4, 5, nodes=[1, 1, 2, 4, 30]))
    assert result["jain_size_bsld"] == pytest.approx(11**2 / (3 * (4 + 16 + 25)))
    assert result["worst_size_bsld"] == 5


def test_one_user_has_index_one():
    result = fairness(log_of(1, 3, 99, user=[2, 2, 2]))
    assert (result["users"], result["jain_user_bsld"], result["jain_size_bsld"]) == (1, 1, 1)


def test_equal_users_have_index_one():
    result = fairness(log_of(7, 7, 7, 7, nodes=[1, 4, 16, 64], user=[0, 1, 2, 3]))
    assert result["jain_user_bsld"] == pytest.approx(1)
    assert result["jain_size_bsld"] == pytest.approx(1)


def test_index_of_one_delayed_user():
    result = fairness(log_of(1, 1, 1, 1, 1e12, user=range(5)))
    assert result["jain_user_bsld"] == pytest.approx(1 / 5)


def test_index_ignores_the_scale():
    small, large = (fairness(log_of(*(k * x for x in (1, 2, 5)), user=[0, 1, 2])) for k in (1, 1e9))
    assert small["jain_user_bsld"] == pytest.approx(large["jain_user_bsld"])


def test_no_users():
    for log in (log_of(1, 3), log_of(1, 3, user=[-1, -1])):
        result = fairness(log)
        assert result["users"] == 0
        assert all(math.isnan(result[f"{name}_user_bsld"]) for name in ("jain", "worst", "p95"))
        assert result["jain_size_bsld"] == 1


def test_nothing_started():
    result = fairness(example_log((0, NEVER, 5, 2), user=[0]))
    assert result["users"] == 0
    for name in ("jain_user_bsld", "worst_user_bsld", "p95_user_bsld", "jain_size_bsld", "worst_size_bsld"):
        assert math.isnan(result[name])
    assert (result["share_wait_over_bound"], result["starved_jobs"], result["starved_share"]) == (1, 1, 1)


@pytest.mark.parametrize("log", [example_log(), example_log(capacity=())])
def test_no_jobs(log):
    result = fairness(log)
    assert (result["users"], result["starved_jobs"]) == (0, 0)
    assert math.isnan(result["share_wait_over_bound"])
    assert math.isnan(result["starved_share"])


def test_waits_over_the_bound():
    log = example_log((0, DAY, 5, 1), (0, DAY + 1, 5, 1), (0, 0, 5, 1), (0, NEVER, 5, 1))
    assert fairness(log)["share_wait_over_bound"] == 2 / 4
    assert fairness(log, wait_bound_s=DAY + 1)["share_wait_over_bound"] == 1 / 4
    assert fairness(log, wait_bound_s=0)["share_wait_over_bound"] == 3 / 4


def test_starving():
    """Jobs starve after 10 h if they are short, after 30 h if they request 3 h."""
    log = example_log(
        (0, 10 * HOUR, 5, 1),
        (0, 10 * HOUR + 1, 5, 1),
        (0, 30 * HOUR, 5, 1),
        (0, 30 * HOUR + 1, 5, 1),
        (0, NEVER, 5, 1),
        estimate_s=[60, 60, 3 * HOUR, 3 * HOUR, 100 * HOUR],
    )
    result = fairness(log)
    assert (result["starved_jobs"], result["starved_share"]) == (3, 3 / 5)
    assert fairness(log, starving=9.9)["starved_jobs"] == 5


def test_withdrawn_and_rejected_jobs():
    """A job cancelled after a minute does not starve; one cancelled after two days does; a rejected job cannot."""
    log = example_log(
        (0, NEVER, 5, 1),
        (0, NEVER, 5, 1),
        (0, NEVER, 5, 99),
        (0, NEVER, 5, 1),
        cancel_s=[60, 2 * DAY, math.inf, math.inf],
        outcome={0: Outcome.CANCELLED, 1: Outcome.CANCELLED, 2: Outcome.REJECTED},
        eligible={3: NEVER},
    )
    result = fairness(log)
    assert (result["starved_jobs"], result["share_wait_over_bound"]) == (1, 1 / 4)


def test_waiting_counts_from_the_eligible_time():
    log = example_log((0, 3 * DAY, 5, 1), eligible={0: 3.0 * DAY - 10})
    assert (fairness(log)["starved_jobs"], fairness(log)["share_wait_over_bound"]) == (0, 0)


def test_counted_jobs():
    log = log_of(1, 3000, 2, 4, nodes=[1, 1, 2, 1], user=[0, 0, 1, 2])
    result = fairness(log, counted=np.array([True, False, True, False]))
    assert result["users"] == 2
    assert result["jain_user_bsld"] == pytest.approx(9 / 10)
    assert (result["worst_user_bsld"], result["worst_size_bsld"]) == (2, 2)
    assert (result["starved_jobs"], result["share_wait_over_bound"]) == (0, 0)
    assert fairness(log)["share_wait_over_bound"] == 1 / 4


def test_values_are_plain_numbers():
    result = fairness(log_of(1, 2, user=[0, 1]))
    assert all(type(value) in (int, float) for value in result.values())
    json.dumps(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wait_bound_s": -1.0}, "wait_bound_s is -1.0"),
        ({"wait_bound_s": math.nan}, "wait_bound_s is nan"),
        ({"starving": 0.0}, "starving is 0.0"),
        ({"starving": math.inf}, "starving is inf"),
        ({"bound_s": 0.0}, "bound_s is 0.0"),
        ({"counted": [True]}, "counted has the shape"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        fairness(log_of(1, 2), **arguments)


def test_all_waits_of_a_preempted_job_count():
    """Waits of half a day before the start and three quarters of a day before resuming: above a day, starving."""
    resumed = [(0, 0.5 * DAY + 100 + 0.75 * DAY, 2 * DAY)]
    result = fairness(example_log((0, 0.5 * DAY, 100, 1), (0, 0.5 * DAY, 100, 1), segments=resumed))
    assert (result["share_wait_over_bound"], result["starved_jobs"]) == (0.5, 2)
    assert fairness(example_log((0, 0.5 * DAY, 100, 1)), starving=20)["starved_jobs"] == 0
    assert fairness(example_log((0, 0.5 * DAY, 100, 1), segments=resumed), starving=20)["starved_jobs"] == 1


def test_preempted_job_that_never_resumes_starves():
    result = fairness(example_log((0, 0, 10, 4), (0, 0, 30, 1), outcome={0: Outcome.UNSTARTED}))
    assert (result["starved_jobs"], result["share_wait_over_bound"]) == (1, 0.5)
