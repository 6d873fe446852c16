"""Saving nested states in one file: tensors as safetensors, the rest as JSON in its header. Loading runs no code.

A file is written to a temporary name and renamed when complete, so at any time either the old file or the new one
exists. It contains a digest of its tensors, so that corruption is detected.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import save_file

from kilowait.agents.rl.packed_state import packed_state, unpacked_state
from kilowait.agents.rl.tensor_file import read_tensors
from kilowait.errors import InputError
from kilowait.files import atomic_file
from kilowait.files.json_file import parse_json

__all__ = ["read_state", "write_state"]

VERSION = 2
MAX_HEADER_BYTES = 2**26
"""Maximum size of everything but tensors in a file, bytes."""
Arrays = dict[str, npt.NDArray[Any]]


def write_state(path: Path, format: str, state: Mapping[str, Any]) -> Path:
    """Write a nested state of tensors, arrays, numbers, strings, lists and dicts.

    Args:
        path: the file; an existing one is replaced, or left untouched if writing fails.
        format: name of the file's format; `read_state` checks it.
        state: the state to save.
    """
    arrays: Arrays = {}
    content = packed_state(state, arrays)
    header = {"format": format, "version": VERSION, "digest": _digest(arrays), "state": content}
    try:
        with atomic_file(path, parents=True) as temporary:
            save_file(arrays, temporary, metadata={"kilowait": json.dumps(header, allow_nan=False)})
    except (OSError, SafetensorError) as problem:
        raise InputError(f"cannot write {path}: {problem}; the earlier file is unchanged") from None
    return path


def read_state(path: Path, format: str, *, max_header_bytes: int = MAX_HEADER_BYTES) -> dict[str, Any]:
    """The state in a file; a damaged file, or one of another program, raises an InputError with the reason.

    Args:
        path: the file.
        format: name of the file's format.
        max_header_bytes: maximum size of everything but tensors.
    """
    try:
        metadata, arrays = read_tensors(path, max_header_bytes=max_header_bytes)
    except FileNotFoundError:
        raise InputError(f"there is no {path}; name a file or folder that training wrote") from None
    except (OSError, InputError) as problem:
        raise InputError(
            f"{path} is no {format}, or is cut off ({problem}); take an earlier one, or train again"
        ) from None
    if "kilowait" not in metadata:
        raise InputError(f"{path} is no {format}: kilowait did not write it")
    header = parse_json(metadata["kilowait"].encode(), path, remedy="train again")
    if not isinstance(header, dict) or not {"format", "version", "digest", "state"} <= set(header):
        raise InputError(f"{path} is no {format}: kilowait did not write it")
    if header["format"] != format:
        raise InputError(f"{path} is a {header['format']!s:.60}, not a {format}")
    if header["version"] != VERSION:
        raise InputError(
            f"{path} is a {format} of version {header['version']!r:.60}; this kilowait reads version {VERSION}: "
            "train again"
        )
    if header["digest"] != _digest(arrays):
        raise InputError(f"{path} is damaged: its digest does not match; take an earlier one, or train again")
    try:
        return unpacked_state(header["state"], arrays)
    except (ValueError, TypeError, KeyError) as problem:
        raise InputError(f"{path} is damaged: {problem}; take an earlier one, or train again") from None


def _digest(arrays: Arrays) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(arrays[name].data)
    return digest.hexdigest()
