"""JobTable: construction, validation and slices."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.errors import TableError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS, REQUIRED


def table(**columns):
    """Three jobs, in order; any column may be replaced or added."""
    usual = {"job_id": [1, 2, 3], "submit_s": [0, 5, 9], "runtime_s": [60, 30, 0], "nodes": [4, 1, 2]}
    return JobTable(**{**usual, **columns})


# -- reading --------------------------------------------------------------------------------------


def test_column_types_and_order():
    jobs = table(user=[0, -1, 3], status=[1, 0, 5])
    assert jobs.columns == ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes", "user", "status")
    for name in jobs.columns:
        assert jobs[name].dtype == COLUMNS[name].dtype
    assert "user" in jobs
    assert "queue" not in jobs


def test_estimate_defaults_to_a_copy_of_the_run_time():
    jobs = table()
    assert jobs["estimate_s"].tolist() == [60, 30, 0]
    assert not np.shares_memory(jobs["estimate_s"], jobs["runtime_s"])


def test_table_copies_its_input():
    nodes = np.array([4, 1, 2])
    jobs = table(nodes=nodes)
    nodes[0] = 99
    assert jobs["nodes"].tolist() == [4, 1, 2]


def test_columns_are_read_only():
    jobs = table()
    for part in (jobs, jobs[1:], jobs[[2, 0]], jobs[np.array([True, False, True])], table(submit_s=[9, 5, 0]).sorted()):
        for name in part.columns:
            with pytest.raises(ValueError, match="read-only"):
                part[name][0] = 1


def test_missing_column_reads_as_unknown():
    jobs = table()
    assert jobs.column("user").tolist() == [-1, -1, -1]
    assert np.isnan(jobs.column("wait_s")).all()
    assert jobs.column("cancel_s").tolist() == [np.inf] * 3
    assert jobs.column("nodes") is jobs["nodes"]
    for name in COLUMNS:
        if COLUMNS[name].missing is not None:
            assert jobs.column(name).dtype == COLUMNS[name].dtype


def test_missing_column_without_unknown_value_is_an_error():
    with pytest.raises(TableError, match="no column 'cores' and there is no value that means unknown"):
        table().column("cores")


@pytest.mark.parametrize("ask", [lambda jobs: jobs["wait"], lambda jobs: jobs.column("wait")])
def test_misspelt_column_error_suggests_the_nearest(ask):
    with pytest.raises(UnknownNameError, match="unknown job column 'wait'; did you mean 'wait_s'"):
        ask(table(wait_s=[0, 0, 0]))


def test_repr():
    assert repr(table(submit_s=[0, 5, 129600])) == (
        "JobTable(3 jobs, 1.5 days; job_id, submit_s, runtime_s, estimate_s, nodes)"
    )
    assert repr(table()[:0]) == "JobTable(0 jobs; job_id, submit_s, runtime_s, estimate_s, nodes)"


# -- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [slice(1, None), slice(None), slice(None, None, 2), slice(None, None, -1)])
def test_slices_share_memory(key):
    jobs = table(user=[0, 1, 2])
    part = jobs[key]
    for name in jobs.columns:
        assert np.shares_memory(part[name], jobs[name])
        assert part[name].tolist() == jobs[name].tolist()[key]


def test_rows_by_mask_and_by_number():
    jobs = table()
    assert jobs[np.array([True, False, True])]["job_id"].tolist() == [1, 3]
    assert jobs[jobs["nodes"] < 4]["job_id"].tolist() == [2, 3]
    assert jobs[[2, 0]]["job_id"].tolist() == [3, 1]
    assert jobs[[-1]]["job_id"].tolist() == [3]
    assert len(jobs[[]]) == 0
    assert len(jobs[:0]) == 0


def test_selecting_a_row_twice_is_an_error():
    with pytest.raises(TableError, match="rows 0 and 2 both have job_id 2; ids must be unique"):
        table()[[1, 0, -2]]


@pytest.mark.parametrize("key", [0, np.int64(0), True])
def test_single_row_index_is_an_error(key):
    with pytest.raises(TypeError, match=r"is one row; write jobs\["):
        table()[key]


def test_two_dimensional_index_is_an_error():
    with pytest.raises(TypeError, match="2 dimensions"):
        table()[[[0, 1]]]


def test_mask_of_wrong_length_is_an_error():
    with pytest.raises(IndexError):
        table()[np.array([True, False])]


def test_slices_keep_labels_and_meta():
    jobs = table(user=[0, 1, 0], labels={"user": ("ann", "bob")}, meta={"max_procs": 8})
    assert jobs[1:].labels == {"user": ("ann", "bob")}
    assert jobs[1:].meta == {"max_procs": 8}


# -- order ----------------------------------------------------------------------------------------


def test_sorted_table_has_no_order():
    jobs = table()
    assert jobs.order is None
    assert jobs.sorted() is jobs
    assert table(submit_s=[0, 0, 0]).order is None, "ties stand by job_id"


def test_unsorted_table_has_an_order():
    jobs = table(submit_s=[9, 5, 5], job_id=[1, 3, 2])
    assert jobs.order.tolist() == [2, 1, 0]
    assert jobs["submit_s"].tolist() == [9, 5, 5], "rows stay where they were"
    assert jobs.sorted()["job_id"].tolist() == [2, 3, 1]
    assert jobs.sorted().order is None


def test_slices_have_their_own_order():
    jobs = table(submit_s=[9, 0, 5])
    assert jobs[1:].order is None
    assert jobs[:2].order.tolist() == [1, 0]
    assert jobs[:1].order is None
    assert table()[::-1].order.tolist() == [2, 1, 0]


def test_order_of_distant_ids_does_not_overflow():
    top = 2**63 - 1
    ids = [top, -(2**62), 0]
    assert table(job_id=ids, submit_s=[0, 0, 0]).order.tolist() == [1, 2, 0]
    with pytest.raises(TableError, match="rows 0 and 3 both have job_id"):
        JobTable(job_id=[*ids, top], submit_s=[0] * 4, runtime_s=[0] * 4, nodes=[1] * 4)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 50)), max_size=12, unique_by=lambda pair: pair[1]))
def test_order_is_by_submission_then_id(pairs):
    submit, ids = [p[0] for p in pairs], [p[1] for p in pairs]
    jobs = JobTable(job_id=ids, submit_s=submit, runtime_s=[1] * len(ids), nodes=[1] * len(ids))
    wanted = sorted(zip(submit, ids, strict=True))
    ordered = jobs.sorted()
    assert list(zip(ordered["submit_s"].tolist(), ordered["job_id"].tolist(), strict=True)) == wanted
    assert (jobs.order is None) == (wanted == list(zip(submit, ids, strict=True)))


# -- making others --------------------------------------------------------------------------------


def test_with_columns_adds_replaces_and_removes():
    jobs = table(user=[0, 1, 2], meta={"a": 1})
    more = jobs.with_columns(estimate_s=[100, 100, 100], queue=[0, 0, 1], user=None)
    assert more["estimate_s"].tolist() == [100] * 3
    assert "queue" in more
    assert "user" not in more
    assert more.meta == {"a": 1}
    assert "queue" not in jobs
    assert jobs["estimate_s"].tolist() == [60, 30, 0]


def test_with_columns_checks():
    with pytest.raises(TableError, match="differ in length"):
        table().with_columns(user=[1])
    with pytest.raises(TableError, match=r"needs the column\(s\) nodes"):
        table().with_columns(nodes=None)
    with pytest.raises(UnknownNameError, match="did you mean 'estimate_s'"):
        table().with_columns(estimate=[1, 1, 1])


@pytest.mark.parametrize("again", [lambda jobs: pickle.loads(pickle.dumps(jobs)), copy.deepcopy, copy.copy])
def test_tables_can_be_pickled(again):
    jobs = table(user=[0, 1, 0], labels={"user": ("ann", "bob")}, submit_s=[3, 2, 1])
    other = again(jobs)
    assert other.columns == jobs.columns
    assert all((other[name] == jobs[name]).all() for name in jobs.columns)
    assert other.labels == jobs.labels
    assert other.order.tolist() == jobs.order.tolist()
    assert not any(other[name].flags.writeable for name in other.columns)


# -- what is refused ------------------------------------------------------------------------------


def test_empty_table():
    empty = JobTable(**{name: [] for name in REQUIRED})
    assert len(empty) == 0
    assert empty.order is None
    assert empty["nodes"].dtype == np.int64


@pytest.mark.parametrize("gone", [name for name in REQUIRED if name != "estimate_s"])
def test_required_columns(gone):
    wanted = "runtime_s, estimate_s" if gone == "runtime_s" else gone
    with pytest.raises(TableError, match=rf"needs the column\(s\) {wanted}; pass them by name"):
        table(**{gone: None})


def test_unknown_column_is_an_error():
    with pytest.raises(UnknownNameError, match="unknown job column 'runtime'; did you mean 'runtime_s'"):
        table(runtime=[1, 2, 3])


def test_columns_of_different_length_are_an_error():
    with pytest.raises(TableError, match="columns differ in length: .*'nodes': 2"):
        table(nodes=[1, 2])


def test_two_dimensional_column_is_an_error():
    with pytest.raises(TableError, match="'nodes' has 2 dimensions; a column is one value per job"):
        table(nodes=[[1, 2, 3]])
    with pytest.raises(TableError, match="'nodes' has 0 dimensions"):
        table(nodes=5)


@pytest.mark.parametrize(
    "values",
    [["a", "b", "c"], [1, 2, None], np.array([1, 2, 3], "datetime64[s]"), np.array([1j, 2, 3])],
    ids=["words", "None", "dates", "complex"],
)
def test_non_numeric_values_are_errors(values):
    with pytest.raises(TableError, match="column 'user' holds .*, not numbers; map names to numbers with labels="):
        table(user=values)


@pytest.mark.parametrize("value", [1.5, np.nan, np.inf, -np.inf])
def test_counts_must_be_integers(value):
    with pytest.raises(TableError, match=rf"column 'nodes', row 1: {value} is not a whole number"):
        table(nodes=[1, value, 1])


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("user", 2**31, "int32"),
        ("user", 2.0**31, "int32"),
        ("user", -(2**31) - 1, "int32"),
        ("status", 300, "int8"),
        ("status", 300.0, "int8"),
        ("nodes", np.uint64(2**63), "int64"),
        ("nodes", 2.0**63, "int64"),
        ("nodes", 1e300, "int64"),
    ],
)
def test_numbers_out_of_range_are_errors(name, value, kind):
    with pytest.raises(TableError, match=rf"column '{name}', row 2: \S+ does not fit {kind}"):
        table(**{name: np.array([1, 1, value])})


def test_largest_allowed_numbers():
    assert table(user=[0, 1, 2.0**31 - 1])["user"][2] == 2**31 - 1
    assert table(nodes=[1, 1, 2**63 - 1])["nodes"][2] == 2**63 - 1


@pytest.mark.parametrize("name", [n for n in COLUMNS if COLUMNS[n].minimum == 0 and COLUMNS[n].missing is None])
def test_negative_quantities_are_errors(name):
    with pytest.raises(TableError, match=rf"row 1 \(job 2\): {name} is -1(\.0)?; it must be at least 0"):
        table(**{name: [0, -1, 0]})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("nodes", 0, "nodes is 0; it must be at least 1"),
        ("submit_s", np.nan, "submit_s is nan; it must be at least -1e+15 and at most 1e+15"),
        ("submit_s", -2e15, "submit_s is -2000000000000000.0; it must"),
        ("submit_s", np.inf, "submit_s is inf"),
        ("runtime_s", np.nan, "runtime_s is nan"),
        ("runtime_s", 2e15, "runtime_s is 2000000000000000.0; it must be at least 0 and at most 1e+15"),
        ("estimate_s", -0.5, "estimate_s is -0.5"),
        ("memory_mb", np.inf, "memory_mb is inf"),
        ("user", -2, "user is -2; it must be at least -1"),
        ("wait_s", -1, "wait_s is -1.0"),
        ("wait_s", np.inf, "wait_s is inf"),
        ("begin_s", np.nan, "begin_s is nan"),
        ("begin_s", np.inf, "begin_s is inf"),
        ("cancel_s", -np.inf, "cancel_s is -inf"),
        ("think_s", -1, "think_s is -1.0"),
        ("energy_j", -1, "energy_j is -1.0"),
        ("after_id", -7, "after_id is -7"),
    ],
)
def test_error_names_row_job_column_and_value(name, value, words):
    with pytest.raises(TableError) as caught:
        table(job_id=[10, 20, 30], **{name: np.array([1, 1, value])})
    assert str(caught.value).startswith(f"row 2 (job 30): {words}")


def test_unknown_values_are_allowed_where_defined():
    jobs = table(user=[-1] * 3, wait_s=[np.nan] * 3, begin_s=[-np.inf] * 3, cancel_s=[np.inf] * 3)
    assert len(jobs) == 3


def test_duplicate_job_ids_are_an_error():
    with pytest.raises(TableError, match="rows 0 and 2 both have job_id 7; ids must be unique"):
        table(job_id=[7, 5, 7])


def test_codes_without_label_are_an_error():
    with pytest.raises(TableError, match=r"row 1 \(job 2\): user is 5 but has 2 labels"):
        table(user=[0, 5, 1], labels={"user": ("ann", "bob")})


@pytest.mark.parametrize(("name", "value"), [("gpu_milli", 1001), ("gpu_milli", 0), ("gpus_may_span_nodes", 2)])
def test_integer_columns_have_limits(name, value):
    with pytest.raises(TableError, match=f"row 1 .*{name} is {value}; it must be at least . and at most"):
        table(**{name: [1, value, 1]})


def test_labels_of_other_columns_are_an_error():
    with pytest.raises(UnknownNameError, match="unknown labelled column 'nodes'.* known: account, gpu_types"):
        table(labels={"nodes": ("one",)})
    with pytest.raises(UnknownNameError, match="did you mean 'user'"):
        table(labels={"users": ("one",)})


def test_duplicate_labels_are_an_error():
    with pytest.raises(TableError, match=r"labels\['user'\] holds 'ann' twice"):
        table(user=[0, 1, 2], labels={"user": ("ann", "bob", "ann")})


def test_column_definitions_are_consistent():
    for name in (*REQUIRED, *LABEL_COLUMNS):
        assert name in COLUMNS
    for name, column in COLUMNS.items():
        assert column.meaning
        if name.endswith(("_s", "_mb", "_j")):
            assert column.dtype is np.float64, "quantities with a unit are floats"
