"""Pages on predicted run times: figures, text, and no import of the predictors."""

from __future__ import annotations

import copy
import math
import re
import subprocess
import sys

import numpy as np

from kilowait.report import write_report
from kilowait.report.data.predictions import PredictionReportData, scores_table, what_if_sentences
from kilowait.report.figures.predictions import beeswarm
from kilowait.report.markup import render_part
from tests.report.predictions.conftest import saved
from tests.report.test_page import read
from tests.report.training.test_page import headings, plain

FIGURES = ["plane", "calibration", "drift", "swarm", "job-1", "job-2", "job-3", "job-4"]


def plain_spaces(html):
    return html.replace("\N{NO-BREAK SPACE}", " ")


def test_sections_are_in_order(page_and_figures):
    text = page_and_figures[0].read_text(encoding="utf-8")
    reader = read(text)
    assert "<b onload" not in text
    assert len(reader.ids) == len(set(reader.ids))
    assert [words for _, words in headings(text)] == [
        "Predicted run times",
        "Prediction accuracy",
        "Calibration of upper bounds",
        "Drift over time",
        "Accuracy by job class",
        "Feature attribution",
        "Explained predictions",
        "A typical job",
        "The most underpredicted job",
        "The most overpredicted job",
        "A requested job",
        "Provenance",
    ]
    words = plain(text)
    for expected in (
        "Of 900 jobs the last 270 are evaluated.",
        "What would change this prediction?",
        "Job 700 has 1 node, with 1 h 0 min requested.",
        "Too short: share of jobs that ran longer than predicted",
        "mean over 270 jobs",
    ):
        assert expected in words, expected
    drawings = [a["aria-label"] for tag, a in reader.tags if tag == "svg" and a.get("role") == "img"]
    assert len(drawings) == len(FIGURES)
    assert drawings[1].startswith("Observed coverage of the calibrated bounds: 10 %:")


def test_page_numbers_equal_the_report(report):
    table = plain_spaces(render_part("table", scores_table(PredictionReportData("x", report))))
    forest = next(row for row in report["scores"] if row["name"] == "forest")
    marked = re.search(r'<tr class="marked">(.*?)</tr>', table)[1]
    assert "most accurate value" in marked and f"{100 * forest['accuracy']:.1f} %" in marked
    better = copy.deepcopy(report)
    next(row for row in better["scores"] if row["name"] == "forest")["accuracy"] = 0.991
    assert "99.1 % accurate" in " ".join(PredictionReportData("x", better).sentences())
    assert "better than the best" in " ".join(PredictionReportData("x", better).sentences())
    worse = copy.deepcopy(report)
    next(row for row in worse["scores"] if row["name"] == "forest")["accuracy"] = 0.01
    assert "not better than the best" in " ".join(PredictionReportData("x", worse).sentences())


def test_two_logs_one_without_requests(without_requests, tmp_path):
    folders = [saved(tmp_path / name, without_requests) for name in ("first", "second")]
    text = write_report(folders, tmp_path / "both.html").read_text("utf-8")
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert [level for level, _ in headings(text)][:3] == ["2", "3", "4"]
    words = plain(text.partition("<script")[0])
    assert " requested. It" not in words and "User requests are" not in words
    assert "Job 700 has 1 node. It was predicted" in words
    assert re.search(r"\bnan\b", words) is None


def test_what_if_sentences_are_sorted_by_effect(report):
    case = copy.deepcopy(report["explained"][0])
    case["geometric_mean_s"] = 600.0
    for part in case["contributions"]:
        part["predicted_with_median_s"] = 600.0
    assert "A typical value of any single feature" in what_if_sentences(case)[0]
    case["contributions"][5] |= {
        "predicted_with_median_s": 7200.0,
        "name": "user_last",
        "value_text": "X",
        "median_text": "Y",
    }
    case["contributions"][2] |= {"predicted_with_median_s": 300.0}
    sentences = what_if_sentences(case)
    assert len(sentences) == 2
    assert sentences[0] == (
        "If user_last were Y (typical) instead of X, the prediction would be 2 h 0 min instead of 10 min."
    )


def test_outliers_are_drawn_at_the_edge(report):
    outlier = copy.deepcopy(report)
    outlier["importance"]["beeswarm"][0]["contributions"][0] = 50.0
    axes = beeswarm(PredictionReportData("x", outlier)).figure.axes[0]
    positions = np.concatenate([line.get_xdata() for line in axes.get_lines()[1:]])
    low, high = axes.get_xlim()
    assert low < positions.min() and positions.max() < high < math.log(100)


def test_saved_figures(page_and_figures):
    from matplotlib.image import imread

    assert {path.stem for path in page_and_figures[1].glob("*.png")} == {f"predictions-{name}" for name in FIGURES}
    for name in FIGURES:
        pixels = imread(page_and_figures[1] / f"predictions-{name}.png")[..., :3]
        assert 0.01 < (np.abs(pixels - 1.0).max(axis=2) > 0.1).mean() < 0.95, name


def test_report_needs_only_the_folder(without_requests, tmp_path):
    code = (
        "import sys; from kilowait.report import write_report; write_report(sys.argv[1:2], sys.argv[2]); "
        "sys.exit(any(name in sys.modules for name in ('lightgbm', 'numba', 'torch', 'kilowait.predict')))"
    )
    run = [sys.executable, "-c", code, str(saved(tmp_path / "first", without_requests)), str(tmp_path / "x.html")]
    assert subprocess.run(run, check=False).returncode == 0


def test_page_in_a_browser(browser, page_and_figures):
    problems = []
    for width in (1200, 360):
        context = browser.new_context(offline=True, viewport={"width": width, "height": 800})
        tab = context.new_page()
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda sentences: problems.append(sentences.text) if sentences.type == "error" else None)
        tab.goto(page_and_figures[0].as_uri())
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= width
        assert tab.locator("figure.drawn svg").count() == len(FIGURES)
        table = tab.get_by_role("table", name="The 12 most important features")
        assert table.is_visible()
        context.close()
    assert problems == []
