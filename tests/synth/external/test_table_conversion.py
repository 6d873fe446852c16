"""Conversion of logs to tables for external models, and back."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.files.array_file import StoredArrays
from kilowait.synth.external.table_conversion import TableLayout
from kilowait.synth.log_schema import log_schema, rows_of
from tests.synth.test_generator import log


@pytest.fixture
def schema_and_rows():
    """Schema and rows of a log."""
    schema = log_schema(log())
    return schema, rows_of(log(), schema)


def test_table_has_a_row_per_job_but_the_first(schema_and_rows):
    _, rows = schema_and_rows
    layout = TableLayout.of(rows)
    table = layout.table(rows)
    assert list(table) == layout.varying_columns
    assert np.array_equal(table["gap_s"], np.diff(rows["submit_s"]))
    assert np.array_equal(table["nodes"], rows["nodes"][1:])
    assert set(layout.varying_columns) - set(layout.categorical_columns) == {"gap_s", "runtime_s", "energy_j"}
    assert all(np.isfinite(column).all() for column in table.values())
    assert table["runtime_s"].dtype == np.int64  # whole seconds
    assert "submit_s" not in table


def test_round_trip(schema_and_rows):
    schema, rows = schema_and_rows
    layout = TableLayout.of(rows)
    restored = layout.rows(layout.table(rows), schema, 500.0)
    assert restored["submit_s"][0] == 500
    assert np.array_equal(np.diff(restored["submit_s"]), np.diff(rows["submit_s"])[1:])
    assert np.isnan(restored["energy_j"]).any()
    for name in schema.columns:
        assert np.array_equal(restored[name], rows[name][1:], equal_nan=name == "energy_j"), name


def test_generated_values_are_mapped_to_values_of_the_log(schema_and_rows):
    schema, rows = schema_and_rows
    layout = TableLayout.of(rows)
    table = {name: column[:4].astype(float) for name, column in layout.table(rows).items()}
    table |= {
        "gap_s": np.array([5.0, -7.0, 1e9, np.nan]),
        "nodes": np.array([-1.0, 3.1, 30.0, 1e6]),
        "estimate_s": np.array([0.0, 4000.4, 7199.0, np.nan]),
        "runtime_s": np.array([-5.0, 10.4, 1e9, np.nan]),
        "user": np.array([-1.0, 3.0, 11.0, 70.0]),
    }
    restored = layout.rows(table, schema, 500.0)
    gaps = np.diff(rows["submit_s"])
    assert np.diff(restored["submit_s"]).tolist() == [gaps.min(), gaps.max(), gaps.min()]
    assert restored["nodes"].tolist() == [1, 4, 16, 64]
    assert restored["estimate_s"].tolist() == [600, 3600, 7200, 600]
    assert restored["runtime_s"].tolist() == [rows["runtime_s"][1:].min(), 10, rows["runtime_s"][1:].max()] + [
        rows["runtime_s"][1:].min()
    ]
    assert restored["user"].tolist() == [0, 3, 11, 11]


def test_constant_columns_are_removed_and_restored():
    jobs = log(150, nodes=np.full(150, 8), user=np.full(150, 5))
    schema = log_schema(jobs)
    rows = rows_of(jobs, schema)
    layout = TableLayout.of(rows)
    table = layout.table(rows)
    assert "nodes" not in table and "user" not in table
    restored = layout.rows(table, schema, 500.0)
    assert set(restored["nodes"].tolist()) == {8} and set(restored["user"].tolist()) == {0}


def test_requests_with_many_values_are_numeric():
    jobs = log(600, estimate_s=np.arange(600) * 60.0)
    layout = TableLayout.of(rows_of(jobs, log_schema(jobs)))
    assert "estimate_s" not in layout.categorical_columns and "nodes" in layout.categorical_columns


def test_fractional_values_are_kept():
    jobs = log(150, runtime_s=np.linspace(0.25, 400.75, 150))
    schema = log_schema(jobs)
    rows = rows_of(jobs, schema)
    layout = TableLayout.of(rows)
    assert np.array_equal(layout.rows(layout.table(rows), schema, 500.0)["runtime_s"], rows["runtime_s"][1:])


def test_state_restores_the_layout(schema_and_rows):
    schema, rows = schema_and_rows
    layout = TableLayout.of(rows)
    restored_layout = TableLayout.restored(StoredArrays(layout.state(), "state.npz"), schema)
    assert (
        restored_layout.varying_columns == layout.varying_columns
        and restored_layout.categorical_columns == layout.categorical_columns
    )
    table = layout.table(rows)
    assert np.array_equal(
        restored_layout.rows(table, schema, 500.0)["nodes"], layout.rows(table, schema, 500.0)["nodes"]
    )
