"""Pages on synthetic workloads: numbers of the score, correct summary, and named gaps."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from html import unescape

import numpy as np
import pytest

from kilowait.evaluation.storage import SyntheticScoreFolder, open_folder, plain_json
from kilowait.report.data.synthetic import (
    SyntheticScoreData,
    calendar_sentence,
    caveats,
    distance_table,
    key_numbers,
    outcome_table,
    privacy_table,
    summary,
)
from kilowait.report.figures.synthetic import arrival_cycles
from tests.report.synthetic.conftest import saved
from tests.report.test_page import read
from tests.report.training.test_page import headings, plain

FIGURES = [
    "columns",
    "correlations",
    "feature-importance",
    "cycles",
    "profiles",
    "users",
    "simulation-1",
    "run-1",
    "privacy",
]


def score_data(data, **changed):
    """The data of a score's folder, partly replaced."""
    results = json.loads(plain_json({**data.document(), "curves": data.curves}))
    return SyntheticScoreData("x", {"real": "real.swf", "synthetic": "made.swf", **results, **changed})


def test_sections_are_in_order(page_and_figures):
    text = page_and_figures[0].read_text(encoding="utf-8")
    reader = read(text)
    assert "<b onload" not in text
    assert len(reader.ids) == len(set(reader.ids))
    assert [words for _, words in headings(text)] == [
        "Summary",
        "Columns",
        "Correlations between columns",
        "Classifier: real or generated",
        "Arrivals",
        "Users",
        "Scheduling simulations",
        "fcfs with EASY",
        "Privacy",
        "Provenance",
    ]
    drawings = [a["aria-label"] for tag, a in reader.tags if tag == "svg" and a.get("role") == "img"]
    assert len(drawings) == len(FIGURES)
    assert re.search(r"\bnan\b|\bNone\b", plain(text.partition("<script")[0])) is None


def test_copied_jobs_are_detected(page_and_figures, copied):
    words = unescape(plain(page_and_figures[0].read_text(encoding="utf-8")))
    assert copied.privacy is not None and copied.privacy.copies == 1
    assert "Real jobs were copied: 100.0 % of the generated jobs equal a training job" in words
    assert "is worse than chance" in words
    assert f"{100 * copied.privacy.membership_advantage:.1f} percentage points" in words


def test_privacy_sentences_without_copies(copied):
    data = score_data(copied)
    leaks = dict(data.results["privacy"])
    leaks |= {"copies": 0.21, "copies_of_held_out": 0.2, "copied_pairs": 0.01, "copied_pairs_of_held_out": 0.01}
    leaks |= {"nearer_to_seen": 0.51, "membership_advantage": 0.02}
    sentence = summary(score_data(copied, privacy=leaks, exceeded_limits=[]))[4]
    assert (
        sentence.startswith("No privacy leak beyond") and "21.0 %" in sentence and "2.0 percentage points" in sentence
    )
    leaks |= {"nearer_to_seen": 0.62}
    sentence = summary(score_data(copied, privacy=leaks, exceeded_limits=["nearer_to_seen"]))[4]
    assert sentence.startswith("Some information leaks, but no sequences of jobs were copied") and "62.0 %" in sentence
    table = privacy_table(score_data(copied, privacy=leaks, exceeded_limits=["nearer_to_seen"]))
    assert [table.rows[place][0] for place in table.marked] == ["nearer to a training job than to a held-out job"]


def test_page_numbers_equal_the_score(minimal):
    data = score_data(minimal)
    table = distance_table("Columns", "column", data.fidelity["distances"])
    assert [row[1] for row in table.rows] == [f"{distance.ks:.3f}" for distance in minimal.fidelity.distances]
    wait = minimal.outcomes[0].measure("wait_s")
    row = next(row for row in outcome_table(data).rows if row[0] == "wait, fcfs")
    assert row[4] == f"{wait.ks:.3f}" and f"{abs(100 * (wait.ratio - 1)):.1f} %" in row[3]
    assert f"AUC {minimal.fidelity.auc:.3f}" in " ".join(summary(data))
    assert key_numbers(data)[1][0] == f"{minimal.fidelity.worst_ks.ks:.3f}"


@pytest.mark.parametrize(
    ("auc", "words"),
    [
        (0.52, "Single jobs cannot be distinguished"),
        (0.6, "Single jobs can hardly be distinguished"),
        (0.7, "Single jobs can often be distinguished"),
        (0.99, "Single jobs are easily distinguished"),
        (0.2, "is worse than chance"),
    ],
)
def test_classifier_sentences(minimal, auc, words):
    data = score_data(minimal)
    changed = {**data.fidelity, "auc": auc, "feature_importance": {"same_account": 0.8, "hour": 0.05}}
    sentence = summary(score_data(minimal, fidelity=changed))[1]
    assert words in sentence
    assert ("most important features are same account as the user’s previous job (80.0 %)." in sentence) is (auc > 0.55)


