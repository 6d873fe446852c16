"""k-anonymity: check against a simple reference on random tables."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.traces.anonymize import (
    AnonymizationPlan,
    PseudonymKey,
    anonymize,
    check_k_anonymity,
    make_plan,
    parse_coarsening,
)
from kilowait.traces.anonymize.k_anonymity import choose_quasi_identifiers, coded, counted, known_of, suggest_rules

HOUR, DAY = 3600.0, 86400.0


@st.composite
def tables(draw: st.DrawFn) -> JobTable:
    n = draw(st.integers(1, 40))

    def column(most: int) -> list[int]:
        return draw(st.lists(st.integers(0, most), min_size=n, max_size=n))

    return JobTable(
        job_id=np.arange(n),
        submit_s=np.sort(column(20)) * 1800.0,
        runtime_s=np.ones(n),
        estimate_s=np.array(column(2)) * HOUR + 60,
        nodes=np.array(column(3)) + 1,
        queue=np.array(column(2)) - 1,
        user=np.array(column(4)) - 1,
    )


@given(jobs=tables(), k=st.integers(1, 4))
def test_check_equals_plain_counting(jobs: JobTable, k: int) -> None:
    members: dict[tuple[float, ...], list[int]] = defaultdict(list)
    for row in range(len(jobs)):
        members[jobs["nodes"][row], jobs["queue"][row], jobs["submit_s"][row] // HOUR].append(row)
    user = jobs["user"].tolist()
    has_users = any(name >= 0 for name in user)
    users_in_class = {
        class_key: len({user[row] for row in rows} if has_users else rows) for class_key, rows in members.items()
    }
    below = {row for class_key, rows in members.items() if users_in_class[class_key] < k for row in rows}
    single_user_rows = {row for class_key, rows in members.items() if users_in_class[class_key] == 1 for row in rows}
    check = check_k_anonymity(jobs, jobs["user"], k, ["nodes", "queue", "hour"])
    assert check.classes == len(members) and check.classes_below == sum(p < k for p in users_in_class.values())
    assert np.flatnonzero(check.below).tolist() == sorted(below) and check.jobs_below == len(below)
    assert check.users_below == len({user[row] for row in below} - {-1})
    assert check.users_alone == len({user[row] for row in single_user_rows} - {-1})
    assert check.jobs_alone == len(single_user_rows) and check.has_users == has_users
    sizes = sorted((users_in_class[class_key], len(members[class_key])) for class_key in members)[:5]
    assert [(c.people, c.jobs) for c in check.smallest] == [pair for pair in sizes if pair[0] < k]


@settings(max_examples=40)
@given(
    jobs=tables(),
    k=st.integers(2, 4),
    time_columns=st.sampled_from([["hour"], ["hour_of_day", "weekday"], ["day", "hour"]]),
)
def test_suggested_steps_have_the_stated_effect(jobs: JobTable, k: int, time_columns: list[str]) -> None:
    quasi = ["nodes", "estimate_s", "queue", *time_columns]
    check = check_k_anonymity(jobs, jobs["user"], k, quasi)
    steps_so_far: dict[str, str] = {}
    dropped: list[str] = []
    for remedy in suggest_rules(jobs, jobs["user"], check, make_plan(jobs)):
        if remedy.step is None:
            dropped.append(remedy.column)
        else:
            steps_so_far[remedy.column] = remedy.step
        steps = parse_coarsening(",".join(f"{c}={s}" for c, s in steps_so_far.items())) if steps_so_far else None
        remaining = [name for name in quasi if name not in dropped]
        anonymized = anonymize(jobs, KEY, make_plan(jobs, drop=dropped, coarsen=steps), k=k, quasi=remaining)
        assert (anonymized.check.jobs_below, anonymized.check.users_below) == (remedy.jobs_below, remedy.users_below)


def test_more_classes_than_an_int64_can_encode() -> None:
    rows = np.arange(3000)
    many = coded(rows)
    class_of, size, users_in_class = counted([many] * 8, rows // 2)
    assert class_of.tolist() == rows.tolist() and (size == 1).all() and (users_in_class == 1).all()


KEY = PseudonymKey(bytes(range(32)))
JOBS = JobTable(
    job_id=[1, 2, 3, 4], submit_s=[0, 10, 7200, 7300], runtime_s=[1, 1, 1, 1], estimate_s=[60, 60, 60, 60],
    nodes=[4, 4, 2, 2], user=[5, 5, 5, 6], name=[1, 1, 1, 1],
)  # fmt: skip


def test_jobs_of_one_user_do_not_hide_that_user() -> None:
    check = check_k_anonymity(JOBS, JOBS["user"], 2, ["nodes"])
    assert (check.classes, check.jobs_below, check.users_below, check.users_alone) == (2, 2, 1, 1)
    assert check.smallest[0].known == ("4",) and check.smallest[0].jobs == 2 and check.smallest[0].people == 1
    assert check.counted_in == "users"
    without_users = check_k_anonymity(JOBS, np.full(4, -1), 2, ["nodes"])
    assert (without_users.jobs_below, without_users.users, without_users.counted_in) == (0, 0, "jobs")
    with pytest.raises(InputError, match="2 of 4 jobs are in 1 classes of fewer than 2 users; coarsen or drop"):
        check.refuse()
    without_users.refuse()


def test_quasi_identifiers_of_time() -> None:
    jobs = JobTable(  # Monday, 5 January 1970, 01:00 and a week and an hour later
        job_id=[1, 2], submit_s=[HOUR, 7 * DAY + 2 * HOUR], runtime_s=[1, 1], nodes=[1, 1],
        meta={"unix_start_s": 4 * DAY},
    )  # fmt: skip
    assert known_of(jobs, "weekday").tolist() == [0, 0]
    assert known_of(jobs, "hour_of_day").tolist() == [1, 2]
    assert known_of(jobs, "day").tolist() == [4, 11]
    assert np.diff(known_of(jobs, "week")).tolist() == [1]
    identifiers = ["weekday", "hour_of_day", "hour", "day", "estimate_s"]
    known = check_k_anonymity(jobs, jobs.column("user"), 2, identifiers).smallest[0].known
    assert known == ("Monday", "1 h", "1970-01-05 01 h", "1970-01-05", "1 s")
    assert check_k_anonymity(JOBS, JOBS["user"], 2, ["hour"]).smallest[0].known == ("hour 0",)


def test_quasi_identifiers() -> None:
    plan = make_plan(JOBS)
    assert choose_quasi_identifiers(plan, JOBS, None) == ("nodes", "estimate_s", "hour")
    assert choose_quasi_identifiers(plan, JOBS, ["day", "nodes", "day"]) == ("day", "nodes")
    for names, message in (
        (["user"], "user cannot be a quasi-identifier"),
        (["gpus"], "the quasi-identifier gpus is not in this log; it has job_id, submit_s"),
        (["name"], "the quasi-identifier name is dropped from the published log"),
        ([], "no quasi-identifiers; give at least one"),
    ):
        with pytest.raises(InputError, match=message):
            choose_quasi_identifiers(plan, JOBS, names)
    with pytest.raises(UnknownNameError, match="unknown quasi-identifier 'node'; did you mean 'nodes'"):
        choose_quasi_identifiers(plan, JOBS, ["node"])


@pytest.mark.parametrize("k", [0, -3])
def test_k_below_one(k: int) -> None:
    with pytest.raises(InputError, match=f"k is {k}; it must be at least 1, and 5 is usual"):
        check_k_anonymity(JOBS, JOBS["user"], k, ["nodes"])


def test_suggestions_are_coarser_than_the_plan() -> None:
    steps = parse_coarsening("nodes=pow2,estimate_s=6h,submit_s=1d")
    plan: AnonymizationPlan = make_plan(JOBS, coarsen=steps)
    anonymized = anonymize(JOBS, KEY, plan, k=9)
    assert {(r.column, r.step) for r in anonymized.suggestions} <= {
        ("estimate_s", "1d"),
        ("estimate_s", "7d"),
        ("submit_s", "7d"),
    }
