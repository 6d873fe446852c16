"""Anonymization rules and plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS
from kilowait.traces.anonymize import (
    COLUMN_RULES,
    META_RULES,
    RoundingStep,
    make_plan,
    parse_coarsening,
    parse_names,
    parse_shift,
)
from kilowait.traces.anonymize.plan import coarsen, rounded

JOBS = JobTable(
    job_id=[10, 20], submit_s=[0, 5], runtime_s=[60, 30], estimate_s=[90, 30], nodes=[4, 1], user=[0, 1], name=[0, 1],
    queue=[0, 0], after_id=[-1, 10], think_s=[0, 3],
    labels={"user": ("ann", "bob"), "name": ("a.out", "b.out"), "queue": ("q",)},
    meta={"max_procs": 8, "source": "ann.swf", "header": {"Installation": "here"}, "surprise": "ann"},
)  # fmt: skip


def test_every_column_has_a_rule() -> None:
    """Every column of a job table needs a rule before it can be published."""
    assert list(COLUMN_RULES) == list(COLUMNS)


def test_rules_are_consistent() -> None:
    for name, rule in COLUMN_RULES.items():
        if name in LABEL_COLUMNS:
            assert rule.rounding is None and not rule.clock
        if rule.action == "hash":
            assert name in LABEL_COLUMNS
        if rule.clock:
            assert np.dtype(COLUMNS[name].dtype).kind == "f" and rule.action == "keep"
    time_columns = {name for name, column in COLUMNS.items() if column.minimum == -1e15 and name.endswith("_s")}
    assert {name for name, rule in COLUMN_RULES.items() if rule.clock} == time_columns
    assert (
        COLUMN_RULES["name"].action == "drop"
        and COLUMN_RULES["user"].action == COLUMN_RULES["account"].action == "hash"
    )
    assert META_RULES["source"] == META_RULES["header"] == META_RULES["ledger"] == "drop"


def test_default_plan() -> None:
    plan = make_plan(JOBS)
    assert plan.words() == {
        "job_id": "renumbered", "submit_s": "kept", "runtime_s": "kept", "estimate_s": "kept", "nodes": "kept",
        "user": "hashed with a secret key", "queue": "kept", "name": "dropped", "after_id": "renumbered",
        "think_s": "kept",
    }  # fmt: skip
    assert dict(plan.meta) == {"max_procs": "keep", "source": "drop", "header": "drop", "surprise": "drop"}
    assert "name" not in plan.published()


def test_plan_options() -> None:
    plan = make_plan(
        JOBS,
        hashed=["queue"],
        keep=["header", "user"],
        drop=["after_id", "qos"],
        coarsen=parse_coarsening("submit_s=1h,gpus=8"),
        shift=parse_shift("random"),
    )
    descriptions = plan.words()
    assert descriptions["queue"] == "hashed with a secret key" and descriptions["user"] == "kept"
    assert descriptions["after_id"] == descriptions["think_s"] == "dropped"
    assert descriptions["submit_s"] == "rounded to multiples of 1h"  # no dates, nothing moved
    assert plan.meta["header"] == "keep" and plan.absent == ("qos", "gpus")
    dated = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1], begin_s=[3], meta={"unix_start_s": 9})
    descriptions = make_plan(dated, coarsen=parse_coarsening("submit_s=1h"), shift=604800.0).words()
    assert descriptions["begin_s"] == descriptions["submit_s"] == "rounded to multiples of 1h, dates moved"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hashed": ["nodes"]}, "nodes cannot be hashed, only names can: user, account"),
        ({"drop": ["submit_s"]}, "submit_s cannot be dropped, because it is a required column; coarsen it"),
        ({"keep": ["job_id"]}, "job_id cannot be kept: .* they are renumbered"),
        ({"keep": ["ledger"]}, "ledger cannot be kept: it describes the original file, which is not published"),
        ({"keep": ["user"], "drop": ["user"]}, "user is to be both kept and dropped; choose one"),
        ({"drop": ["cores"], "coarsen": parse_coarsening("cores=4")}, "both dropped and coarsened"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(JOBS, **options)


def test_misspelt_names() -> None:
    with pytest.raises(UnknownNameError, match="unknown column or field of a log 'usr'; did you mean 'user'"):
        make_plan(JOBS, drop=["usr"])
    with pytest.raises(UnknownNameError, match="unknown column to coarsen 'runtime'; did you mean 'runtime_s'"):
        parse_coarsening("runtime=10s")


def test_parsing() -> None:
    assert parse_names(" queue,qos ,") == ("queue", "qos")
    assert parse_shift("-2w") == -2 * 7 * 86400
    with pytest.raises(InputError, match="'soon' is not a span of time"):
        parse_shift("soon")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes", "the coarsening has 'nodes'; write column=step"),
        ("nodes=8,nodes=4", "names 'nodes' twice"),
        ("nodes=many", "the step of nodes is 'many', which is not a number"),
        ("runtime_s=soon", "not a span of time|not a number"),
        ("nodes=0", "the step of nodes is 0; it must be above 0"),
        ("memory_mb=nan", "must be above 0"),
        ("nodes=1.5", "nodes has whole numbers; give a whole step"),
        ("submit_s=pow2", "submit_s is a time, and powers of two are for sizes"),
    ],
)
def test_coarsening_errors(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_coarsening(text)


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
