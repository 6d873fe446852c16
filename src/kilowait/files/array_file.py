"""NumPy archives (npz): arrays whose headers agree with the size of the file, with checked types, shapes and ranges."""

from __future__ import annotations

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

    def floats32(self, name: str, *shape: int | None) -> npt.NDArray[np.float32]:
        """An array of float32 with a shape (None: any length)."""
        return self._of_kind(name, "a float32 array", shape, values_type=np.float32)

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
