"""Ranking, summary sentences and caveats of a comparison agree with its metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from kilowait.evaluation import by_class, metrics
from kilowait.evaluation.comparison import Comparison, PolicyConfig, cut_windows
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.data.summary import caveats, summary
from kilowait.report.format import number
from tests.report.conftest import comparison_of, jobs_of


def data_of(values, kinds=("rule", "rule", "agent"), **metrics_of):
    """A comparison with given metrics, policy by window."""
    names = ("fcfs", "saf", "mine")[: len(values)]
    jobs = jobs_of(300)
    cut = cut_windows(jobs, len(values[0]), window_jobs=5, seed=0)
    policies = tuple(PolicyConfig(name, "easy", kind) for name, kind in zip(names, kinds, strict=False))
    comparison = Comparison("x", 32, cut, policies, lambda index, window: None)
    common = {
        "mean_wait_s": 60.0,
        "p99_wait_s": 500.0,
        "max_wait_s": 600.0,
        "share_wait_over_bound": 0.0,
        "starved_jobs": 0,
    }
    table = tuple(
        tuple(
            {**common, "mean_bsld": value, **{name: values_given[index] for name, values_given in metrics_of.items()}}
            for value in row
        )
        for index, row in enumerate(values)
    )
    comparison.__dict__["table"] = table
    return ComparisonData(comparison, 0)


BASELINE = [20.0 + number % 5 for number in range(24)]


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (0.5, "The agent mine is significantly better than the best priority policy, saf."),
        (2.0, "The agent mine is significantly worse than the best priority policy, saf: use saf."),
        (1.0, "The agent mine behaves like the best priority policy, saf."),
    ],
)
def test_summary_compares_the_agent_with_the_best_policy(factor, sentence):
    sentences = summary(data_of([[3 * v for v in BASELINE], BASELINE, [factor * v for v in BASELINE]]))
    assert sentence in sentences


def test_summary_names_undecided_comparisons():
    alternating = [v * (0.5 if place % 2 else 1.5) for place, v in enumerate(BASELINE)]
    sentences = " ".join(summary(data_of([[3 * v for v in BASELINE], BASELINE, alternating])))
    assert "The difference between the agent mine and the best priority policy, saf, is not significant." in sentences


def test_caveats_warn_about_few_windows():
    assert any("few" in note for note in caveats(data_of([BASELINE[:4], [2 * v for v in BASELINE[:4]]])))
    assert not caveats(data_of([BASELINE, [2 * v for v in BASELINE]]))


def test_summary_names_drawbacks_of_the_best_policy():
    data = data_of(
        [[3 * v for v in BASELINE], BASELINE],
        mean_wait_s=(7200.0, 3600.0),
        max_wait_s=(86400.0, 10 * 86400.0),
        starved_jobs=(1, 5),
    )
    sentences = summary(data)
    assert "With saf instead of fcfs, the mean wait decreases from 2 h 0 min to 1 h 0 min." in sentences
    costs = (
        "the longest wait increases from 24 h 0 min to 10 d 0 h and the number of starved jobs increases from 24 to 120"
    )
    assert f"Drawback: with saf instead of fcfs, {costs}." in sentences
    assert sentences[-1] == (
        "Risk of starvation under saf: its longest wait, 10 d 0 h, is 10 times that of fcfs (24 h 0 min)."
    )
    without_drawback = summary(data_of([[3 * v for v in BASELINE], BASELINE], mean_wait_s=(7200.0, 3600.0)))
    assert "Neither the longest waits nor the number of starved jobs increase." in without_drawback


def test_summary_states_the_gain_from_perfect_estimates():
    jobs = jobs_of(300)
    data = data_of(
        [BASELINE, [0.8 * v for v in BASELINE], [0.5 * v for v in BASELINE]], ("rule", "agent", "clairvoyant")
    )
    policies = (
        PolicyConfig("fcfs", "easy"),
        PolicyConfig("mine", "easy", "agent"),
        PolicyConfig("fcfs", "easy", "clairvoyant"),
    )
    comparison = replace(data.comparison, policies=policies)
    comparison.__dict__["table"] = data.comparison.table
    with_clairvoyant = ComparisonData(comparison, 0)
    assert "mine achieves 40 % of the gain that fcfs would have from perfect run-time estimates." in summary(
        with_clairvoyant
    )
    assert with_clairvoyant.real == (1, 0)
    assert with_clairvoyant.ranked[0] == 2
    assert len(jobs) == 300


def test_undefined_mean_gives_no_significance_result():
    data = data_of([[*BASELINE[:-1], math.nan], BASELINE])
    assert data.significance is None
    assert data.ranked == (1, 0)
    assert len(summary(data)) == 1
    assert caveats(data) == ["In some window a policy started no job, so means cannot be compared."]


def test_summary_of_a_single_run():
    sentences = summary(ComparisonData(comparison_of(jobs_of(100), ("fcfs",)), 0))
    assert sentences[0] == "One policy was run on made: 100 jobs on 32 nodes."
    assert "Under fcfs jobs wait" in sentences[1]
    assert caveats(ComparisonData(comparison_of(jobs_of(100), ("fcfs",)), 0)) == []


def test_summary_of_one_log_mentions_batches(comparison):
    data = ComparisonData(comparison, 0)
    sentences = " ".join([*summary(data), *caveats(data)])
    assert "batches" in sentences
    assert "of 30 windows" not in sentences
    assert "are used instead of independent windows" in sentences


def test_at_most_six_policies_are_drawn():
    names = ("fcfs", "sjf", "saf", "f1", "lxf", "wfp3", "unicef", "smallest")
    kinds = ["rule"] * 7 + ["agent"]
    data = ComparisonData(comparison_of(jobs_of(120), names, kinds=kinds), 0)
    assert len(data.shown) == 6
    assert {0, 7, data.reference} <= set(data.shown)
    assert list(data.shown) == sorted(data.shown)


def test_classes_over_windows_are_means_over_all_jobs(windowed_comparison):
    data = ComparisonData(windowed_comparison, 0)
    rows = data.by_class("size")
    assert [row.label for row in rows] == ["1", "2-4", "5-16", "17-64"]
    assert sum(row.jobs for row in rows) == 20 * 60
    wait = np.concatenate([data.distributions[0][0]])
    weights = np.array([row.jobs for row in rows])
    assert np.average([row.mean_wait_s[0] for row in rows], weights=weights) == pytest.approx(wait.mean())
    assert [row.label for row in data.by_class("user", limit=2)] == [row.label for row in data.by_class("user")[:2]]


def test_classes_of_one_window_equal_by_class(comparison):
    data = ComparisonData(comparison, 0)
    expected = by_class(data.log(1), "runtime")
    ours = data.by_class("runtime")
    assert [(row.label, row.jobs) for row in ours] == [(row.label, row.jobs) for row in expected]
    assert [row.mean_bsld[1] for row in ours] == [row.mean_bsld for row in expected]
    assert metrics(data.log(1))["mean_bsld"] == comparison.means("mean_bsld")[1]


def test_number_has_three_significant_digits():
    assert [number(value) for value in (999.4, 999.6, 0.00123, 1.0)] == ["999", "1,000", "0.00123", "1.00"]


def test_trace_names_have_no_folders_and_suffixes():
    names = {"/a/b/KTH-SP2.swf.gz": "KTH-SP2", "lublin:100:64": "lublin:100:64", "x.csv": "x", ".gz": ".gz"}
    base = comparison_of(jobs_of(30), ("fcfs",))
    assert {name: ComparisonData(replace(base, trace=name), 0).trace for name in names} == names
