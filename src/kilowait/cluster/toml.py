"""Read and write cluster descriptions in TOML; docs/formats.md lists every key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import UTC, date, datetime, time
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from kilowait.cluster.cluster import Cluster, NodeGroup, Outage, Reservation
from kilowait.errors import ClusterError, InputError, KilowaitError, UnknownNameError

T = TypeVar("T", NodeGroup, Outage, Reservation)
_KINDS: dict[str, type[Any]] = {"int": int, "float": float, "str": str, "bool": bool}


def read_cluster(path: str | PathLike[str], unix_start_s: float | None = None) -> Cluster:
    """Read a cluster file; an unknown key, a missing key or a wrong type is an error that names it.

    Of the scenario.toml of a run folder the table ``[cluster]`` is read. `unix_start_s` is the Unix time of second 0 of
    the log, for dates of outages and reservations.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClusterError(f"no cluster file {path}; give a preset's name, nodes:N or a TOML file") from None
    except (OSError, ValueError) as problem:
        raise ClusterError(f"cannot read the cluster file {path}: {problem}") from None
    if isinstance(content.get("cluster"), dict) and "group" not in content:
        content = content["cluster"]
    allowed = ("name", "layout", "group", "queue", "outage", "reservation")
    for key in content:
        if key not in allowed:
            raise UnknownNameError(f"key in {path}", key, allowed)
    name = content.get("name", path.stem)
    if not isinstance(name, str):
        raise ClusterError(f"name in {path} is {name!r}, which is not of type str")
    groups = tuple(_dataclass_from(NodeGroup, row, f"[[group]] in {path}") for row in _rows(content, "group", path))
    return Cluster(
        groups=groups,
        queues=_queues(_rows(content, "queue", path), path),
        outages=tuple(
            _dataclass_from(Outage, _in_log_time(row, where, unix_start_s), where)
            for where, row in _described_rows(content, "outage", path)
        ),
        reservations=tuple(
            _dataclass_from(Reservation, _in_log_time(row, where, unix_start_s), where)
            for where, row in _described_rows(content, "reservation", path)
        ),
        name=name,
        node_groups=_layout(content, groups, path),
    )


def to_dict(cluster: Cluster) -> dict[str, Any]:
    """The cluster as a dict with the keys of a cluster file; default values are omitted."""
    data: dict[str, Any] = {"name": cluster.name}
    for key, items in (("group", cluster.groups), ("outage", cluster.outages), ("reservation", cluster.reservations)):
        if items:
            data[key] = [
                {f.name: getattr(item, f.name) for f in fields(item) if getattr(item, f.name) != f.default}
                for item in items
            ]
    if cluster.node_groups is not None:
        data["layout"] = list(cluster.node_groups)
    if cluster.queues:
        data["queue"] = [{"name": name, "groups": list(groups)} for name, groups in cluster.queues.items()]
    return data


def is_node_level(described: Mapping[str, Any]) -> bool:
    """Whether a machine, described as in a cluster file, is node-level.

    >>> is_node_level({"group": [{"name": "a", "nodes": 2, "node_level": True}]}), is_node_level({})
    (True, False)
    """
    return any(row.get("node_level", False) for row in described.get("group", ()))


def node_level_cluster(described: Mapping[str, Any]) -> Cluster | None:
    """The cluster of such a description; None if it is not node-level.

    >>> node_level_cluster({"name": "x", "group": [{"name": "a", "nodes": 2, "gpus": 4, "node_level": True}]}).nodes
    2
    """
    if not is_node_level(described):
        return None
    try:
        layout = described.get("layout")
        return Cluster(
            groups=tuple(NodeGroup(**row) for row in described["group"]),
            queues={row["name"]: tuple(row["groups"]) for row in described.get("queue", ())},
            name=str(described.get("name", "cluster")),
            node_groups=None if layout is None else tuple(layout),
        )
    except (KilowaitError, KeyError, TypeError) as problem:
        raise InputError(f"the description of the machine cannot be read: {problem}; run it again") from None


def _rows(content: dict[str, Any], key: str, path: Path) -> list[dict[str, Any]]:
    rows = content.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ClusterError(f"{key} in {path} must be written as [[{key}]] tables")
    return rows


def _described_rows(content: dict[str, Any], key: str, path: Path) -> list[tuple[str, dict[str, Any]]]:
    return [(f"[[{key}]] in {path}", row) for row in _rows(content, key, path)]


_DATES = ("start", "end", "announced")
"""Keys of dates, in place of the same keys with _s for seconds of the log."""


def _in_log_time(row: dict[str, Any], where: str, unix_start_s: float | None) -> dict[str, Any]:
    """The table with its dates as seconds of the log."""
    seconds = dict(row)
    for key in _DATES:
        if key not in row:
            continue
        if f"{key}_s" in row:
            raise ClusterError(f"{where} has {key} and {key}_s; give the date or the seconds, not both")
        unix_s = _unix_s(seconds.pop(key), f"{where}: {key}")
        if unix_start_s is None:
            raise ClusterError(
                f"{where}: {key} is a date, but the log does not state the date of its second 0 (UnixStartTime); "
                f"give {key}_s, in seconds of the log"
            )
        seconds[f"{key}_s"] = unix_s - unix_start_s
    return seconds


def _unix_s(value: Any, what: str) -> float:
    """Unix seconds of a date; UTC if it has no zone.

    >>> _unix_s("1970-01-02", "start"), _unix_s(datetime(1970, 1, 1, 1), "start")
    (86400.0, 3600.0)
    """
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if isinstance(value, datetime):
            return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    raise ClusterError(f"{what} is {value!r}, which is not a date such as 2024-06-01T08:00:00Z; seconds are {what}_s")


def _dataclass_from(kind: type[T], row: dict[str, Any], where: str) -> T:
    """The dataclass from a TOML table, its keys and types checked against the fields."""
    rules = {rule.name: rule for rule in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in rules:
            raise UnknownNameError(f"key of {where}", key, rules)
        expected = _KINDS[str(rules[key].type)]
        if expected is float and type(value) is int and abs(value) < 2**1000:
            values[key] = float(value)
        elif type(value) is expected:
            values[key] = value
        else:
            raise ClusterError(f"{where}: {key} is {value!r}, which is not of type {expected.__name__}")
    missing = [name for name, rule in rules.items() if rule.default is MISSING and name not in values]
    if missing:
        raise ClusterError(f"{where} lacks {', '.join(missing)}")
    return kind(**values)


def _layout(content: dict[str, Any], groups: tuple[NodeGroup, ...], path: Path) -> tuple[int, ...] | None:
    numbers = content.get("layout")
    if numbers is None:
        return None
    if type(numbers) is not list or not all(type(number) is int for number in numbers):
        raise ClusterError(
            f"layout in {path} must be a list of whole numbers: the group number of each node, counted from 0"
        )
    if not any(group.node_level for group in groups):
        raise ClusterError(
            f"layout in {path} has no effect: no group has node_level = true; set it or remove the layout"
        )
    return tuple(numbers)


def _queues(rows: list[dict[str, Any]], path: Path) -> dict[str, tuple[str, ...]]:
    queues: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if set(row) != {"name", "groups"} or type(row["name"]) is not str or type(row["groups"]) is not list:
            raise ClusterError(f"a [[queue]] in {path} has the keys name and groups (a list of group names)")
        if row["name"] in queues:
            raise ClusterError(f"queue {row['name']!r} is defined twice in {path}")
        queues[row["name"]] = tuple(str(name) for name in row["groups"])
    return queues
