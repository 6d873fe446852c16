"""Pages on synthetic workloads: the numbers of the score, a verdict that is right, and what is missing is said."""

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
from kilowait.report.synthetic.data import (
    SyntheticScoreData,
    calendar_sentence,
    doubts,
    tiles,
    verdict,
)
from kilowait.report.synthetic.tables import distance_table, leak_table, outcome_table
from kilowait.report.synthetic.time_series_figures import cycles
from tests.report.synthetic.conftest import saved
from tests.report.test_page import read
from tests.report.training.test_page import headings, plain

FIGURES = [
    "columns",
    "correlations",
    "looked-at",
    "cycles",
    "profiles",
    "users",
    "outcome-1",
    "run-1",
    "given-away",
]


def likened(found, **changed):
    """What a folder would hold, some of it changed."""
    told = json.loads(plain_json({**found.document(), "curves": found.curves}))
    return SyntheticScoreData("x", {"real": "real.swf", "synthetic": "made.swf", **told, **changed})


def test_all_parts_in_order(drawn):
    text = drawn[0].read_text(encoding="utf-8")
    reader = read(text)
    assert "<b onload" not in text
    assert len(reader.ids) == len(set(reader.ids))
    assert [words for _, words in headings(text)] == [
        "Verdict",
        "Columns",
        "What goes together",
        "Told apart",
        "Arrivals",
        "Users",
        "In a scheduler",
        "fcfs with EASY",
        "What is given away",
        "Provenance",
    ]
    drawings = [a["aria-label"] for tag, a in reader.tags if tag == "svg" and a.get("role") == "img"]
    assert len(drawings) == len(FIGURES)
    assert re.search(r"\bnan\b|\bNone\b", plain(text.partition("<script")[0])) is None


def test_a_planted_copy_is_called_out(drawn, copied):
    words = unescape(plain(drawn[0].read_text(encoding="utf-8")))
    assert copied.leaks is not None and copied.leaks.copies == 1
    assert "Real jobs were copied: 100.0 % of the generated jobs equal a seen one" in words
    assert "errs more often than a coin would" in words
    assert f"{100 * copied.leaks.membership_advantage:.1f} points" in words


def test_fresh_jobs_are_not_accused(copied):
    told = likened(copied)
    gave = dict(told.told["leaks"])
    gave |= {
        "copies": 0.21,
        "copies_of_held_out": 0.2,
        "copied_pairs": 0.01,
        "copied_pairs_of_held_out": 0.01,
    }
    gave |= {"nearer_to_seen": 0.51, "membership_advantage": 0.02}
    said = verdict(likened(copied, leaks=gave, given_away=[]))[4]
    assert said.startswith("No more is given away") and "21.0 %" in said and "2.0 points" in said
    gave |= {"nearer_to_seen": 0.62}
    said = verdict(likened(copied, leaks=gave, given_away=["nearer_to_seen"]))[4]
    assert said.startswith("Something is given away, though no runs of jobs were copied") and "62.0 %" in said
    assert 'class="marked"><th scope="row">nearer' in leak_table(gave, ["nearer_to_seen"])


def test_numbers_of_the_page_are_those_of_the_score(bare):
    found = likened(bare)
    table = distance_table(found)
    for one in bare.fidelity.distances:
        assert f"<td>{one.ks:.3f}</td>" in table
    wait = bare.outcomes[0].measure("wait_s")
    row = re.search(r"wait, fcfs</th>(.*?)</tr>", outcome_table(found))[1]
    assert f"<td>{wait.ks:.3f}</td>" in row and f"{abs(100 * (wait.ratio - 1)):.1f}&nbsp;%" in row
    assert f"AUC {bare.fidelity.auc:.3f}" in " ".join(verdict(found))
    assert tiles(found)[1][0] == f"{bare.fidelity.worst_ks.ks:.3f}"


@pytest.mark.parametrize(
    ("auc", "words"),
    [
        (0.52, "They cannot be told apart"),
        (0.6, "They can hardly be told apart"),
        (0.7, "They can often be told apart"),
        (0.99, "They are easily told apart"),
        (0.2, "errs more often than a coin"),
    ],
)
def test_told_apart_in_words(bare, auc, words):
    found = likened(bare)
    changed = {**found.fidelity, "auc": auc, "looked_at": {"same_account": 0.8, "hour": 0.05}}
    said = verdict(likened(bare, fidelity=changed))[1]
    assert words in said
    assert ("looks most at same account as the user’s job before (80.0 %)." in said) is (auc > 0.55)


