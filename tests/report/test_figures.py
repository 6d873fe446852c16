"""Figures: in the page's colours, each line told apart, with the evaluation's numbers on them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kilowait.report import figures
from kilowait.report.comparison_data import ComparisonData, pairs_against
from kilowait.report.format import number
from tests.report.conftest import contest_of, jobs_of


def test_a_figure_in_a_page_takes_its_colours(windowed):
    found = ComparisonData(windowed, 0)
    drawn = figures.means(found, found.judged)
    svg = figures.as_svg(drawn.figure, "p")
    assert svg.startswith("<svg")
    assert "var(--ink)" in svg
    assert "var(--line5)" in svg, "the agent's colour"
    assert not re.search(r"#(0072b2|d55e00|24292f)", svg, re.IGNORECASE)
    assert set(re.findall(r'id="([^-"]+)-', svg)) == {"p"}
    assert figures.as_svg(drawn.figure, "p") == svg


def test_means_and_ratios_are_those_of_the_verdicts(windowed):
    found = ComparisonData(windowed, 0)
    reference = windowed.labels[found.reference]
    drawn = figures.means(found, found.judged)
    points = {line.get_xdata()[0] for line in drawn.figure.axes[0].lines if line.get_marker() == "o"}
    assert points == {mean.mean for mean in found.judged.means}
    told = ", ".join(drawn.alt.split("; "))
    assert all(number(mean.mean) in told for mean in found.judged.means)
    pairs = pairs_against(found, reference)
    drawn = figures.ratios(found, pairs, reference)
    points = [line.get_xdata()[0] for line in drawn.figure.axes[0].lines if line.get_marker() == "o"]
    assert points == sorted((pair.ratio for pair in pairs.values()), reverse=True)
    assert all(pair.verdict in drawn.alt for pair in pairs.values())


def test_lines_differ_in_colour_and_dash():
    names = ("fcfs", "sjf", "saf", "f1", "lxf", "wfp3", "unicef")
    kinds = ["rule"] * 4 + ["agent", "agent", "clairvoyant"]
    found = ComparisonData(contest_of(jobs_of(60), names, kinds=kinds), 0)
    numbers = figures.line_numbers(found)
    assert set(numbers) == set(found.shown)
    assert len(set(numbers.values())) == len(numbers)
    agents = [numbers[who] for who in found.of_kind("agent")]
    assert figures.AGENT in agents
    styles = {str(figures.line_style(line)) for line in range(len(figures.LINES))}
    assert len(styles) == len(figures.LINES)


def test_training_without_validation():
    drawn = figures.learning([{"number": 1, "training": 1.0, "validation": None}], "x")
    assert "ends at –" in drawn.alt
    drawn = figures.learning([{"number": n, "training": 1.0, "validation": 0.9} for n in (1, 2)], "x")
    assert "ends at 0.900" in drawn.alt


def test_perfect_estimates_are_drawn_beside_their_rule():
    names, kinds = ("sjf", "fcfs", "sjf"), ("rule", "rule", "clairvoyant")
    found = ComparisonData(contest_of(jobs_of(200), names, kinds=kinds), 0)
    axes = figures.means(found, found.judged).figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        found.contest.labels[who] for who in reversed(found.real)
    ]
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    assert [line.get_xdata()[0] for line in diamonds] == [found.contest.means("mean_bsld")[2]]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (0.5, 3.0), (1.0, 1e6)])
def test_axes_have_round_numbers(low, high):
    with figures.new_figure(height_in=1.0) as (_, axes):
        figures.log_axis(axes, low, high)
        ticks = np.array(axes.get_xticks())
    assert 1 < len(ticks) < 12
    assert all(f"{tick:.0e}"[0] in "12357" for tick in ticks)
