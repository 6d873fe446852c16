"""Pages on predicted run times: figures, words, and no need of what predicted them."""

from __future__ import annotations

import copy
import math
import re
import subprocess
import sys

import numpy as np

from kilowait.report import write_report
from kilowait.report.predictions.data import PredictionReportData, what_if_sentences
from kilowait.report.predictions.figures import swarm
from kilowait.report.predictions.tables import scores_table
from tests.report.predictions.conftest import saved
from tests.report.test_page import read
from tests.report.training.test_page import headings, plain

FIGURES = ["plane", "calibration", "drift", "swarm", "job-1", "job-2", "job-3", "job-4"]


def test_all_parts_in_order(drawn):
    text = drawn[0].read_text(encoding="utf-8")
    reader = read(text)
    assert "<b onload" not in text
    assert len(reader.ids) == len(set(reader.ids))
    assert [words for _, words in headings(text)] == [
        "Predicted run times",
        "How near predictions are",
        "Do bounds hold?",
        "Does it get better or worse with time?",
        "Whose jobs are hard to predict",
        "What predictions are made from",
        "Single jobs explained",
        "A typical job",
        "The job that was most underestimated",
        "The job that was most overestimated",
        "A job that was asked about",
        "Provenance",
    ]
    words = plain(text)
    for wanted in (
        "Of 900 jobs the last 270 are looked at.",
        "What would have changed this prediction?",
        "Job 700, of 1 node, for which 1 h 0 min were asked for.",
        "Too short: jobs that took longer than this said",
        "mean over 270 jobs",
    ):
        assert wanted in words, wanted
    drawings = [a["aria-label"] for tag, a in reader.tags if tag == "svg" and a.get("role") == "img"]
    assert len(drawings) == len(FIGURES)
    assert drawings[1].startswith("For how many jobs calibrated bounds held: 10 %:")


def test_numbers_of_the_page_are_those_of_the_folder(told):
    table = scores_table(PredictionReportData("x", told))
    forest = next(row for row in told["scores"] if row["name"] == "forest")
    marked = re.search(r'<tr class="marked">(.*?)</tr>', table)[1]
    assert "likely value" in marked and f"{100 * forest['accuracy']:.1f}&nbsp;%" in marked
    better = copy.deepcopy(told)
    next(row for row in better["scores"] if row["name"] == "forest")["accuracy"] = 0.991
    assert "99.1 % accurate" in " ".join(PredictionReportData("x", better).sentences())
    assert "better than the best" in " ".join(PredictionReportData("x", better).sentences())
    worse = copy.deepcopy(told)
    next(row for row in worse["scores"] if row["name"] == "forest")["accuracy"] = 0.01
    assert "no better than the best" in " ".join(PredictionReportData("x", worse).sentences())


def test_two_logs_one_without_requests(without_requests, tmp_path):
    folders = [saved(tmp_path / name, without_requests) for name in ("first", "second")]
    text = write_report(folders, tmp_path / "both.html").read_text("utf-8")
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert [level for level, _ in headings(text)][:3] == ["2", "3", "4"]
    words = plain(text.partition("<script")[0])
    assert "were asked for" not in words and "What users ask for is" not in words
    assert "Job 700, of 1 node. It was predicted" in words
    assert re.search(r"\bnan\b", words) is None


def test_what_if_is_told_by_what_changes_most(told):
    case = copy.deepcopy(told["explained"][0])
    case["centre_s"] = 600.0
    for part in case["parts"]:
        part["if_usual_s"] = 600.0
    assert "No single one" in what_if_sentences(case)[0]
    case["parts"][5] |= {"if_usual_s": 7200.0, "name": "user_last", "words": "X", "usual": "Y"}
    case["parts"][2] |= {"if_usual_s": 300.0}
    said = what_if_sentences(case)
    assert len(said) == 2
    assert said[0] == (
        "Had user_last been Y, as is usual, instead of X, and all else the same: 2 h 0 min instead of 10 min."
    )


def test_marks_far_out_are_drawn_at_the_edge(told):
    one = copy.deepcopy(told)
    one["importance"]["swarm"][0]["moved"][0] = 50.0
    axes = swarm(PredictionReportData("x", one)).figure.axes[0]
    drawn = np.concatenate([line.get_xdata() for line in axes.get_lines()[1:]])
    low, high = axes.get_xlim()
    assert low < drawn.min() and drawn.max() < high < math.log(100)


def test_figures_are_files_too(drawn):
    from matplotlib.image import imread

    assert {path.stem for path in drawn[1].glob("*.png")} == {f"foresight-{name}" for name in FIGURES}
    for name in FIGURES:
        pixels = imread(drawn[1] / f"foresight-{name}.png")[..., :3]
        assert 0.01 < (np.abs(pixels - 1.0).max(axis=2) > 0.1).mean() < 0.95, name


def test_the_folder_alone_is_read(without_requests, tmp_path):
    code = (
        "import sys; from kilowait.report import write_report; write_report(sys.argv[1:2], sys.argv[2]); "
        "sys.exit(any(name in sys.modules for name in ('lightgbm', 'numba', 'torch', 'kilowait.predict')))"
    )
    run = [
        sys.executable,
        "-c",
        code,
        str(saved(tmp_path / "first", without_requests)),
        str(tmp_path / "x.html"),
    ]
    assert subprocess.run(run, check=False).returncode == 0


def test_in_a_browser(browser, drawn):
    problems = []
    for width in (1200, 360):
        context = browser.new_context(offline=True, viewport={"width": width, "height": 800})
        tab = context.new_page()
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        tab.goto(drawn[0].as_uri())
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= width
        assert tab.locator("figure.drawn svg").count() == len(FIGURES)
        table = tab.get_by_role("table", name="The 12 numbers that count most")
        assert table.is_visible()
        context.close()
    assert problems == []
