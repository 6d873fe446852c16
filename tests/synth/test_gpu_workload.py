"""The parametric GPU workload."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.cluster import Cluster, NodeGroup
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.synth import GpuWorkloadSettings, gavel_jobs, gpu_load, gpu_workload
from kilowait.synth.gpu_workload import ARRIVALS, DURATIONS, LOGNORMAL_S, MODEL_TYPES, MULTI_GPU_MODELS

MIXED = Cluster.preset("gpu-mixed")


@given(
    st.integers(2, 300),
    st.floats(0.01, 5.0),
    st.sampled_from(ARRIVALS),
    st.sampled_from(DURATIONS),
    st.sampled_from([0.0, 0.4, 1.0]),
    st.integers(0, 5),
)
def test_offered_load_is_exact(count, load, arrivals, durations, shared, seed):
    workload = gpu_workload(
        count, MIXED, GpuWorkloadSettings(arrivals=arrivals, durations=durations, shared=shared), load=load, seed=seed
    )
    assert gpu_load(workload, MIXED) == pytest.approx(load, rel=1e-12)
    submit = workload["submit_s"]
    assert submit[0] == 0 and (np.diff(submit) >= 0).all()
    assert (workload["runtime_s"] >= 1).all()


def test_gpu_load():
    rows = {"job_id": [1, 2, 3], "submit_s": [0, 10, 100], "runtime_s": [100] * 3, "nodes": [1] * 3}
    jobs = JobTable(**rows, gpus=[4, 1, 0], gpu_milli=[1000, 250, 1000])
    assert gpu_load(jobs, MIXED) == pytest.approx((400 + 25) / (56 * 100))


def test_shares_of_sizes_fractions_and_priorities():
    workload = gpu_workload(
        20_000,
        MIXED,
        GpuWorkloadSettings(sizes={1: 3, 4: 1}, shared=0.5, parts={250: 1, 500: 1}, priorities={-1: 0.25, 7: 0.75}),
    )
    fractional = workload["gpu_milli"] < 1000
    assert fractional.mean() == pytest.approx(0.5, abs=0.01)
    assert (workload["gpus"][fractional] == 1).all()
    assert (workload["gpus"][~fractional] == 4).mean() == pytest.approx(0.25, abs=0.015)
    assert set(workload["gpu_milli"].tolist()) == {250, 500, 1000}
    priorities = Counter(workload["priority"].tolist())
    assert set(priorities) == {-1.0, 7.0} and priorities[7.0] / 20_000 == pytest.approx(0.75, abs=0.01)
    assert "priority" not in gpu_workload(10, MIXED, GpuWorkloadSettings(priorities=None))


def test_multi_gpu_jobs_have_multi_gpu_models():
    workload = gpu_workload(5000, MIXED)
    assert workload.labels["model"] == MODEL_TYPES
    assert set(workload["model"][workload["gpus"] > 1].tolist()) == set(range(len(MULTI_GPU_MODELS)))
    assert set(workload["model"].tolist()) == set(range(len(MODEL_TYPES)))


def test_jobs_larger_than_a_node_use_several_nodes():
    workload = gpu_workload(500, MIXED, GpuWorkloadSettings(sizes={4: 1, 8: 1}))
    assert set(zip(workload["gpus"].tolist(), workload["nodes"].tolist(), strict=True)) == {(4, 1), (8, 2)}
    spanning = gpu_workload(500, MIXED, GpuWorkloadSettings(sizes={6: 1, 8: 1}, gpus_may_span_nodes=True))
    assert (spanning["nodes"] == 1).all() and (spanning["gpus_may_span_nodes"] == 1).all()
    openb = gpu_workload(500, Cluster.preset("openb"), GpuWorkloadSettings(sizes={2: 1, 16: 1}))
    assert set(zip(openb["gpus"].tolist(), openb["nodes"].tolist(), strict=True)) == {(2, 1), (16, 2)}
    philly = gpu_workload(500, Cluster.preset("philly"), GpuWorkloadSettings(sizes={2: 1, 8: 1, 64: 1}))
    assert set(zip(philly["gpus"].tolist(), philly["nodes"].tolist(), strict=True)) == {(2, 1), (8, 1), (64, 8)}


def test_lognormal_matches_helios_median_and_tail():
    workload = gpu_workload(100_000, MIXED, GpuWorkloadSettings(longest_s=1e9))
    logs = np.log(workload["runtime_s"][workload["runtime_s"] > 1])
    assert np.median(workload["runtime_s"]) == pytest.approx(206, rel=0.05)
    assert LOGNORMAL_S[0] * math.exp(LOGNORMAL_S[1] ** 2 / 2) == pytest.approx(6651.681)
    upper = np.quantile(logs, 0.975) - np.median(logs)
    assert upper / 1.96 == pytest.approx(LOGNORMAL_S[1], rel=0.03)


def test_pareto_distribution_function():
    runtime = gpu_workload(100_000, MIXED, GpuWorkloadSettings(durations="pareto"))["runtime_s"]
    assert runtime.min() == pytest.approx(60, rel=1e-3) and runtime.max() <= 30 * 86400
    truncated_mass = 1 - (60 / (30 * 86400)) ** 0.7
    for runtime_s in (100.0, 1000.0, 50_000.0):
        assert (runtime <= runtime_s).mean() == pytest.approx((1 - (60 / runtime_s) ** 0.7) / truncated_mass, abs=0.006)


def test_gavel_distribution():
    minutes = gpu_workload(50_000, MIXED, GpuWorkloadSettings(durations="gavel"))["runtime_s"] / 60
    assert (minutes > 1000).mean() == pytest.approx(0.2, abs=0.006)
    assert minutes.min() >= 10**1.5 and minutes.max() <= 10**4
    short = gpu_workload(5_000, MIXED, GpuWorkloadSettings(durations="gavel", longest_s=60 * 100.0))["runtime_s"] / 60
    assert np.median(np.log10(short)) == pytest.approx(1.75, abs=0.02) and short.max() <= 100


def test_mean_run_time():
    assert gpu_workload(1000, MIXED, GpuWorkloadSettings(mean_s=7200))["runtime_s"].mean() == pytest.approx(7200)


def test_arrivals_by_kind():
    cv = {}
    for kind in ARRIVALS:
        gaps = np.diff(gpu_workload(20_000, MIXED, GpuWorkloadSettings(arrivals=kind, mean_s=3600))["submit_s"])
        cv[kind] = gaps.std() / gaps.mean()
    assert cv["poisson"] == pytest.approx(1, abs=0.03)
    assert cv["bursty"] == pytest.approx(4, rel=0.15)
    daily = gpu_workload(20_000, MIXED, GpuWorkloadSettings(arrivals="daily", mean_s=36_000))["submit_s"]
    hours = np.bincount((daily // 3600 % 24).astype(int), minlength=24)
    assert hours[9:17].sum() > 1.5 * hours[:8].sum()


def test_parameters_have_separate_random_streams():
    one, other = (
        gpu_workload(200, MIXED, seed=3),
        gpu_workload(200, MIXED, GpuWorkloadSettings(sizes={2: 1}), seed=3, load=0.5),
    )
    np.testing.assert_array_equal(one["runtime_s"], other["runtime_s"])
    np.testing.assert_array_equal(one["user"], other["user"])
    assert (gpu_workload(200, MIXED, seed=4)["runtime_s"] != one["runtime_s"]).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jobs": 1}, "1 job\\(s\\) have no offered load"),
        ({"jobs": 2.5}, "number of jobs is 2.5"),
        ({"load": 0}, "the load is 0"),
        ({"load": math.nan}, "the load is nan"),
        ({"shared": 1.5}, "share of jobs with a fraction of a GPU is 1.5"),
        ({"shared": 1, "parts": {1200: 1}}, "fractions of a GPU go from 1200"),
        ({"sizes": {}}, "weights of sizes are \\[\\]"),
        ({"sizes": {1: -1}}, "weights of sizes are \\[-1\\]"),
        ({"sizes": {0: 1}}, "a job size is 0 GPUs"),
        ({"sizes": {5: 1}}, "has room for 5 at once, the same number on each node"),
        ({"sizes": {1.5: 1}}, "sizes contain 1.5; they must be whole numbers"),
        ({"sizes": {17: 1}}, "no type of GPU of cluster 'gpu-mixed' has room for 17"),
        ({"sizes": {17: 1}, "gpus_may_span_nodes": True}, "has room for 17"),
        ({"longest_s": 0.0}, "longest run time is 0.0 s"),
        ({"mean_s": math.inf}, "mean run time is inf"),
        ({"priorities": {1: 0}}, "weights of priorities"),
        ({"seed": -1}, "seed is -1"),
        ({"cluster": Cluster((NodeGroup("cpu", 3, node_level=True),))}, "has no GPUs; use one that has"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        call = {"jobs": 10, "cluster": MIXED, **arguments}
        settings = {name: call.pop(name) for name in arguments if name not in ("jobs", "cluster", "load", "seed")}
        gpu_workload(**call, settings=GpuWorkloadSettings(**settings))


def test_unknown_kinds():
    with pytest.raises(UnknownNameError, match="kind of arrivals 'possion'; did you mean 'poisson'"):
        gpu_workload(10, MIXED, GpuWorkloadSettings(arrivals="possion"))
    with pytest.raises(UnknownNameError, match="kind of durations"):
        gpu_workload(10, MIXED, GpuWorkloadSettings(durations="normal"))


def test_load_needs_gpus_and_time():
    row = {"job_id": [1], "submit_s": [0], "runtime_s": [1], "nodes": [1]}
    with pytest.raises(InputError, match="no column 'gpus'"):
        gpu_load(JobTable(**row), MIXED)
    with pytest.raises(InputError, match=r"1 job\(s\) have no offered load"):
        gpu_load(JobTable(**row, gpus=[1]), MIXED)


FIRST = {
    "submit_s": [0.0, 244.5860729103015, 951.7748275290958, 1367.5426956563874],
    "runtime_s": [68344.35010595087, 428534.3465465274, 3278.8802495654304, 193739.7359295212],
    "gpus": [8, 1, 1, 4],
    "model": [
        "ResNet-18 (batch size 64)",
        "ResNet-50 (batch size 128)",
        "Transformer (batch size 256)",
        "Transformer (batch size 64)",
    ],
    "priority": [1.0, 1.0, 1.0, 1.0],
    "slack_s": [615099.1509535578, 3856809.1189187467, 3278.8802495654304, 38747.94718590423],
}


@pytest.mark.parametrize(("seed", "hours"), [(0, 17.41), (1, 16.17), (2, 18.05)])
def test_mean_run_time_of_the_measured_jobs(seed, hours):
    """As measured with Gavel's program."""
    jobs = gavel_jobs(5000, 4.0, seed)
    assert jobs["runtime_s"][4000:].mean() / 3600 == pytest.approx(hours, abs=0.005)
    assert (jobs["gpus"] == 1).all() and "gpus_may_span_nodes" not in jobs and "priority" not in jobs


