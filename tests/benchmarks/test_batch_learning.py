"""The benchmark of learned policies on logs, with a few synthetic jobs."""

import json
import math

import numpy as np
import pytest
from benchmarks.reproduce import batch_learning

LOG, PATH = "made", "lublin:3000:32:1.0"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Results of the priority policies and of a CMA-ES search; those of other algorithms are copies of the search."""
    monkeypatch.setattr(batch_learning, "WINDOWS", 6)
    monkeypatch.setattr(batch_learning, "WINDOW_JOBS", 100)
    batch_learning.run_task(LOG, PATH, "rules", 0, tmp_path, math.inf)
    options = {"generations": 2, "population": 4, "windows": 2, "window_jobs": 100}
    agent, training_s = batch_learning.train(PATH, "cma-es", 0, tmp_path / "made-cma-es-0", **options)
    result = json.dumps({"values": batch_learning.evaluate(PATH, agent.policy), "training_s": training_s})
    for algorithm in ("look-ahead", *batch_learning.LEARNERS):
        for seed in batch_learning.SEEDS:
            (tmp_path / f"{LOG}-{algorithm}-{seed}.judged.json").write_text(result)
    return tmp_path


def test_windows_are_later_than_the_training_jobs(folder):
    jobs, _ = batch_learning.workload(PATH)
    assert batch_learning.windows_of(jobs).first.min() >= 0.7 * len(jobs) - 1
    assert (folder / "made-cma-es-0.json").exists()


def test_algorithms_are_compared_with_the_best_policy(folder):
    jobs, _ = batch_learning.workload(PATH)
    log_result = batch_learning._compared(folder, LOG, jobs)
    rows = log_result["rows"]
    means = {rule: rows[rule]["mean_bsld"] for rule in batch_learning.RULES}
    assert means[log_result["best_rule"]] == min(means.values())
    assert rows[log_result["best_rule"]]["verdict"] == "best policy"
    for learner in batch_learning.LEARNERS:
        assert rows[learner]["ratio"] == pytest.approx(rows[learner]["mean_bsld"] / min(means.values()))
        assert rows[learner]["by_seed"] == [rows[learner]["mean_bsld"]] * 3
    output = batch_learning.text({LOG: log_result})
    assert f"cma-es: {rows['cma-es']['ratio']:.3f} of the best policy" in output
    assert np.isfinite(rows["cma-es"]["interval"]).all()


def test_saved_results_are_not_recomputed(folder, monkeypatch):
    monkeypatch.setattr(batch_learning, "LOGS", {})
    messages = []
    batch_learning.train_all(None, folder, 1, math.inf, batch_learning.LEARNERS, messages.append)
    assert messages == ["0 tasks in 1 processes, each network for inf s at most"]
