"""Parquet files and NumPy archives: whatever they announce, reading them takes bounded memory."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kilowait.errors import InputError
from kilowait.files.array_file import StoredArrays, read_arrays
from kilowait.files.parquet_file import ColumnType, read_parquet_columns

ARRAYS = {
    "c": np.arange(6.0).reshape(2, 3),
    "f": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "empty": np.zeros((0, 4), np.float32),
    "flag": np.array([True, False]),
    "scalar": np.array(2.5),
    "text": np.array(["a", "bcd"]),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_as_they_were_written(tmp_path, save):
    save(tmp_path / "x.npz", **ARRAYS)
    found = read_arrays(tmp_path / "x.npz")
    assert set(found) == set(ARRAYS)
    for name, values in ARRAYS.items():
        assert found[name].dtype == values.dtype and found[name].shape == values.shape
        assert (found[name] == values).all()


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    padded = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(padded).to_bytes(2 if version == 1 else 4, "little") + padded + data


def write_zip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "'x' is damaged"),
        (b"\x93NUMPY", "'x' is damaged"),
        (
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"),
            "announces 8,000,000,000,000 bytes",
        ),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", b"x" * 15), "announces 16 bytes, but it has"),
        (
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", b"x" * 24),
            "announces 16 bytes, but it has 24",
        ),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"), "it has the header of no array"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"x" * 8), "it has the header of no array"),
        (npy("{'descr': '<U500000000', 'fortran_order': False, 'shape': (1,)}"), "announces 2,000,000,000 bytes"),
        (npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}"), "it has the header of no array"),
        (npy("-" * 9000 + "1"), "'x' is damaged"),
        (npy("(" * 9000), "'x' is damaged"),
        (npy("{}", version=9), "'x' is damaged"),
    ],
)
def test_headers_that_do_not_agree_with_the_file_are_refused(tmp_path, data, message):
    write_zip(tmp_path / "x.npz", {"x.npy": data})
    with pytest.raises(InputError, match=message):
        read_arrays(tmp_path / "x.npz")


def test_zip_bombs_are_refused(tmp_path):
    file = io.BytesIO()
    np.save(file, np.zeros(2**25))
    write_zip(tmp_path / "x.npz", {"x.npy": file.getvalue()}, zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="announces arrays of 268,435,584 bytes; a file of its size has at most"):
        read_arrays(tmp_path / "x.npz")


def test_other_archives_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(b"not a zip")
    with pytest.raises(InputError, match="is damaged: File is not a zip file"):
        read_arrays(path)
    write_zip(path, {"x.npy": b"a" * 100}, zipfile.ZIP_LZMA)
    with pytest.raises(InputError, match="unknown compression"):
        read_arrays(path)
    with pytest.warns(UserWarning), zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"")
        archive.writestr("x.npy", b"")
    with pytest.raises(InputError, match="it has 2 arrays, 1 of different names"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda a: a.floats("b"), "b is missing"),
        (lambda a: a.floats("f", None, None), "f holds int64; it must be a float64 array"),
        (lambda a: a.floats("c", None), r"c has the shape \(2, 3\); it must be \(any,\)"),
        (lambda a: a.floats("c", 2, 3, maximum=4), "c has the value 5.0; each must be a finite number"),
        (lambda a: a.floats("nan", None), "nan has the value nan"),
        (lambda a: a.floats("down", None, ascending=True), "down is not in ascending order"),
        (lambda a: a.whole("f", 2, 3, minimum=1), "f has the value 0; each must be a whole number"),
        (lambda a: a.whole("c", 2, 3), "c holds float64; it must be an array of integers"),
        (lambda a: a.flags("c", 2, 3), "c holds float64; it must be an array of truth values"),
        (lambda a: a.group("net").weights(), "net.w holds float64, or values that are not finite"),
    ],
)
def test_arrays_of_other_types_and_shapes_are_refused(read, message):
    more = {"nan": np.array([np.nan]), "down": np.array([2.0, 1.0]), "net.w": np.array([np.inf])}
    with pytest.raises(InputError, match=f"^x.npz: {message}"):
        read(StoredArrays({**ARRAYS, **more}, "x.npz"))


def test_values_that_are_not_finite_can_be_allowed():
    arrays = StoredArrays({"x": np.array([np.nan, 1.0]), "y": np.array([1.0, np.inf])}, "x.npz")
    assert len(arrays.floats("x", None, nan=True, minimum=0)) == len(arrays.floats("y", 2, infinite=True)) == 2


TYPES = {
    "job": ColumnType(np.int64, minimum=0),
    "group": ColumnType(np.int16),
    "start_s": ColumnType(np.float64, maximum=1e15, nan=True),
    "eligible_s": ColumnType(np.float64, null=True),
}
COLUMNS = {
    "job": np.array([0, 1]),
    "group": np.array([0, 1], np.int16),
    "start_s": np.array([0.0, np.nan]),
    "eligible_s": pa.array([1.0, None]),
}


def test_parquet_columns_are_read(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(COLUMNS).replace_schema_metadata({b"kilowait": b'{"a": 1}'}), path)
    found = read_parquet_columns(path, {**TYPES, "other": ColumnType(np.int64)}, optional=["other"])
    assert found.rows == 2 and found.note == {"a": 1} and "other" not in found
    assert found["group"].dtype == np.int16
    assert found["eligible_s"].tolist() == [1.0, 0.0] and found.missing["eligible_s"].tolist() == [False, True]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"job": pa.array(["a", "b"])}, "the column job holds string; it must hold int64, at least 0"),
        ({"job": np.array([0.0, 1.0])}, "the column job holds double; it must hold int64"),
        ({"job": pa.array([[0], [1]])}, "the column job holds list<element: int64>; it must hold int64"),
        ({"job": pa.array([1, None])}, "1 values of the column job are missing"),
        ({"job": np.array([0, -1])}, "row 1 of the column job is -1; it must be int64, at least 0"),
        ({"group": np.array([0, 40_000])}, "row 1 of the column group is 40000; it must be int16"),
        ({"start_s": np.array([0.0, np.inf])}, "row 1 of the column start_s is inf; it must be float64"),
        ({"start_s": None}, "the column start_s is missing, or not unique"),
    ],
)
def test_parquet_columns_of_other_types_are_refused(tmp_path, columns, message):
    path = tmp_path / "x.parquet"
    table = {name: values for name, values in {**COLUMNS, **columns}.items() if values is not None}
    pq.write_table(pa.table(table), path)
    with pytest.raises(InputError, match=f"^{path}: {message}"):
        read_parquet_columns(path, TYPES)


def test_parquet_files_with_too_many_rows_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"job": np.zeros(3_000_000, np.int64)}), path)
    with pytest.raises(InputError, match=f"^{path} announces 3,000,000 rows; a file of .* bytes has at most"):
        read_parquet_columns(path, {"job": ColumnType(np.int64)})
    assert read_parquet_columns(path, {"job": ColumnType(np.int64)}, rows=3_000_000).rows == 3_000_000
    with pytest.raises(InputError, match=f"^{path} has 3,000,000 rows; it must have 2$"):
        read_parquet_columns(path, {"job": ColumnType(np.int64)}, rows=2)


def test_damaged_parquet_files_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(COLUMNS), path)
    data = path.read_bytes()
    for broken in (b"", data[:50], data[:-8], data[:4] + bytes(60) + data[64:]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=f"^{path} cannot be read as Parquet"):
            read_parquet_columns(path, TYPES)
