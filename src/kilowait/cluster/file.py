"""A cluster described in TOML; see docs/formats.md for every key."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from kilowait.cluster.machine import Cluster, NodeGroup, Outage, Reservation
from kilowait.errors import ClusterError, UnknownNameError

__all__ = ["read_cluster"]

T = TypeVar("T", NodeGroup, Outage, Reservation)
_KINDS: dict[str, type[Any]] = {"int": int, "float": float, "str": str, "bool": bool}


def read_cluster(path: str | PathLike[str]) -> Cluster:
    """Read the file; an unknown key, a missing one or a wrong type is an error that names it."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClusterError(f"no cluster file {path}; give a preset's name, nodes:N or a TOML file") from None
    except (OSError, ValueError) as problem:
        raise ClusterError(f"cannot read the cluster file {path}: {problem}") from None
    allowed = ("name", "group", "queue", "outage", "reservation")
    for key in content:
        if key not in allowed:
            raise UnknownNameError(f"key in {path}", key, allowed)
    name = content.get("name", path.stem)
    if not isinstance(name, str):
        raise ClusterError(f"name in {path} is {name!r}, which is not of type str")
    return Cluster(
        groups=tuple(_made(NodeGroup, row, f"[[group]] in {path}") for row in _rows(content, "group", path)),
        queues=_queues(_rows(content, "queue", path), path),
        outages=tuple(_made(Outage, row, f"[[outage]] in {path}") for row in _rows(content, "outage", path)),
        reservations=tuple(
            _made(Reservation, row, f"[[reservation]] in {path}")
            for row in _rows(content, "reservation", path)
        ),
        name=name,
    )


def _rows(content: dict[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    rows = content.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ClusterError(f"{key} in {path} must be written as [[{key}]] tables")
    return rows


def _made(kind: type[T], row: dict[str, Any], where: str) -> T:
    """The dataclass from a TOML table, its keys and types checked against the fields."""
    rules = {rule.name: rule for rule in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in rules:
            raise UnknownNameError(f"key of {where}", key, rules)
        wanted = _KINDS[str(rules[key].type)]
        if wanted is float and type(value) is int and abs(value) < 2**1000:
            values[key] = float(value)
        elif type(value) is wanted:
            values[key] = value
        else:
            raise ClusterError(f"{where}: {key} is {value!r}, which is not of type {wanted.__name__}")
    absent = [name for name, rule in rules.items() if rule.default is MISSING and name not in values]
    if absent:
        raise ClusterError(f"{where} lacks {', '.join(absent)}")
    return kind(**values)


def _queues(rows: list[dict[str, Any]], path: Path) -> dict[str, tuple[str, ...]]:
    queues: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if set(row) != {"name", "groups"} or type(row["name"]) is not str or type(row["groups"]) is not list:
            raise ClusterError(f"a [[queue]] in {path} has the keys name and groups (a list of group names)")
        if row["name"] in queues:
            raise ClusterError(f"queue {row['name']!r} stands twice in {path}")
        queues[row["name"]] = tuple(str(name) for name in row["groups"])
    return queues
