"""Safetensors files: arrays one after another, with their names, types and shapes in a JSON header.

Files are written atomically, with the bytes that the library safetensors writes. When a file is read, every offset is
checked against it before memory is allocated. It is read, not mapped into memory: it may be cut off by another process
while it is in use.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.documents import parse_json
from kilowait.files.fields import Items, Number, Record, Text, Values, check_fields
from kilowait.files.output import atomic_file
from kilowait.files.regular_file import open_regular

Arrays = dict[str, npt.NDArray[Any]]

DTYPES = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4",
    "F32": "<f4", "F64": "<f8", "I64": "<i8", "U64": "<u8",
}  # fmt: skip
"""NumPy type by the name in the header. Arrays are written from the last type to the first."""
MAX_DIMENSIONS = 8
_METADATA = "__metadata__"
_TENSOR = Record(
    {
        "dtype": Text(tuple(DTYPES)),
        "shape": Items(Number(0, 2**48, whole=True), maximum=MAX_DIMENSIONS),
        "data_offsets": Items(Number(0, 2**62, whole=True), minimum=2, maximum=2),
    }
)


def write_safetensors(
    path: str | PathLike[str], arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file atomically.

    Args:
        path: the file; missing folders are created.
        arrays: contiguous arrays by name.
        metadata: text by name, stored in the header.
    """
    types, order = {name: dtype for dtype, name in DTYPES.items()}, list(DTYPES.values())
    for name, array in arrays.items():
        if array.dtype.str not in types:
            raise InputError(f"cannot write {fspath(path)}: {name} is an array of {array.dtype}; use numbers")
    names = sorted(arrays, key=lambda name: (-order.index(arrays[name].dtype.str), name))
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name in names:
        array = arrays[name]
        offsets = [end, end + array.nbytes]
        header[name] = {"dtype": types[array.dtype.str], "shape": list(array.shape), "data_offsets": offsets}
        end = offsets[1]
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of eight bytes
    with atomic_file(path, parents=True) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(arrays[name].data)


def read_safetensors(path: str | PathLike[str], *, max_header_bytes: int) -> tuple[dict[str, str], Arrays]:
    """The metadata of a safetensors file, and its tensors by name.

    Raises an InputError that names the file and what is wrong, and an OSError where the file cannot be opened.

    Args:
        path: the file.
        max_header_bytes: maximum size of the header, in which names, shapes and metadata are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_safetensors(f"{folder}/x.safetensors", {"x": np.arange(2)}, {"unit": "s"})
    ...     read_safetensors(f"{folder}/x.safetensors", max_header_bytes=1000)
    ({'unit': 's'}, {'x': array([0, 1])})
    """
    name = fspath(path)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise InputError(f"{name} is damaged: it is shorter than its header says")
        if length > max_header_bytes:
            raise InputError(f"{name} has a header of {length:,} bytes; at most {max_header_bytes:,} are read")
        header = parse_json(file.read(length), path)
        if not isinstance(header, dict):
            raise InputError(f"{name} is damaged: its header is not a JSON object")
        metadata = header.pop(_METADATA, {})
        check_fields(metadata, Values(Text(maximum=max_header_bytes)), name)
        check_fields(header, Values(_TENSOR), name)
        _check_offsets(header, size - 8 - length, name)
        arrays: Arrays = {}
        for key, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            dtype, (begin, end) = np.dtype(DTYPES[tensor["dtype"]]), tensor["data_offsets"]
            content = np.empty(end - begin, np.uint8)
            # A boolean is a byte 0 or 1; NumPy does not check it.
            if file.readinto(content.data) != len(content) or (dtype == np.bool_ and content.max(initial=0) > 1):
                raise InputError(f"{name} is damaged: {_shown(key)} is cut off, or not of type {tensor['dtype']}")
            arrays[key] = content.view(dtype).reshape(tensor["shape"])
        return metadata, arrays


def _check_offsets(tensors: dict[str, Any], size: int, name: str) -> None:
    """Check that the tensors fill the rest of the file, one after the other."""
    end = 0
    for key, tensor in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = tensor["data_offsets"]
        expected = math.prod(tensor["shape"]) * np.dtype(DTYPES[tensor["dtype"]]).itemsize
        if math.prod(max(length, 1) for length in tensor["shape"]) >= 2**60:
            raise InputError(f"{name} is damaged: {_shown(key)} has the shape {tensor['shape']}")
        if begin != end or stop - begin != expected:
            raise InputError(
                f"{name} is damaged: {_shown(key)} of shape {tensor['shape']} is at bytes {begin} to {stop}, not at "
                f"{end} to {end + expected}"
            )
        end = stop
    if end != size:
        raise InputError(f"{name} is damaged: its tensors have {end:,} bytes, and {size:,} are there")


def _shown(key: str) -> str:
    return repr(key if len(key) <= 60 else f"{key[:57]}...")
