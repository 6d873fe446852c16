"""Arrays of npz files: names, types and shapes are checked before their memory is allocated."""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

__all__ = ["ArrayFormat", "parse_npz"]

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<|][a-zA-Z]\d{1,4})', 'fortran_order': False, 'shape': \(((?:\d{1,15}, ?)*(?:\d{1,15})?)\), \} *\n"
)
_MAX_HEADER_BYTES = 4096
_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
    OverflowError,
)


@dataclass(frozen=True)
class ArrayFormat:
    """Type and shape that an array must have."""

    dtype: str
    """Such as float64."""
    shape: tuple[int | None, ...]
    """None: any length."""
    max_values: int = 10**8
    """Maximum number of values."""


def parse_npz(
    data: bytes, arrays: Mapping[str, ArrayFormat], source: str | PathLike[str], *, remedy: str = ""
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an npz file, which has exactly those of the given names, types and shapes.

    Args:
        data: contents of the file.
        arrays: name to format of each array.
        source: the file, for errors.
        remedy: what to do about a damaged file, for errors.

    >>> file = io.BytesIO()
    >>> np.savez_compressed(file, levels=np.array([0.5]))
    >>> parse_npz(file.getvalue(), {"levels": ArrayFormat("float64", (None,))}, "levels.npz")
    {'levels': array([0.5])}
    >>> parse_npz(file.getvalue(), {"levels": ArrayFormat("float64", (2,))}, "levels.npz")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: levels.npz is damaged: levels has the shape (1,), not (2,)
    """
    try:
        return _arrays(data, arrays)
    except _ERRORS as problem:
        end = f"; {remedy}" if remedy else ""
        raise InputError(f"{fspath(source)} is damaged: {problem}{end}") from None


def _arrays(data: bytes, arrays: Mapping[str, ArrayFormat]) -> dict[str, npt.NDArray[Any]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = sorted(member.filename for member in archive.infolist())
        if names != sorted(f"{name}.npy" for name in arrays):
            shown = ", ".join(repr(name[:40]) for name in names[:4])
            raise ValueError(f"it has the files {shown or 'none'}, not {', '.join(f'{name}.npy' for name in arrays)}")
        return {name: _array(archive, name, rule) for name, rule in arrays.items()}


def _array(archive: zipfile.ZipFile, name: str, rule: ArrayFormat) -> npt.NDArray[Any]:
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is compressed by method {member.compress_type}")
    with archive.open(member) as file:
        start = file.read(len(_MAGIC) + 2)
        length = int.from_bytes(start[len(_MAGIC) :], "little")
        if not start.startswith(_MAGIC) or not 0 < length <= _MAX_HEADER_BYTES:
            raise ValueError(f"{name} is not an array in NumPy's format 1.0")
        match = _HEADER.fullmatch(file.read(length))
        if match is None:
            raise ValueError(f"the header of {name} is not that of an array in C order")
        shape = tuple(int(item) for item in match[2].decode().replace(" ", "").split(",") if item)
        dtype = np.dtype(rule.dtype)
        if match[1].decode() != dtype.str:
            raise ValueError(f"{name} has numbers of type {match[1].decode()!r}, not {dtype.str!r}")
        if len(shape) != len(rule.shape) or any(
            wanted not in (None, found) for found, wanted in zip(shape, rule.shape, strict=True)
        ):
            wanted_text = ", ".join("n" if item is None else str(item) for item in rule.shape)
            raise ValueError(f"{name} has the shape {shape}, not ({wanted_text}{',' if len(rule.shape) == 1 else ''})")
        values = math.prod(shape)
        if values > rule.max_values:
            raise ValueError(f"{name} has {values:,} values, more than {rule.max_values:,}")
        expected = values * dtype.itemsize
        if member.file_size != len(_MAGIC) + 2 + length + expected:
            raise ValueError(f"{name} has another size than its header says")
        content = file.read(expected + 1)
        if len(content) != expected:
            raise ValueError(f"{name} has {len(content):,} bytes, not {expected:,}")
        return np.frombuffer(content, dtype).reshape(shape).copy()
