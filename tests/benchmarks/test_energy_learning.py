"""Evaluation of a learned power-control policy against hand-tuned controls, on a small workload."""

from benchmarks.reproduce.power_learning import LOGS, evaluated, text

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup


def test_training_tuning_and_evaluation_on_a_small_log():
    jobs = kw.lublin(jobs=1000, nodes=32, seed=3, load=0.5).sorted()
    machine = Cluster((NodeGroup("taurus", 32),), name="taurus")
    messages = []
    result = evaluated(
        jobs,
        machine,
        "sleep=timeout:600+dvfs=2",
        messages.append,
        rules=("fcfs", "saf"),
        sets=["none", "sleep=timeout:300", "sleep=timeout:300+dvfs=1.1"],
        seeds=(0, 1),
        window_jobs=50,
        generations=2,
    )
    assert result["windows"] == 6 and result["hand_tuned"] == 6
    constraint = result["constraints"][0]
    assert constraint["tuned"]["name"] in {
        f"{rule}, {power_controls}"
        for rule in ("fcfs", "saf")
        for power_controls in ("none", "sleep=timeout:300", "sleep=timeout:300+dvfs=1.1")
    }
    assert [agent["seed"] for agent in constraint["agents"]] == [0, 1]
    for agent in constraint["agents"]:
        value, low, high = agent["beyond"]["energy"]
        assert low <= value <= high
    output = text({"small": result})
    assert "agent, seed 1" in output and "beyond the Pareto front" in output and "satisfied by" in output


def test_logs_match_their_clusters():
    assert {log.cluster for log in LOGS.values()} == {"theta", "mira", "polaris"}
