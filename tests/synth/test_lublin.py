from __future__ import annotations

import gzip
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.synth import (
    BATCH_PARAMETERS,
    COMBINED_PARAMETERS,
    INTERACTIVE_PARAMETERS,
    lublin,
    offered_load,
    user_estimates,
)
from kilowait.synth.lublin import LIMITS_S, DailyCycle, gamma_cdf
from tests.synth import reference_lublin

KINDS = {
    "combined": reference_lublin.COMBINED,
    "batch": reference_lublin.BATCH,
    "interactive": reference_lublin.INTERACTIVE,
}


@pytest.fixture(scope="module", params=KINDS)
def reference_and_workload(request):
    """40,000 jobs by the reference and 200,000 by the package, for 128 nodes."""
    kind = KINDS[request.param]
    rng = random.Random(7)
    sizes = [reference_lublin.size(kind, rng) for _ in range(40_000)]
    runtimes = [reference_lublin.runtime(kind, nodes, rng) for nodes in sizes]
    gaps = [reference_lublin.gap(kind, rng) for _ in range(40_000)]
    times = reference_lublin.arrivals(gaps, reference_lublin.weights(kind))
    reference = {"nodes": np.array(sizes), "runtime_s": np.array(runtimes, float), "submit_s": np.array(times)}
    return reference, lublin(200_000, 128, model=request.param, seed=11)


def test_shares_of_sizes_agree(reference_and_workload):
    reference, workload = reference_and_workload
    for share in (
        lambda nodes: nodes == 1,
        lambda nodes: (nodes > 1) & (nodes & (nodes - 1) == 0),
        lambda nodes: nodes > 16,
        lambda nodes: nodes > 32,
        lambda nodes: nodes >= 128,
    ):
        assert share(workload["nodes"]).mean() == pytest.approx(share(reference["nodes"]).mean(), abs=0.012)
    assert workload["nodes"].mean() == pytest.approx(reference["nodes"].mean(), rel=0.03)
    assert workload["nodes"].max() == reference["nodes"].max()


def test_run_times_agree(reference_and_workload):
    reference, workload = reference_and_workload
    quantiles = np.arange(0.05, 1.0, 0.05)
    expected = np.quantile(np.log(reference["runtime_s"]), quantiles)
    np.testing.assert_allclose(np.quantile(np.log(workload["runtime_s"]), quantiles), expected, atol=0.12)
    assert workload["runtime_s"].mean() == pytest.approx(reference["runtime_s"].mean(), rel=0.1)  # heavy tails
    assert workload["runtime_s"].max() <= math.exp(12)
    assert workload["runtime_s"].min() >= 1
    assert (workload["runtime_s"] == np.floor(workload["runtime_s"])).all()


def test_run_times_by_size_agree(reference_and_workload):
    reference, workload = reference_and_workload
    for low, high in ((1, 1), (2, 8), (16, 32)):
        in_reference = (reference["nodes"] >= low) & (reference["nodes"] <= high)
        in_workload = (workload["nodes"] >= low) & (workload["nodes"] <= high)
        expected = np.log(reference["runtime_s"][in_reference]).mean()
        assert np.log(workload["runtime_s"][in_workload]).mean() == pytest.approx(expected, abs=0.15)


