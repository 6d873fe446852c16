"""A contest: the same windows for all, every job counted, warm-up not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import NodeGroup
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation import gpu_metrics, metrics
from kilowait.evaluation.comparison import (
    Comparison,
    PolicyConfig,
    cut_windows,
    single_window,
)
from kilowait.evaluation.storage import load_comparison, save_comparison
from kilowait.synth import gpu_workload

CLUSTER = kw.Cluster.from_nodes(32)
GPUS = kw.Cluster(
    (
        NodeGroup("v", 1, cores=16, gpus=4, gpu_type="V100", node_level=True),
        NodeGroup("t", 2, cores=16, gpus=4, gpu_type="T4", node_level=True),
    ),
    queues={"all": ("t", "v")},
)


@pytest.fixture(scope="module")
def jobs():
    return kw.lublin(1500, 32, load=0.95, seed=2, estimates="rounded")


@pytest.fixture(scope="module")
def contest(jobs):
    cut = cut_windows(jobs, 6, window_jobs=150, warmup_jobs=100, seed=1)
    return kw.compare(cut, CLUSTER, ["fcfs", "saf", "sjf"], clairvoyant=True)


def test_values_are_those_of_the_counted_jobs(contest):
    window = contest.windows[2]
    log = kw.simulate(window.jobs, CLUSTER, "saf", "easy")
    records = log.jobs()
    wait = records["wait_s"][window.warmup :]
    assert len(wait) == 150
    assert contest.values("mean_wait_s")[1, 2] == pytest.approx(wait.mean(), rel=1e-12)
    run = records["run_s"][window.warmup :]
    bsld = np.maximum(1, records["turnaround_s"][window.warmup :] / np.maximum(run, 10))
    assert contest.values("mean_bsld")[1, 2] == pytest.approx(bsld.mean(), rel=1e-12)
    found = contest.table[1][2]
    assert found["jobs"] == found["started"] == 150
    assert (found["horizon_start_s"], found["horizon_end_s"]) == window.horizon


def test_horizons_are_equal_for_all_policies(contest):
    ends = contest.values("horizon_end_s")
    assert (ends == ends[0]).all()
    assert (contest.values("jobs") == 150).all()


def test_clairvoyant_policy_is_evaluated_on_the_original_jobs(contest):
    knowing = contest.labels.index("saf, perfect estimates")
    log = contest.logs(knowing, 0)
    assert log.jobs_table["estimate_s"].tolist() == contest.windows[0].jobs["estimate_s"].tolist()
    exact = contest.windows[0].jobs.with_columns(estimate_s=contest.windows[0].jobs["runtime_s"])
    expected = kw.simulate(exact, CLUSTER, "saf", "easy").jobs()["start_s"]
    np.testing.assert_array_equal(log.jobs()["start_s"], expected)
    judgement = contest.significance("mean_bsld", seed=0)
    assert {mean.policy for mean in judgement.means} == {"fcfs", "saf", "sjf"}


def test_gap_closed(contest):
    mean = dict(zip(contest.labels, contest.means("mean_bsld"), strict=True))
    best = min(("fcfs", "saf", "sjf"), key=lambda name: mean[name])
    twin = mean[f"{best}, perfect estimates"]
    gap = contest.gap_closed("mean_bsld")
    assert gap[best] == 0.0 and gap[f"{best}, perfect estimates"] == pytest.approx(1.0)
    assert gap["fcfs"] == pytest.approx((mean[best] - mean["fcfs"]) / (mean[best] - twin))
    assert gap["fcfs"] < 0


def test_gap_without_room(jobs):
    exact = jobs.with_columns(estimate_s=jobs["runtime_s"])
    cut = cut_windows(exact, 3, window_jobs=100, seed=0)
    found = kw.compare(cut, CLUSTER, ["saf"], clairvoyant=True)
    assert math.isnan(found.gap_closed("mean_bsld")["saf"])
    assert kw.compare(cut, CLUSTER, ["saf"]).gap_closed("mean_bsld") == {}


def test_a_single_run_is_divided_into_batches(jobs):
    found = kw.compare(jobs, CLUSTER, ["fcfs", "saf"])
    assert found.batched
    scores = found.scores("mean_wait_s")
    assert scores.values.shape == (2, 30)
    wait = found.logs(1, 0).jobs()["wait_s"]
    assert scores.values[1, 0] == pytest.approx(wait[:50].mean())
    assert scores.values[1].mean() == pytest.approx(wait.mean())
    assert found.scores("utilization").values.shape == (2, 1)


def test_batches_without_a_start_are_left_out():
    jobs = kw.JobTable(job_id=range(60), submit_s=range(60), runtime_s=[1] * 60, nodes=[1] * 4 + [9] * 56)
    found = kw.compare(jobs, kw.Cluster.from_nodes(4), ["fcfs", "sjf"], on_oversized="drop")
    assert found.scores("mean_wait_s").values.shape == (2, 2)


def test_custom_policies_and_names(jobs):
    @kw.policy
    def mine(job, now):
        return job.nodes

    found = kw.compare(jobs[:200], CLUSTER, {"fcfs": "fcfs", "ours": mine})
    assert found.labels == ("fcfs", "ours")
    assert kw.compare(jobs[:50], CLUSTER, [mine]).labels == ("mine",)


def test_labels():
    assert [
        c.label for c in (PolicyConfig("a", "easy"), PolicyConfig("a", "none"), PolicyConfig("a", 3))
    ] == [
        "a",
        "a, no backfill",
        "a, 3 backfill",
    ]


def test_labels_on_node_level_clusters():
    """There is no backfilling to speak of: either the first that does not fit keeps the others waiting, or not."""
    placed = [replace(PolicyConfig("a", backfill), node_level=True) for backfill in ("none", "skip")]
    assert [who.label for who in placed] == ["a", "a, skip"]


@pytest.fixture(scope="module")
def placed():
    """las and fcfs on a small heterogeneous GPU cluster."""
    cluster = replace(GPUS, node_groups=(1, 0, 1))
    return kw.compare(gpu_workload(60, cluster, load=1.2, shared=0.5, seed=3), cluster, ["las", "fcfs"])


def test_comparisons_on_node_level_clusters_have_the_cluster(placed):
    assert placed.labels == ("las", "fcfs")
    assert placed.machine == replace(GPUS, node_groups=(1, 0, 1))
    window = placed.windows[0]
    for who, row in enumerate(placed.table):
        log, horizon = placed.logs(who, 0), window.horizon
        held = gpu_metrics(log, placed.machine, horizon_s=horizon)["gpu_utilization"]
        assert row[0]["utilization"] == pytest.approx(held, rel=1e-12)
        assert row[0]["utilization"] != metrics(log, horizon=horizon)["utilization"]
    assert kw.compare(kw.lublin(20, 32, seed=0), CLUSTER, ["fcfs"]).machine is None


def test_invalid_cluster_description(placed):
    with pytest.raises(InputError, match="description of the machine"):
        _ = replace(placed, cluster={"group": [{"name": "x", "node_level": True, "nodez": 3}]}).machine
    with pytest.raises(InputError, match="description of the machine"):
        _ = replace(placed, cluster={**placed.cluster, "layout": [0]}).machine


def test_node_level_comparisons_are_saved_and_loaded(placed, tmp_path):
    save_comparison(tmp_path / "kept", [placed], scenario={}, results={})
    found = load_comparison(tmp_path / "kept").comparisons[0]
    assert (found.labels, found.policies, found.machine) == (
        placed.labels,
        placed.policies,
        placed.machine,
    )
    assert found.values("utilization").tolist() == placed.values("utilization").tolist()


def test_wrong_contests(jobs):
    cut = single_window(jobs)
    with pytest.raises(InputError, match="at least one, each once"):
        Comparison("x", 32, cut, (), lambda c, w: None)
    with pytest.raises(InputError, match="each once"):
        Comparison("x", 32, cut, (PolicyConfig("a", "easy"), PolicyConfig("a", "easy")), lambda c, w: None)
    found = kw.compare(jobs[:50], CLUSTER, ["fcfs"])
    with pytest.raises(UnknownNameError, match="did you mean 'mean_bsld'"):
        found.values("mean_bslt")


def test_frames_of_a_comparison():
    jobs = kw.lublin(120, 16, load=0.9, seed=1)
    found = kw.compare(jobs, kw.Cluster.from_nodes(16), ["fcfs", "saf_short"], windows=3, window_jobs=40)
    frame = found.to_pandas()
    assert (
        list(frame["policy"]) == ["fcfs"] * 3 + ["saf_short"] * 3 and list(frame["window"]) == [0, 1, 2] * 2
    )
    assert frame["mean_bsld"].to_numpy() == pytest.approx(found.values("mean_bsld").ravel())
    assert found.to_dict()["records"][0]["mean_wait_s"] == found.table[0][0]["mean_wait_s"]
    latex = found.to_latex(["mean_bsld"])
    assert (
        latex.count(r"\\") == 3
        and r"saf\_short & " in latex
        and f"{found.means('mean_bsld')[0]:.4g}" in latex
    )


def test_a_comparison_is_a_report_without_a_folder(tmp_path):
    pytest.importorskip("matplotlib")
    jobs = kw.lublin(120, 16, load=0.9, seed=1)
    found = kw.compare(jobs, kw.Cluster.from_trace(jobs), ["fcfs", "saf"], windows=3, window_jobs=40)
    page = kw.write_report(found, tmp_path / "page.html")
    assert "saf" in page.read_text(encoding="utf-8")
