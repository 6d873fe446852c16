"""Gavel's workload, the same jobs for the same seed."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.synth import gavel_jobs
from kilowait.synth.gavel import MODEL_TYPES, MULTI_GPU_MODELS

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
        ((2.5, 4.0), "2.5 jobs"),
        ((5, 0.0), "0.0 jobs per hour"),
        ((5, math.nan), "nan jobs per hour"),
        ((5, 4.0, -1), "seed is -1"),
        ((5, 4.0, "x"), "seed 'x'"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        gavel_jobs(*arguments)
