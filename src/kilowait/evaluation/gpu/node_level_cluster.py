"""The node-level cluster of a run, from the description in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilowait.cluster import Cluster, NodeGroup
from kilowait.errors import InputError, KilowaitError

__all__ = ["is_node_level", "node_level_cluster"]


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
