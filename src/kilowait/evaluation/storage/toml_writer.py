"""TOML writer for plain data; Python's standard library only reads TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["to_toml"]


def to_toml(data: Mapping[str, Any]) -> str:
    """Tables, arrays of tables, strings, numbers, booleans and flat lists; keys whose value is None are left out.

    >>> print(to_toml({"a": 1, "t": {"x": "é", "rows": [{"n": 0.5}, {"n": float("inf")}]}}))
    a = 1
    <BLANKLINE>
    [t]
    x = "é"
    <BLANKLINE>
    [[t.rows]]
    n = 0.5
    <BLANKLINE>
    [[t.rows]]
    n = inf
    <BLANKLINE>
    """
    lines: list[str] = []
    _table(data, "", lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(data: Mapping[str, Any], prefix: str, lines: list[str]) -> None:
    inner: list[tuple[str, Any]] = []
    for key, value in data.items():
        if isinstance(value, Mapping) or _is_rows(value):
            inner.append((key, value))
        elif value is not None:
            lines.append(f"{_key(key)} = {_value(value)}")
    for key, value in inner:
        name = f"{prefix}{_key(key)}"
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]"]
            _table(value, f"{name}.", lines)
        else:
            for row in value:
                lines += ["", f"[[{name}]]"]
                _table(row, f"{name}.", lines)


def _is_rows(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, Mapping) for v in value)


def _key(key: str) -> str:
    return key if key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, save for the delete character, which TOML wants escaped too.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, (int, float)):
        return repr(value)
    raise TypeError(f"{type(value).__name__} cannot be written as TOML")
