"""Offered load: how much work arrives for each second of the machine; and logs brought to another one."""

from __future__ import annotations

import math

import numpy as np

from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["offered_load", "rescale_load"]

LONGEST_S = 1e12
"""A log longer than this, 31,700 years, is taken for a mistake."""

SHORTEST_S = 1e-3
"""So is a shorter one than this: its submissions could not be told apart."""


def offered_load(jobs: JobTable, nodes: int) -> float:
    """Node-seconds of all jobs / (`nodes` x seconds from the first submission to the last).

    Every job counts with its true run time, also one that is larger than the machine and would be rejected;
    take such jobs out first if they should not.

    >>> offered_load(JobTable(job_id=[1, 2], submit_s=[0, 100], runtime_s=[50, 30], nodes=[4, 10]), 10)
    0.5
    """
    work, span_s = _work_and_span(jobs, nodes)
    return work / (nodes * span_s)


def rescale_load(jobs: JobTable, nodes: int, load: float) -> JobTable:
    """The same jobs with the time between submissions stretched or shrunk so that the offered load is `load`.

    The first submission stays where it is. Holds and cancellations (`begin_s`, `cancel_s`) keep their
    distance from the job's own submission, think times stay. The waits the log recorded are dropped: they
    belong to the old load. A day of the log is no longer a day: its daily cycle is stretched along.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 100], runtime_s=[50, 30], nodes=[4, 10])
    >>> rescale_load(jobs, 10, 0.25)["submit_s"].tolist()
    [0.0, 200.0]
    """
    check_load(load)
    work, span_s = _work_and_span(jobs, nodes)
    if work <= 0:
        raise InputError("all run times are 0, so the offered load is 0 at any pace; give jobs that run")
    wanted_s = check_pace(work, nodes, load)
    submit = jobs["submit_s"]
    first = submit.min()
    moved = first + (submit - first) * (wanted_s / span_s)
    columns = {name: jobs[name] for name in jobs.columns if name != "wait_s"}
    columns["submit_s"] = moved
    for name in ("begin_s", "cancel_s"):
        if name in columns:
            times = columns[name]
            known = np.isfinite(times)
            columns[name] = np.where(known, moved + (np.where(known, times, submit) - submit), times)
    return JobTable(labels=jobs.labels, meta={**jobs.meta, "rescaled_load": float(load)}, **columns)


def check_load(load: float) -> None:
    """Raise unless `load` is a finite number above 0."""
    if not (math.isfinite(load) and load > 0):
        raise InputError(f"the load is {load}; it must be a finite number above 0, such as 0.9")


def check_pace(work: float, nodes: int, load: float) -> float:
    """Seconds over which `work` node-seconds are to be submitted; raise where that is no sensible log."""
    if not work <= LONGEST_S * nodes * load:
        raise InputError(
            f"a load of {load:g} on {nodes} nodes would stretch these jobs over more than {LONGEST_S:g} s; "
            "ask for a higher load"
        )
    if not work >= SHORTEST_S * nodes * load:
        raise InputError(
            f"a load of {load:g} on {nodes} nodes would press these jobs into less than {SHORTEST_S:g} s; "
            "ask for a lower load"
        )
    return work / nodes / load


def _work_and_span(jobs: JobTable, nodes: int) -> tuple[float, float]:
    """Node-seconds in all, and seconds between the first and the last submission."""
    if not nodes >= 1:
        raise InputError(f"a machine of {nodes} nodes; it needs at least 1")
    if len(jobs) < 2:
        raise InputError(f"{len(jobs)} job(s) have no offered load; it takes at least two submissions")
    span_s = float(np.ptp(jobs["submit_s"]))
    if span_s <= 0:
        raise InputError(
            f"all {len(jobs)} jobs are submitted at {jobs['submit_s'][0]:g} s, so their offered load is "
            "infinite; it takes two different times of submission"
        )
    return float(np.dot(jobs["nodes"].astype(np.float64), jobs["runtime_s"])), span_s