def test_arrivals_agree(reference_and_workload):
    reference, workload = reference_and_workload
    gaps, expected = np.diff(workload["submit_s"]), np.diff(reference["submit_s"])
    quantiles = (0.1, 0.25, 0.5, 0.75, 0.9)
    np.testing.assert_allclose(
        np.quantile(np.log(gaps), quantiles), np.quantile(np.log(expected), quantiles), atol=0.08
    )
    by_hour = np.bincount((workload["submit_s"] % 86400 // 3600).astype(int), minlength=24) / len(workload)
    hours = np.bincount((reference["submit_s"] % 86400 // 3600).astype(int), minlength=24) / len(reference["submit_s"])
    np.testing.assert_allclose(by_hour, hours, atol=0.02)


@pytest.mark.parametrize("name", KINDS)
def test_mean_interarrival_time_is_that_of_the_truncated_gamma(name):
    """The daily cycle does not change the mean interarrival time, which is that of the truncated Gamma."""
    kind = KINDS[name]
    x = (np.arange(200_000) + 0.5) * (13 / 200_000)
    density = np.exp((kind["aarr"] - 1) * np.log(x) - x / kind["barr"])
    density /= density.sum()
    mean = float(density @ np.exp(x))
    deviation = math.sqrt(float(density @ np.exp(2 * x)) - mean**2)
    workload = lublin(400_000, 128, model=name, seed=6)
    assert workload["submit_s"][-1] / 400_000 == pytest.approx(mean, abs=3 * deviation / math.sqrt(400_000))


def test_shares_are_the_published_ones():
    workload = lublin(400_000, 128, seed=3)
    nodes = workload["nodes"]
    assert (nodes == 1).mean() == pytest.approx(0.244, abs=0.003)
    # Sizes rounded to a power of two, and others that are one by chance.
    assert ((nodes > 1) & (nodes & (nodes - 1) == 0)).mean() > 0.576


@pytest.mark.parametrize("load", [None, 0.5, 0.95])
@pytest.mark.parametrize("model", ["combined", "mixed"])
def test_daily_cycle_at_any_load(model, load):
    workload = lublin(50_000, 256, model=model, load=load, seed=2)
    by_hour = np.bincount((workload["submit_s"] % 86400 // 3600).astype(int), minlength=24)
    night, day = by_hour[2:7].mean(), by_hour[11:17].mean()
    assert day > 3 * night


@pytest.mark.parametrize("model", ["combined", "batch", "interactive", "mixed"])
@pytest.mark.parametrize("load", [0.01, 0.7, 0.9, 3.0])
@pytest.mark.parametrize("jobs", [2, 3, 50, 5000])
def test_load_is_reached(model, load, jobs):
    workload = lublin(jobs, 256, load=load, model=model, seed=5)
    assert len(workload) == jobs
    assert offered_load(workload, 256) == pytest.approx(load, rel=1e-9)
    assert workload.order is None


def test_same_seed_same_jobs():
    first, again = (lublin(3000, 100, load=0.8, seed=4, model="mixed", estimates="rounded") for _ in range(2))
    other = lublin(3000, 100, load=0.8, seed=5, model="mixed", estimates="rounded")
    for name in first.columns:
        np.testing.assert_array_equal(first[name], again[name])
    for name in ("submit_s", "runtime_s", "nodes", "user", "estimate_s", "queue"):
        assert (first[name] != other[name]).any()


def test_job_sizes_grow_with_the_machine():
    before = lublin(5000, 1, seed=9)["nodes"]
    for nodes in (2, 3, 7, 8, 100, 128, 129, 1000, 49_152):
        sizes = lublin(5000, nodes, seed=9)["nodes"]
        assert sizes.max() <= nodes
        assert (sizes >= before).all()
        before = sizes


def test_power_of_two_sizes_on_other_machines():
    kind = replace(COMBINED_PARAMETERS, serial_share=0.0, power2_share=1.0)
    nodes = lublin(20_000, 100, model=kind)["nodes"]
    assert (nodes & (nodes - 1) == 0).all()
    assert nodes.max() == 64


def test_one_node():
    workload = lublin(100, 1, load=0.5)
    assert (workload["nodes"] == 1).all()
    assert offered_load(workload, 1) == pytest.approx(0.5)


def test_one_job():
    assert len(lublin(1, 16)) == 1
    with pytest.raises(InputError, match="one job has no offered load"):
        lublin(1, 16, load=0.5)


def test_mixed_kinds_are_queues():
    workload = lublin(20_000, 128, model="mixed", seed=1)
    assert workload.labels["queue"] == ("batch", "interactive")
    interactive = workload["queue"] == 1
    assert 0.2 < interactive.mean() < 0.9
    assert workload["nodes"][interactive].max() <= 46
    assert workload["nodes"][~interactive].max() == 128
    assert np.median(workload["runtime_s"][interactive]) < np.median(workload["runtime_s"][~interactive])
    assert len(np.unique(lublin(100, 128)["queue"])) == 1


def test_kinds_have_separate_random_streams():
    batch_only = lublin(1000, 128, model="batch", seed=1)
    mixed = lublin(1000, 128, model=(BATCH_PARAMETERS, INTERACTIVE_PARAMETERS), seed=1)
    batch = mixed[mixed["queue"] == 0]
    assert len(batch) > 30
    for name in ("submit_s", "runtime_s", "nodes"):
        np.testing.assert_array_equal(batch[name], batch_only[name][: len(batch)])


def test_estimates():
    exact = lublin(2000, 64)
    np.testing.assert_array_equal(exact["estimate_s"], exact["runtime_s"])
    np.testing.assert_array_equal(lublin(2000, 64, estimates=2.5)["estimate_s"], exact["runtime_s"] * 2.5)
    rounded = lublin(2000, 64, estimates="rounded")
    assert (rounded["estimate_s"] >= rounded["runtime_s"]).all()
    np.testing.assert_array_equal(rounded["runtime_s"], exact["runtime_s"])


def test_users_are_zipf_like():
    workload = lublin(50_000, 64, users=10)
    counts = np.bincount(workload["user"])
    assert len(counts) == 10
    assert counts[0] / counts[1] == pytest.approx(2.0, rel=0.1)
    assert counts[0] / counts[9] == pytest.approx(10.0, rel=0.15)
    assert (lublin(10, 64, users=1)["user"] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jobs": 0}, "number of jobs is 0"),
        ({"jobs": -3}, "number of jobs is -3"),
        ({"jobs": 2.5}, "number of jobs is 2.5; it must be a whole number"),
        ({"jobs": math.nan}, "number of jobs is nan"),
        ({"nodes": 0}, "number of nodes is 0"),
        ({"nodes": "64"}, "number of nodes is '64'"),
        ({"users": 0}, "number of users is 0"),
        ({"load": 0.0}, "load is 0.0"),
        ({"load": -1.0}, "load is -1.0"),
        ({"load": math.nan}, "load is nan"),
        ({"load": math.inf}, "load is inf"),
        ({"load": 1e-300}, "use a higher load"),
        ({"load": 1e300}, "use a lower load"),
        ({"seed": -1}, "seed is -1"),
        ({"estimates": 0.5}, "factor must be finite, and 1 or more"),
        ({"estimates": math.nan}, "estimates are nan times"),
        ({"model": ()}, "no kind of job"),
        ({"model": (BATCH_PARAMETERS, BATCH_PARAMETERS)}, "batch, batch"),
        ({"model": replace(BATCH_PARAMETERS, longest_runtime_log=1e-9)}, "longest_runtime_log of kind 'batch'"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        lublin(**{"jobs": 100, "nodes": 64, **arguments})


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="did you mean 'batch'"):
        lublin(10, 64, model="bach")
    with pytest.raises(UnknownNameError, match="did you mean 'rounded'"):
        lublin(10, 64, estimates="round")


def test_agrees_with_a_log_of_the_authors_program(data_dir):
    """lublin_256 was generated by the published program for 256 nodes, with one kind of job."""
    with gzip.open(data_dir / "swf" / "lublin_256.swf.gz", "rt") as lines:
        rows = np.array([line.split() for line in lines if not line.startswith(";")], float)
    submit, runtime, nodes = rows[:, 1], rows[:, 3], rows[:, 4].astype(int)
    workload = lublin(200_000, 256, seed=1)
    assert (workload["nodes"] == 1).mean() == pytest.approx((nodes == 1).mean(), abs=0.02)
    power2 = (workload["nodes"] & (workload["nodes"] - 1) == 0).mean()
    assert power2 == pytest.approx((nodes & (nodes - 1) == 0).mean(), abs=0.02)
    assert workload["nodes"].mean() == pytest.approx(nodes.mean(), rel=0.15)
    np.testing.assert_allclose(
        np.quantile(np.log(workload["runtime_s"]), (0.1, 0.25, 0.75, 0.9)),
        np.quantile(np.log(np.maximum(runtime, 1)), (0.1, 0.25, 0.75, 0.9)),
        atol=0.3,
    )
    by_hour = np.bincount((workload["submit_s"] % 86400 // 3600).astype(int), minlength=24) / len(workload)
    hours = np.bincount((submit % 86400 // 3600).astype(int), minlength=24) / len(submit)
    np.testing.assert_allclose(by_hour, hours, atol=0.03)


def test_gamma_cdf_of_integer_shapes():
    """For an integer shape n it is one minus the first n terms of a Poisson distribution."""
    for shape in (1, 2, 5, 9):
        for x in (0.1, 1.0, 4.0, 12.0, 58.5):
            expected = 1 - sum(math.exp(-x / 3) * (x / 3) ** k / math.factorial(k) for k in range(shape))
            assert gamma_cdf(x, float(shape), 3.0) == pytest.approx(expected, abs=1e-13)
    assert gamma_cdf(0.0, 2.0, 1.0) == gamma_cdf(-1.0, 2.0, 1.0) == 0.0
    assert gamma_cdf(1e3, 2.0, 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [reference_lublin.COMBINED, reference_lublin.BATCH, reference_lublin.INTERACTIVE])
def test_weights(kind):
    cycle = DailyCycle(kind["anum"], kind["bnum"])
    np.testing.assert_allclose(cycle.weights, reference_lublin.weights(kind), rtol=1e-4)
    assert cycle.weights.mean() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [reference_lublin.COMBINED, reference_lublin.BATCH, reference_lublin.INTERACTIVE])
def test_real_times_agree_with_the_reference(kind):
    cycle = DailyCycle(kind["anum"], kind["bnum"])
    rng = random.Random(3)
    gaps = [reference_lublin.gap(kind, rng) for _ in range(3000)]
    expected = reference_lublin.arrivals(gaps, cycle.weights.tolist())
    np.testing.assert_allclose(cycle.real_s(np.cumsum(gaps)), expected, rtol=1e-9)


def test_real_times_increase():
    times = DailyCycle(6.1271, 5.2740).real_s(np.linspace(0, 10 * 86400, 100_001))
    assert (np.diff(times) > 0).all()


def test_cycle_outside_the_day_is_flat():
    assert (DailyCycle(1e6, 1e3).weights == 1.0).all()


def test_requests_are_common_limits_above_the_run_time():
    runtime = np.exp(np.linspace(0, 12, 20_000))
    request = user_estimates(runtime, seed=1)
    assert (request >= runtime).all()
    assert set(request.tolist()) <= set(LIMITS_S)
    assert request.max() == LIMITS_S[-1] == 48 * 3600


def test_jobs_use_about_half_of_their_request():
    request = user_estimates(np.full(50_000, 1500.0), seed=2)
    assert (1500 / request).mean() == pytest.approx(0.4, abs=0.1)
    assert len(np.unique(request)) > 8  # different requests for the same run time


def test_requests_above_the_longest_limit_are_whole_days():
    np.testing.assert_array_equal(user_estimates([172_800.0, 172_801.0, 1e6]), [172_800, 259_200, 12 * 86_400])


def test_zero_run_time_and_no_jobs():
    assert user_estimates([0.0])[0] == 300
    assert len(user_estimates([])) == 0


def test_seed():
    runtime = np.full(100, 1000.0)
    np.testing.assert_array_equal(user_estimates(runtime, seed=0), user_estimates(runtime))
    assert (user_estimates(runtime, seed=0) != user_estimates(runtime, seed=1)).any()


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_bad_run_times(bad):
    with pytest.raises(InputError, match="row 1: the run time is"):
        user_estimates([5.0, bad])
