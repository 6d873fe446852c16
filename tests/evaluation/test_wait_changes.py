"""Winners and losers between two policies."""

from __future__ import annotations

import numpy as np

import kilowait as kw
from kilowait.evaluation import by_class
from kilowait.evaluation.wait_changes import wait_changes
from kilowait.jobs import JobTable


def rows_of(policy, users):
    count = 200
    base = kw.lublin(count, 16, load=1.0, seed=3)
    columns = {name: base[name] for name in ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes")}
    jobs = JobTable(**columns, user=[number % users for number in range(count)])
    log = kw.simulate(jobs, kw.Cluster.from_nodes(16), policy, "easy")
    return log, by_class(log, "user")


def test_changes_are_differences_of_mean_waits():
    (before_log, before), (after_log, after) = rows_of("fcfs", 5), rows_of("saf", 5)
    changes = wait_changes("user", before, after)
    assert {change.jobs for change in changes} == {40}
    user = before_log.jobs_table["user"]
    for change in changes:
        members = user == int(change.label)
        expected = after_log.jobs()["wait_s"][members].mean() - before_log.jobs()["wait_s"][members].mean()
        assert np.isclose(change.difference_s, expected)
        assert np.isclose(change.total_h, expected * 40 / 3600)
    totals = [change.total_h for change in changes]
    assert totals == sorted(totals)


def test_small_classes_are_left_out():
    (_, before), (_, after) = rows_of("fcfs", 25), rows_of("saf", 25)
    assert wait_changes("user", before, after) == []
