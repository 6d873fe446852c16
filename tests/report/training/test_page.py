"""Pages on trained agents: verdicts, curves, what they look at, choices."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.report import write_report
from tests.report.test_page import read
from tests.report.training.conftest import (
    NASTY,
    explained,
    generations,
    judged,
    updates,
)

NETWORK = {"objective": "slowdown=1", "training": updates(), "explained": explained(), "judged": judged()}
SEARCH = {
    "objective": "mean_bsld",
    "training": generations(),
    "weights": [["length", 0.5, "ln <estimate>"]],
    "explained": explained(False, False),
    "judged": judged(),
}


def page_of(folder, tmp_path, **more):
    return write_report([folder], tmp_path / "page.html", **more).read_text(encoding="utf-8")


def headings(text):
    return re.findall(r"<h([2-5])[^>]*>(.*?)</h\1>", text)


def plain(text):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text).replace("&nbsp;", " "))


def test_a_network_has_all_parts_in_order(agent_folder, tmp_path):
    text = page_of(agent_folder("first", NETWORK), tmp_path)
    reader = read(text)
    assert "<title>Training of first</title>" in text
    assert headings(text) == [
        ("2", "Training"),
        ("3", "On later jobs"),
        ("3", "How the training went"),
        ("3", "What it looks at"),
        ("3", "Choices explained"),
        ("4", "The longest queue"),
        ("4", "The most doubtful choice"),
        ("2", "Provenance"),
    ]
    assert len(reader.ids) == len(set(reader.ids))
    assert "<b onload" not in text
    words = plain(text)
    for wanted in (
        "The agent beats the best rule, saf.",
        "it gains 25 %",
        "6 updates, 6,000 decisions",
        "Of 12 jobs that could go next it chose one of 4 nodes, estimated at 2 h 0 min, that had waited 1 min; the "
        "next best was one of 1 node, that had just come.",
        "The chosen job is 1.00 ahead (logits). Had it been like the mean of the others, at a usual moment, that would "
        "have been −0.250.",
        "What spoke for it most: length (+1.50).",
        "less than 0.001 ahead",
        "the next best was choosing nobody",
        "all together +1.25",
        "algo ppo steps 6000",
    ):
        assert wanted in words, wanted
    assert "perfect estimates" not in words
    drawings = [a["aria-label"] for tag, a in reader.tags if tag == "svg" and a.get("role") == "img"]
    assert len(drawings) == 4
    assert drawings[0].startswith("Mean bounded slowdown, best first: agent 2.00; saf")
    assert "entropy of the policy" in drawings[1] and "KL" not in drawings[1]
    assert drawings[2].startswith("What counts most: length 1.25")
    assert drawings[3] == "The chosen job looks most at chosen: 4 nodes, 2 h 0 min: 60 %."


def test_a_search_has_weights_and_generations(agent_folder, tmp_path):
    text = page_of(agent_folder("second", SEARCH), tmp_path)
    read(text)
    words = plain(text)
    assert "Score = sum of weight × feature" in words
    assert "1 is the rule it started from" in words
    assert "at a usual moment" not in words and "for the rest the mean" not in words
    assert "attention" not in words.lower()


def test_a_search_that_found_nothing_says_so(agent_folder, tmp_path):
    told = {**SEARCH, "weights": [], "explained": {}, "plain_rule": "saf"}
    words = plain(page_of(agent_folder("third", told), tmp_path))
    assert "found nothing that beats saf on jobs left out, so the agent is saf" in words
    assert "Choices explained" not in words


def test_verdicts_are_those_of_the_judging(agent_folder, tmp_path):
    worse = judged(((5.0, 5.1, 4.9) * 8, (3.0, 3.2, 2.9) * 8, (9.0, 9.5, 8.0) * 8))
    text = page_of(agent_folder("worse", {**NETWORK, "judged": worse}), tmp_path)
    assert "The agent does not beat the best rule, saf, which is better: use saf." in plain(text)
    rows = dict(re.findall(r'<tr[^>]*><th scope="row">(agent|saf|fcfs)</th>(.*?)</tr>', text))
    assert list(rows) == ["saf", "agent", "fcfs"]
    assert '<span class="worse">worse</span>' in rows["agent"] and "0 of 24 won" in rows["agent"]
    assert '<b class="best">3.03' in rows["saf"]
    few = judged(((2.0, 9.0), (3.0, 3.2), (9.0, 9.5)))
    text = page_of(agent_folder("few", {**NETWORK, "judged": few}), tmp_path)
    assert "Whether the agent beats the best rule, saf, is undecided." in plain(text)


def test_gpu_clusters_are_judged_by_completion_times(agent_folder, tmp_path):
    row = {"mean_jct_s": 3600.0, "p95_jct_s": 7200.0, "makespan_s": 9e4, "gpu_utilization": 0.5}
    told = {
        "windows": 4,
        "window_jobs": 100,
        "policies": {
            "las": {**row, "mean_jct_s": 7200.0, "flops_utilization": 0.25, "mean_jct_s_by_window": [1.0]},
            "agent": {**row, "flops_utilization": None, "mean_jct_s_by_window": [1.0]},
        },
        "ratios": {"agent": [0.5, 0.4, None]},
    }
    text = page_of(agent_folder("gpus", {**NETWORK, "judged": told}), tmp_path)
    read(text)
    words = plain(text)
    assert "On 4 windows of 100 jobs, later than the training" in words
    rows = re.findall(r'<tr[^>]*><th scope="row">(agent|las)</th>(.*?)</tr>', text)
    assert [name for name, _ in rows] == ["agent", "las"]
    assert "× 0.500" in rows[0][1] and "–" in rows[1][1]


def test_machines_with_power_are_judged_by_what_is_spent_too(agent_folder, tmp_path):
    row = {"energy": 2.0, "slowdown": 1.5, "wait_s": 60.0, "p95_wait_s": 600.0}
    told = {
        "windows": 4,
        "window_jobs": 100,
        "spent": "energy",
        "policies": {
            "agent": {**row, "energy": 1.0},
            "saf, none": {**row, "energy": 3.0},
            "saf, dvfs=1.1": row,
            "fcfs, dvfs=1.1": row,
        },
        "front": ["saf, dvfs=1.1"],
        "beyond": {"spent": [0.5, 0.4, 0.6], "waited": [1.0, 0.9, 1.1], "outside": 1.0},
    }
    text = page_of(agent_folder("power", {**NETWORK, "judged": told}), tmp_path)
    read(text)
    rows = re.findall(r'<tr[^>]*><th scope="row">(agent|saf, [^<]*|fcfs, [^<]*)</th>', text)
    assert rows == ["agent", "saf, dvfs=1.1", "saf, none"]
    assert "The agent spends 0.500 times (0.400 – 0.600)" in plain(text) and "CO2e" not in plain(text)


def test_several_agents_have_figures_of_their_own(agent_folder, tmp_path):
    from matplotlib.image import imread

    folders = [agent_folder("first", NETWORK), agent_folder("second", SEARCH)]
    text = write_report(folders, tmp_path / "both.html", figures=tmp_path / "figures").read_text("utf-8")
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids))
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert names == {
        "1-first-judged",
        "1-first-training",
        "1-first-looked-at",
        "1-first-attention-1",
        "2-second-judged",
        "2-second-training",
        "2-second-looked-at",
    }
    for name in names:
        pixels = imread(tmp_path / "figures" / f"{name}.png")[..., :3]
        assert 0.01 < (np.abs(pixels - 1.0).max(axis=2) > 0.1).mean() < 0.95, name
    assert [level for level, _ in headings(text)][:3] == ["2", "3", "4"]


def test_bare_folders_of_agents_are_drawn(agent_folder, tmp_path):
    text = page_of(agent_folder("bare", {"training": updates(1)}, scenario=""), tmp_path)
    read(text)
    assert [words for _, words in headings(text)] == ["Training", "How the training went", "Provenance"]


def test_the_state_of_a_training_is_not_what_came_out(tmp_path):
    state = tmp_path / "first.training"
    state.mkdir()
    (state / "last.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"holds the state of a training.*report on .*/first,"):
        write_report([state], tmp_path / "x.html")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="is no run folder"):
        write_report([tmp_path / "other"], tmp_path / "x.html")


def test_neither_torch_nor_numba_is_opened(agent_folder, tmp_path):
    folder = agent_folder("first", NETWORK)
    code = (
        "import sys; from kilowait.report import write_report; write_report(sys.argv[1:2], sys.argv[2]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numba', 'gymnasium')))"
    )
    run = [sys.executable, "-c", code, str(folder), str(tmp_path / "x.html")]
    assert subprocess.run(run, check=False).returncode == 0


def test_one_agent_under_every_preference(agent_folder, tmp_path):
    def point(weight, figures, dominated=False, intervals=((1.0, 3.0), (4.0, 6.0))):
        return {
            "preference": {"slowdown": 1 - weight, "fairness": weight},
            "figures": dict(zip(("slowdown", "fairness"), figures, strict=True)),
            "intervals": dict(zip(("slowdown", "fairness"), intervals, strict=True)),
            "dominated": dominated,
        }

    front = {
        "terms": {"slowdown": f"mean {NASTY}", "fairness": "over users"},
        "units": {"slowdown": 2.5, "fairness": 3.5},
        "windows": 4,
        "window_jobs": 100,
        "points": [
            point(0.0, (2.0, 5.0)),
            point(0.5, (2.7, 5.5), True, ((None, None), (None, None))),
            point(1.0, (2.5, 4.25)),
        ],
        "reference": {"name": "least work first", "figures": {"slowdown": 2.25, "fairness": 5.25}},
    }
    text = page_of(agent_folder("both", {**NETWORK, "front": front}), tmp_path)
    assert ("3", "Under every preference") in headings(text) and "<b onload" not in text
    words = plain(text)
    for wanted in ("2.70 5.50 another is better in all", "in units of 2.50", "2.00 1.00 – 3.00", "(1 of 3)"):
        assert wanted in words, wanted
    drawings = [a["aria-label"] for tag, a in read(text).tags if tag == "svg" and a.get("role") == "img"]
    assert "Slowdown against fairness under 3 preferences: from 2.00 and 5.00 to 2.50 and 4.25." in drawings
    three = {**front, "terms": {**front["terms"], "sla": "late"}, "units": {**front["units"], "sla": 1.0}}
    more = {"preference": 0.0, "figures": 0.1, "intervals": [0.0, 0.2]}
    three["points"] = [
        {**each, **{name: {**each[name], "sla": value} for name, value in more.items()}}
        for each in front["points"]
    ]
    three["reference"] = {"name": "saf", "figures": {**front["reference"]["figures"], "sla": 0.3}}
    table = page_of(agent_folder("three", {**NETWORK, "front": three}), tmp_path)
    assert "prefers sla" in plain(table) and "under 3 preferences: from" not in plain(table)
