"""The table of learning on a GPU cluster, on a few jobs."""

import json

import numpy as np
import pytest
from benchmarks.reproduce import gpu_learning

JOBS, WINDOW = 1500, 60
TINY = {"windows": 2, "window_jobs": 60, "episode_jobs": 40, "teacher_steps": 256, "envs": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network, a search and the rules, judged; the rest of the table is copies of these."""
    found = tmp_path_factory.mktemp("table")
    network = gpu_learning.train(0.9, "ppo", 1, found, steps=512, jobs=JOBS, **TINY)
    small = {"generations": 2, "population": 4, "windows": 2, "window_jobs": WINDOW}
    search = gpu_learning.train(0.9, "cma-es", 1, found, jobs=JOBS, **small)
    for agent in (network, search):
        gpu_learning.judge(0.9, agent, jobs=JOBS, window_jobs=WINDOW)
    gpu_learning.judge_rules(0.9, found, jobs=JOBS, window_jobs=WINDOW)
    for algo in gpu_learning.LEARNERS:
        like = (search if algo == "cma-es" else network).with_suffix(".judged.json").read_text()
        for seed in gpu_learning.SEEDS:
            (found / f"0.9-{algo}-{seed}.judged.json").write_text(like)
    return found


def test_training_saves_agents_and_results(folder):
    assert (folder / "0.9-ppo-1.pt").exists() and (folder / "0.9-cma-es-1.json").exists()
    told = json.loads((folder / "0.9-ppo-1.judged.json").read_text())
    assert set(told) == set(gpu_learning.FIGURES)
    assert all(len(values) == 300 // WINDOW and np.isfinite(values).all() for values in told.values())


def test_every_policy_is_listed_with_and_without_migration(folder):
    rules = json.loads((folder / "0.9-rules.judged.json").read_text())
    assert len(rules) == 8 and sum(name.endswith("moved") for name in rules) == 4
    assert {name.split(",")[0] for name in rules} == {"fcfs", "sjf", "srtf", "las"}


def test_table_ends_with_a_comparison(folder):
    found = gpu_learning.results(None, pytest.fail, folder, loads=(0.9,))
    one = found["loads"]["0.9"]
    assert one["rows"][one["best_rule"]]["ratio"][0] == 1.0
    assert not one["best_rule_unmoved"].endswith("moved")
    said = gpu_learning.text(found)
    for name in ("PPO", "SAC", "D3QN", "ES"):
        assert f"{name} is " in said
    assert f"load 0.9, against {one['best_rule']}:" in said
