"""The table of learning on logs, on a few made jobs."""

import json
import math

import numpy as np
import pytest
from benchmarks.reproduce import learning

LOG, PATH = "made", "lublin:3000:32:1.0"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Rules and a search, judged; the other learners are copies of the search."""
    monkeypatch.setattr(learning, "WINDOWS", 6)
    monkeypatch.setattr(learning, "WINDOW_JOBS", 100)
    learning.work(LOG, PATH, "rules", 0, tmp_path, math.inf)
    small = {"generations": 2, "population": 4, "windows": 2, "window_jobs": 100}
    agent, took = learning.train(PATH, "es", 0, tmp_path / "made-es-0", **small)
    told = json.dumps({"values": learning.judge(PATH, agent.rule), "training_s": took})
    for what in ("look-ahead", *learning.LEARNERS):
        for seed in learning.SEEDS:
            (tmp_path / f"{LOG}-{what}-{seed}.judged.json").write_text(told)
    return tmp_path


def test_windows_lie_in_the_last_part_that_nothing_was_learned_on(folder):
    jobs, _ = learning.workload(PATH)
    assert learning.windows_of(jobs).first.min() >= 0.7 * len(jobs) - 1
    assert (folder / "made-es-0.json").exists()


def test_learners_stand_beside_the_rule_that_turned_out_best(folder):
    jobs, _ = learning.workload(PATH)
    one = learning._compared(folder, LOG, jobs)
    rows = one["rows"]
    means = {rule: rows[rule]["mean_bsld"] for rule in learning.RULES}
    assert means[one["best_rule"]] == min(means.values())
    assert rows[one["best_rule"]]["verdict"] == "the best rule"
    for learner in learning.LEARNERS:
        assert rows[learner]["ratio"] == pytest.approx(rows[learner]["mean_bsld"] / min(means.values()))
        assert rows[learner]["by_seed"] == [rows[learner]["mean_bsld"]] * 3
    said = learning.text({LOG: one})
    assert f"es: {rows['es']['ratio']:.3f} of the best rule" in said
    assert np.isfinite(rows["es"]["interval"]).all()


def test_what_is_there_is_not_done_again(folder, monkeypatch):
    monkeypatch.setattr(learning, "LOGS", {})
    said = []
    learning.train_all(None, folder, 1, math.inf, learning.LEARNERS, said.append)
    assert said == ["0 tasks in 1 processes, each network for inf s at most"]
