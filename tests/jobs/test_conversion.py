"""JobTable through Arrow, Parquet, pandas and Polars, and back."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.errors import MissingExtraError, TableError, UnknownNameError
from kilowait.files.parquet_file import META_KEY
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS, MAX_TIME_S, REQUIRED

BASE = {"job_id": [1, 2, 3], "submit_s": [0.0, 5.0, 9.0], "runtime_s": [6.0, 3.0, 0.0], "nodes": [4, 1, 2]}


def values_of(name, labels):
    """Valid values of a column, including the one that means unknown."""
    rule = COLUMNS[name]
    if labels is not None:
        known = st.integers(0, len(labels) - 1) if labels else st.nothing()
    elif rule.dtype is np.float64:
        known = st.floats(rule.minimum, rule.maximum, allow_nan=False)
    else:
        info = np.iinfo(rule.dtype)
        most = info.max if rule.maximum == MAX_TIME_S else int(rule.maximum)
        known = st.integers(max(int(rule.minimum), info.min), most)
    return known if rule.missing is None else st.just(rule.missing) | known


@st.composite
def tables(draw):
    """Any valid table: any columns and labels, unsorted, also empty."""
    count = draw(st.integers(0, 8))
    further = draw(st.sets(st.sampled_from([name for name in COLUMNS if name not in REQUIRED])))
    words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
    labels, columns = {}, {}
    for name in (*REQUIRED, *sorted(further)):
        if name in LABEL_COLUMNS and draw(st.booleans()):
            labels[name] = tuple(draw(st.lists(words, max_size=5, unique=True)))
        unique = name == "job_id"
        values = st.lists(values_of(name, labels.get(name)), min_size=count, max_size=count, unique=unique)
        columns[name] = np.array(draw(values), COLUMNS[name].dtype)
    meta = draw(st.dictionaries(words, st.integers() | words | st.none() | st.lists(st.booleans()), max_size=3))
    return JobTable(labels=labels, meta=meta, **columns)


def words(jobs, name):
    """The column as labels, numbers or None."""
    if name not in jobs.labels:
        return jobs[name].tolist()
    return [None if code < 0 else jobs.labels[name][code] for code in jobs[name].tolist()]


def assert_same_bits(one, other):
    assert one.columns == other.columns
    for name in one.columns:
        assert one[name].dtype == other[name].dtype
        assert one[name].tobytes() == other[name].tobytes(), name
    assert dict(one.labels) == dict(other.labels)
    assert dict(one.meta) == dict(other.meta)


def assert_same_words(one, other):
    """Equal contents: a frame may renumber labels and lose meta."""
    assert one.columns == other.columns
    for name in one.columns:
        assert one[name].dtype == other[name].dtype
        np.testing.assert_equal(words(one, name), words(other, name))


@given(tables())
def test_arrow_round_trip_is_exact(jobs):
    assert_same_bits(JobTable.from_arrow(jobs.to_arrow()), jobs)


@given(tables())
def test_parquet_round_trip_is_exact(tmp_path_factory, jobs):
    path = tmp_path_factory.mktemp("parquet") / "jobs.parquet"
    jobs.to_parquet(path)
    assert_same_bits(JobTable.from_parquet(path), jobs)


@given(tables())
def test_pandas_round_trip(jobs):
    assert_same_words(JobTable.from_pandas(jobs.to_pandas()), jobs)


@given(tables())
def test_polars_round_trip(jobs):
    assert_same_words(JobTable.from_polars(jobs.to_polars()), jobs)


def test_frame_columns_and_types():
    jobs = JobTable(**BASE, user=[1, -1, 0], labels={"user": ("ann", "bob")})
    frame = jobs.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["user"].astype(object).where(frame["user"].notna(), None).tolist() == ["bob", None, "ann"]
    assert frame["nodes"].tolist() == [4, 1, 2]
    frame = jobs.to_polars()
    assert isinstance(frame, pl.DataFrame)
    assert frame["user"].to_list() == ["bob", None, "ann"]
    assert frame["runtime_s"].dtype == pl.Float64


def test_slices_and_unsorted_tables_keep_their_order(tmp_path):
    jobs = JobTable(**{**BASE, "submit_s": [9.0, 5.0, 0.0]})
    jobs[::-2].to_parquet(tmp_path / "part.parquet")
    assert JobTable.from_parquet(tmp_path / "part.parquet")["job_id"].tolist() == [3, 1]


def test_meta_may_hold_numpy_values():
    jobs = JobTable(**BASE, meta={"max_procs": np.int64(8), "sizes": np.arange(2), "source": pytest})
    meta = JobTable.from_arrow(jobs.to_arrow()).meta
    assert meta["max_procs"] == 8
    assert meta["sizes"] == [0, 1]
    assert isinstance(meta["source"], str)


def test_text_columns_become_labels_in_order_of_appearance():
    jobs = JobTable.from_pandas(pd.DataFrame({**BASE, "user": ["bob", None, "ann"]}))
    assert jobs["user"].tolist() == [0, -1, 1]
    assert jobs.labels == {"user": ("bob", "ann")}
    jobs = JobTable.from_polars(pl.DataFrame({**BASE, "queue": ["b", "a", "b"]}))
    assert words(jobs, "queue") == ["b", "a", "b"]


def test_new_text_values_extend_the_labels():
    """Arrow metadata remains when the column is edited; a new text must not become "unknown"."""
    arrow = JobTable(**BASE, user=[0, 1, -1], labels={"user": ("ann", "bob")}).to_arrow()
    edited = arrow.set_column(arrow.column_names.index("user"), "user", pa.array(["bob", "eve", None]))
    jobs = JobTable.from_arrow(edited)
    assert jobs.labels == {"user": ("ann", "bob", "eve")}
    assert words(jobs, "user") == ["bob", "eve", None]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.float32(), pa.uint8(), pa.bool_()])
def test_other_number_types_are_converted(kind):
    columns = {name: pa.array(values) for name, values in BASE.items()}
    jobs = JobTable.from_arrow(pa.table({**columns, "cores": pa.array([1, 0, 1]).cast(kind)}))
    assert jobs["cores"].tolist() == [1, 0, 1]
    assert jobs["cores"].dtype == np.int64


@pytest.mark.parametrize("name", [name for name in COLUMNS if COLUMNS[name].missing is not None])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.null()])
def test_empty_cells_are_unknown(name, kind):
    cells = [None] * 3 if kind == pa.null() else [None, 1, 1]
    jobs = JobTable.from_arrow(pa.table({**BASE, name: pa.array(cells, kind)}))
    np.testing.assert_equal(jobs[name][0], COLUMNS[name].missing)
    assert jobs[name].dtype == COLUMNS[name].dtype


def test_pandas_nullable_integers():
    frame = pd.DataFrame(
        {**BASE, "wait_s": pd.array([1, None, 3], "Int64"), "after_id": pd.array([None, 1, 2], "Int64")}
    )
    jobs = JobTable.from_pandas(frame)
    np.testing.assert_equal(jobs["wait_s"], [1, np.nan, 3])
    assert jobs["after_id"].tolist() == [-1, 1, 2]


def test_arrow_chunks_are_joined():
    chunks = pa.concat_tables(
        [pa.table({**BASE, "user": ["a", "b", "a"]}), pa.table({**{k: [9] for k in BASE}, "user": ["b"]})],
        promote_options="permissive",
    )
    jobs = JobTable.from_arrow(chunks)
    assert len(jobs) == 4
    assert words(jobs, "user") == ["a", "b", "a", "b"]


# -- what is refused ------------------------------------------------------------------------------


def test_empty_required_cells_are_errors():
    with pytest.raises(TableError, match="column 'runtime_s', row 1: empty; this column has no value for unknown"):
        JobTable.from_arrow(pa.table({**BASE, "runtime_s": [1.0, None, 2.0]}))


def test_text_in_a_number_column_is_an_error():
    with pytest.raises(TableError, match="column 'nodes' holds string, not numbers"):
        JobTable.from_arrow(pa.table({**BASE, "nodes": ["one", "two", "three"]}))


@pytest.mark.parametrize("name", ["runtime", "labels", "meta", "self", "Job ID"])
def test_unknown_columns_are_errors(name):
    with pytest.raises(UnknownNameError, match=f"unknown job column '{name}'"):
        JobTable.from_arrow(pa.table({**BASE, name: [1, None, 3]}))


def test_duplicate_column_is_an_error():
    arrow = pa.table({**BASE}).append_column("nodes", pa.array([1, 2, 3]))
    with pytest.raises(TableError, match="more than one column 'nodes'"):
        JobTable.from_arrow(arrow)


def test_mixed_cell_types_are_an_error():
    with pytest.raises(TableError, match="cannot convert the frame to Arrow"):
        JobTable.from_pandas(pd.DataFrame({**BASE, "user": pd.Series(["ann", 5, b"x"], dtype=object)}))


def test_dates_are_an_error():
    with pytest.raises(TableError, match="column 'submit_s' holds datetime64.*, not numbers"):
        JobTable.from_pandas(pd.DataFrame({**BASE, "submit_s": pd.to_datetime([0, 1, 2])}))


@pytest.mark.parametrize("thing", [[1, 2], {"a": 1}, "jobs.csv", None])
def test_unsupported_objects_are_an_error(thing):
    with pytest.raises(TableError, match="is not a pyarrow, pandas or Polars table"):
        JobTable.from_arrow(thing)


@pytest.mark.parametrize("note", [b"{", b"\xff", b"[]", b'{"meta": 5}', b'{"labels": 5}'])
def test_damaged_metadata_is_an_error(note):
    with pytest.raises(TableError, match="kilowait metadata is damaged"):
        JobTable.from_arrow(pa.table(BASE).replace_schema_metadata({META_KEY: note}))


def test_file_that_is_not_parquet_is_an_error(tmp_path):
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 not really")
    for name in ("junk.parquet", "absent.parquet"):
        with pytest.raises(TableError, match=f"cannot read the Parquet file .*{name}"):
            JobTable.from_parquet(tmp_path / name)


def test_truncated_parquet_file_is_an_error(tmp_path):
    path = tmp_path / "jobs.parquet"
    JobTable(**BASE).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableError, match="cannot read the Parquet file"):
        JobTable.from_parquet(path)


def test_error_names_the_invalid_row_of_a_file(tmp_path):
    pq.write_table(pa.table({**BASE, "nodes": [1, 0, 1]}), tmp_path / "jobs.parquet")
    with pytest.raises(TableError, match=r"row 1 \(job 2\): nodes is 0"):
        JobTable.from_parquet(tmp_path / "jobs.parquet")


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_missing_library_error_names_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package}.*pip install .*\[{package}\]"):
        getattr(JobTable(**BASE), f"to_{package}")()


def test_corrupted_parquet_file_is_detected(tmp_path):
    path = tmp_path / "jobs.parquet"
    JobTable(job_id=range(1000), submit_s=range(1000), runtime_s=[7.5] * 1000, nodes=[1] * 1000).to_parquet(path)
    whole = path.read_bytes()
    for place in range(100, 1000, 60):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(TableError):
            JobTable.from_parquet(path)
