"""`simulate`: jobs, a cluster and a policy in; what happened out."""

from __future__ import annotations

from dataclasses import replace

from kilowait.cluster import Cluster, Levers
from kilowait.engine.ports import Rule
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import replay
from kilowait.jobs import JobTable, SegmentLog
from kilowait.policies.registry import Decider, resolve

__all__ = ["simulate"]


def simulate(
    jobs: JobTable,
    cluster: Cluster,
    policy: str | Rule | Decider = "fcfs",
    backfill: str | int = "none",
    *,
    backfill_order: str | Rule | None = None,
    walltime: str = "extend",
    passes: str = "instant",
    placement: str = "first",
    dependencies: bool = True,
    oversized: str = "error",
    levers: Levers | None = None,
) -> SegmentLog:
    """Replay `jobs` on `cluster` under a policy: its name, a rule of one's own, or an agent.

    `backfill` is none, easy, conservative or a number of reservations; `backfill_order` an own order for its
    candidates ("sjf" makes EASY into EASY-SJBF). `walltime`: extend lets jobs run as long as the log says, kill ends
    them at their estimate. `passes`: one scheduling pass per instant, or per event. `placement` among several groups:
    first that fits, or balance. `oversized` jobs: error, or reject. `levers`: sleeping nodes, levels of speed, a power
    budget; `kilowait.energy` makes them.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[3, 2])
    >>> simulate(jobs, Cluster.from_nodes(4)).jobs()["start_s"].tolist()
    [0.0, 60.0]
    """
    rule = resolve(policy)
    own = None if backfill_order is None else resolve(backfill_order)
    settings = Settings(
        backfill=backfill,
        walltime=walltime,
        passes=passes,
        placement=placement,
        dependencies=dependencies,
        oversized=oversized,
    )
    if rule.placement is not None:
        settings = replace(settings, placement=rule.placement)
    return replay(jobs, cluster, rule, settings, own, levers)
