"""Offered load of a log, and rescaling of a log's arrivals to another load."""

from __future__ import annotations

import math

import numpy as np

from kilowait.errors import InputError
from kilowait.jobs import JobTable

LONGEST_S = 1e12
"""Maximum span of a log, seconds (31,700 years); longer ones are errors."""

SHORTEST_S = 1e-3
"""Minimum span of a log, seconds; in shorter ones submissions could not be distinguished."""


def offered_load(jobs: JobTable, nodes: int) -> float:
    """Node-seconds of all jobs / (`nodes` x seconds from the first submission to the last).

    Every job counts with its true run time, also if it is larger than the machine and would be dropped;
    remove such jobs first if they should not count.

    >>> offered_load(JobTable(job_id=[1, 2], submit_s=[0, 100], runtime_s=[50, 30], nodes=[4, 10]), 10)
    0.5
    """
    work, span_s = _work_and_span(jobs, nodes)
    return work / (nodes * span_s)


def rescale_load(jobs: JobTable, nodes: int, load: float) -> JobTable:
    """The same jobs with interarrival times scaled so that the offered load is `load`.

    The first submission time is kept. Begin and cancellation times (`begin_s`, `cancel_s`) keep their
    distance from the job's submission; think times do not change. Recorded waits are dropped, as they
    belong to the original load. The daily cycle is scaled too.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 100], runtime_s=[50, 30], nodes=[4, 10])
    >>> rescale_load(jobs, 10, 0.25)["submit_s"].tolist()
    [0.0, 200.0]
    """
    check_load(load)
    work, span_s = _work_and_span(jobs, nodes)
    if work <= 0:
        raise InputError("all run times are 0, so the offered load is always 0; give jobs with run times")
    new_span_s = check_pace(work, nodes, load)
    submit = jobs["submit_s"]
    first = submit.min()
    new_submit = first + (submit - first) * (new_span_s / span_s)
    columns = {name: jobs[name] for name in jobs.columns if name != "wait_s"}
    columns["submit_s"] = new_submit
    for name in ("begin_s", "cancel_s"):
        if name in columns:
            times = columns[name]
            known = np.isfinite(times)
            columns[name] = np.where(known, new_submit + (np.where(known, times, submit) - submit), times)
    return JobTable(labels=jobs.labels, meta={**jobs.meta, "rescaled_load": float(load)}, **columns)


def check_load(load: float) -> None:
    """Raise unless `load` is a finite number above 0."""
    if not (math.isfinite(load) and load > 0):
        raise InputError(f"the load is {load}; it must be a finite number above 0, such as 0.9")


def check_pace(work: float, nodes: int, load: float) -> float:
    """Seconds over which `work` node-seconds are submitted at `load`; raise if the span is out of range."""
    if not work <= LONGEST_S * nodes * load:
        raise InputError(
            f"a load of {load:g} on {nodes} nodes would spread these jobs over more than {LONGEST_S:g} s; "
            "use a higher load"
        )
    if not work >= SHORTEST_S * nodes * load:
        raise InputError(
            f"a load of {load:g} on {nodes} nodes would compress these jobs into less than {SHORTEST_S:g} s; "
            "use a lower load"
        )
    return work / nodes / load


def _work_and_span(jobs: JobTable, nodes: int) -> tuple[float, float]:
    """Node-seconds in all, and seconds between the first and the last submission."""
    if not nodes >= 1:
        raise InputError(f"the machine has {nodes} nodes; it needs at least 1")
    if len(jobs) < 2:
        raise InputError(f"{len(jobs)} job(s) have no offered load; at least two submissions are needed")
    span_s = float(np.ptp(jobs["submit_s"]))
    if span_s <= 0:
        raise InputError(
            f"all {len(jobs)} jobs are submitted at {jobs['submit_s'][0]:g} s, so their offered load is "
            "infinite; at least two different submission times are needed"
        )
    return float(np.dot(jobs.size.astype(np.float64), jobs["runtime_s"])), span_s
