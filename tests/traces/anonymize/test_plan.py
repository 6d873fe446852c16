"""Anonymization rules and plans."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS
from kilowait.traces.anonymize import COLUMN_RULES, META_RULES, make_plan, parse_coarsening, parse_names, parse_shift

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
