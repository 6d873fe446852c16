"""Features known at job submission: the request, the time, the queue, and the outcome of earlier similar jobs.

Times are natural logarithms of seconds. Run times of earlier jobs are differences from the *anchor*: the median of the
last five run times of the most similar kind of job that has any (same user, request and size; same user and request;
same user), else a default from the request. So 0 means equal to the anchor, for every job.

Other targets than the run time have further features: target values of earlier similar jobs, as ln(target / scale) of
jobs whose target was known by then, less the target's own anchor; and for waits the wait queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.job_history import (
    UNKNOWN_REQUEST_S,
    Floats,
    Ints,
    JobHistory,
    PastEvents,
    group_keys,
    request_s,
    row_median,
)
from kilowait.predict.targets import Target

KINDS = {
    "user": "of the user",
    "user_nodes": "of the user with as many nodes",
    "user_request": "of the user with a similar request (half octaves)",
    "user_same": "of the user with the same request and nodes",
    "user_name": "of the user with the same name",
    "user_queue": "of the user in the same queue",
    "account": "of the account",
    "request": "of all users with a similar request",
    "everyone": "of all users",
}
"""Kinds of similar jobs."""
DETAILED_KINDS = ("user", "user_request", "user_same", "user_name")
"""Kinds whose latest three run times are separate features."""
ANCHOR_KINDS = ("user_same", "user_request", "user")
"""Kinds that can give the anchor of a run time, most similar first."""
MEAN_JOBS = {"request": 300, "everyone": 300}
"""Number of jobs in a mean; 30 for other kinds."""

MEANINGS = {
    "request": "ln(request)",
    "nodes": "ln(nodes)",
    "area": "ln(request x nodes)",
    "round": "1: request in whole hours; 0.5: in whole ten minutes; 0: neither",
    "hour": "hour of the day, UTC of the log's time",
    "weekday": "day of the week, counted from the day of time zero",
    "queue": "code of the queue in the table",
    "qos": "code of the quality of service in the table",
    "cores": "ln(1 + cores)",
    "memory": "ln(1 + MB)",
    "gpus": "GPUs",
    "anchor": "ln of the median of the last five run times of the most similar jobs",
    "anchor_share": "anchor - ln(request)",
    "same_request": "1 if the user's previous job requested the same time",
    "same_size": "1 if the user's previous job requested the same nodes",
    "utilization": "nodes in use over nodes of the machine",
    "backlog": "ln(1 + node-hours requested by waiting jobs, over the machine's nodes)",
}
STATISTICS = {
    "count": "ln(1 + jobs {kind} that have ended)",
    "last": "ln(run time) of the last ended job {kind}, less the anchor",
    "second": "ln(run time) of the second-last ended job {kind}, less the anchor",
    "third": "ln(run time) of the third-last ended job {kind}, less the anchor",
    "median": "median of ln(run time) of the last five ended jobs {kind}, less the anchor",
    "spread": "range of ln(run time) of the last five ended jobs {kind}",
    "since": "ln(1 + seconds since a job {kind} ended)",
    "mean": "mean of ln(run time) of the last 30 to 300 ended jobs {kind}, less the anchor",
    "inverse": "mean inverse run time of ended jobs {kind}: 10 s / run time, at most 1",
    "success": "share of the last five ended jobs {kind} that succeeded",
    "running": "running jobs {kind}",
    "elapsed": "ln(1 + seconds since the latest started job {kind} started), -1: it is not running",
    "waiting": "waiting jobs {kind}",
    "gap": "ln(1 + seconds since a job {kind} was submitted)",
}
TARGET_KINDS = {
    "user_identical": "of the user with an identical request",
    "queue": "of all users in the same queue",
    "size": "of all users with a similar size (octaves of nodes)",
    "queue_size": "of all users with a similar size in the same queue",
}
"""Kinds of similar jobs besides those in `KINDS`."""
TARGET_PREFIX = "target_"
"""Start of the names of features of earlier values of the target."""
TARGET_MEAN_JOBS = 30
"""Number of jobs in a mean."""
TARGET_STATISTICS = {
    "last": "ln(target) of the last job {kind} with a known value, less the target's anchor",
    "median": "median of ln(target) of the last five jobs {kind}, less the target's anchor",
    "mean": "mean of ln(target) of the last 30 jobs {kind}, less the target's anchor",
    "spread": "range of ln(target) of the last five jobs {kind}",
}
TARGET_MEANINGS = {
    "target_anchor": "ln of the median of the last five target values of the most similar jobs",
    "queued": "ln(1 + waiting jobs)",
    "queued_size": "ln(1 + waiting jobs of a similar size)",
    "longest_wait": "ln(1 + wait so far of the longest-waiting job in seconds)",
    "remaining": "ln(1 + remaining requested node-hours of running jobs, over the machine's nodes)",
}


@dataclass(frozen=True, eq=False)
class Features:
    """Feature table, one row per job in the order of the jobs."""

    names: tuple[str, ...]
    values: Floats
    """(n, len(names)); NaN: not known."""
    anchor: Floats
    """(n,) ln seconds."""
    request: Floats
    """(n,) ln seconds; NaN: not known."""
    history: str

    def __len__(self) -> int:
        return len(self.values)


def feature_meaning(name: str) -> str:
    """Description of a feature of any target, with its unit.

    >>> feature_meaning("user_last")
    'ln(run time) of the last ended job of the user, less the anchor'
    >>> feature_meaning("target_queue_last")
    "ln(target) of the last job of all users in the same queue with a known value, less the target's anchor"
    """
    meanings, statistics, kinds = MEANINGS, STATISTICS, KINDS
    if name in TARGET_MEANINGS or name.startswith(TARGET_PREFIX):
        meanings, statistics, kinds = TARGET_MEANINGS, TARGET_STATISTICS, {**KINDS, **TARGET_KINDS}
    if name in meanings:
        return meanings[name]
    kind, _, statistic = name.removeprefix(TARGET_PREFIX).rpartition("_")
    if kind not in kinds or statistic not in statistics:
        raise UnknownNameError("feature", name, meanings)
    return statistics[statistic].format(kind=kinds[kind])


def feature_table(jobs: JobTable, times: JobHistory, nodes: int) -> Features:
    """Features of each job known at its submission, given the start and end times of all jobs.

    Args:
        jobs: by (submit_s, job_id), as `JobTable.sorted` gives them.
        times: their start and end times.
        nodes: number of nodes of the machine.

    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 99], runtime_s=[60, 50], estimate_s=[3600, 3600], nodes=[1, 1], wait_s=[0, 0]
    ... )
    >>> from kilowait.predict.job_history import from_log
    >>> table = feature_table(jobs, from_log(jobs), nodes=4)
    >>> float(np.exp(table.anchor[1]).round())  # the run time of the user's previous job
    60.0
    """
    if jobs.order is not None:
        raise InputError("jobs are not in order of submission; use jobs.sorted()")
    submit_s, nodes_requested = jobs["submit_s"], jobs.size.astype(np.float64)
    request = np.log(request_s(jobs))
    log_runtime = np.log(np.maximum(jobs["runtime_s"], 1.0))
    keys = job_keys(jobs)
    ended = {kind: PastEvents(key, times.end_s, submit_s) for kind, key in keys.items()}
    default = np.where(np.isnan(request), np.log(UNKNOWN_REQUEST_S), request - 1.0)
    anchor = np.fmin(first_known(nearest_median(ended, log_runtime), default), request)
    columns = _submission_features(jobs, request, anchor)
    for kind, key in keys.items():
        columns |= {
            f"{kind}_{name}": values
            for name, values in _history_features(jobs, times, kind, key, ended[kind], log_runtime, anchor).items()
        }
    columns |= _machine_features(jobs, times, request, nodes_requested, nodes)
    return Features(tuple(columns), np.stack(list(columns.values()), axis=1), anchor, request, times.name)


def first_known(first: Floats, *others: Floats) -> Floats:
    """The first array, with NaN replaced by the next array that has a value.

    >>> first_known(np.array([1.0, np.nan]), np.array([5.0, 6.0])).tolist()
    [1.0, 6.0]
    """
    for other in others:
        first = np.where(np.isnan(first), other, first)
    return first


def nearest_median(known: Mapping[str, PastEvents], values: Floats, kinds: Iterable[str] = ANCHOR_KINDS) -> Floats:
    """Median of the last five values of the most similar kind of jobs that has any; NaN where none has."""
    return first_known(*(row_median(known[kind].latest_values(values, 5)) for kind in kinds if kind in known))


def job_keys(jobs: JobTable) -> dict[str, Ints]:
    """Group keys of the jobs, for each kind that this log has columns for: similar jobs have equal keys.

    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 5], runtime_s=[9, 9], estimate_s=[60, 90], nodes=[1, 1], user=[7, 7]
    ... )
    >>> job_keys(jobs)["user"].tolist(), job_keys(jobs)["user_request"].tolist()
    ([0, 0], [0, 1])
    """
    user, nodes = jobs.column("user"), jobs.size
    requested = np.nan_to_num(np.log(request_s(jobs)), nan=-1.0)
    octaves = np.rint(2.0 * requested / np.log(2.0))
    keys = {
        "user": group_keys(user),
        "user_nodes": group_keys(user, nodes),
        "user_request": group_keys(user, octaves),
        "user_same": group_keys(user, requested, nodes),
        "request": group_keys(octaves),
        "everyone": np.zeros(len(jobs), np.int64),
    }
    for kind, column in (("user_name", "name"), ("user_queue", "queue")):
        if column in jobs:
            keys[kind] = group_keys(user, jobs[column])
    if "account" in jobs:
        keys["account"] = group_keys(jobs["account"])
    return {kind: keys[kind] for kind in KINDS if kind in keys}


def _submission_features(jobs: JobTable, request: Floats, anchor: Floats) -> dict[str, Floats]:
    """Features of the submission itself."""
    submit_s, requested = jobs["submit_s"], np.exp(request)
    is_multiple = [np.abs(requested / unit - np.rint(requested / unit)) < 1e-9 for unit in (3600.0, 600.0)]
    columns = {
        "request": request,
        "nodes": np.log(jobs.size.astype(np.float64)),
        "area": request + np.log(jobs.size.astype(np.float64)),
        "round": np.where(is_multiple[0], 1.0, np.where(is_multiple[1], 0.5, 0.0)),
        "hour": submit_s / 3600.0 % 24.0,
        "weekday": np.floor(submit_s / 86400.0 % 7.0),
        "anchor": anchor,
        "anchor_share": anchor - request,
    }
    for name, column in (("queue", "queue"), ("qos", "qos"), ("gpus", "gpus")):
        if column in jobs:
            columns[name] = jobs[column].astype(np.float64)
    for name, column in (("cores", "cores"), ("memory", "memory_mb")):
        if column in jobs:
            columns[name] = np.log1p(jobs[column].astype(np.float64))
    return columns


def _history_features(
    jobs: JobTable, times: JobHistory, kind: str, key: Ints, ended: PastEvents, log_runtime: Floats, anchor: Floats
) -> Mapping[str, Floats]:
    """Statistics of earlier jobs of a kind."""
    submit_s, mean_jobs = jobs["submit_s"], MEAN_JOBS.get(kind, 30)
    inverse_runtime = 10.0 / np.maximum(jobs["runtime_s"], 10.0)
    columns = {
        "count": np.log1p(ended.count),
        "mean": ended.mean(log_runtime, mean_jobs) - anchor,
        "inverse": ended.mean(inverse_runtime, mean_jobs),
    }
    if kind in MEAN_JOBS:
        return columns
    last_five = ended.latest_values(log_runtime, 5)
    columns["median"] = row_median(last_five) - anchor
    if kind not in DETAILED_KINDS:
        return columns
    started = PastEvents(key, times.start_s, submit_s)
    submitted = PastEvents(key, submit_s, submit_s)
    is_running = started.latest(times.end_s) > submit_s
    since_start = np.log1p(np.maximum(submit_s - started.latest(times.start_s), 0.0))
    columns |= {
        "last": last_five[0] - anchor,
        "second": last_five[1] - anchor,
        "third": last_five[2] - anchor,
        "spread": np.fmax.reduce(last_five) - np.fmin.reduce(last_five),
        "since": np.log1p(np.maximum(submit_s - ended.latest(times.end_s), 0.0)),
        "running": (started.count - ended.count).astype(np.float64),
        "elapsed": np.where(is_running, since_start, -1.0),
        "waiting": (submitted.count - started.count).astype(np.float64),
        "gap": np.log1p(submit_s - submitted.latest(submit_s)),
    }
    if "status" in jobs:
        columns["success"] = ended.mean((jobs["status"] == 1).astype(np.float64), 5)
    return columns


def _events_of_all(jobs: JobTable, times: JobHistory) -> Iterator[PastEvents]:
    """Past submissions, starts and ends of all jobs."""
    everyone = np.zeros(len(jobs), np.int64)
    return (PastEvents(everyone, at_s, jobs["submit_s"]) for at_s in (jobs["submit_s"], times.start_s, times.end_s))


def _machine_features(
    jobs: JobTable, times: JobHistory, request: Floats, nodes_requested: Floats, nodes: int
) -> Mapping[str, Floats]:
    """Utilization and backlog of the machine, and whether the user repeats the previous request."""
    submit_s = jobs["submit_s"]
    submitted, started, ended = _events_of_all(jobs, times)
    node_hours = np.exp(np.nan_to_num(request, nan=np.log(UNKNOWN_REQUEST_S))) * nodes_requested / 3600.0
    user_submitted = PastEvents(group_keys(jobs.column("user")), submit_s, submit_s)
    return {
        "utilization": (started.sum(nodes_requested) - ended.sum(nodes_requested)) / nodes,
        "backlog": np.log1p(np.maximum(submitted.sum(node_hours) - started.sum(node_hours), 0.0) / nodes),
        "same_request": (user_submitted.latest(request) == request).astype(np.float64),
        "same_size": (user_submitted.latest(nodes_requested) == nodes_requested).astype(np.float64),
    }


def select_columns(table: Features, names: Iterable[str]) -> Floats:
    """The columns of these names, in this order; NaN for columns that the table does not have."""
    column_of = {name: column for column, name in enumerate(table.names)}
    unknown = np.full(len(table), np.nan)
    return np.stack([table.values[:, column_of[name]] if name in column_of else unknown for name in names], axis=1)


# -- other targets --------------------------------------------------------------------------------


def features_for(jobs: JobTable, times: JobHistory, nodes: int, target: Target) -> Features:
    """Features of each job known at its submission, for this target.

    Args:
        jobs: by (submit_s, job_id).
        times: when they started and ended.
        nodes: of the machine.
        target: of these jobs.
    """
    table = feature_table(jobs, times, nodes)
    if target.name == "runtime":
        return table
    submit_s, logarithm = jobs["submit_s"], target.logarithm()
    keys = all_job_keys(jobs)
    known = {kind: PastEvents(key, target.known_s, submit_s) for kind, key in keys.items()}
    default = np.full(len(jobs), np.log(target.default))
    anchor = first_known(nearest_median(known, logarithm, target.anchor_kinds), default)
    columns: dict[str, Floats] = {"target_anchor": anchor}
    for kind, events in known.items():
        last_five = events.latest_values(logarithm, 5)
        columns |= {
            f"target_{kind}_last": last_five[0] - anchor,
            f"target_{kind}_median": row_median(last_five) - anchor,
            f"target_{kind}_mean": events.mean(logarithm, TARGET_MEAN_JOBS) - anchor,
            f"target_{kind}_spread": np.fmax.reduce(last_five) - np.fmin.reduce(last_five),
        }
    if target.name == "wait":
        columns |= _queue_features(jobs, times, nodes, keys["size"])
    return replace(
        table,
        names=(*table.names, *columns),
        values=np.column_stack([table.values, *columns.values()]),
        anchor=anchor + np.log(target.scale),
    )


def all_job_keys(jobs: JobTable) -> dict[str, Ints]:
    """Group keys of the jobs, including `TARGET_KINDS`."""
    keys = job_keys(jobs)
    requested = [np.nan_to_num(request_s(jobs), nan=-1.0), jobs.size]
    requested += [jobs[name] for name in ("cores", "memory_mb", "gpus", "queue", "qos", "name") if name in jobs]
    size = np.rint(np.log2(jobs.size))
    keys["user_identical"] = group_keys(jobs.column("user"), *requested)
    keys["size"] = group_keys(size)
    if "queue" in jobs:
        keys["queue"] = group_keys(jobs["queue"])
        keys["queue_size"] = group_keys(jobs["queue"], size)
    return keys


def _queue_features(jobs: JobTable, times: JobHistory, nodes: int, size: Ints) -> Mapping[str, Floats]:
    """Length and age of the wait queue, and remaining work of running jobs."""
    submit_s = jobs["submit_s"]
    first_s = submit_s[0] if len(jobs) else 0.0
    submitted, started, ended = _events_of_all(jobs, times)
    same_size = [PastEvents(size, at_s, submit_s).count for at_s in (submit_s, times.start_s)]
    # The first job that has not started is found by the largest start up to it, which only grows.
    first_waiting = np.searchsorted(np.maximum.accumulate(times.start_s), submit_s, side="right")
    rows = np.arange(len(jobs))
    has_waiting = first_waiting < rows
    oldest_s = np.where(has_waiting, submit_s - submit_s[np.minimum(first_waiting, rows)], 0.0)
    request_h = np.nan_to_num(request_s(jobs), nan=UNKNOWN_REQUEST_S) / 3600.0
    job_nodes = jobs.size.astype(np.float64)
    planned_end_node_h = (
        (np.where(np.isfinite(times.start_s), times.start_s, first_s) - first_s) / 3600.0 + request_h
    ) * job_nodes
    now_h = (submit_s - first_s) / 3600.0
    running = started.sum(job_nodes) - ended.sum(job_nodes)
    remaining_node_h = started.sum(planned_end_node_h) - ended.sum(planned_end_node_h) - now_h * running
    return {
        "queued": np.log1p(submitted.count - started.count),
        "queued_size": np.log1p(same_size[0] - same_size[1]),
        "longest_wait": np.log1p(oldest_s),
        "remaining": np.log1p(np.maximum(remaining_node_h, 0.0) / nodes),
    }