@pytest.mark.parametrize(
    ("near", "words"),
    [
        ((True, True), "within 15 % of the real ones: fcfs (+12.0 %) and sjf (−20.0 %)."),
        ((True, False), "under fcfs (+12.0 %), but not under sjf (−20.0 %)."),
        ((False, False), "not within 15 % of the real ones: fcfs"),
    ],
)
def test_wait_sentences(minimal, near, words):
    rows = [
        {"policy": policy, "measures": [{"name": "wait_s", "ratio": ratio, "near": is_near}]}
        for policy, ratio, is_near in zip(("fcfs", "sjf"), (1.12, 0.8), near, strict=True)
    ]
    assert words in summary(score_data(minimal, outcomes=rows))[3]


def test_calendar_sentences(minimal):
    assert len(summary(score_data(minimal, calendar=0.3))) == len(summary(score_data(minimal, calendar=None))) == 5
    assert "The calendar is that of the real log" in summary(score_data(minimal, calendar=0.93))[-1]
    assert "The calendar is not that of the real log" in calendar_sentence(score_data(minimal, calendar=0.3))
    assert "is unknown" in calendar_sentence(score_data(minimal, calendar=None))


def test_missing_data_is_named(minimal, tmp_path):
    folders = [saved(tmp_path / name, minimal) for name in ("first", "second")]
    folder = open_folder(folders[0])
    assert isinstance(folder, SyntheticScoreFolder) and folder.manifest["kind"] == "synthetic"
    code = (
        "import sys; from kilowait.report import write_report; write_report(sys.argv[2:], sys.argv[1]); "
        "sys.exit(any(name in sys.modules for name in ('lightgbm', 'numba', 'torch', 'kilowait.synth')))"
    )
    both = tmp_path / "both.html"
    assert subprocess.run([sys.executable, "-c", code, both, *folders], check=False).returncode == 0
    text = both.read_text("utf-8")
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert headings(text)[:2] == [("2", "first"), ("3", "Summary")] and ("2", "second") in headings(text)
    words = unescape(plain(text.partition("<script")[0]))
    for expected in (
        "Not compared, because neither workload contains them: user, account, queue, status, GPUs and energy.",
        "One of the two workloads contains no users.",
        "Whether jobs were copied is unknown: there are no held-out jobs",
        "score with --held-out-log",
        "k-anonymity requires users.",
        "The log has no start date",
    ):
        assert expected in words, expected
    assert re.search(r"\bnan\b|\bNone\b", words) is None


def test_caveat_on_short_logs(copied):
    assert "The real log has 6 weeks." in " ".join(caveats(score_data(copied)))
    assert "weeks" not in " ".join(caveats(score_data(copied, spans_s=[3e7, 3e7])))


def test_caveats_name_missing_columns(minimal):
    sentence = " ".join(caveats(score_data(minimal, missing_columns={"energy_j": "synthetic", "queue": "real"})))
    assert "because the synthetic workload does not contain them: energy." in sentence
    assert "because the real log does not contain them: queue." in sentence


def test_unresolved_periods_are_not_drawn(minimal):
    data = copy.deepcopy(score_data(minimal))
    data.curves["spectrum"]["real"][-3:] = [None] * 3
    lines = arrival_cycles(data).figure.axes[1].get_lines()
    assert np.isfinite(lines[0].get_ydata()).all() and len(lines[0].get_ydata()) < len(lines[1].get_ydata())


def test_saved_figures(page_and_figures):
    sizes = {path.stem: path.stat().st_size for path in page_and_figures[1].glob("*.png")}
    assert set(sizes) == {f"synthetic-{name}" for name in FIGURES}
    assert min(sizes.values()) > 20_000, "something is drawn"


def test_page_in_a_browser(browser, page_and_figures):
    problems = []
    for width in (1200, 360):
        context = browser.new_context(offline=True, viewport={"width": width, "height": 800})
        tab = context.new_page()
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda sentence: problems.append(sentence.text) if sentence.type == "error" else None)
        tab.goto(page_and_figures[0].as_uri())
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= width
        assert tab.locator("figure.drawn svg").count() == len(FIGURES)
        assert tab.get_by_role("table", name="Privacy of the training jobs").is_visible()
        tab.get_by_role("link", name="Scheduling simulations").click()
        context.close()
    assert problems == []
