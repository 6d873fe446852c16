"""Pictures of many jobs: exact shares, exact areas, no job lost."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.report import job_figures
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.interactive import rows_of, size_classes
from tests.report.conftest import NODES, broken, contest_of, jobs_of


def slow_coverage(left, right, low, high, width, height):
    found = np.zeros((height, width))
    for x0, x1, y0, y1 in zip(left, right, low, high, strict=True):
        for row in range(height):
            for column in range(width):
                wide = max(min(x1, column + 1) - max(x0, column), 0)
                found[row, column] += wide * max(min(y1, row + 1) - max(y0, row), 0)
    return found


def test_each_pixel_has_the_part_that_is_covered():
    random = np.random.default_rng(0)
    left, low = random.uniform(0, 8, 30), random.uniform(0, 5, 30)
    right = np.minimum(left + random.exponential(2, 30), 9.0)
    high = np.minimum(low + random.exponential(2, 30), 6.0)
    ours = job_figures._coverage(left, right, low, high, 9, 6)
    np.testing.assert_allclose(ours, slow_coverage(left, right, low, high, 9, 6), atol=1e-12)


def test_the_gantt_picture_has_all_the_work(contest):
    found = ComparisonData(contest, 0)
    log, given = found.log(0), rows_of(found, 0)
    picture, (first, last) = job_figures._mixed(log, given, size_classes(found), 300, 80)
    covered = picture[..., 3].mean() * (last - first) * 86400 * given.rows
    work = float(np.dot(log.jobs_table["nodes"][log.job], log.end_s - log.start_s))
    assert covered == pytest.approx(work, rel=1e-9)
    assert (first, last) == (log.start_s.min() / 86400, log.end_s.max() / 86400)


def test_shares_are_those_of_the_jobs(contest):
    found = ComparisonData(contest, 0)
    drawn = job_figures.shares(found)
    left, right = drawn.figure.axes
    assert len(left.lines) == len(right.lines) == 3
    for line, (waits, _) in zip(left.lines, found.spread, strict=True):
        for at, share in list(zip(*line.get_data(), strict=True))[::40]:
            assert share == pytest.approx(100 * np.mean(waits <= at))


def test_violins_tell_medians(contest):
    found = ComparisonData(contest, 0)
    drawn = job_figures.violins(found)
    right = drawn.figure.axes[1]
    medians = [line.get_xdata()[0] for line in right.lines if len(set(line.get_xdata())) == 1]
    expected = [np.median(slowdowns) for _, slowdowns in found.spread]
    assert all(any(found == pytest.approx(value) for found in medians) for value in expected)
    assert drawn.alt.count("at once") == 3


def test_classes_are_drawn_for_all_who_are_shown(windowed):
    found = ComparisonData(windowed, 0)
    sizes, runtimes = found.by_class("size"), found.by_class("runtime")
    left, right = job_figures.classes(found, sizes, runtimes).figure.axes
    assert [list(line.get_ydata()) for line in left.lines] == [
        [row.mean_bsld[place] for row in sizes] for place in range(len(found.shown))
    ]
    assert len(right.lines) == len(found.shown)


def test_small_to_large_has_rising_colours():
    assert job_figures.size_colours(1) == [job_figures.VIRIDIS[4]]
    assert job_figures.size_colours(8) == list(job_figures.VIRIDIS)
    assert len(set(job_figures.size_colours(5))) == 5


def test_the_page_has_the_same_colours(project):
    script = (project / "src/kilowait/report/assets/gantt.js").read_text(encoding="utf-8")
    assert ", ".join(f'"{colour}"' for colour in job_figures.VIRIDIS) in script


def test_outages_are_hatched_in_the_gantt_picture():
    jobs = jobs_of(60)
    span = float(jobs["submit_s"].max())
    found = ComparisonData(contest_of(jobs, ("fcfs",), cluster=broken(span)), 0)
    drawn = job_figures.gantt(found, 0, rows_of(found, 0), size_classes(found))
    hatched = [shape for shape in drawn.figure.axes[0].collections if shape.get_hatch()]
    assert len(hatched) == 1
    low, high = hatched[0].get_paths()[0].vertices[:, 1].min(), hatched[0].get_paths()[0].vertices[:, 1].max()
    assert (low, high) == (NODES - 10, NODES)
