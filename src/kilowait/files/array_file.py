"""Files of arrays: NumPy archives (npz) and safetensors, read with checked sizes, types, shapes and ranges.

A safetensors file has arrays one after another, with their names, types and shapes in a JSON header. It is written
atomically, with the bytes that the library safetensors writes. When it is read, every offset is checked against it
before memory is allocated. It is read, not mapped into memory: it may be cut off by another process while it is in use.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.documents import parse_json
from kilowait.files.fields import Items, Number, Record, Text, Values, check_fields
from kilowait.files.output import atomic_file
from kilowait.files.regular_file import open_regular

MAX_ARRAYS = 10_000
FREE_BYTES, MAX_RATIO = 2**26, 200
"""Maximum size of the arrays of a small file, and of each byte of a large one: zeros are compressed a thousandfold."""
MAX_HEADER_BYTES = 10_000
_HEADER = re.compile(
    r"\{'descr': '([<>|][biufU]\d{1,9})', 'fortran_order': (True|False), 'shape': \(([\d, ]{0,100})\)(?:, ?)?\}"
)
"""The header that numpy writes; it is not evaluated as Python."""
_DAMAGE = (
    BadZipFile, EOFError, MemoryError, NotImplementedError, OSError, OverflowError, RuntimeError, TypeError, ValueError,
    struct.error, zlib.error,
)  # fmt: skip
"""What zipfile, zlib and numpy raise for damaged files."""


class StoredArrays(Mapping[str, npt.NDArray[Any]]):
    """Arrays by name, read with the type, shape and range that the reader needs.

    >>> arrays = StoredArrays({"root": np.eye(2)}, "state.npz")
    >>> arrays.floats("root", None, 2).shape
    (2, 2)
    >>> arrays.floats("root", 3, 3)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: state.npz: root has the shape (2, 2); it must be (3, 3)
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], source: str, prefix: str = "") -> None:
        self._arrays, self.source, self._prefix = arrays, source, prefix

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """An array as it was stored."""
        if name not in self._arrays:
            raise InputError(f"{self.source}: {self._prefix}{name} is missing")
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def group(self, name: str) -> StoredArrays:
        """The arrays whose names begin with `name` and a dot, without that beginning."""
        begin = f"{name}."
        return StoredArrays(
            {key.removeprefix(begin): values for key, values in self._arrays.items() if key.startswith(begin)},
            self.source,
            f"{self._prefix}{begin}",
        )

    def floats(
        self,
        name: str,
        *shape: int | None,
        minimum: float = -math.inf,
        maximum: float = math.inf,
        nan: bool = False,
        infinite: bool = False,
        ascending: bool = False,
    ) -> npt.NDArray[np.float64]:
        """An array of float64 with a shape (None: any length), finite unless `nan` or `infinite` allow other values."""
        values = self._of_kind(name, "a float64 array", shape, values_type=np.float64)
        fine = np.isfinite(values)
        if nan:
            fine |= np.isnan(values)
        if infinite:
            fine |= np.isinf(values)
        fine &= ~((values < minimum) | (values > maximum))
        self._check(name, values, fine, "a finite number", minimum, maximum, ascending)
        return values

    def whole(
        self, name: str, *shape: int | None, minimum: float = -(2**62), maximum: float = 2**62, ascending: bool = False
    ) -> npt.NDArray[Any]:
        """An array of integers with a shape (None: any length)."""
        values = self._of_kind(name, "an array of integers", shape, kinds="iu")
        fine = (values >= minimum) & (values <= maximum)
        self._check(name, values, fine, "a whole number", minimum, maximum, ascending)
        return values

    def flags(self, name: str, *shape: int | None) -> npt.NDArray[np.bool_]:
        """An array of truth values with a shape (None: any length)."""
        return self._of_kind(name, "an array of truth values", shape, kinds="b")

    def weights(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays, as the weights of a network: finite numbers."""
        for name, values in self._arrays.items():
            if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
                raise InputError(
                    f"{self.source}: {self._prefix}{name} holds {values.dtype}, or values that are not finite"
                )
        return dict(self._arrays)

    def refuse(self, name: str, problem: str) -> InputError:
        """The error for an array that disagrees with others."""
        return InputError(f"{self.source}: {self._prefix}{name} {problem}")

    def _of_kind(
        self, name: str, expected: str, shape: tuple[int | None, ...], *, kinds: str = "", values_type: Any = None
    ) -> npt.NDArray[Any]:
        values = self[name]
        right_type = values.dtype.kind in kinds if values_type is None else values.dtype == values_type
        if not right_type:
            raise self.refuse(name, f"holds {values.dtype}; it must be {expected}")
        fits = len(values.shape) == len(shape) and all(
            wanted is None or length == wanted for length, wanted in zip(values.shape, shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            raise self.refuse(name, f"has the shape {values.shape}; it must be ({wanted}{',' * (len(shape) == 1)})")
        return values

    def _check(
        self,
        name: str,
        values: npt.NDArray[Any],
        fine: npt.NDArray[np.bool_],
        expected: str,
        minimum: float,
        maximum: float,
        ascending: bool,
    ) -> None:
        if not fine.all():
            limits = f", at least {minimum:g}, at most {maximum:g}"
            raise self.refuse(name, f"has the value {values[~fine].flat[0]}; each must be {expected}{limits}")
        if ascending and (values[1:] < values[:-1]).any():
            raise self.refuse(name, "is not in ascending order")


def read_arrays(path: str | PathLike[str]) -> StoredArrays:
    """Read the arrays of an npz file.

    Raises an InputError that names the file and the array, and an OSError where the file cannot be opened.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
    ...     np.savez(file.name, share=np.ones(2))
    ...     read_arrays(file.name).floats("share", None).tolist()
    [1.0, 1.0]
    """
    source = fspath(path)
    arrays: dict[str, npt.NDArray[Any]] = {}
    with open_regular(path) as file:
        name = ""
        try:
            with ZipFile(file) as archive:
                members = archive.infolist()
                _check_sizes(source, members, os.fstat(file.fileno()).st_size)
                for member in members:
                    name = member.filename.removesuffix(".npy")
                    with archive.open(member) as content:
                        arrays[name] = _array(content, member.file_size)
        except InputError:
            raise
        except _DAMAGE as problem:
            where = f"{source}: {name[:100]!r}" if name else source
            lines = str(problem).splitlines() or [type(problem).__name__]
            raise InputError(f"{where} is damaged: {lines[0][:200]}") from None
    return StoredArrays(arrays, source)


def _check_sizes(source: str, members: list[ZipInfo], size: int) -> None:
    names = {member.filename for member in members}
    if len(members) > MAX_ARRAYS or len(names) < len(members):
        raise InputError(f"{source} is damaged: it has {len(members):,} arrays, {len(names):,} of different names")
    total = sum(member.file_size for member in members)
    limit = FREE_BYTES + MAX_RATIO * size
    if total > limit:
        raise InputError(f"{source} announces arrays of {total:,} bytes; a file of its size has at most {limit:,}")
    for member in members:
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise InputError(f"{source} is damaged: {member.filename[:100]!r} has an unknown compression")


def _array(content: IO[bytes], size: int) -> npt.NDArray[Any]:
    """Read one array; a ValueError if its header does not agree with the bytes that follow."""
    magic = content.read(8)
    if magic[:6] != b"\x93NUMPY" or magic[6:] not in (b"\x01\x00", b"\x02\x00"):
        raise ValueError("it is no array, or one of an unknown version")
    length = int.from_bytes(content.read(2 if magic[6] == 1 else 4), "little")
    header = _HEADER.fullmatch(content.read(min(length, MAX_HEADER_BYTES)).decode("latin-1").rstrip(" \n"))
    if header is None:
        raise ValueError("it has the header of no array of numbers or text")
    dtype, fortran = np.dtype(header[1]), header[2] == "True"
    shape = tuple(int(length) for length in header[3].replace(" ", "").split(",") if length)
    expected = math.prod(shape) * dtype.itemsize
    if expected > size:
        raise ValueError(f"its header announces {expected:,} bytes, but it has {size:,}")
    data = content.read()
    if len(data) != expected:
        raise ValueError(f"its header announces {expected:,} bytes, but it has {len(data):,}")
    # A copy: arrays of a file can be written to, and are aligned.
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C").copy()


# -- safetensors -----------------------------------------------------------------------------------


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
    with atomic_file(path) as temporary, temporary.open("wb") as file:
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
