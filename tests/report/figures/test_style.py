"""Figures: page colours, distinguishable lines, and the numbers of the evaluation."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kilowait.report import figures
from kilowait.report.data.comparison import AGENT, ComparisonData, pairs_against
from kilowait.report.figures import comparison as comparison_figures
from kilowait.report.figures.training import search_curves
from kilowait.report.format import number
from tests.report.conftest import comparison_of, jobs_of


def test_figures_in_a_page_use_its_css_colours(windowed_comparison):
    data = ComparisonData(windowed_comparison, 0)
    figure = comparison_figures.means(data, data.significance)
    svg = figures.as_svg(figure.figure, "p")
    assert svg.startswith("<svg")
    assert "var(--ink)" in svg
    assert "var(--line5)" in svg, "the agent's colour"
    assert not re.search(r"#(0072b2|d55e00|24292f)", svg, re.IGNORECASE)
    assert set(re.findall(r'id="([^-"]+)-', svg)) == {"p"}
    assert figures.as_svg(figure.figure, "p") == svg


def test_means_and_ratios_match_the_significance_results(windowed_comparison):
    data = ComparisonData(windowed_comparison, 0)
    reference = windowed_comparison.labels[data.reference]
    figure = comparison_figures.means(data, data.significance)
    points = {line.get_xdata()[0] for line in figure.figure.axes[0].lines if line.get_marker() == "o"}
    assert points == {mean.mean for mean in data.significance.means}
    alt = ", ".join(figure.alt.split("; "))
    assert all(number(mean.mean) in alt for mean in data.significance.means)
    pairs = pairs_against(data, reference)
    figure = comparison_figures.ratios(data)
    points = [line.get_xdata()[0] for line in figure.figure.axes[0].lines if line.get_marker() == "o"]
    assert points == sorted((pair.ratio for pair in pairs.values()), reverse=True)
    assert all(pair.verdict in figure.alt for pair in pairs.values())


def test_lines_differ_in_colour_and_dash():
    names = ("fcfs", "sjf", "saf", "f1", "lxf", "wfp3", "unicef")
    kinds = ["rule"] * 4 + ["agent", "agent", "clairvoyant"]
    data = ComparisonData(comparison_of(jobs_of(60), names, kinds=kinds), 0)
    numbers = data.colour_numbers
    assert set(numbers) == set(data.shown)
    assert len(set(numbers.values())) == len(numbers)
    agents = [numbers[policy] for policy in data.of_kind("agent")]
    assert AGENT in agents
    styles = {str(figures.line_style(line)) for line in range(len(figures.LINES))}
    assert len(styles) == len(figures.LINES)


def test_search_curves_without_validation():
    figure = search_curves([{"number": 1, "training": 1.0, "validation": None}], "x")
    assert "validation score is –" in figure.alt
    figure = search_curves([{"number": n, "training": 1.0, "validation": 0.9} for n in (1, 2)], "x")
    assert "validation score is 0.900" in figure.alt


def test_perfect_estimates_are_drawn_beside_their_policy():
    names, kinds = ("sjf", "fcfs", "sjf"), ("rule", "rule", "clairvoyant")
    data = ComparisonData(comparison_of(jobs_of(200), names, kinds=kinds), 0)
    axes = comparison_figures.means(data, data.significance).figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        data.comparison.labels[policy] for policy in reversed(data.real)
    ]
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    assert [line.get_xdata()[0] for line in diamonds] == [data.comparison.means("mean_bsld")[2]]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (0.5, 3.0), (1.0, 1e6)])
def test_axes_have_round_numbers(low, high):
    with figures.new_figure(height_in=1.0) as (_, axes):
        figures.log_axis(axes, low, high)
        ticks = np.array(axes.get_xticks())
    assert 1 < len(ticks) < 12
    assert all(f"{tick:.0e}"[0] in "12357" for tick in ticks)
