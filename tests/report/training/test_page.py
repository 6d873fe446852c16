"""Pages on trained agents: evaluation, training curves, feature attribution, explained decisions."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.report import write_report
from tests.report.test_page import read
from tests.report.training.conftest import NASTY, evaluation, explained, generations, updates

NETWORK = {"objective": "slowdown=1", "training": updates(), "explained": explained(), "judged": evaluation()}
SEARCH = {
    "objective": "mean_bsld",
    "training": generations(),
    "weights": [["length", 0.5, "ln <estimate>"]],
    "explained": explained(False, False),
    "judged": evaluation(),
}


def page_of(folder, tmp_path, **options):
    return write_report([folder], tmp_path / "page.html", **options).read_text(encoding="utf-8")


def headings(text):
    return re.findall(r"<h([2-5])[^>]*>(.*?)</h\1>", text)


def plain(text):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text).replace("&nbsp;", " ").replace("\N{NO-BREAK SPACE}", " "))


def test_sections_of_a_network_are_in_order(agent_folder, tmp_path):
    text = page_of(agent_folder("first", NETWORK), tmp_path)
    reader = read(text)
    assert "<title>Training of first</title>" in text
    assert headings(text) == [
        ("2", "Training"),
        ("3", "Evaluation on later jobs"),
        ("3", "Training curves"),
        ("3", "Feature attribution"),
        ("3", "Explained decisions"),
        ("4", "The longest queue"),
        ("4", "The most doubtful choice"),
        ("2", "Provenance"),
    ]
    assert len(reader.ids) == len(set(reader.ids))
    assert "<b onload" not in text
    words = plain(text)
    for expected in (
        "The agent is significantly better than the best priority policy, saf.",
        "The agent achieves 25 % of the gain",
        "6 updates, 6,000 decisions",
        "Of 12 eligible jobs the agent chose one of 4 nodes, estimated at 2 h 0 min, that had waited 1 min; the "
        "second best was one of 1 node, that had just been submitted.",
        "The margin of the chosen job is 1.00 (logits). For the mean of the other jobs, in an average state, the "
        "margin "
        "would have been −0.250.",
        "Main features for it: length (+1.50).",
        "The margin of the chosen job is less than 0.001",
        "the second best was starting no job",
        "total +1.25",
        "algo ppo steps 6000",
    ):
        assert expected in words, expected
    assert "perfect estimates" not in words
    drawings = [a["aria-label"] for tag, a in reader.tags if tag == "svg" and a.get("role") == "img"]
    assert len(drawings) == 4
    assert drawings[0].startswith("Mean bounded slowdown, best first: agent 2.00; saf")
    assert "policy entropy" in drawings[1] and "KL" not in drawings[1]
    assert drawings[2].startswith("Most important features: length 1.25")
    assert drawings[3] == "The chosen job attends most to chosen: 4 nodes, 2 h 0 min: 60 %."


def test_cma_es_agent_has_weights_and_generations(agent_folder, tmp_path):
    text = page_of(agent_folder("second", SEARCH), tmp_path)
    read(text)
    words = plain(text)
    assert "Score = sum of weight × feature" in words
    assert "1 is the initial policy" in words
    assert "in an average state" not in words and "for the state the mean" not in words
    assert "attention" not in words.lower()


def test_cma_es_search_without_improvement(agent_folder, tmp_path):
    outcome = "The search found nothing clearly better than its start, 'default': the agent is that start."
    results = {**SEARCH, "weights": [], "explained": {}, "search_outcome": outcome}
    words = plain(page_of(agent_folder("third", results), tmp_path))
    assert outcome.replace("'", "&#39;") in words
    assert "Explained decisions" not in words


def test_significance_results_match_the_evaluation(agent_folder, tmp_path):
    worse = evaluation(((5.0, 5.1, 4.9) * 8, (3.0, 3.2, 2.9) * 8, (9.0, 9.5, 8.0) * 8))
    text = page_of(agent_folder("worse", {**NETWORK, "judged": worse}), tmp_path)
    assert "The agent is significantly worse than the best priority policy, saf: use saf." in plain(text)
    rows = dict(re.findall(r'<tr[^>]*><th scope="row">(agent|saf|fcfs)</th>(.*?)</tr>', text))
    assert list(rows) == ["saf", "agent", "fcfs"]
    assert '<span class="worse">worse</span>' in rows["agent"] and "0 of 24 won" in rows["agent"]
    assert '<b class="best">3.03' in rows["saf"]
    few = evaluation(((2.0, 9.0), (3.0, 3.2), (9.0, 9.5)))
    text = page_of(agent_folder("few", {**NETWORK, "judged": few}), tmp_path)
    assert "The difference between the agent and the best priority policy, saf, is not significant." in plain(text)


def test_gpu_agents_are_evaluated_by_completion_time(agent_folder, tmp_path):
    row = {"mean_jct_s": 3600.0, "p95_jct_s": 7200.0, "makespan_s": 9e4, "gpu_utilization": 0.5}
    results = {
        "windows": 4,
        "window_jobs": 100,
        "policies": {
            "las": {**row, "mean_jct_s": 7200.0, "flops_utilization": 0.25, "mean_jct_s_by_window": [1.0]},
            "agent": {**row, "flops_utilization": None, "mean_jct_s_by_window": [1.0]},
        },
        "ratios": {"agent": [0.5, 0.4, None]},
    }
    text = page_of(agent_folder("gpus", {**NETWORK, "judged": results}), tmp_path)
    read(text)
    words = plain(text)
    assert "On 4 windows of 100 jobs, later than the training" in words
    rows = re.findall(r'<tr[^>]*><th scope="row">(agent|las)</th>(.*?)</tr>', text)
    assert [name for name, _ in rows] == ["agent", "las"]
    assert "× 0.500" in rows[0][1] and "–" in rows[1][1]


def test_power_agents_are_evaluated_by_energy_too(agent_folder, tmp_path):
    row = {"energy": 2.0, "slowdown": 1.5, "wait_s": 60.0, "p95_wait_s": 600.0}
    results = {
        "windows": 4,
        "window_jobs": 100,
        "objective": "energy",
        "policies": {
            "agent": {**row, "energy": 1.0},
            "saf, none": {**row, "energy": 3.0},
            "saf, dvfs=1.1": row,
            "fcfs, dvfs=1.1": row,
        },
        "front": ["saf, dvfs=1.1"],
        "margin": {"objective_ratio": [0.5, 0.4, 0.6], "delay_ratio": [1.0, 0.9, 1.1], "nondominated_share": 1.0},
    }
    text = page_of(agent_folder("power", {**NETWORK, "judged": results}), tmp_path)
    read(text)
    rows = re.findall(r'<tr[^>]*><th scope="row">(agent|saf, [^<]*|fcfs, [^<]*)</th>', text)
    assert rows == ["agent", "saf, dvfs=1.1", "saf, none"]
    assert "The agent dominates part of the Pareto front of the hand-tuned power controls." in plain(text)
    assert "The agent: 0.500 of the lowest energy among the 3 hand-tuned policies" in plain(text)
    assert "CO2e" not in plain(text)


def test_figures_of_several_agents(agent_folder, tmp_path):
    from matplotlib.image import imread

    folders = [agent_folder("first", NETWORK), agent_folder("second", SEARCH)]
    text = write_report(folders, tmp_path / "both.html", figures=tmp_path / "figures").read_text("utf-8")
    reader = read(text)
    assert len(reader.ids) == len(set(reader.ids))
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert names == {
        "1-first-evaluation",
        "1-first-training",
        "1-first-feature-attribution",
        "1-first-attention-1",
        "2-second-evaluation",
        "2-second-training",
        "2-second-feature-attribution",
    }
    for name in names:
        pixels = imread(tmp_path / "figures" / f"{name}.png")[..., :3]
        assert 0.01 < (np.abs(pixels - 1.0).max(axis=2) > 0.1).mean() < 0.95, name
    assert [level for level, _ in headings(text)][:3] == ["2", "3", "4"]


def test_minimal_agent_folders(agent_folder, tmp_path):
    text = page_of(agent_folder("bare", {"training": updates(1)}, scenario=""), tmp_path)
    read(text)
    assert [words for _, words in headings(text)] == ["Training", "Training curves", "Provenance"]


def test_training_checkpoints_are_rejected(tmp_path):
    checkpoint = tmp_path / "first.training"
    checkpoint.mkdir()
    (checkpoint / "last.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"holds a training checkpoint.*report on .*/first,"):
        write_report([checkpoint], tmp_path / "x.html")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="is not a run folder"):
        write_report([tmp_path / "other"], tmp_path / "x.html")


def test_neither_torch_nor_numba_is_imported(agent_folder, tmp_path):
    folder = agent_folder("first", NETWORK)
    code = (
        "import sys; from kilowait.report import write_report; write_report(sys.argv[1:2], sys.argv[2]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numba', 'gymnasium')))"
    )
    run = [sys.executable, "-c", code, str(folder), str(tmp_path / "x.html")]
    assert subprocess.run(run, check=False).returncode == 0


def test_preference_conditioned_agent(agent_folder, tmp_path):
    def point(weight, figures, dominated=False, intervals=((1.0, 3.0), (4.0, 6.0))):
        return {
            "preference": {"slowdown": 1 - weight, "fairness": weight},
            "metrics": dict(zip(("slowdown", "fairness"), figures, strict=True)),
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
        "reference": {"name": "least work first", "metrics": {"slowdown": 2.25, "fairness": 5.25}},
    }
    text = page_of(agent_folder("both", {**NETWORK, "front": front}), tmp_path)
    assert ("3", "Results by preference") in headings(text) and "<b onload" not in text
    words = plain(text)
    for expected in ("2.70 5.50 dominated", "in units of 2.50", "2.00 1.00 – 3.00", "(1 of 3)"):
        assert expected in words, expected
    drawings = [a["aria-label"] for tag, a in read(text).tags if tag == "svg" and a.get("role") == "img"]
    assert "Slowdown against fairness under 3 preferences: from 2.00 and 5.00 to 2.50 and 4.25." in drawings
    three = {**front, "terms": {**front["terms"], "sla": "late"}, "units": {**front["units"], "sla": 1.0}}
    options = {"preference": 0.0, "metrics": 0.1, "intervals": [0.0, 0.2]}
    three["points"] = [
        {**each, **{name: {**each[name], "sla": value} for name, value in options.items()}} for each in front["points"]
    ]
    three["reference"] = {"name": "saf", "metrics": {**front["reference"]["metrics"], "sla": 0.3}}
    table = page_of(agent_folder("three", {**NETWORK, "front": three}), tmp_path)
    assert "weight of sla" in plain(table) and "under 3 preferences: from" not in plain(table)


def test_long_waits_of_windows_are_marked_only_where_they_are_the_longest(agent_folder, tmp_path):
    """Older folders have the mean of the windows' longest waits: it is not shown under the name of the longest."""
    judged = evaluation()
    for row, longest_s in zip(judged["rows"][:3], (7200.0, 36000.0, 3600.0), strict=True):
        row["metrics"]["max_wait_s"] = longest_s
    older = plain(page_of(agent_folder("older", {**NETWORK, "judged": judged}), tmp_path))
    table = older.partition("later than the training jobs")[2].partition("Means of the windows")[0]
    assert "mean wait" in table and "longest wait" not in table
    judged["starvation"] = {"saf": 10.0}
    text = page_of(agent_folder("newer", {**NETWORK, "judged": judged}), tmp_path)
    sentence = "Risk of starvation under saf: its longest wait, 10 h 0 min, is 10 times that of fcfs (1 h 0 min)."
    assert sentence in plain(text)
    assert '<span class="starves">10 h 0 min</span>' in text
