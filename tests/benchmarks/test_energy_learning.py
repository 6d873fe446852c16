"""The judge of a learned policy beside levers written by hand, on a small workload."""

from benchmarks.reproduce.power_learning import LOGS, judged, text

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup


def test_training_tuning_and_evaluation_on_a_small_log():
    jobs = kw.lublin(jobs=1000, nodes=32, seed=3, load=0.5).sorted()
    machine = Cluster((NodeGroup("taurus", 32),), name="taurus")
    said = []
    found = judged(
        jobs,
        machine,
        "sleep=timeout:600+dvfs=2",
        said.append,
        rules=("fcfs", "saf"),
        sets=["none", "sleep=timeout:300", "sleep=timeout:300+dvfs=1.1"],
        seeds=(0, 1),
        window_jobs=50,
        generations=2,
    )
    assert found["windows"] == 6 and found["by_hand"] == 6
    promise = found["promises"][0]
    assert promise["tuned"]["name"] in {
        f"{rule}, {power_controls}"
        for rule in ("fcfs", "saf")
        for power_controls in ("none", "sleep=timeout:300", "sleep=timeout:300+dvfs=1.1")
    }
    assert [agent["seed"] for agent in promise["agents"]] == [0, 1]
    for agent in promise["agents"]:
        value, low, high = agent["margin"]["objective_ratio"]
        assert low <= value <= high
    shown = text({"small": found})
    assert "agent, seed 1" in shown and "beyond the Pareto front" in shown and "satisfied by" in shown


def test_logs_match_their_clusters():
    assert {log.cluster for log in LOGS.values()} == {"theta", "mira", "polaris"}
