"""The words say what the numbers say: better, worse, undecided; and what it costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kilowait.evaluation import by_class, metrics
from kilowait.evaluation.comparison import Comparison, PolicyConfig, cut_windows
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.format import number
from kilowait.report.summary import caveats, summary
from tests.report.conftest import contest_of, jobs_of


def told(values, kinds=("rule", "rule", "agent"), **metrics_of):
    """A contest whose metrics are given: contender by window."""
    names = ("fcfs", "saf", "mine")[: len(values)]
    jobs = jobs_of(300)
    cut = cut_windows(jobs, len(values[0]), window_jobs=5, seed=0)
    contenders = tuple(PolicyConfig(name, "easy", kind) for name, kind in zip(names, kinds, strict=False))
    contest = Comparison("x", 32, cut, contenders, lambda who, window: None)
    plain = {"mean_wait_s": 60.0, "max_wait_s": 600.0, "share_wait_over_bound": 0.0, "starved_jobs": 0}
    table = tuple(
        tuple(
            {**plain, "mean_bsld": value, **{name: given[who] for name, given in metrics_of.items()}}
            for value in row
        )
        for who, row in enumerate(values)
    )
    contest.__dict__["table"] = table
    return ComparisonData(contest, 0)


RULE = [20.0 + number % 5 for number in range(24)]


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (0.5, "The agent mine beats the best rule, saf."),
        (2.0, "The agent mine does not beat the best rule, saf, which is better: use saf."),
        (1.0, "The agent mine does what the best rule, saf, does."),
    ],
)
def test_the_agent_is_held_against_the_best_rule(factor, words):
    said = summary(told([[3 * v for v in RULE], RULE, [factor * v for v in RULE]]))
    assert words in said


def test_what_is_undecided_is_said_to_be_so():
    wild = [v * (0.5 if place % 2 else 1.5) for place, v in enumerate(RULE)]
    said = " ".join(summary(told([[3 * v for v in RULE], RULE, wild])))
    assert "Whether the agent mine beats the best rule, saf, is undecided." in said
    assert "not significant" in said


def test_few_windows_are_said_to_be_few():
    assert any("few" in note for note in caveats(told([RULE[:4], [2 * v for v in RULE[:4]]])))
    assert not caveats(told([RULE, [2 * v for v in RULE]]))


def test_the_price_is_named():
    found = told(
        [[3 * v for v in RULE], RULE],
        mean_wait_s=(7200.0, 3600.0),
        max_wait_s=(86400.0, 10 * 86400.0),
        starved_jobs=(1, 5),
    )
    said = summary(found)
    assert "Under saf instead of fcfs the mean wait falls from 2 h 0 min to 1 h 0 min." in said
    price = (
        "the longest wait rises from 24 h 0 min to 10 d 0 h and the number of starved jobs rises from 1 to 5"
    )
    assert f"It has a price: under saf instead of fcfs {price}." in said
    cheap = summary(told([[3 * v for v in RULE], RULE], mean_wait_s=(7200.0, 3600.0)))
    assert "Neither the longest wait nor the number of jobs left waiting grows." in cheap


def test_what_perfect_estimates_would_gain():
    jobs = jobs_of(300)
    found = told([RULE, [0.8 * v for v in RULE], [0.5 * v for v in RULE]], ("rule", "agent", "clairvoyant"))
    contenders = (
        PolicyConfig("fcfs", "easy"),
        PolicyConfig("mine", "easy", "agent"),
        PolicyConfig("fcfs", "easy", "clairvoyant"),
    )
    contest = replace(found.contest, contenders=contenders)
    contest.__dict__["table"] = found.contest.table
    known = ComparisonData(contest, 0)
    assert "Of what fcfs would gain from knowing all run times in advance, mine gains 40 %." in summary(known)
    assert known.real == (1, 0)
    assert known.ranked[0] == 2
    assert len(jobs) == 300


def test_a_missing_mean_is_no_verdict():
    found = told([[*RULE[:-1], math.nan], RULE])
    assert found.judged is None
    assert found.ranked == (1, 0)
    assert len(summary(found)) == 1
    assert caveats(found) == ["In some window a contender started no job, so means cannot be compared."]


def test_one_run_says_how_it_went():
    said = summary(ComparisonData(contest_of(jobs_of(100), ("fcfs",)), 0))
    assert said[0] == "One schedule was made on made: 100 jobs on 32 nodes."
    assert "Under fcfs jobs wait" in said[1]
    assert caveats(ComparisonData(contest_of(jobs_of(100), ("fcfs",)), 0)) == []


def test_one_log_speaks_of_batches(contest):
    found = ComparisonData(contest, 0)
    said = " ".join([*summary(found), *caveats(found)])
    assert "batches" in said
    assert "of 30 windows" not in said
    assert "stand in for windows of their own" in said


def test_drawn_are_the_ones_that_matter():
    names = ("fcfs", "sjf", "saf", "f1", "lxf", "wfp3", "unicef", "smallest")
    kinds = ["rule"] * 7 + ["agent"]
    found = ComparisonData(contest_of(jobs_of(120), names, kinds=kinds), 0)
    assert len(found.shown) == 6
    assert {0, 7, found.reference} <= set(found.shown)
    assert list(found.shown) == sorted(found.shown)


def test_classes_over_windows_are_means_over_all_jobs(windowed):
    found = ComparisonData(windowed, 0)
    rows = found.by_class("size")
    assert [row.label for row in rows] == ["1", "2-4", "5-16", "17-64"]
    assert sum(row.jobs for row in rows) == 20 * 60
    wait = np.concatenate([found.spread[0][0]])
    weights = np.array([row.jobs for row in rows])
    assert np.average([row.mean_wait_s[0] for row in rows], weights=weights) == pytest.approx(wait.mean())
    assert [row.label for row in found.by_class("user", most=2)] == [
        row.label for row in found.by_class("user")[:2]
    ]


def test_classes_of_one_window_are_the_evaluations(contest):
    found = ComparisonData(contest, 0)
    theirs = by_class(found.log(1), "runtime")
    ours = found.by_class("runtime")
    assert [(row.label, row.jobs) for row in ours] == [(row.label, row.jobs) for row in theirs]
    assert [row.mean_bsld[1] for row in ours] == [row.mean_bsld for row in theirs]
    assert metrics(found.log(1))["mean_bsld"] == contest.means("mean_bsld")[1]


def test_numbers_for_people():
    assert [number(value) for value in (999.4, 999.6, 0.00123, 1.0)] == ["999", "1,000", "0.00123", "1.00"]


def test_a_trace_is_called_by_its_name():
    names = {"/a/b/KTH-SP2.swf.gz": "KTH-SP2", "lublin:100:64": "lublin:100:64", "x.csv": "x", ".gz": ".gz"}
    base = contest_of(jobs_of(30), ("fcfs",))
    assert {name: ComparisonData(replace(base, trace=name), 0).trace for name in names} == names
