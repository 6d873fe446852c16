"""Figures of job metrics: exact shares and areas, all jobs included."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.report.data.comparison import ComparisonData
from kilowait.report.figures import comparison as job_figures
from kilowait.report.gantt_chart import GanttSchedules
from tests.report.conftest import NODES, cluster_with_outage, comparison_of, jobs_of


def slow_coverage(left, right, low, high, width, height):
    covered = np.zeros((height, width))
    for x0, x1, y0, y1 in zip(left, right, low, high, strict=True):
        for row in range(height):
            for column in range(width):
                overlap_x = max(min(x1, column + 1) - max(x0, column), 0)
                covered[row, column] += overlap_x * max(min(y1, row + 1) - max(y0, row), 0)
    return covered


def test_coverage_is_the_exact_area():
    random = np.random.default_rng(0)
    left, low = random.uniform(0, 8, 30), random.uniform(0, 5, 30)
    right = np.minimum(left + random.exponential(2, 30), 9.0)
    high = np.minimum(low + random.exponential(2, 30), 6.0)
    ours = job_figures._coverage(left, right, low, high, 9, 6)
    np.testing.assert_allclose(ours, slow_coverage(left, right, low, high, 9, 6), atol=1e-12)


def test_gantt_image_covers_all_work(comparison):
    data = ComparisonData(comparison, 0)
    schedules = GanttSchedules(data)
    log, rows = data.log(0), schedules.rows[0]
    image, (first, last) = job_figures._schedule_image(log, rows, schedules.sizes, 300, 80)
    covered = image[..., 3].mean() * (last - first) * 86400 * rows.rows
    work = float(np.dot(log.jobs_table["nodes"][log.job], log.end_s - log.start_s))
    assert covered == pytest.approx(work, rel=1e-9)
    assert (first, last) == (log.start_s.min() / 86400, log.end_s.max() / 86400)


def test_cumulative_distributions_match_the_jobs(comparison):
    data = ComparisonData(comparison, 0)
    figure = job_figures.cumulative_distributions(data)
    left, right = figure.figure.axes
    assert len(left.lines) == len(right.lines) == 3
    for line, (waits, _) in zip(left.lines, data.distributions, strict=True):
        for at, share in list(zip(*line.get_data(), strict=True))[::40]:
            assert share == pytest.approx(100 * np.mean(waits <= at))


def test_violins_show_medians(comparison):
    data = ComparisonData(comparison, 0)
    figure = job_figures.violins(data)
    right = figure.figure.axes[1]
    medians = [line.get_xdata()[0] for line in right.lines if len(set(line.get_xdata())) == 1]
    expected = [np.median(slowdowns) for _, slowdowns in data.distributions]
    assert all(any(median == pytest.approx(value) for median in medians) for value in expected)
    assert figure.alt.count("without wait") == 3


def test_classes_are_drawn_for_all_shown_policies(windowed_comparison):
    data = ComparisonData(windowed_comparison, 0)
    sizes = data.by_class("size")
    left, right = job_figures.slowdown_by_class(data).figure.axes
    assert [list(line.get_ydata()) for line in left.lines] == [
        [row.mean_bsld[place] for row in sizes] for place in range(len(data.shown))
    ]
    assert len(right.lines) == len(data.shown)


def test_size_colours():
    assert job_figures.size_colours(1) == [job_figures.VIRIDIS[4]]
    assert job_figures.size_colours(8) == list(job_figures.VIRIDIS)
    assert len(set(job_figures.size_colours(5))) == 5


def test_gantt_script_has_the_same_colours(project):
    script = (project / "src/kilowait/report/assets/gantt.js").read_text(encoding="utf-8")
    assert ", ".join(f'"{colour}"' for colour in job_figures.VIRIDIS) in script


def test_outages_are_hatched_in_the_gantt_figure():
    jobs = jobs_of(60)
    span = float(jobs["submit_s"].max())
    data = ComparisonData(comparison_of(jobs, ("fcfs",), cluster=cluster_with_outage(span)), 0)
    schedules = GanttSchedules(data)
    figure = job_figures.gantt("fcfs", schedules.logs[0], schedules.rows[0], schedules.sizes)
    hatched = [shape for shape in figure.figure.axes[0].collections if shape.get_hatch()]
    assert len(hatched) == 1
    low, high = hatched[0].get_paths()[0].vertices[:, 1].min(), hatched[0].get_paths()[0].vertices[:, 1].max()
    assert (low, high) == (NODES - 10, NODES)
