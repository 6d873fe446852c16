"""Comparison: equal windows for all policies; all jobs but the warm-up are counted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import NodeGroup
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation import gpu_metrics, metrics
from kilowait.evaluation.comparison import Comparison, PolicyConfig, cut_windows, single_window
from kilowait.evaluation.storage import load_comparison, save_comparison
from kilowait.synth import GpuWorkloadSettings, gpu_workload

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
def comparison(jobs):
    cut = cut_windows(jobs, 6, window_jobs=150, warmup_jobs=100, seed=1)
    return kw.compare(cut, CLUSTER, ["fcfs", "saf", "sjf"], clairvoyant=True)


def test_values_are_over_the_counted_jobs(comparison):
    window = comparison.windows[2]
    log = kw.simulate(window.jobs, CLUSTER, "saf", "easy")
    records = log.jobs()
    wait = records["wait_s"][window.warmup :]
    assert len(wait) == 150
    assert comparison.values("mean_wait_s")[1, 2] == pytest.approx(wait.mean(), rel=1e-12)
    run = records["run_s"][window.warmup :]
    bsld = np.maximum(1, records["turnaround_s"][window.warmup :] / np.maximum(run, 10))
    assert comparison.values("mean_bsld")[1, 2] == pytest.approx(bsld.mean(), rel=1e-12)
    result = comparison.table[1][2]
    assert result["jobs"] == result["started"] == 150
    assert (result["horizon_start_s"], result["horizon_end_s"]) == window.horizon


def test_horizons_are_equal_for_all_policies(comparison):
    ends = comparison.values("horizon_end_s")
    assert (ends == ends[0]).all()
    assert (comparison.values("jobs") == 150).all()


def test_clairvoyant_policy_is_evaluated_on_the_original_jobs(comparison):
    perfect_index = comparison.labels.index("saf, perfect estimates")
    log = comparison.logs(perfect_index, 0)
    assert log.jobs_table["estimate_s"].tolist() == comparison.windows[0].jobs["estimate_s"].tolist()
    exact = comparison.windows[0].jobs.with_columns(estimate_s=comparison.windows[0].jobs["runtime_s"])
    expected = kw.simulate(exact, CLUSTER, "saf", "easy").jobs()["start_s"]
    np.testing.assert_array_equal(log.jobs()["start_s"], expected)
    judgement = comparison.significance("mean_bsld", seed=0)
    assert {mean.policy for mean in judgement.means} == {"fcfs", "saf", "sjf"}


def test_gap_closed(comparison):
    mean = dict(zip(comparison.labels, comparison.means("mean_bsld"), strict=True))
    best = min(("fcfs", "saf", "sjf"), key=lambda name: mean[name])
    mean_with_perfect_estimates = mean[f"{best}, perfect estimates"]
    gap = comparison.gap_closed("mean_bsld")
    assert gap[best] == 0.0 and gap[f"{best}, perfect estimates"] == pytest.approx(1.0)
    assert gap["fcfs"] == pytest.approx((mean[best] - mean["fcfs"]) / (mean[best] - mean_with_perfect_estimates))
    assert gap["fcfs"] < 0


def test_gap_without_a_difference(jobs):
    exact = jobs.with_columns(estimate_s=jobs["runtime_s"])
    cut = cut_windows(exact, 3, window_jobs=100, seed=0)
    result = kw.compare(cut, CLUSTER, ["saf"], clairvoyant=True)
    assert math.isnan(result.gap_closed("mean_bsld")["saf"])
    assert kw.compare(cut, CLUSTER, ["saf"]).gap_closed("mean_bsld") == {}


def test_single_run_is_divided_into_batches(jobs):
    result = kw.compare(jobs, CLUSTER, ["fcfs", "saf"])
    assert result.batched
    scores = result.scores("mean_wait_s")
    assert scores.values.shape == (2, 30)
    wait = result.logs(1, 0).jobs()["wait_s"]
    assert scores.values[1, 0] == pytest.approx(wait[:50].mean())
    assert scores.values[1].mean() == pytest.approx(wait.mean())
    assert result.scores("utilization").values.shape == (2, 1)


def test_batches_without_a_start_are_left_out():
    jobs = kw.JobTable(job_id=range(60), submit_s=range(60), runtime_s=[1] * 60, nodes=[1] * 4 + [9] * 56)
    result = kw.compare(jobs, kw.Cluster.from_nodes(4), ["fcfs", "sjf"], on_oversized="drop")
    assert result.scores("mean_wait_s").values.shape == (2, 2)


def test_custom_policies_and_names(jobs):
    @kw.policy
    def mine(job, now):
        return job.nodes

    result = kw.compare(jobs[:200], CLUSTER, {"fcfs": "fcfs", "ours": mine})
    assert result.labels == ("fcfs", "ours")
    assert kw.compare(jobs[:50], CLUSTER, [mine]).labels == ("mine",)


def test_labels():
    assert [c.label for c in (PolicyConfig("a", "easy"), PolicyConfig("a", "none"), PolicyConfig("a", 3))] == [
        "a",
        "a, no backfill",
        "a, 3 backfill",
    ]


def test_labels_on_node_level_clusters():
    """GPU clusters have no backfilling: the first job that does not fit blocks the others, or is skipped."""
    configurations = [replace(PolicyConfig("a", backfill), node_level=True) for backfill in ("none", "skip")]
    assert [configuration.label for configuration in configurations] == ["a", "a, skip"]


@pytest.fixture(scope="module")
def gpu_comparison():
    """las and fcfs on a small heterogeneous GPU cluster."""
    cluster = replace(GPUS, node_groups=(1, 0, 1))
    return kw.compare(
        gpu_workload(60, cluster, GpuWorkloadSettings(shared=0.5), load=1.2, seed=3), cluster, ["las", "fcfs"]
    )


def test_comparisons_on_node_level_clusters_have_the_cluster(gpu_comparison):
    assert gpu_comparison.labels == ("las", "fcfs")
    assert gpu_comparison.machine == replace(GPUS, node_groups=(1, 0, 1))
    window = gpu_comparison.windows[0]
    for policy_index, row in enumerate(gpu_comparison.table):
        log, horizon = gpu_comparison.logs(policy_index, 0), window.horizon
        gpu_utilization = gpu_metrics(log, gpu_comparison.machine, horizon_s=horizon)["gpu_utilization"]
        assert row[0]["utilization"] == pytest.approx(gpu_utilization, rel=1e-12)
        assert row[0]["utilization"] != metrics(log, horizon=horizon)["utilization"]
    assert kw.compare(kw.lublin(20, 32, seed=0), CLUSTER, ["fcfs"]).machine is None


def test_invalid_cluster_description(gpu_comparison):
    with pytest.raises(InputError, match="description of the machine"):
        _ = replace(gpu_comparison, cluster={"group": [{"name": "x", "node_level": True, "nodez": 3}]}).machine
    with pytest.raises(InputError, match="description of the machine"):
        _ = replace(gpu_comparison, cluster={**gpu_comparison.cluster, "layout": [0]}).machine


def test_node_level_comparisons_are_saved_and_loaded(gpu_comparison, tmp_path):
    save_comparison(tmp_path / "saved", [gpu_comparison], scenario={}, results={})
    result = load_comparison(tmp_path / "saved").comparisons[0]
    assert (result.labels, result.policies, result.machine) == (
        gpu_comparison.labels,
        gpu_comparison.policies,
        gpu_comparison.machine,
    )
    assert result.values("utilization").tolist() == gpu_comparison.values("utilization").tolist()


def test_invalid_comparisons(jobs):
    cut = single_window(jobs)
    with pytest.raises(InputError, match="at least one, each once"):
        Comparison("x", 32, cut, (), lambda c, w: None)
    with pytest.raises(InputError, match="each once"):
        Comparison("x", 32, cut, (PolicyConfig("a", "easy"), PolicyConfig("a", "easy")), lambda c, w: None)
    result = kw.compare(jobs[:50], CLUSTER, ["fcfs"])
    with pytest.raises(UnknownNameError, match="did you mean 'mean_bsld'"):
        result.values("mean_bslt")


def test_frames_of_a_comparison():
    jobs = kw.lublin(120, 16, load=0.9, seed=1)
    result = kw.compare(jobs, kw.Cluster.from_nodes(16), ["fcfs", "saf_short"], windows=3, window_jobs=40)
    frame = result.to_pandas()
    assert list(frame["policy"]) == ["fcfs"] * 3 + ["saf_short"] * 3 and list(frame["window"]) == [0, 1, 2] * 2
    assert frame["mean_bsld"].to_numpy() == pytest.approx(result.values("mean_bsld").ravel())
    assert result.to_dict()["records"][0]["mean_wait_s"] == result.table[0][0]["mean_wait_s"]
    latex = result.to_latex(["mean_bsld"])
    assert latex.count(r"\\") == 3 and r"saf\_short & " in latex and f"{result.means('mean_bsld')[0]:.4g}" in latex


def test_report_of_a_comparison(tmp_path):
    pytest.importorskip("matplotlib")
    jobs = kw.lublin(120, 16, load=0.9, seed=1)
    result = kw.compare(jobs, kw.Cluster.from_trace(jobs), ["fcfs", "saf"], windows=3, window_jobs=40)
    page = kw.write_report(result, tmp_path / "page.html")
    assert "saf" in page.read_text(encoding="utf-8")


def test_values_over_windows_are_maxima_sums_and_means(comparison):
    longest = comparison.values("max_wait_s").max(axis=1)
    assert comparison.over_windows("max_wait_s").tolist() == longest.tolist()
    assert comparison.over_windows("starved_jobs").tolist() == comparison.values("starved_jobs").sum(axis=1).tolist()
    assert comparison.over_windows("mean_wait_s") == pytest.approx(comparison.means("mean_wait_s"))
    assert comparison.longest_wait_s == dict(zip(comparison.labels[:3], longest[:3].tolist(), strict=True))


def test_fcfs_of_a_comparison():
    def fcfs(*policies):
        return Comparison("x", 32, single_window(kw.lublin(10, 8, seed=0)), policies, lambda c, w: None).fcfs_label

    assert fcfs(PolicyConfig("saf", "easy"), PolicyConfig("fcfs", "none"), PolicyConfig("fcfs", "easy")) == "fcfs"
    assert fcfs(PolicyConfig("saf", "easy"), PolicyConfig("fcfs", "none")) == "fcfs, no backfill"
    assert fcfs(PolicyConfig("saf", "easy"), PolicyConfig("fcfs", "easy", "clairvoyant")) is None


def test_common_backfill_is_not_in_the_labels(gpu_comparison):
    skip = tuple(replace(policy, backfill="skip") for policy in gpu_comparison.policies)
    by_old_label = {"las, skip": {"mean_rho": 1.0}, "fcfs, skip": {"mean_rho": 2.0}}
    common = replace(gpu_comparison, policies=skip, gpus=by_old_label)
    assert (common.labels, common.common_backfill) == (("las", "fcfs"), "skip")
    assert common.gpus["fcfs"] == {"mean_rho": 2.0}, "folders may have the longer labels"
    mixed = replace(gpu_comparison, policies=(skip[0], gpu_comparison.policies[1]))
    assert (mixed.labels, mixed.common_backfill) == (("las, skip", "fcfs"), None)
