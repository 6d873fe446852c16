"""Coarsening keeps what was true of a log."""

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
def test_laws(jobs: JobTable, steps: dict[str, RoundingStep]) -> None:
    made = coarsen(jobs, steps)
    assert (np.diff(made["submit_s"]) >= 0).all()  # submissions keep their order
    assert ((made["runtime_s"] <= made["estimate_s"]) >= (jobs["runtime_s"] <= jobs["estimate_s"])).all()
    assert ((made["cancel_s"] >= made["submit_s"]) >= (jobs["cancel_s"] >= jobs["submit_s"])).all()
    assert ((made["begin_s"] >= made["submit_s"]) >= (jobs["begin_s"] >= jobs["submit_s"])).all()
    assert (made["submit_s"] <= jobs["submit_s"]).all()
    for name in ("runtime_s", "nodes", "memory_mb"):
        assert ((made[name] > 0) == (jobs[name] > 0)).all()
    assert made["nodes"].max() <= 1000
    assert np.array_equal(np.isnan(made["wait_s"]), np.isnan(jobs["wait_s"]))
    assert np.array_equal(np.isfinite(made["cancel_s"]), np.isfinite(jobs["cancel_s"]))
    end = made["submit_s"] + np.nan_to_num(made["wait_s"]) + made["runtime_s"]
    assert (end >= made["submit_s"] + np.nan_to_num(made["wait_s"])).all()
    changed = set(steps) | ({"begin_s", "cancel_s"} if "submit_s" in steps else set())
    changed |= {"estimate_s"} if "runtime_s" in steps else set()
    for name in set(jobs.columns) - changed:
        assert np.array_equal(made[name], jobs[name], equal_nan=True), name


@given(jobs=tables(), steps=STEPS)
def test_values_stand_at_their_step(jobs: JobTable, steps: dict[str, RoundingStep]) -> None:
    made = coarsen(jobs, steps)
    for name, step in steps.items():
        values = made[name][np.isfinite(made[name]) & (made[name] > 0)]
        if name == "nodes":
            values = values[values < 1000]  # those that would have grown beyond the machine
        if step.size is None:
            assert (np.log2(values) % 1 == 0).all()
        else:
            assert values / step.size == pytest.approx(np.round(values / step.size))
        near = np.abs(made[name].astype(float) - jobs[name]) <= (step.size or np.inf)
        assert (near | ~np.isfinite(jobs[name]) | ("runtime_s" in steps)).all()


def test_by_hand() -> None:
    jobs = JobTable(
        job_id=[1, 2, 3], submit_s=[59, 61, 119], runtime_s=[3, 14, 3599], estimate_s=[5, 10, 3600], nodes=[1, 3, 95],
        gpus=[0, 1, 6], gpu_milli=[1000, 500, 1000], cpu_utilization=[0.04, 0.97, np.nan], meta={"max_procs": 100},
    )  # fmt: skip
    made = coarsen(
        jobs,
        parse_coarsening("submit_s=60s,runtime_s=10s,estimate_s=15m,nodes=64,gpus=4,cpu_utilization=0.1"),
    )
    assert made["submit_s"].tolist() == [0, 60, 60]
    assert made["runtime_s"].tolist() == [10, 10, 3600]
    assert made["estimate_s"].tolist() == [900, 900, 3600]
    assert made["nodes"].tolist() == [64, 64, 64]
    assert made["gpus"].tolist() == [0, 1, 8]  # half a GPU is half of one
    assert made["cpu_utilization"] == pytest.approx([0, 1, np.nan], nan_ok=True)
    assert coarsen(jobs, parse_coarsening("nodes=pow2"))["nodes"].tolist() == [1, 4, 100]


def test_an_exceeded_limit_is_unchanged() -> None:
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[100], estimate_s=[50], nodes=[1])
    assert coarsen(jobs, parse_coarsening("runtime_s=30s"))["estimate_s"].tolist() == [50]


def test_negative_times_are_rounded_down() -> None:
    assert rounded(np.array([-1.0, 61.0]), "down", RoundingStep(60.0, "60s")).tolist() == [-60, 60]
