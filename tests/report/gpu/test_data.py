"""GPU data and sentences of a comparison."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import NodeGroup
from kilowait.evaluation import by_priority, by_type, gpu_metrics, gpu_timeline
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.data.gpu import SPEED_METRICS, GpuData, missing_gpu_data, sentences
from kilowait.report.data.gpu_timeline import PANELS
from kilowait.report.data.summary import summary
from kilowait.synth import gpu_workload
from tests.report.conftest import comparison_of, jobs_of
from tests.report.gpu.conftest import GPUS, gpu_comparison


def assert_equal_rows(rows, others):
    assert len(rows) == len(others)
    for row, other in zip(rows, others, strict=True):
        assert list(row) == list(other)
        for name, value in row.items():
            assert value == other[name] or (math.isnan(value) and math.isnan(other[name])), name


def test_page_leads_with_completion_times(gpus):
    data = ComparisonData(gpus, 0)
    means = gpus.means("mean_turnaround_s").tolist()
    assert data.node_level
    assert [means[policy] for policy in data.ranked] == sorted(means)
    assert data.significance.metric == "mean_turnaround_s"
    text = " ".join(summary(data))
    assert "has the lowest mean completion time (JCT): " in text
    assert "150 jobs on 4 nodes with 12 GPUs" in text
    assert "backfill" not in text
    assert "slowdown" not in text
    assert "turnaround" not in text


def test_other_pages_lead_with_slowdown():
    data = ComparisonData(comparison_of(jobs_of(60)), 0)
    assert not data.node_level
    assert data.lead.metric == "mean_bsld"
    assert GpuData.of(data) is None
    assert missing_gpu_data(data) is None


def test_summary_of_a_single_run():
    text = summary(ComparisonData(gpu_comparison(policies=["las"]), 0))[1]
    assert text.startswith("Under las jobs take ")
    assert "The GPU utilization while jobs arrive is " in text


def test_metrics_equal_the_evaluation(gpus):
    gpu_data = GpuData.of(ComparisonData(gpus, 0))
    window = gpus.windows[0]
    for policy, row in gpu_data.table.items():
        log = gpus.logs(policy, 0)
        recomputed = gpu_metrics(log, GPUS, counted=window.evaluated, horizon_s=window.horizon)
        saved = gpus.gpus[gpus.labels[policy]]
        for name, value in row.items():
            assert value == pytest.approx(saved[name] if name in SPEED_METRICS else recomputed[name], nan_ok=True), name
        assert row["gpu_utilization"] == pytest.approx(gpus.values("utilization")[policy, 0])
        assert_equal_rows(gpu_data.types[policy], by_type(log, GPUS, horizon_s=window.horizon))
        assert_equal_rows(gpu_data.priorities[policy], by_priority(log))


def test_metrics_without_gpu_speeds_are_unknown():
    gpu_data = GpuData.of(ComparisonData(gpu_comparison(measured=False), 0))
    assert all(math.isnan(row[name]) for row in gpu_data.table.values() for name in SPEED_METRICS)
    text = " ".join(sentences(gpu_data))
    assert "require the GPU speeds of the run" in text
    assert "GPU-hours of work lost" not in text


def test_windows_are_combined():
    comparison = gpu_comparison(windows=3)
    gpu_data = GpuData.of(ComparisonData(comparison, 0))
    logs = [comparison.logs(1, number) for number in range(3)]
    recomputed = [
        gpu_metrics(log, GPUS, counted=window.evaluated, horizon_s=window.horizon)
        for log, window in zip(logs, comparison.windows, strict=True)
    ]
    assert gpu_data.table[1]["mean_jct_s"] == pytest.approx(np.mean([row["mean_jct_s"] for row in recomputed]))
    hours = sum(row["gpu_hours"] for log in logs for row in by_type(log, GPUS) if row["type"] == "A100")
    assert next(row for row in gpu_data.types[1] if row["type"] == "A100")["gpu_hours"] == pytest.approx(hours)
    jobs = sum(int(window.evaluated.sum()) for window in comparison.windows)
    assert sum(row["jobs"] for row in gpu_data.priorities[1]) == jobs


def test_series_are_shares_of_each_type(gpus):
    gpu_data = GpuData.of(ComparisonData(gpus, 0))
    assert gpu_data.timeline.sizes == {"T4": 8, "A100": 4}
    for policy, lines in gpu_data.timeline.lines.items():
        used = gpu_timeline(gpus.logs(policy, 0), GPUS)
        assert list(lines.allocated) == ["T4", "A100"]
        assert lines.allocated["T4"].value.tolist() == (used["T4"].value / 8).tolist()
        assert all(series.value.min() >= 0 and series.value.max() <= 1 for series in lines.allocated.values())
        assert lines.fragmentation.value.min() >= 0


def test_small_types_are_drawn_together():
    """Ten types of one node: six are drawn separately, four combined, and the sum is all allocated GPUs."""
    names = ("A100", "V100", "T4", "P100", "K80", "L4", "A10", "A30", "H100", "P40")
    large_cluster = kw.Cluster(tuple(NodeGroup(n, 1, cores=16, gpus=8, gpu_type=n, node_level=True) for n in names))
    comparison = kw.compare(gpu_workload(80, large_cluster, load=1.2, seed=1), large_cluster, ["fcfs"])
    gpu_data = GpuData.of(ComparisonData(comparison, 0))
    assert len(gpu_data.timeline.sizes) == PANELS
    assert gpu_data.timeline.sizes["4 other types"] == 32
    assert sum(gpu_data.timeline.sizes.values()) == 80
    lines, used = gpu_data.timeline.lines[0].allocated, gpu_timeline(comparison.logs(0, 0), large_cluster)
    first, last = used["A100"].edge_s[[0, -1]]
    total = sum(float(lines[name].integral(first, last)) * gpus for name, gpus in gpu_data.timeline.sizes.items())
    assert total == pytest.approx(sum(float(series.integral(first, last)) for series in used.values()))


def test_missing_data_is_reported(gpus):
    data = ComparisonData(gpus, 0)
    assert missing_gpu_data(data) is None
    no_cluster = ComparisonData(replace(gpus, cluster={}), 0)
    assert "has no cluster description" in missing_gpu_data(no_cluster)
    assert GpuData.of(no_cluster) is None
    no_placements = ComparisonData(
        replace(gpus, logs=lambda policy, window: replace(gpus.logs(policy, window), pieces=None)), 0
    )
    assert "pieces.parquet is missing" in missing_gpu_data(no_placements)
    assert GpuData.of(no_placements) is None


def test_sentences(gpus):
    gpu_data = GpuData.of(ComparisonData(gpus, 0))
    text = sentences(gpu_data)
    assert text[0].count("(under ") >= 2
    assert "while jobs arrive" in text[0]
    preempted = gpus.gpus["las"]["preemptions"]
    assert preempted > 0
    assert f"las: {preempted:,.0f} preemptions, no work lost" in " ".join(text)
    assert "Every restart costs 30 s." in text
    assert not any("different freedom" in line for line in text)
    unequal = sentences(GpuData.of(ComparisonData(gpu_comparison(policies=["srtf", "srtf:preempt=0"]), 0)))
    assert "They have different freedom: srtf may preempt jobs, srtf:preempt=0 may not." in unequal
    assert "fcfs:" not in next(sentence for sentence in text if "were preempted" in sentence)
    single_policy = GpuData.of(ComparisonData(gpu_comparison(policies=["fcfs"]), 0))
    assert "No job was preempted or migrated." in sentences(single_policy)
