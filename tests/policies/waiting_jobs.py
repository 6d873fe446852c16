"""A workload in which one job occupies the machine and the others start one after another."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.engine.interface import JOB, PriorityPolicy
from kilowait.jobs import JobTable
from kilowait.policies import simulate

TEN = Cluster.from_nodes(10)


def waiting(*rows: tuple[float, int, float], busy_s: float = 100.0, **columns: Any) -> JobTable:
    """Job 0 has all ten nodes from 0 s on; jobs 1, 2, ... are rows (submit, nodes, run)."""
    return JobTable(
        job_id=range(len(rows) + 1),
        submit_s=[0.0, *(row[0] for row in rows)],
        nodes=[10, *(row[1] for row in rows)],
        runtime_s=[busy_s, *(row[2] for row in rows)],
        **columns,
    )


def order(jobs: JobTable, policy: str | PriorityPolicy, cluster: Cluster = TEN) -> str:
    """The waiting jobs in the order in which they start, as letters: A is the first of the table."""
    log = simulate(jobs, cluster, policy, backfill="none")
    return "".join(chr(ord("A") + int(job) - 1) for job in jobs["job_id"][log.job] if job > 0)


def seen(**values: Any) -> Any:
    """A job record as policies observe it; fields that are not given are unknown."""
    record = np.zeros(1, JOB).view(np.recarray)
    for name in ("user", "account", "queue", "qos"):
        record[name] = -1
    record["estimate_s"] = 1.0
    record["nodes"] = record["units"] = 1
    for name, value in values.items():
        record[name] = value
    if "nodes" in values:
        record["units"] = values["nodes"]
    return record[0]
