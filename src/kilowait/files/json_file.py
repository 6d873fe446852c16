"""JSON files: an object of bounded size and depth, whose numbers are finite and whose text is valid Unicode."""

from __future__ import annotations

import json
import math
import re
from os import PathLike, fspath
from typing import Any, NoReturn

import numpy as np

from kilowait.errors import InputError
from kilowait.files.fields import Field, check_fields
from kilowait.files.regular_file import read_bytes

__all__ = ["MAX_DEPTH", "MAX_JSON_BYTES", "nesting_depth", "parse_json", "read_json_object"]

MAX_JSON_BYTES = 2**28
"""Maximum size of a JSON file, bytes."""
MAX_DEPTH = 64
"""Maximum depth of nested objects and lists."""
MAX_DIGITS = 300
"""Maximum number of digits of a whole number: it still fits into a float."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json_object(path: str | PathLike[str], fields: Field | None = None, *, remedy: str = "") -> dict[str, Any]:
    """Read the JSON object of a file and check its fields.

    Raises an InputError that names the file and the field, and an OSError where the file cannot be opened.

    Args:
        path: the file.
        fields: the fields it must have; see `kilowait.files.fields`.
        remedy: what to do about a damaged file, for the error.

    >>> import tempfile
    >>> from kilowait.files.fields import Number, Record
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write('{"seed": 1}')
    ...     file.flush()
    ...     read_json_object(file.name, Record({"seed": Number()}))
    {'seed': 1}
    """
    data = parse_json(read_bytes(path, max_bytes=MAX_JSON_BYTES), path, remedy=remedy)
    if not isinstance(data, dict):
        raise InputError(f"{fspath(path)} does not contain a JSON object{_clause(remedy)}")
    if fields is not None:
        check_fields(data, fields, path, remedy=remedy)
    return data


def parse_json(text: bytes, source: str | PathLike[str], *, remedy: str = "") -> Any:
    """Parse JSON text in UTF-8; `source` names its file in errors.

    >>> parse_json(b"[NaN]", "results.json")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: results.json is damaged: NaN is not a JSON number
    """
    name = fspath(source)
    if nesting_depth(_STRING.sub(b"", text)) > MAX_DEPTH:
        raise InputError(f"{name} is damaged: it has more than {MAX_DEPTH} nested objects and lists{_clause(remedy)}")
    try:
        data = json.loads(
            text.decode("utf-8"), parse_int=_whole_number, parse_float=_float, parse_constant=_refuse_constant
        )
        if _SURROGATE.search(text):
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{name} is damaged: {problem}{_clause(remedy)}") from None
    return data


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
