"""What is known of a job when it is submitted: its request, the time, the queue, and what became of jobs like it.

Times are natural logarithms of seconds. What jobs like it took is told as a difference from the *anchor*, the middle of
the last five run times of the nearest kind of job that has any: same user, request and size; same user and request;
same user; else a guess from the request. So "as always" is 0, whatever the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.known_times import UNKNOWN_REQUEST_S, KnownTimes, request_s
from kilowait.predict.past_events import (
    Ints,
    PastEvents,
    keyed,
    middle,
)

__all__ = ["Features", "chosen", "feature_table", "first_known", "keys_of", "meaning", "nearest_middle"]

Floats = npt.NDArray[np.float64]

KINDS = {
    "user": "of the user",
    "user_nodes": "of the user with as many nodes",
    "user_request": "of the user with such a request (half octaves)",
    "user_same": "of the user with the same request and nodes",
    "user_name": "of the user with the same name",
    "user_queue": "of the user in the same queue",
    "account": "of the account",
    "request": "of anybody with such a request",
    "everyone": "of anybody",
}
"""Kinds of jobs that are like a job."""
CLOSE = ("user", "user_request", "user_same", "user_name")
"""Kinds of which the latest jobs are looked at one by one."""
NEAREST = ("user_same", "user_request", "user")
"""Kinds, the nearest first, of which one gives the anchor of a run time."""
MANY = {"request": 300, "everyone": 300}
"""Jobs whose mean is taken; of other kinds 30."""

MEANINGS = {
    "request": "ln(request)",
    "nodes": "ln(nodes)",
    "area": "ln(request x nodes)",
    "round": "1: request in whole hours; 0.5: in whole ten minutes; 0: neither",
    "hour": "hour of the day, UTC of the log's clock",
    "weekday": "day of the week, from that of the clock's zero",
    "queue": "queue, its number in the table",
    "qos": "quality of service, its number in the table",
    "cores": "ln(1 + cores)",
    "memory": "ln(1 + MB)",
    "gpus": "GPUs",
    "anchor": "ln of the middle of the last five run times of the nearest kind of jobs",
    "anchor_part": "anchor - ln(request)",
    "again": "1 if the user's job before asked for the same time",
    "same_size": "1 if the user's job before asked for the same nodes",
    "busy": "nodes that are in use, over those of the machine",
    "backlog": "ln(1 + node-hours asked for by waiting jobs, over the machine's nodes)",
}
STATISTICS = {
    "count": "ln(1 + jobs {kind} that have ended)",
    "last": "ln(run time) of the last ended job {kind}, less the anchor",
    "second": "ln(run time) of the ended job {kind} before the last, less the anchor",
    "third": "ln(run time) of the ended job {kind} before these two, less the anchor",
    "middle": "median of ln(run time) of the last five ended jobs {kind}, less the anchor",
    "spread": "largest less smallest ln(run time) of the last five ended jobs {kind}",
    "since": "ln(1 + seconds since a job {kind} ended)",
    "mean": "mean of ln(run time) of many ended jobs {kind}, less the anchor",
    "quick": "how quick many ended jobs {kind} were: mean of 10 s / run time, at most 1",
    "ok": "share of the last five ended jobs {kind} that ended well",
    "running": "jobs {kind} that run",
    "elapsed": "ln(1 + seconds for which the latest job {kind} to start runs), -1: it does not run",
    "waiting": "jobs {kind} that wait",
    "gap": "ln(1 + seconds since a job {kind} was submitted)",
}


@dataclass(frozen=True, eq=False)
class Features:
    """A row a job, in the order of the jobs."""

    names: tuple[str, ...]
    values: Floats
    """(n, len(names)); NaN: not known."""
    anchor: Floats
    """(n,) ln seconds."""
    request: Floats
    """(n,) ln seconds; NaN: not known."""
    world: str

    def __len__(self) -> int:
        return len(self.values)


def meaning(name: str) -> str:
    """What a feature is, with its unit.

    >>> meaning("user_last")
    'ln(run time) of the last ended job of the user, less the anchor'
    """
    if name in MEANINGS:
        return MEANINGS[name]
    kind, _, statistic = name.rpartition("_")
    if kind not in KINDS or statistic not in STATISTICS:
        raise UnknownNameError("feature", name, MEANINGS)
    return STATISTICS[statistic].format(kind=KINDS[kind])


def feature_table(jobs: JobTable, world: KnownTimes, nodes: int) -> Features:
    """What was known of each job when it was submitted, in the world that is given.

    Args:
        jobs: by (submit_s, job_id), as `JobTable.sorted` gives them.
        world: when they started and ended.
        nodes: of the machine.

    >>> jobs = JobTable(
    ...     job_id=[1, 2],
    ...     submit_s=[0, 99],
    ...     runtime_s=[60, 50],
    ...     estimate_s=[3600, 3600],
    ...     nodes=[1, 1],
    ...     wait_s=[0, 0],
    ... )
    >>> from kilowait.predict.known_times import from_log
    >>> table = feature_table(jobs, from_log(jobs), nodes=4)
    >>> float(np.exp(table.anchor[1]).round())  # as the user's job before it
    60.0
    """
    if jobs.order is not None:
        raise InputError("these jobs are not in the order of submission; take jobs.sorted()")
    submit_s, size = jobs["submit_s"], jobs["nodes"].astype(np.float64)
    request = np.log(request_s(jobs))
    took = np.log(np.maximum(jobs["runtime_s"], 1.0))
    keys = keys_of(jobs)
    ended = {kind: PastEvents(key, world.end_s, submit_s) for kind, key in keys.items()}
    guess = np.where(np.isnan(request), np.log(UNKNOWN_REQUEST_S), request - 1.0)
    anchor = np.fmin(first_known(nearest_middle(ended, took), guess), request)
    columns = _of_itself(jobs, request, anchor)
    for kind, key in keys.items():
        columns |= {
            f"{kind}_{name}": values
            for name, values in _of_kind(jobs, world, kind, key, ended[kind], took, anchor).items()
        }
    columns |= _of_queue(jobs, world, request, size, nodes)
    return Features(tuple(columns), np.stack(list(columns.values()), axis=1), anchor, request, world.name)


def first_known(first: Floats, *others: Floats) -> Floats:
    """The first, where it is known, else the next that is.

    >>> first_known(np.array([1.0, np.nan]), np.array([5.0, 6.0])).tolist()
    [1.0, 6.0]
    """
    for other in others:
        first = np.where(np.isnan(first), other, first)
    return first


def nearest_middle(known: Mapping[str, PastEvents], values: Floats, kinds: Iterable[str] = NEAREST) -> Floats:
    """The middle of the last five values of the nearest kind of jobs that has any; NaN where none has."""
    return first_known(*(middle(known[kind].several(values, 5)) for kind in kinds if kind in known))


def keys_of(jobs: JobTable) -> dict[str, Ints]:
    """Which jobs are like which, for the kinds that this log can tell: equal numbers are alike.

    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 5], runtime_s=[9, 9], estimate_s=[60, 90], nodes=[1, 1], user=[7, 7]
    ... )
    >>> keys_of(jobs)["user"].tolist(), keys_of(jobs)["user_request"].tolist()
    ([0, 0], [0, 1])
    """
    user, nodes = jobs.column("user"), jobs["nodes"]
    asked = np.nan_to_num(np.log(request_s(jobs)), nan=-1.0)
    octaves = np.rint(2.0 * asked / np.log(2.0))
    keys = {
        "user": keyed(user),
        "user_nodes": keyed(user, nodes),
        "user_request": keyed(user, octaves),
        "user_same": keyed(user, asked, nodes),
        "request": keyed(octaves),
        "everyone": np.zeros(len(jobs), np.int64),
    }
    for kind, column in (("user_name", "name"), ("user_queue", "queue")):
        if column in jobs:
            keys[kind] = keyed(user, jobs[column])
    if "account" in jobs:
        keys["account"] = keyed(jobs["account"])
    return {kind: keys[kind] for kind in KINDS if kind in keys}


def _of_itself(jobs: JobTable, request: Floats, anchor: Floats) -> dict[str, Floats]:
    """What the submission itself says."""
    submit_s, asked = jobs["submit_s"], np.exp(request)
    whole = [np.abs(asked / unit - np.rint(asked / unit)) < 1e-9 for unit in (3600.0, 600.0)]
    columns = {
        "request": request,
        "nodes": np.log(jobs["nodes"].astype(np.float64)),
        "area": request + np.log(jobs["nodes"].astype(np.float64)),
        "round": np.where(whole[0], 1.0, np.where(whole[1], 0.5, 0.0)),
        "hour": submit_s / 3600.0 % 24.0,
        "weekday": np.floor(submit_s / 86400.0 % 7.0),
        "anchor": anchor,
        "anchor_part": anchor - request,
    }
    for name, column in (("queue", "queue"), ("qos", "qos"), ("gpus", "gpus")):
        if column in jobs:
            columns[name] = jobs[column].astype(np.float64)
    for name, column in (("cores", "cores"), ("memory", "memory_mb")):
        if column in jobs:
            columns[name] = np.log1p(jobs[column].astype(np.float64))
    return columns


def _of_kind(
    jobs: JobTable, world: KnownTimes, kind: str, key: Ints, ended: PastEvents, took: Floats, anchor: Floats
) -> Mapping[str, Floats]:
    """What became of jobs of a kind."""
    submit_s, many = jobs["submit_s"], MANY.get(kind, 30)
    expected_inverse_runtime = 10.0 / np.maximum(jobs["runtime_s"], 10.0)
    found = {
        "count": np.log1p(ended.count),
        "mean": ended.mean(took, many) - anchor,
        "quick": ended.mean(expected_inverse_runtime, many),
    }
    if kind in MANY:
        return found
    five = ended.several(took, 5)
    found["middle"] = middle(five) - anchor
    if kind not in CLOSE:
        return found
    started = PastEvents(key, world.start_s, submit_s)
    submitted = PastEvents(key, submit_s, submit_s)
    runs = started.latest(world.end_s) > submit_s
    since_start = np.log1p(np.maximum(submit_s - started.latest(world.start_s), 0.0))
    found |= {
        "last": five[0] - anchor,
        "second": five[1] - anchor,
        "third": five[2] - anchor,
        "spread": np.fmax.reduce(five) - np.fmin.reduce(five),
        "since": np.log1p(np.maximum(submit_s - ended.latest(world.end_s), 0.0)),
        "running": (started.count - ended.count).astype(np.float64),
        "elapsed": np.where(runs, since_start, -1.0),
        "waiting": (submitted.count - started.count).astype(np.float64),
        "gap": np.log1p(submit_s - submitted.latest(submit_s)),
    }
    if "status" in jobs:
        found["ok"] = ended.mean((jobs["status"] == 1).astype(np.float64), 5)
    return found


def _of_queue(
    jobs: JobTable, world: KnownTimes, request: Floats, size: Floats, nodes: int
) -> Mapping[str, Floats]:
    """How full the machine and its queue were, and whether the user did the same again."""
    submit_s = jobs["submit_s"]
    everyone = np.zeros(len(jobs), np.int64)
    submitted, started, ended = (
        PastEvents(everyone, at_s, submit_s) for at_s in (submit_s, world.start_s, world.end_s)
    )
    node_hours = np.exp(np.nan_to_num(request, nan=np.log(UNKNOWN_REQUEST_S))) * size / 3600.0
    before = PastEvents(keyed(jobs.column("user")), submit_s, submit_s)
    return {
        "busy": (started.sum(size) - ended.sum(size)) / nodes,
        "backlog": np.log1p(np.maximum(submitted.sum(node_hours) - started.sum(node_hours), 0.0) / nodes),
        "again": (before.latest(request) == request).astype(np.float64),
        "same_size": (before.latest(size) == size).astype(np.float64),
    }


def chosen(table: Features, names: Iterable[str]) -> Floats:
    """The columns of these names, for a model that was made for them; one the log cannot tell is not known."""
    at = {name: place for place, name in enumerate(table.names)}
    unknown = np.full(len(table), np.nan)
    return np.stack([table.values[:, at[name]] if name in at else unknown for name in names], axis=1)
