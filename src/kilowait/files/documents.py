"""JSON and TOML documents: parsing of bounded size and depth, with checked fields; writing of TOML.

The numbers of a JSON document are finite and its text is valid Unicode.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, NoReturn

import numpy as np
import tomli_w

from kilowait.errors import InputError
from kilowait.files.fields import Field, check_fields
from kilowait.files.regular_file import read_bytes

MAX_JSON_BYTES = 2**28
"""Maximum size of a JSON file, bytes."""
MAX_DEPTH = 64
"""Maximum depth of nested objects and lists."""
MAX_DIGITS = 300
"""Maximum number of digits of a whole number: it still fits into a float."""

_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

MAX_TOML_BYTES = 2**24
"""Maximum size of a TOML file, bytes."""
_TOML_STRING = re.compile(rb"\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'", re.DOTALL)
_DOTTED_KEY = re.compile(rb"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){%d}" % MAX_DEPTH)


def read_json_object(
    path: str | PathLike[str], fields: Field | None = None, *, remedy: str = "", constants: bool = False
) -> dict[str, Any]:
    """Read the JSON object of a file and check its fields.

    Raises an InputError that names the file and the field, and an OSError where the file cannot be opened.

    Args:
        path: the file.
        fields: the fields it must have; see `kilowait.files.fields`.
        remedy: what to do about a damaged file, for the error.
        constants: see `parse_json`.

    >>> import tempfile
    >>> from kilowait.files.fields import Number, Record
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write('{"seed": 1}')
    ...     file.flush()
    ...     read_json_object(file.name, Record({"seed": Number()}))
    {'seed': 1}
    """
    data = parse_json(read_bytes(path, max_bytes=MAX_JSON_BYTES), path, remedy=remedy, constants=constants)
    if not isinstance(data, dict):
        raise InputError(f"{fspath(path)} does not contain a JSON object{_clause(remedy)}")
    if fields is not None:
        check_fields(data, fields, path, remedy=remedy)
    return data


def parse_json(text: bytes, source: str | PathLike[str], *, remedy: str = "", constants: bool = False) -> Any:
    """Parse JSON text in UTF-8.

    Args:
        text: the text.
        source: the file, for errors.
        remedy: what to do about a damaged file, for errors.
        constants: whether NaN and Infinity are numbers; `json.dumps` writes them, but standard JSON has none.

    >>> parse_json(b"[NaN]", "results.json")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: results.json is damaged: NaN is not a JSON number
    """
    name = fspath(source)
    if nesting_depth(_JSON_STRING.sub(b"", text)) > MAX_DEPTH:
        raise InputError(f"{name} is damaged: it has more than {MAX_DEPTH} nested objects and lists{_clause(remedy)}")
    try:
        data = json.loads(
            text.decode("utf-8"),
            parse_int=_whole_number,
            parse_float=_float,
            parse_constant=float if constants else _refuse_constant,
        )
        if _SURROGATE.search(text):
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{name} is damaged: {problem}{_clause(remedy)}") from None
    return data


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
    bare = _TOML_STRING.sub(b"x", text)
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


def nesting_depth(text: bytes) -> int:
    """Maximum depth of brackets and braces in text without strings.

    >>> nesting_depth(b"[[1, 2], {}]")
    2
    """
    characters = np.frombuffer(text, np.uint8)
    opening = (characters == ord("[")) | (characters == ord("{"))
    closing = (characters == ord("]")) | (characters == ord("}"))
    steps = opening[opening | closing]
    return int(np.cumsum(np.where(steps, 1, -1)).max(initial=0))


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:30]} is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _clause(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
