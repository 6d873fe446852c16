from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import NodeGroup
from kilowait.evaluation import by_priority, by_type, gpu_metrics, gpu_timeline
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.gpu.data import (
    BY_SPEED,
    PANELS,
    GpuData,
    lacking,
    sentences,
)
from kilowait.report.summary import summary
from kilowait.synth import gpu_workload
from tests.report.conftest import contest_of, jobs_of
from tests.report.gpu.conftest import GPUS, gpu_contest


def assert_alike(rows, others):
    assert len(rows) == len(others)
    for row, other in zip(rows, others, strict=True):
        assert list(row) == list(other)
        for name, value in row.items():
            assert value == other[name] or (math.isnan(value) and math.isnan(other[name])), name


def test_the_page_leads_with_completion_times(gpus):
    found = ComparisonData(gpus, 0)
    means = gpus.means("mean_turnaround_s").tolist()
    assert found.placed
    assert [means[who] for who in found.ranked] == sorted(means)
    assert found.judged.metric == "mean_turnaround_s"
    said = " ".join(summary(found))
    assert "The lowest mean completion time (JCT) is that of" in said
    assert "150 jobs on 4 nodes with 12 GPUs" in said
    assert "backfill" not in said
    assert "slowdown" not in said
    assert "turnaround" not in said


def test_other_pages_lead_with_slowdown():
    found = ComparisonData(contest_of(jobs_of(60)), 0)
    assert not found.placed
    assert found.lead.metric == "mean_bsld"
    assert GpuData.of(found) is None
    assert lacking(found) is None


def test_one_run_in_words():
    said = summary(ComparisonData(gpu_contest(policies=["las"]), 0))[1]
    assert said.startswith("Under las jobs take ")
    assert "of the GPUs are held while jobs arrive" in said


def test_numbers_are_those_of_the_evaluation(gpus):
    held = GpuData.of(ComparisonData(gpus, 0))
    window = gpus.windows[0]
    for who, row in held.table.items():
        log = gpus.logs(who, 0)
        again = gpu_metrics(log, GPUS, counted=window.evaluated, horizon_s=window.horizon)
        kept = gpus.gpus[gpus.labels[who]]
        for name, value in row.items():
            assert value == pytest.approx(kept[name] if name in BY_SPEED else again[name], nan_ok=True), name
        assert row["gpu_utilization"] == pytest.approx(gpus.values("utilization")[who, 0])
        assert_alike(held.types[who], by_type(log, GPUS, horizon_s=window.horizon))
        assert_alike(held.priorities[who], by_priority(log))


def test_without_the_speeds_of_the_run_nothing_is_made_up():
    held = GpuData.of(ComparisonData(gpu_contest(measured=False), 0))
    assert all(math.isnan(row[name]) for row in held.table.values() for name in BY_SPEED)
    said = " ".join(sentences(held))
    assert "need the speeds of the run" in said
    assert "GPU-hours of work lost" not in said


def test_windows_are_put_together():
    contest = gpu_contest(windows=3)
    held = GpuData.of(ComparisonData(contest, 0))
    logs = [contest.logs(1, number) for number in range(3)]
    again = [
        gpu_metrics(log, GPUS, counted=window.evaluated, horizon_s=window.horizon)
        for log, window in zip(logs, contest.windows, strict=True)
    ]
    assert held.table[1]["mean_jct_s"] == pytest.approx(np.mean([row["mean_jct_s"] for row in again]))
    hours = sum(row["gpu_hours"] for log in logs for row in by_type(log, GPUS) if row["type"] == "A100")
    assert next(row for row in held.types[1] if row["type"] == "A100")["gpu_hours"] == pytest.approx(hours)
    jobs = sum(int(window.evaluated.sum()) for window in contest.windows)
    assert sum(row["jobs"] for row in held.priorities[1]) == jobs


def test_lines_are_shares_of_each_type(gpus):
    held = GpuData.of(ComparisonData(gpus, 0))
    assert held.sizes == {"T4": 8, "A100": 4}
    for who, lines in held.lines.items():
        used = gpu_timeline(gpus.logs(who, 0), GPUS)
        assert list(lines.held) == ["T4", "A100"]
        assert lines.held["T4"].value.tolist() == (used["T4"].value / 8).tolist()
        assert all(series.value.min() >= 0 and series.value.max() <= 1 for series in lines.held.values())
        assert lines.fragments.value.min() >= 0


def test_small_types_are_drawn_together():
    """Ten types of one node: six by themselves, four as one, and together they are all the GPUs held."""
    names = ("A100", "V100", "T4", "P100", "K80", "L4", "A10", "A30", "H100", "P40")
    many = kw.Cluster(tuple(NodeGroup(n, 1, cores=16, gpus=8, gpu_type=n, node_level=True) for n in names))
    contest = kw.compare(gpu_workload(80, many, load=1.2, seed=1), many, ["fcfs"])
    held = GpuData.of(ComparisonData(contest, 0))
    assert len(held.sizes) == PANELS
    assert held.sizes["4 other types"] == 32
    assert sum(held.sizes.values()) == 80
    lines, used = held.lines[0].held, gpu_timeline(contest.logs(0, 0), many)
    first, last = used["A100"].edge_s[[0, -1]]
    total = sum(float(lines[name].integral(first, last)) * gpus for name, gpus in held.sizes.items())
    assert total == pytest.approx(sum(float(series.integral(first, last)) for series in used.values()))


def test_what_is_lacking_is_said(gpus):
    found = ComparisonData(gpus, 0)
    assert lacking(found) is None
    no_machine = ComparisonData(replace(gpus, cluster={}), 0)
    assert "does not say what nodes there are" in lacking(no_machine)
    assert GpuData.of(no_machine) is None
    no_pieces = ComparisonData(
        replace(gpus, logs=lambda who, window: replace(gpus.logs(who, window), pieces=None)), 0
    )
    assert "no pieces.parquet" in lacking(no_pieces)
    assert GpuData.of(no_pieces) is None


def test_sentences(gpus):
    held = GpuData.of(ComparisonData(gpus, 0))
    said = sentences(held)
    assert said[0].count("(under ") >= 2
    assert "while jobs arrive" in said[0]
    preempted = gpus.gpus["las"]["preemptions"]
    assert preempted > 0
    assert f"las: {preempted:,.0f} preemptions, no work lost" in " ".join(said)
    assert "fcfs:" not in next(one for one in said if "put out" in one)
    alone = GpuData.of(ComparisonData(gpu_contest(policies=["fcfs"]), 0))
    assert "No job was preempted or moved." in sentences(alone)
