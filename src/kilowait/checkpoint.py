"""Checkpoints: the state of a long computation in one file, from which it resumes exactly after a crash.

A `StateFormat` writes a nested state of numbers, text, arrays and tensors atomically, with the name and the version of
the format and a digest. Tensors and arrays are stored as safetensors and the rest as JSON in its header; a state
without arrays can also be a JSON file. Loading runs no code, and a file that is damaged, of another program or of
another version raises an InputError before any of it is used. A `Checkpoint` is such a file with the identity of the
computation's inputs: the computation is resumed only with the same ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from kilowait.errors import InputError
from kilowait.files import write_text
from kilowait.files.array_file import read_safetensors, write_safetensors
from kilowait.files.documents import parse_json
from kilowait.files.regular_file import read_bytes

Arrays = dict[str, npt.NDArray[Any]]

MAX_STRING_BYTES = 2**24
"""Maximum size of an array of strings in memory; its strings are padded to the longest."""
_STRING_DTYPE = re.compile(r"[<>|=]?[US]\d{1,6}")
_RECORD_DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|c8|c16|[SUV]\d{1,6})")


@dataclass(frozen=True)
class StateFormat:
    """Format of the files of one kind of state.

    >>> import tempfile
    >>> GAME = StateFormat("state of a game", version=1, remedy="play again")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = GAME.write(Path(folder, "last.safetensors"), {"round": 3, "board": np.eye(2)})
    ...     GAME.read(path)
    {'round': 3, 'board': array([[1., 0.],
           [0., 1.]])}
    """

    name: str
    """What such a file is; it is stored in the file, and named in errors."""
    version: int
    remedy: str
    """What to do about a file that cannot be read, for the error."""
    missing: str = "name a file or folder that training wrote"
    """What to do if there is no file, for the error."""
    max_header_bytes: int = 2**26
    """Maximum size of everything but arrays in a file, bytes."""

    def write(self, path: Path, state: Mapping[str, Any]) -> Path:
        """Write a nested state of tensors, arrays, numbers, strings, lists, tuples and dicts.

        Args:
            path: the file; an existing one is replaced, or left untouched if writing fails. A name that ends with
                .json gives a JSON file, for states without arrays.
            state: the state to save.
        """
        arrays: Arrays = {}
        content = packed_state(state, arrays)
        try:
            if path.suffix == ".json":
                assert not arrays
                write_text(path, self._header(content, _text_digest(content)) + "\n")
            else:
                write_safetensors(path, arrays, {"kilowait": self._header(content, _digest(arrays))})
        except OSError as problem:
            raise InputError(
                f"cannot write {path}: {problem.strerror or problem}; the earlier file is unchanged"
            ) from None
        return path

    def read(self, path: Path) -> dict[str, Any]:
        """The state in a file; a damaged file, or one of another program or version, raises an InputError."""
        arrays: Arrays = {}
        is_json = path.suffix == ".json"
        try:
            if is_json:
                header = parse_json(read_bytes(path, max_bytes=self.max_header_bytes), path)
            else:
                metadata, arrays = read_safetensors(path, max_header_bytes=self.max_header_bytes)
                header = parse_json(metadata.get("kilowait", "null").encode(), path)
        except FileNotFoundError:
            raise InputError(f"there is no {path}; {self.missing}") from None
        except (OSError, InputError) as problem:
            raise InputError(f"{path} is no {self.name}, or is cut off ({problem}); {self.remedy}") from None
        if not isinstance(header, dict) or not {"format", "version", "digest", "state"} <= set(header):
            raise InputError(f"{path} is no {self.name}: kilowait did not write it")
        if header["format"] != self.name:
            raise InputError(f"{path} is a {header['format']!s:.60}, not a {self.name}")
        if header["version"] != self.version:
            raise InputError(
                f"{path} is a {self.name} of version {header['version']!r:.60}; this kilowait reads version "
                f"{self.version}: {self.remedy}"
            )
        if header["digest"] != (_text_digest(header["state"]) if is_json else _digest(arrays)):
            raise InputError(f"{path} is damaged: its digest does not match; {self.remedy}")
        try:
            return unpacked_state(header["state"], arrays)
        except (ValueError, TypeError, KeyError) as problem:
            raise InputError(f"{path} is damaged: {problem}; {self.remedy}") from None

    def _header(self, content: Any, digest: str) -> str:
        header = {"format": self.name, "version": self.version, "digest": digest, "state": content}
        return json.dumps(header, allow_nan=False)


class Checkpoint:
    """File of the state of one computation, which is resumed only with the same inputs.

    Args:
        path: the file.
        format: its format.
        identity: the inputs that determine the result: settings, seed, digests of data. It is stored with each state.
        may_differ: inputs that may be others when the computation is resumed, see `check_identity`.

    >>> import tempfile
    >>> GAME = StateFormat("state of a game", version=1, remedy="play again")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Checkpoint(Path(folder, "last.json"), GAME, {"seed": 1}).write({"round": 3})
    ...     print(Checkpoint(Path(folder, "last.json"), GAME, {"seed": 1}).read())
    ...     Checkpoint(Path(folder, "last.json"), GAME, {"seed": 2}).read()
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: .../last.json was started with seed 1, not 2; resume with the same value, or play again
    """

    def __init__(
        self, path: Path, format: StateFormat, identity: Mapping[str, Any], *, may_differ: Collection[str] = ()
    ) -> None:
        self.path, self.format, self.identity, self._may_differ = path, format, dict(identity), may_differ

    def write(self, state: Mapping[str, Any]) -> Path:
        """Write a state in place of the previous one."""
        return self.format.write(self.path, {"identity": self.identity, **state})

    def read(self) -> dict[str, Any]:
        """The state from which the computation resumes; an InputError names the first input that differs."""
        state = self.format.read(self.path)
        identity = state.pop("identity", None)
        if not isinstance(identity, dict):
            raise InputError(f"{self.path} is damaged: it has no identity; {self.format.remedy}")
        check_identity(identity, self.identity, self.path, remedy=self.format.remedy, may_differ=self._may_differ)
        return state

    def read_if_exists(self) -> dict[str, Any] | None:
        """The state from which the computation resumes; None before the first checkpoint."""
        return self.read() if self.path.exists() else None


def check_identity(
    recorded: Mapping[str, Any],
    identity: Mapping[str, Any],
    place: str | PathLike[str],
    *,
    remedy: str,
    may_differ: Collection[str] = (),
) -> None:
    """Raise an InputError that names the first input of a resumed computation that differs from the recorded ones.

    Args:
        recorded: inputs at the start. Mappings in it are compared value by value, and named "mapping value".
        identity: the inputs now.
        place: the file or folder of the checkpoint, for the error.
        remedy: what to do instead of resuming, for the error.
        may_differ: names of inputs that may be others now.

    >>> check_identity({"settings": {"gamma": 0.9}}, {"settings": {"gamma": 1.0}}, "runs/a", remedy="train again")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: runs/a was started with settings gamma 0.9, not 1.0; resume with the same value, or
    train again
    """
    for name, before, now in _pairs(recorded, identity):
        if before != now and name not in may_differ:
            raise InputError(
                f"{place} was started with {name} {before!s:.300}, not {now!s:.300}; "
                f"resume with the same value, or {remedy}"
            )


def _pairs(recorded: Mapping[str, Any], identity: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Names and values of two identities, first those of the second."""
    pairs = []
    for name in [*identity, *(name for name in recorded if name not in identity)]:
        before, now = recorded.get(name), identity.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            pairs += _pairs(before, now, f"{prefix}{name} ")
        else:
            pairs.append((f"{prefix}{name}", before, now))
    return pairs


