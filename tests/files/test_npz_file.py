"""npz files: types and shapes are checked before memory is allocated."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.files.npz_file import ArrayFormat, parse_npz

FORMATS = {"x": ArrayFormat("float64", (None, 2)), "n": ArrayFormat("int64", ())}


def npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def packed(header: bytes, content: bytes = b"", name: str = "x.npy", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An npz file with an array whose header is as given."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content)
    return file.getvalue()


def header(shape: str, dtype: str = "'<f8'") -> bytes:
    return f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()


@pytest.mark.parametrize("x", [np.zeros((0, 2)), np.arange(6.0).reshape(3, 2)])
def test_arrays_are_read(x):
    found = parse_npz(npz(x=x, n=np.int64(7)), FORMATS, "file")
    np.testing.assert_array_equal(found["x"], x)
    assert found["n"] == 7 and found["x"].flags.writeable


ONE = {"x": ArrayFormat("float64", (None,))}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a zip file"),
        (npz(x=np.zeros(2))[:-30], "not a zip file"),
        (npz(y=np.zeros(2)), "it has the files 'y.npy', not x.npy"),
        (npz(x=np.zeros(2), y=np.zeros(2)), "it has the files"),
        (npz(x=np.zeros(2, np.float32)), "x has numbers of type '<f4', not '<f8'"),
        (npz(x=np.zeros((2, 2))), r"x has the shape \(2, 2\), not \(n,\)"),
        (npz(x=np.array([None])), "header of x is not that of an array|numbers of type"),
        (packed(header("(1000000000000,)")), "x has 1,000,000,000,000 values, more than 100,000,000"),
        (packed(header("(10000000,)")), "x has another size than its header says"),
        (packed(header("(99999999999999999999,)")), "header of x is not that"),
        (packed(header("(1,)", "[('a', '<f8')]"), bytes(8)), "header of x is not that"),
        (packed(b"-" * 4000 + b"1"), "header of x is not that"),
        (packed(header("(1,)"), bytes(8), method=zipfile.ZIP_BZIP2), "x is compressed by method 12"),
        (packed(b"x" * 5000), "not an array in NumPy's format"),
    ],
)
def test_invalid_files_are_errors(data, message):
    with pytest.raises(InputError, match=f"file is damaged: .*({message}).*; again"):
        parse_npz(data, ONE, "file", remedy="again")


def test_size_in_the_directory_of_the_archive_is_not_believed():
    data = packed(header("(1000000,)"), bytes(8_000_000))
    assert len(data) < 20_000
    found = data.rfind((8_000_000 + 10 + len(header("(1000000,)"))).to_bytes(4, "little"))
    smaller = data[:found] + (1000).to_bytes(4, "little") + data[found + 4 :]
    with pytest.raises(InputError, match="x has another size than its header says|Bad CRC"):
        parse_npz(smaller, ONE, "file")
