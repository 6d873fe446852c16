"""The benchmark of learned policies on a GPU cluster, with a few jobs."""

import json

import numpy as np
import pytest
from benchmarks.reproduce import gpu_learning

JOBS, WINDOW = 1500, 60
SMALL = {"windows": 2, "window_jobs": 60, "episode_jobs": 40, "expert_steps": 256, "num_envs": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of a network, a CMA-ES search and the priority policies; other results are copies of these."""
    out = tmp_path_factory.mktemp("table")
    network = gpu_learning.train(0.9, "ppo", 1, out, steps=512, jobs=JOBS, **SMALL)
    options = {"generations": 2, "population": 4, "windows": 2, "window_jobs": WINDOW}
    search = gpu_learning.train(0.9, "cma-es", 1, out, jobs=JOBS, **options)
    for agent in (network, search):
        gpu_learning.evaluate(0.9, agent, jobs=JOBS, window_jobs=WINDOW)
    gpu_learning.evaluate_policies(0.9, out, jobs=JOBS, window_jobs=WINDOW)
    for algo in gpu_learning.LEARNERS:
        result = (search if algo == "cma-es" else network).with_suffix(".judged.json").read_text()
        for seed in gpu_learning.SEEDS:
            (out / f"0.9-{algo}-{seed}.judged.json").write_text(result)
    return out


def test_training_saves_agents_and_results(folder):
    assert (folder / "0.9-ppo-1.pt").exists() and (folder / "0.9-cma-es-1.json").exists()
    result = json.loads((folder / "0.9-ppo-1.judged.json").read_text())
    assert set(result) == set(gpu_learning.FIGURES)
    assert all(len(values) == 300 // WINDOW and np.isfinite(values).all() for values in result.values())


def test_every_policy_is_listed_with_and_without_migration(folder):
    rules = json.loads((folder / "0.9-rules.judged.json").read_text())
    assert len(rules) == 8 and sum(name.endswith("moved") for name in rules) == 4
    assert {name.split(",")[0] for name in rules} == {"fcfs", "sjf", "srtf", "las"}


def test_table_ends_with_a_comparison(folder):
    results = gpu_learning.results(None, pytest.fail, folder, loads=(0.9,))
    load_result = results["loads"]["0.9"]
    assert load_result["rows"][load_result["best_rule"]]["ratio"][0] == 1.0
    assert not load_result["best_rule_unmoved"].endswith("moved")
    output = gpu_learning.text(results)
    for name in ("PPO", "SAC", "D3QN", "ES"):
        assert f"{name} is " in output
    assert f"load 0.9, against {load_result['best_rule']}:" in output