def _digest(arrays: Arrays) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(arrays[name].data)
    return digest.hexdigest()


def _text_digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content, allow_nan=False).encode(), digest_size=16).hexdigest()


def packed_state(state: Mapping[str, Any], arrays: Arrays) -> Any:
    """The state as JSON; tensors and arrays go to `arrays` by their path in the state.

    >>> arrays = {}
    >>> packed_state({"step": 3, "pair": (1, 2)}, arrays)
    {'$dict': [['step', 3], ['pair', {'$tuple': [1, 2]}]]}
    """
    return _packed(state, "", arrays)


def unpacked_state(content: Any, arrays: Arrays) -> dict[str, Any]:
    """The inverse of `packed_state`; a ValueError for content that it does not write.

    >>> unpacked_state({"$dict": [["step", 3], ["best", {"$float": "nan"}]]}, {})
    {'step': 3, 'best': nan}
    """
    state = _Unpacking(arrays).value(content)
    if not isinstance(state, dict):
        raise ValueError("its state is not a dict")
    return state


def _packed(value: Any, name: str, arrays: Arrays) -> Any:
    if isinstance(value, np.ndarray):
        return _packed_array(value, name, arrays)
    if hasattr(value, "detach"):  # a tensor, recognized without importing torch
        arrays[name] = np.asarray(value.detach().cpu().numpy(), order="C")
        return {"$tensor": name}
    if isinstance(value, np.generic):
        return _packed(value.item(), name, arrays)
    if isinstance(value, Mapping):
        return {"$dict": [[key, _packed(item, f"{name}/{key}", arrays)] for key, item in value.items()]}
    if isinstance(value, tuple | list):
        kind = "$tuple" if isinstance(value, tuple) else "$list"
        return {kind: [_packed(item, f"{name}/{index}", arrays) for index, item in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{name} is a {type(value).__name__}, which cannot be saved; use numbers, strings and arrays")


def _packed_array(value: npt.NDArray[Any], name: str, arrays: Arrays) -> Any:
    if value.dtype.kind in "US":
        return {"$strings": [value.dtype.str, list(value.shape), [str(item) for item in value.ravel().tolist()]]}
    if value.dtype.kind in "OmM":
        raise InputError(f"{name} is an array of {value.dtype}, which cannot be saved; use numbers")
    value = np.asarray(value, order="C")  # ascontiguousarray would turn 0 dimensions into 1
    if value.dtype.names is not None:
        arrays[name] = np.frombuffer(value.tobytes(), np.uint8)
        return {"$records": [name, dtype_to_descr(value.dtype), list(value.shape)]}
    arrays[name] = value
    return {"$array": name}


class _Unpacking:
    """Unpacking of one state. Every array is used once, so that a small file cannot name one a million times."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = dict(arrays)
        self.kinds: dict[str, Callable[[Any], Any]] = {
            "$tensor": self.tensor,
            "$array": self.array,
            "$dict": self.mapping,
            "$tuple": lambda items: tuple(self.items(items)),
            "$list": self.items,
            "$float": self.number,
            "$strings": self.strings,
            "$records": self.records,
        }

    def value(self, content: Any) -> Any:
        if not isinstance(content, dict):
            if isinstance(content, list):
                raise ValueError("its state has a list without a kind")
            return content
        if len(content) != 1 or next(iter(content)) not in self.kinds:
            raise ValueError(f"its state has an object {', '.join(content)[:60]!r}, not one of {', '.join(self.kinds)}")
        ((kind, inside),) = content.items()
        return self.kinds[kind](inside)

    def array(self, name: Any) -> npt.NDArray[Any]:
        if not isinstance(name, str) or name not in self.arrays:
            raise ValueError(f"its state names the array {str(name)[:60]!r}, which is missing or was named before")
        return self.arrays.pop(name)

    def tensor(self, name: Any) -> Any:
        import torch

        return torch.from_numpy(self.array(name))

    def mapping(self, pairs: Any) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for pair in _list(pairs):
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str | int):
                raise ValueError("its state has a dict that does not consist of names and values")
            result[pair[0]] = self.value(pair[1])
        return result

    def items(self, items: Any) -> list[Any]:
        return [self.value(item) for item in _list(items)]

    def number(self, text: Any) -> float:
        if text not in ("nan", "inf", "-inf"):
            raise ValueError(f"its state has the number {str(text)[:60]!r}, not nan, inf or -inf")
        return float(text)

    def strings(self, content: Any) -> npt.NDArray[Any]:
        dtype, shape, strings = _list(content, 3)
        if not isinstance(dtype, str) or _STRING_DTYPE.fullmatch(dtype) is None:
            raise ValueError(f"its state has strings of type {str(dtype)[:60]!r}")
        count = _size(shape)
        if not all(isinstance(item, str) for item in _list(strings, count)):
            raise ValueError("its state has an array of strings that contains something else")
        if count * np.dtype(dtype).itemsize > MAX_STRING_BYTES:
            raise ValueError(f"its state has strings of {count * np.dtype(dtype).itemsize:,} bytes")
        return np.array(strings, dtype).reshape(shape)

    def records(self, content: Any) -> npt.NDArray[Any]:
        name, description, shape = _list(content, 3)
        dtype, data, count = _record_dtype(description), self.array(name), _size(shape)
        if data.dtype != np.uint8 or data.ndim != 1 or data.nbytes != count * dtype.itemsize:
            raise ValueError(f"its state has {data.nbytes:,} bytes for {count:,} records of {dtype.itemsize} bytes")
        return data.view(dtype).reshape(shape) if data.nbytes else np.zeros(shape, dtype)


def _list(value: Any, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError(f"its state has {str(value)[:60]!r}, not a list" + ("" if length is None else f" of {length}"))
    return value


def _size(shape: Any) -> int:
    """Number of items of a shape."""
    for length in _list(shape):
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length < 2**40:
            raise ValueError(f"its state has an array of shape {str(shape)[:60]}")
    return math.prod(shape)


def _record_dtype(description: Any) -> np.dtype[Any]:
    """The dtype of a JSON description, in which tuples became lists."""
    dtype = np.dtype(descr_to_dtype(_fields(description)))
    if dtype.names is None or not 0 < dtype.itemsize <= MAX_STRING_BYTES:
        raise ValueError("its state has records without fields")
    return dtype


def _fields(description: Any) -> list[Any]:
    fields = []
    for field in _list(description):
        name, kind, *shape = _list(field)
        if not isinstance(name, str) or len(shape) > 1 or (shape and _size(shape[0]) > MAX_STRING_BYTES):
            raise ValueError("its state has records with invalid fields")
        if not isinstance(kind, list) and (not isinstance(kind, str) or _RECORD_DTYPE.fullmatch(kind) is None):
            raise ValueError(f"its state has records with a field of type {str(kind)[:60]!r}")
        fields.append((name, _fields(kind) if isinstance(kind, list) else kind, *(tuple(item) for item in shape)))
    return fields
