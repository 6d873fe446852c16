"""TOML files: reading of bounded size and depth, and writing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import tomli_w

from kilowait.errors import InputError
from kilowait.files.fields import Field, check_fields
from kilowait.files.json_file import MAX_DEPTH, nesting_depth
from kilowait.files.regular_file import read_bytes

__all__ = ["MAX_TOML_BYTES", "read_toml", "to_toml"]

MAX_TOML_BYTES = 2**24
"""Maximum size of a TOML file, bytes."""
_STRING = re.compile(rb"\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'", re.DOTALL)
_DOTTED_KEY = re.compile(rb"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){%d}" % MAX_DEPTH)


def read_toml(path: str | PathLike[str], fields: Field | None = None, *, remedy: str = "") -> dict[str, Any]:
    """Read a TOML file and check its fields.

    Raises an InputError that names the file and the field, and an OSError where the file cannot be opened.

    Args:
        path: the file.
        fields: the fields it must have; see `kilowait.files.fields`.
        remedy: what to do about a damaged file, for the error.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("seed = 1")
    ...     file.flush()
    ...     read_toml(file.name)
    {'seed': 1}
    """
    text = read_bytes(path, max_bytes=MAX_TOML_BYTES)
    end = f"; {remedy}" if remedy else ""
    # The time of dotted keys is quadratic in their length.
    bare = _STRING.sub(b"x", text)
    if nesting_depth(bare) > MAX_DEPTH or _DOTTED_KEY.search(bare):
        raise InputError(f"{fspath(path)} is damaged: it has more than {MAX_DEPTH} nested tables and lists{end}")
    try:
        data = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{fspath(path)} is damaged: {problem}{end}") from None
    if fields is not None:
        check_fields(data, fields, path, remedy=remedy)
    return data


def to_toml(data: Mapping[str, Any]) -> str:
    """TOML text of plain data; keys whose value is None are left out, as TOML has no null.

    >>> print(to_toml({"a": 1, "b": None, "t": {"x": "é", "n": float("inf")}}))
    a = 1
    <BLANKLINE>
    [t]
    x = "é"
    n = inf
    <BLANKLINE>
    """
    return tomli_w.dumps(_without_none(data))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
