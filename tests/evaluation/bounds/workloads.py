"""Small random workloads, and their schedules under all policies."""

from __future__ import annotations

import itertools

import numpy as np

import kilowait as kw
from kilowait.evaluation import metrics
from kilowait.evaluation.bounds import with_perfect_estimates
from kilowait.jobs import JobTable
from kilowait.rng import stream

OBJECTIVES = ("mean_wait_s", "mean_bsld", "makespan_s")
POLICIES = ("fcfs", "sjf", "saf", "f1", "wfp3")
BACKFILLS = ("none", "easy", "conservative")


def table(*rows, **columns):
    """Jobs (submit, run, nodes)."""
    submit, run, nodes = zip(*rows, strict=True)
    return JobTable(job_id=range(1, len(rows) + 1), submit_s=submit, runtime_s=run, nodes=nodes, **columns)


def workload(seed, max_jobs):
    """Competing jobs, some of 0 s, with estimates up to five times too long; and the number of nodes."""
    rng = stream(seed, "limits")
    nodes = int(rng.integers(2, 17))
    jobs = int(rng.integers(2, max_jobs + 1))
    run = rng.integers(0, 60, jobs) * (rng.random(jobs) < 0.95)
    jobs_table = JobTable(
        job_id=np.arange(jobs),
        submit_s=1000 + rng.integers(0, rng.integers(1, 30 * jobs), jobs),
        runtime_s=run,
        estimate_s=run * rng.integers(1, 6, jobs) + 1,
        nodes=rng.integers(1, nodes + 1, jobs),
    )
    return jobs_table, nodes


def schedules(jobs, nodes):
    """(configuration, metrics) of every policy and backfilling, with inflated and with perfect estimates."""
    cluster = kw.Cluster.from_nodes(nodes)
    perfect = with_perfect_estimates(jobs)
    for policy, backfill, (estimates, variant) in itertools.product(
        POLICIES, BACKFILLS, (("inflated", jobs), ("perfect", perfect))
    ):
        log = kw.simulate(variant, cluster, policy=policy, backfill=backfill)
        yield f"{policy}, {backfill}, {estimates}", metrics(log)
