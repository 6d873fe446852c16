"""Kueue's Workload and ClusterQueue objects."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from kilowait.errors import TraceError
from kilowait.traces.formats.kueue import quantity

from . import sample_files
from .conftest import Read, entry_count
from .sample_files import kubernetes_list, kueue_workload

ADMITTED = {"Admitted": ("True", "09:01:00", "Admitted")}
DONE = ADMITTED | {"Finished": ("True", "09:11:00", "Succeeded")}
START = 1_766_394_000
"""2025-12-22 09:00:00 UTC."""


def test_kueue_workloads(read: Read) -> None:
    jobs, report = read(sample_files.KUEUE)
    assert jobs.meta["format"] == "kueue"
    assert jobs["submit_s"].tolist() == [START] * 2
    assert jobs["wait_s"].tolist() == [60, 60]
    assert jobs["runtime_s"].tolist() == [3600, 60]
    assert jobs["estimate_s"].tolist() == [7200, 60]
    assert (jobs["nodes"].tolist(), jobs["gpus"].tolist()) == ([2, 1], [16, 0])
    assert (jobs["cpu_milli"].tolist(), jobs["cores"].tolist()) == ([8000, 500], [8, 1])
    assert jobs["memory_mb"].tolist() == pytest.approx([2 * 8 * 2**30 / 1e6, 200])
    assert jobs["status"].tolist() == [1, 0]
    assert jobs["priority"].tolist() == [100, 100]
    assert jobs.labels["queue"][jobs["queue"][0]] == "cq-a"
    assert jobs.labels["account"] == ("team-a",)
    assert jobs.labels["name"] == ("train", "prepare", "waiting")
    assert report.rows_read == 3
    assert entry_count(report, "never ran: still waiting when the list was made") == 1
    assert entry_count(report, "queueName, of the LocalQueue, left out") == 2


def test_quotas_and_cohorts_are_in_meta(read: Read) -> None:
    jobs, report = read(sample_files.KUEUE)
    quotas = {"a100": {"cpu": {"nominalQuota": 96.0}, "nvidia.com/gpu": {"nominalQuota": 16.0, "borrowingLimit": 8.0}}}
    expected = {"cohort": "all", "strategy": "BestEffortFIFO", "quotas": quotas}
    assert jobs.meta["cluster_queues"] == {"cq-a": expected}
    assert entry_count(report, "quotas of 1 ClusterQueues in 1 cohorts") == 1


def test_jobs_that_run_wait_or_were_rejected(read: Read) -> None:
    gpu = (1, {"nvidia.com/gpu": "1"})
    text = kubernetes_list(
        kueue_workload("a", gpu, conditions=DONE),
        kueue_workload("b", gpu, conditions=ADMITTED),
        kueue_workload("c", gpu, conditions={"Finished": ("True", "09:05:00", "AdmissionChecksRejected")}),
        kueue_workload("d", gpu, conditions=ADMITTED | {"Finished": ("True", "09:05:00", "JobFinished")}),
    )
    jobs, report = read(text)
    assert jobs["status"].tolist() == [1, -1]
    assert entry_count(report, "still running when the list was made") == 1
    assert entry_count(report, "finished without being admitted") == 1
    assert entry_count(report, "Finished for the reason JobFinished: status unknown") == 1
    kept, _ = read(text, never_ran="keep")
    assert kept["cancel_s"].tolist() == [math.inf, START + 300, math.inf]


def test_workloads_whose_admission_ends_when_they_finish(read: Read) -> None:
    """Since Kueue 0.15 the condition Admitted is False then, and the execution time is a total."""
    ended = {"Admitted": ("False", "09:11:00", "Finished"), "Finished": ("True", "09:11:00", "Succeeded")}
    evicted = ended | {"Evicted": ("False", "09:02:00", "Preempted")}
    pods = (1, {"cpu": "1"})
    old_name, new_name = "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds"
    text = kubernetes_list(
        kueue_workload("a", pods, conditions=ended, status={old_name: 600}),
        kueue_workload("b", pods, conditions=evicted, status={new_name: 300}),
        kueue_workload("c", pods, conditions=DONE, status={new_name: 100}),
        kueue_workload("d", pods, conditions=ended),
    )
    jobs, report = read(text)
    assert jobs["runtime_s"].tolist() == [600, 300, 700]
    assert np.array_equal(jobs["wait_s"], [60, np.nan, np.nan], equal_nan=True)
    assert entry_count(report, "admitted again after an eviction") == 2
    assert entry_count(report, "run time unknown") == 1  # d ran, but nothing tells how long.


def test_pods_of_a_workload(read: Read) -> None:
    text = kubernetes_list(
        kueue_workload("fraction", (4, {"nvidia.com/gpu": "1", "example.com/nic": "2"}), conditions=DONE),
        kueue_workload("mixed", (1, {"cpu": "2"}), (2, {"amd.com/gpu": "4", "cpu": "8"}), conditions=DONE),
        kueue_workload("big", (3, {"nvidia.com/gpu": "8"}), conditions=DONE),
    )
    jobs, report = read(text)
    assert jobs["gpus"].tolist() == [4, 8, 24]
    assert jobs["nodes"].tolist() == [4, 8, 3]
    assert jobs["gpus_may_span_nodes"].tolist() == [1, 1, 0]
    assert jobs["cores"].tolist() == [0, 18, 0]
    assert entry_count(report, "pods with different numbers of GPUs") == 1
    assert entry_count(report, "requests of example.com/nic left out") == 1


def test_the_admission_has_the_requests_of_all_pods(read: Read) -> None:
    work = kueue_workload("a", (2, {"cpu": "1"}), cluster_queue="q", conditions=DONE)
    usage = {"name": "set0", "count": 2, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "6", "memory": "4G"}}
    work["status"]["admission"]["podSetAssignments"] = [usage]  # type: ignore[index]
    jobs, report = read(kubernetes_list(work))
    assert jobs["cpu_milli"].tolist() == [6000]
    assert jobs["memory_mb"].tolist() == [4000]
    assert entry_count(report, "flavors of an admission left out") == 1


def test_init_containers_and_limits(read: Read) -> None:
    work = kueue_workload("a", (1, {"cpu": "1"}), conditions=DONE)
    pod = work["spec"]["podSets"][0]["template"]["spec"]  # type: ignore[index]
    pod["containers"].append({"resources": {"limits": {"cpu": "2"}}})
    pod["initContainers"] = [{"resources": {"requests": {"cpu": "5"}}}]
    jobs, _ = read(kubernetes_list(work))
    assert jobs["cores"].tolist() == [5]


def test_priority_classes_of_both_versions(read: Read) -> None:
    new = kueue_workload("a", (1, {"cpu": "1"}), conditions=DONE, priorityClassRef={"name": "high"})
    old = kueue_workload("b", (1, {"cpu": "1"}), conditions=DONE, priorityClassName="low")
    jobs, _ = read(kubernetes_list(new, old))
    assert jobs.labels["qos"] == ("high", "low")


def test_lists_without_workloads_and_broken_json(read: Read) -> None:
    with pytest.raises(TraceError, match="no Workload of Kueue, but Pod; print them with: kubectl get workloads"):
        read(kubernetes_list({"kind": "Pod"}))
    with pytest.raises(TraceError, match="JSON cannot be read"):
        read(sample_files.KUEUE[:-50])
    with pytest.raises(TraceError, match="no Workload of Kueue, but nothing"):
        read("[1, 2]", format="kueue")


def test_one_workload_without_a_list(read: Read) -> None:
    jobs, _ = read(json.dumps(kueue_workload("a", (1, {"cpu": "1"}), conditions=DONE)), format="kueue")
    assert len(jobs) == 1


@pytest.mark.parametrize("item", [{"kind": "Workload"}, {"kind": "Workload", "spec": {"podSets": [{"count": "x"}]}}])
def test_incomplete_objects_are_dropped(read: Read, item: dict[str, object]) -> None:
    jobs, report = read(kubernetes_list(item, kueue_workload("a", (1, {"cpu": "1"}), conditions=DONE)))
    assert len(jobs) == 1
    assert report.dropped == 1


@pytest.mark.parametrize(("text", "value"), [("100m", 0.1), ("1.5Gi", 1.5 * 2**30), ("2E", 2e18), ("12e6", 12e6)])
def test_quantities(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)
    assert math.isnan(quantity("ten"))
