"""Rounding of columns preserves the constraints of a log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.jobs import JobTable
from kilowait.traces.anonymize import RoundingStep, parse_coarsening
from kilowait.traces.anonymize.generalize import coarsen, rounded

SECONDS = st.one_of(st.integers(0, 10**6).map(float), st.floats(0, 1e6))
STEPS = st.fixed_dictionaries(
    {},
    optional={
        "submit_s": st.sampled_from(["1s", "60s", "1h", "1d"]),
        "runtime_s": st.sampled_from(["1s", "10s", "7m", "1d", "pow2"]),
        "estimate_s": st.sampled_from(["1s", "15m", "1h", "7d", "pow2"]),
        "nodes": st.sampled_from(["3", "64", "pow2"]),
        "memory_mb": st.sampled_from(["0.5", "1024", "pow2"]),
        "wait_s": st.sampled_from(["60s", "pow2"]),
    },
).map(lambda steps: parse_coarsening(",".join(f"{k}={v}" for k, v in steps.items())) if steps else {})


@st.composite
def tables(draw: st.DrawFn) -> JobTable:
    n = draw(st.integers(1, 10))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    submit = np.array(column(SECONDS))
    return JobTable(
        job_id=np.arange(n),
        submit_s=submit,
        runtime_s=column(SECONDS),
        estimate_s=column(SECONDS),
        nodes=column(st.integers(1, 1000)),
        memory_mb=column(SECONDS),
        wait_s=column(st.one_of(SECONDS, st.just(np.nan))),
        begin_s=np.where(column(st.booleans()), submit + 40, -np.inf),
        cancel_s=np.where(column(st.booleans()), submit + np.array(column(SECONDS)), np.inf),
        meta={"max_procs": 1000},
    ).sorted()


@given(jobs=tables(), steps=STEPS)
def test_coarsening_preserves_constraints(jobs: JobTable, steps: dict[str, RoundingStep]) -> None:
    coarsened = coarsen(jobs, steps)
    assert (np.diff(coarsened["submit_s"]) >= 0).all()  # submissions keep their order
    assert ((coarsened["runtime_s"] <= coarsened["estimate_s"]) >= (jobs["runtime_s"] <= jobs["estimate_s"])).all()
    assert ((coarsened["cancel_s"] >= coarsened["submit_s"]) >= (jobs["cancel_s"] >= jobs["submit_s"])).all()
    assert ((coarsened["begin_s"] >= coarsened["submit_s"]) >= (jobs["begin_s"] >= jobs["submit_s"])).all()
    assert (coarsened["submit_s"] <= jobs["submit_s"]).all()
    for name in ("runtime_s", "nodes", "memory_mb"):
        assert ((coarsened[name] > 0) == (jobs[name] > 0)).all()
    assert coarsened["nodes"].max() <= 1000
    assert np.array_equal(np.isnan(coarsened["wait_s"]), np.isnan(jobs["wait_s"]))
    assert np.array_equal(np.isfinite(coarsened["cancel_s"]), np.isfinite(jobs["cancel_s"]))
    end = coarsened["submit_s"] + np.nan_to_num(coarsened["wait_s"]) + coarsened["runtime_s"]
    assert (end >= coarsened["submit_s"] + np.nan_to_num(coarsened["wait_s"])).all()
    changed = set(steps) | ({"begin_s", "cancel_s"} if "submit_s" in steps else set())
    changed |= {"estimate_s"} if "runtime_s" in steps else set()
    for name in set(jobs.columns) - changed:
        assert np.array_equal(coarsened[name], jobs[name], equal_nan=True), name


@given(jobs=tables(), steps=STEPS)
def test_values_are_multiples_of_the_step(jobs: JobTable, steps: dict[str, RoundingStep]) -> None:
    coarsened = coarsen(jobs, steps)
    for name, step in steps.items():
        values = coarsened[name][np.isfinite(coarsened[name]) & (coarsened[name] > 0)]
        if name == "nodes":
            values = values[values < 1000]  # values limited by the size of the machine
        if step.size is None:
            assert (np.log2(values) % 1 == 0).all()
        else:
            assert values / step.size == pytest.approx(np.round(values / step.size))
        within_a_step = np.abs(coarsened[name].astype(float) - jobs[name]) <= (step.size or np.inf)
        assert (within_a_step | ~np.isfinite(jobs[name]) | ("runtime_s" in steps)).all()


def test_coarsening_example() -> None:
    jobs = JobTable(
        job_id=[1, 2, 3], submit_s=[59, 61, 119], runtime_s=[3, 14, 3599], estimate_s=[5, 10, 3600], nodes=[1, 3, 95],
        gpus=[0, 1, 6], gpu_milli=[1000, 500, 1000], cpu_utilization=[0.04, 0.97, np.nan], meta={"max_procs": 100},
    )  # fmt: skip
    coarsened = coarsen(
        jobs, parse_coarsening("submit_s=60s,runtime_s=10s,estimate_s=15m,nodes=64,gpus=4,cpu_utilization=0.1")
    )
    assert coarsened["submit_s"].tolist() == [0, 60, 60]
    assert coarsened["runtime_s"].tolist() == [10, 10, 3600]
    assert coarsened["estimate_s"].tolist() == [900, 900, 3600]
    assert coarsened["nodes"].tolist() == [64, 64, 64]
    assert coarsened["gpus"].tolist() == [0, 1, 8]  # fractional GPUs are unchanged
    assert coarsened["cpu_utilization"] == pytest.approx([0, 1, np.nan], nan_ok=True)
    assert coarsen(jobs, parse_coarsening("nodes=pow2"))["nodes"].tolist() == [1, 4, 100]


def test_exceeded_limit_is_unchanged() -> None:
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[100], estimate_s=[50], nodes=[1])
    assert coarsen(jobs, parse_coarsening("runtime_s=30s"))["estimate_s"].tolist() == [50]


def test_negative_times_are_rounded_down() -> None:
    assert rounded(np.array([-1.0, 61.0]), "down", RoundingStep(60.0, "60s")).tolist() == [-60, 60]