def test_first_jobs():
    """Bit-identical to Gavel's order of random numbers."""
    jobs = gavel_jobs(4, 4.0, 0, multi_gpu=True, priorities=True, slo=True)
    assert jobs["submit_s"].tolist() == FIRST["submit_s"]
    assert jobs["runtime_s"].tolist() == FIRST["runtime_s"]
    assert jobs["gpus"].tolist() == FIRST["gpus"]
    assert [MODEL_TYPES[code] for code in jobs["model"]] == FIRST["model"]
    assert jobs["priority"].tolist() == FIRST["priority"]
    assert jobs["slack_s"].tolist() == pytest.approx(FIRST["slack_s"])


def test_rate_only_scales_arrival_times():
    slow, fast = gavel_jobs(500, 0.4, 3), gavel_jobs(500, 4.0, 3)
    np.testing.assert_allclose(slow["submit_s"], 10 * fast["submit_s"], rtol=1e-12)
    for name in ("runtime_s", "model"):
        np.testing.assert_array_equal(slow[name], fast[name])
    assert fast["submit_s"][-1] / 499 == pytest.approx(900, rel=0.15)
    assert (gavel_jobs(9, math.inf, 3)["submit_s"] == 0).all()


def test_sizes_models_and_weights():
    jobs = gavel_jobs(20_000, 4.0, 5, multi_gpu=True, priorities=True, slo=True)
    shares = {size: count / 20_000 for size, count in Counter(jobs["gpus"].tolist()).items()}
    assert shares == pytest.approx({1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}, abs=0.01)
    multi_gpu = set(jobs["model"][jobs["gpus"] > 1].tolist())
    assert multi_gpu == set(range(len(MULTI_GPU_MODELS)))
    assert set(jobs["model"].tolist()) == set(range(26)) == set(range(len(MODEL_TYPES)))
    assert (jobs["gpus_may_span_nodes"] == 1).all() and (jobs["nodes"] == 1).all()
    assert Counter(jobs["priority"].tolist())[5.0] / 20_000 == pytest.approx(0.2, abs=0.01)
    factors = Counter((1 + jobs["slack_s"] / jobs["runtime_s"]).round(6).tolist())
    assert set(factors) == {1.2, 2.0, 10.0} and min(factors.values()) > 6000
    minutes = jobs["runtime_s"] / 60
    assert minutes.min() >= 10**1.5 and minutes.max() <= 10**4
    assert (minutes > 1000).mean() == pytest.approx(0.2, abs=0.01)


def test_deadlines_do_not_change_the_jobs():
    with_slo, without = gavel_jobs(300, 4.0, 1, slo=True), gavel_jobs(300, 4.0, 1)
    for name in ("submit_s", "runtime_s", "model"):
        np.testing.assert_array_equal(with_slo[name], without[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4.0), "number of jobs is 0"),
        ((2.5, 4.0), "number of jobs is 2.5"),
        ((5, 0.0), "0.0 jobs per hour"),
        ((5, math.nan), "nan jobs per hour"),
        ((5, 4.0, -1), "seed is -1"),
        ((5, 4.0, "x"), "seed is 'x'"),
    ],
)
def test_invalid_arguments_of_gavel_jobs(arguments, message):
    with pytest.raises(InputError, match=message):
        gavel_jobs(*arguments)
