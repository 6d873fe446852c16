"""Fields of scenarios, cases and results that several folders share."""

from __future__ import annotations

from kilowait.evaluation.comparison.result import KINDS
from kilowait.files.fields import Either, Flag, Items, Null, Number, Record, Text, Values

__all__ = ["CLEANING_REPORT", "CLUSTER", "METRICS", "NUMBER_OR_NULL", "POLICY", "SETTINGS"]

NUMBER_OR_NULL = Either(Null(), Number())
METRICS = Values(NUMBER_OR_NULL)
"""Metrics by name; null where a metric is undefined."""
COUNT = Number(minimum=0, whole=True)
_GROUP = Record(
    {"name": Text(), "nodes": Number(0, 2**40, whole=True)},
    {
        "cores": Number(1, 2**40, whole=True),
        "memory_gb": Number(minimum=0),
        "gpus": Number(0, 2**40, whole=True),
        "gpu_type": Text(),
        "shared": Flag(),
        "node_level": Flag(),
    },
)
CLUSTER = Record(
    {},
    {
        "name": Text(),
        "group": Items(_GROUP),
        "queue": Items(Record({"name": Text(), "groups": Items(Text())})),
        "layout": Items(COUNT),
    },
)
"""A machine, as in a cluster file; outages and reservations are in the capacity steps of the logs."""
POLICY = Record(
    {"policy": Text(), "backfill": Either(Text(), COUNT), "kind": Text(KINDS)},
    {"name": Either(Null(), Text()), "power_controls": Text(), "node_level": Flag()},
)
"""A policy configuration."""
SETTINGS = Record(
    {}, {"policy": Text(), "backfill": Either(Text(), COUNT), "at_limit": Text(), "placement": Either(Null(), Text())}
)
"""Settings of a run; others are only displayed."""
CLEANING_REPORT = Either(
    Null(),
    Record(
        {
            "rows_read": COUNT,
            "jobs": COUNT,
            "folded": COUNT,
            "entries": Items(
                Record({"kind": Text(), "reason": Text(), "count": COUNT, "first_line": Either(Null(), COUNT)})
            ),
        }
    ),
)
"""The cleaning report of a log; null if the jobs were not read from a file."""