@pytest.mark.parametrize(
    ("near", "words"),
    [
        ((True, True), "within 15 % of the real ones: fcfs (+12.0 %) and sjf (−20.0 %)."),
        ((True, False), "under fcfs (+12.0 %), but not under sjf (−20.0 %)."),
        ((False, False), "not within 15 % of the real ones: fcfs"),
    ],
)
def test_waits_in_words(bare, near, words):
    rows = [
        {"policy": policy, "measures": [{"name": "wait_s", "ratio": ratio, "near": is_near}]}
        for policy, ratio, is_near in zip(("fcfs", "sjf"), (1.12, 0.8), near, strict=True)
    ]
    assert words in verdict(likened(bare, outcomes=rows))[3]


def test_a_calendar_that_was_kept_is_told(bare):
    assert len(verdict(likened(bare, calendar=0.3))) == len(verdict(likened(bare, calendar=None))) == 5
    assert "The calendar is the real log’s" in verdict(likened(bare, calendar=0.93))[-1]
    assert "The calendar is its own" in calendar_sentence(likened(bare, calendar=0.3))
    assert "cannot be told" in calendar_sentence(likened(bare, calendar=None))


def test_what_is_missing_is_said_and_folders_alone_are_read(bare, tmp_path):
    folders = [saved(tmp_path / name, bare) for name in ("first", "second")]
    opened = open_folder(folders[0])
    assert isinstance(opened, SyntheticScoreFolder) and opened.manifest["kind"] == "synthetic"
    code = (
        "import sys; from kilowait.report import write_report; write_report(sys.argv[2:], sys.argv[1]); "
        "sys.exit(any(name in sys.modules for name in ('lightgbm', 'numba', 'torch', 'kilowait.synth')))"
    )
    both = tmp_path / "both.html"
    assert subprocess.run([sys.executable, "-c", code, both, *folders], check=False).returncode == 0
    text = both.read_text("utf-8")
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids))
    assert headings(text)[:2] == [("2", "first"), ("3", "Verdict")] and ("2", "second") in headings(text)
    words = unescape(plain(text.partition("<script")[0]))
    for wanted in (
        "Not compared, because neither workload says it: user, account, queue, status, GPUs and energy.",
        "One of the two workloads does not say whose jobs they are.",
        "Whether jobs were copied cannot be told: there were no held-out jobs",
        "score with --held-out",
        "Without users nothing can be said of k-anonymity.",
        "The log does not say on which date its clock starts",
    ):
        assert wanted in words, wanted
    assert re.search(r"\bnan\b|\bNone\b", words) is None


def test_a_short_log_is_doubted(copied):
    assert "The real log has 6 weeks." in " ".join(doubts(likened(copied)))
    assert "weeks" not in " ".join(doubts(likened(copied, spans_s=[3e7, 3e7])))


def test_who_lacks_a_column_is_said(bare):
    said = " ".join(doubts(likened(bare, lacking={"energy_j": "synthetic", "queue": "real"})))
    assert "because the synthetic one does not say it: energy." in said
    assert "because the real log does not say it: queue." in said


def test_bands_a_short_log_cannot_tell_are_not_drawn(bare):
    found = copy.deepcopy(likened(bare))
    found.curves["spectrum"]["real"][-3:] = [None] * 3
    lines = cycles(found).figure.axes[1].get_lines()
    assert np.isfinite(lines[0].get_ydata()).all() and len(lines[0].get_ydata()) < len(lines[1].get_ydata())


def test_figures_are_files_too(drawn):
    sizes = {path.stem: path.stat().st_size for path in drawn[1].glob("*.png")}
    assert set(sizes) == {f"synthetic-{name}" for name in FIGURES}
    assert min(sizes.values()) > 20_000, "something is drawn"


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
        assert tab.get_by_role("table", name="What is given away of the jobs").is_visible()
        tab.get_by_role("link", name="In a scheduler").click()
        context.close()
    assert problems == []
