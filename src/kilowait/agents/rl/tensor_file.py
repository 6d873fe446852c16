"""Reading of safetensors files: every offset is checked against the file before memory is allocated.

The file is read, not mapped into memory: it may be cut off by another process while it is in use.
"""

from __future__ import annotations

import math
import os
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.fields import Items, Number, Record, Text, Values, check_fields
from kilowait.files.json_file import parse_json
from kilowait.files.regular_file import open_regular

__all__ = ["read_tensors"]

Arrays = dict[str, npt.NDArray[Any]]

DTYPES = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
"""NumPy type by the name in the header."""
MAX_DIMENSIONS = 8
_METADATA = "__metadata__"
_TENSOR = Record(
    {
        "dtype": Text(tuple(DTYPES)),
        "shape": Items(Number(0, 2**48, whole=True), maximum=MAX_DIMENSIONS),
        "data_offsets": Items(Number(0, 2**62, whole=True), minimum=2, maximum=2),
    }
)


def read_tensors(path: str | PathLike[str], *, max_header_bytes: int) -> tuple[dict[str, str], Arrays]:
    """The metadata of a safetensors file, and its tensors by name.

    Raises an InputError that names the file and what is wrong, and an OSError where the file cannot be opened.

    Args:
        path: the file.
        max_header_bytes: maximum size of the header, in which names, shapes and metadata are.

    >>> import tempfile
    >>> from safetensors.numpy import save
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(save({"x": np.arange(2)}, {"unit": "s"}))
    ...     file.flush()
    ...     read_tensors(file.name, max_header_bytes=1000)
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
