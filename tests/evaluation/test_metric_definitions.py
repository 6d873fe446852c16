"""How the values of windows are combined: means, maxima and sums; windows without a value are left out."""

from __future__ import annotations

import math

import pytest

from kilowait.evaluation.metric_definitions import METRIC_DEFINITIONS, better_of, combine_windows, metric_name


def test_maxima_are_maxima_over_all_windows():
    assert combine_windows("max_wait_s", [10.0, 400.0, 30.0]) == 400.0
    assert combine_windows("peak_kw", [3.0, 2.0]) == 3.0
    assert combine_windows("starved_jobs", [1, 2, 3]) == 6.0
    assert combine_windows("p99_wait_s", [10.0, 20.0]) == 15.0
    assert combine_windows("a metric without a definition", [1.0, 2.0]) == 1.5


@pytest.mark.parametrize("metric", ["mean_wait_s", "max_wait_s", "starved_jobs"])
def test_windows_without_a_value_are_left_out(metric):
    assert combine_windows(metric, [math.nan, 4.0]) == 4.0
    assert math.isnan(combine_windows(metric, [math.nan]))


def test_names_are_unique():
    names = [definition.name for definition in METRIC_DEFINITIONS.values()]
    assert len(set(names)) == len(names)
    assert better_of("utilization") == "more" and better_of("max_wait_s") == "less"
    assert metric_name("utilization", node_level=True) != metric_name("utilization")
