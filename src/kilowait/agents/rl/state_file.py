"""Saving nested states in one file: tensors as safetensors, the rest as JSON in its header. Loading runs no code.

A file is written to a temporary name and renamed when complete, so at any time either the old file or the new one
exists. It contains a digest of its tensors, so that corruption is detected.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from kilowait.errors import InputError
from kilowait.files import atomic_file

__all__ = ["read_state", "write_state"]

VERSION = 2
Arrays = dict[str, npt.NDArray[Any]]


def write_state(path: Path, format: str, state: Mapping[str, Any]) -> Path:
    """Write a nested state of tensors, arrays, numbers, strings, lists and dicts.

    Args:
        path: the file; an existing one is replaced, or left untouched if writing fails.
        format: name of the file's format; `read_state` checks it.
        state: the state to save.
    """
    arrays: Arrays = {}
    content = _packed(state, "", arrays)
    header = {"format": format, "version": VERSION, "digest": _digest(arrays), "state": content}
    try:
        with atomic_file(path, parents=True) as temporary:
            save_file(arrays, temporary, metadata={"kilowait": json.dumps(header, allow_nan=False)})
    except (OSError, SafetensorError) as problem:
        raise InputError(f"cannot write {path}: {problem}; the earlier file is unchanged") from None
    return path


def read_state(path: Path, format: str) -> dict[str, Any]:
    """The state in a file; a damaged file, or one of another program, raises an InputError with the reason."""
    arrays: Arrays = {}
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118
                arrays[name] = file.get_tensor(name)
    except FileNotFoundError:
        raise InputError(f"there is no {path}; name a file or folder that training wrote") from None
    except (OSError, SafetensorError) as problem:
        raise InputError(
            f"{path} is no {format}, or is cut off ({problem}); take an earlier one, or train again"
        ) from None
    try:
        header = json.loads(metadata["kilowait"])
        found_format, version, digest, content = (header[key] for key in ("format", "version", "digest", "state"))
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InputError(f"{path} is no {format}: kilowait did not write it") from None
    if found_format != format:
        raise InputError(f"{path} is a {found_format}, not a {format}")
    if version != VERSION:
        raise InputError(
            f"{path} is a {format} of version {version!r}; this kilowait reads version {VERSION}: train again"
        )
    if digest != _digest(arrays):
        raise InputError(f"{path} is damaged: its digest does not match; take an earlier one, or train again")
    state: dict[str, Any] = _unpacked(content, arrays)
    return state


def _digest(arrays: Arrays) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(arrays[name].data)
    return digest.hexdigest()


def _packed(value: Any, name: str, arrays: Arrays) -> Any:
    """The value as JSON; tensors and arrays go to `arrays` by their path, which replaces them in the JSON."""
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


def _unpacked(value: Any, arrays: Arrays) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "$tensor":
        return torch.from_numpy(arrays[inside].copy())
    if kind == "$array":
        return arrays[inside].copy()
    if kind == "$dict":
        return {key: _unpacked(item, arrays) for key, item in inside}
    if kind in ("$tuple", "$list"):
        items = [_unpacked(item, arrays) for item in inside]
        return tuple(items) if kind == "$tuple" else items
    if kind == "$float":
        return float(inside)
    if kind == "$strings":
        dtype, shape, strings = inside
        return np.array(strings, dtype).reshape(shape)
    name, description, shape = inside
    records = np.frombuffer(arrays[name].tobytes(), _dtype(description))
    return records.reshape(shape).copy()


def _dtype(description: Any) -> np.dtype[Any]:
    """The dtype of a JSON description, in which tuples became lists."""

    def tuples(item: Any) -> Any:
        if isinstance(item, list):
            return [tuple(tuples(part) if isinstance(part, list) else part for part in field) for field in item]
        return item

    return np.dtype(descr_to_dtype(tuples(description)))
