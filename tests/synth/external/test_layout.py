"""Logs as tables for other people's models, and back."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.synth.external.layout import Layout
from kilowait.synth.log_schema import log_schema, rows_of
from tests.synth.test_generator import log


@pytest.fixture
def known():
    """The facts and rows of a log."""
    schema = log_schema(log())
    return schema, rows_of(log(), schema)


def test_a_table_has_a_row_for_each_job_with_one_before(known):
    _, rows = known
    layout = Layout.of(rows)
    table = layout.table(rows)
    assert list(table) == layout.varied
    assert np.array_equal(table["gap_s"], np.diff(rows["submit_s"]))
    assert np.array_equal(table["nodes"], rows["nodes"][1:])
    assert set(layout.varied) - set(layout.kinds) == {"gap_s", "runtime_s", "energy_j"}
    assert all(np.isfinite(column).all() for column in table.values())
    assert table["runtime_s"].dtype == np.int64  # whole seconds
    assert "submit_s" not in table


def test_there_and_back(known):
    schema, rows = known
    layout = Layout.of(rows)
    back = layout.rows(layout.table(rows), schema, 500.0)
    assert back["submit_s"][0] == 500
    assert np.array_equal(np.diff(back["submit_s"]), np.diff(rows["submit_s"])[1:])
    assert np.isnan(back["energy_j"]).any()
    for name in schema.columns:
        assert np.array_equal(back[name], rows[name][1:], equal_nan=name == "energy_j"), name


def test_what_a_model_makes_up_becomes_what_the_log_has(known):
    schema, rows = known
    layout = Layout.of(rows)
    table = {name: column[:4].astype(float) for name, column in layout.table(rows).items()}
    table |= {
        "gap_s": np.array([5.0, -7.0, 1e9, np.nan]),
        "nodes": np.array([-1.0, 3.1, 30.0, 1e6]),
        "estimate_s": np.array([0.0, 4000.4, 7199.0, np.nan]),
        "runtime_s": np.array([-5.0, 10.4, 1e9, np.nan]),
        "user": np.array([-1.0, 3.0, 11.0, 70.0]),
    }
    back = layout.rows(table, schema, 500.0)
    gaps = np.diff(rows["submit_s"])
    assert np.diff(back["submit_s"]).tolist() == [gaps.min(), gaps.max(), gaps.min()]
    assert back["nodes"].tolist() == [1, 4, 16, 64]
    assert back["estimate_s"].tolist() == [600, 3600, 7200, 600]
    assert back["runtime_s"].tolist() == [rows["runtime_s"][1:].min(), 10, rows["runtime_s"][1:].max()] + [
        rows["runtime_s"][1:].min()
    ]
    assert back["user"].tolist() == [0, 3, 11, 11]


def test_columns_that_never_change_are_left_out_and_put_back():
    jobs = log(150, nodes=np.full(150, 8), user=np.full(150, 5))
    schema = log_schema(jobs)
    rows = rows_of(jobs, schema)
    layout = Layout.of(rows)
    table = layout.table(rows)
    assert "nodes" not in table and "user" not in table
    back = layout.rows(table, schema, 500.0)
    assert set(back["nodes"].tolist()) == {8} and set(back["user"].tolist()) == {0}


def test_requests_of_all_lengths_are_amounts():
    jobs = log(600, estimate_s=np.arange(600) * 60.0)
    layout = Layout.of(rows_of(jobs, log_schema(jobs)))
    assert "estimate_s" not in layout.kinds and "nodes" in layout.kinds


def test_values_that_are_not_whole_stay_so():
    jobs = log(150, runtime_s=np.linspace(0.25, 400.75, 150))
    schema = log_schema(jobs)
    rows = rows_of(jobs, schema)
    layout = Layout.of(rows)
    assert np.array_equal(layout.rows(layout.table(rows), schema, 500.0)["runtime_s"], rows["runtime_s"][1:])


def test_a_layout_is_kept_as_arrays(known):
    schema, rows = known
    layout = Layout.of(rows)
    again = Layout.restored(layout.state())
    assert again.varied == layout.varied and again.kinds == layout.kinds
    table = layout.table(rows)
    assert np.array_equal(
        again.rows(table, schema, 500.0)["nodes"], layout.rows(table, schema, 500.0)["nodes"]
    )
