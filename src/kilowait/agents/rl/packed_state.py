"""Nested states as JSON and arrays: tensors and arrays are replaced by their names, tuples and floats are marked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from torch import Tensor

from kilowait.errors import InputError

__all__ = ["packed_state", "unpacked_state"]

Arrays = dict[str, npt.NDArray[Any]]

MAX_STRING_BYTES = 2**24
"""Maximum size of an array of strings in memory; its strings are padded to the longest."""
_STRING_DTYPE = re.compile(r"[<>|=]?[US]\d{1,6}")
_RECORD_DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|c8|c16|[SUV]\d{1,6})")


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
    if isinstance(value, Tensor):
        arrays[name] = np.asarray(value.detach().cpu().numpy(), order="C")
        return {"$tensor": name}
    if isinstance(value, np.ndarray):
        return _packed_array(value, name, arrays)
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
            "$tensor": lambda name: torch.from_numpy(self.array(name)),
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
