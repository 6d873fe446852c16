"""More that is known at a submission, for targets other than the run time: what the target was of jobs like this one.

Values are ln(target / scale) of jobs of which it was known by then, told as a difference from the target's own anchor.
For waits there is also how the queue stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kilowait.errors import UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.features import KINDS, Features, feature_table, first_known, keys_of, nearest_middle
from kilowait.predict.features import meaning as meaning_of_job
from kilowait.predict.known_times import UNKNOWN_REQUEST_S, KnownTimes, request_s
from kilowait.predict.past_events import (
    Ints,
    PastEvents,
    keyed,
    middle,
)
from kilowait.predict.targets import Target

__all__ = ["features_for", "kinds_of", "meaning"]

Floats = npt.NDArray[np.float64]

OTHER_KINDS = {
    "user_alike": "of the user with the same in all that was asked for",
    "queue": "of anybody in the same queue",
    "size": "of anybody of such a size (octaves of nodes)",
    "queue_size": "of anybody of such a size in the same queue",
}
"""Kinds of jobs besides those of the features of every job."""
MANY = 30
"""Jobs whose mean is taken."""
STATISTICS = {
    "last": "ln(target) of the last job {kind} of which it is known, less the target's anchor",
    "middle": "median of ln(target) of the last five jobs {kind}, less the target's anchor",
    "mean": "mean of ln(target) of the last 30 jobs {kind}, less the target's anchor",
    "spread": "largest less smallest ln(target) of the last five jobs {kind}",
}
MEANINGS = {
    "target_anchor": "ln of the middle of the last five values of the target of the nearest kind of jobs",
    "queued": "ln(1 + jobs that wait)",
    "queued_size": "ln(1 + jobs of such a size that wait)",
    "oldest": "ln(1 + seconds for which the first of them has waited)",
    "left": "ln(1 + node-hours that running jobs may still take by their requests, over the machine's nodes)",
}


def meaning(name: str) -> str:
    """What a feature is, of any target.

    >>> meaning("target_queue_last")
    "ln(target) of the last job of anybody in the same queue of which it is known, less the target's anchor"
    """
    if name in MEANINGS:
        return MEANINGS[name]
    if not name.startswith("target_"):
        return meaning_of_job(name)
    kind, _, statistic = name.removeprefix("target_").rpartition("_")
    kinds = {**KINDS, **OTHER_KINDS}
    if kind not in kinds or statistic not in STATISTICS:
        raise UnknownNameError("feature", name, MEANINGS)
    return STATISTICS[statistic].format(kind=kinds[kind])


def features_for(jobs: JobTable, world: KnownTimes, nodes: int, target: Target) -> Features:
    """What was known of each job when it was submitted, for this target.

    Args:
        jobs: by (submit_s, job_id).
        world: when they started and ended.
        nodes: of the machine.
        target: of these jobs.
    """
    table = feature_table(jobs, world, nodes)
    if target.name == "runtime":
        return table
    submit_s, logarithm = jobs["submit_s"], target.logarithm()
    keys = kinds_of(jobs)
    known = {kind: PastEvents(key, target.known_s, submit_s) for kind, key in keys.items()}
    usual = np.full(len(jobs), np.log(target.usual))
    anchor = first_known(nearest_middle(known, logarithm, target.nearest), usual)
    columns: dict[str, Floats] = {"target_anchor": anchor}
    for kind, happened in known.items():
        five = happened.several(logarithm, 5)
        columns |= {
            f"target_{kind}_last": five[0] - anchor,
            f"target_{kind}_middle": middle(five) - anchor,
            f"target_{kind}_mean": happened.mean(logarithm, MANY) - anchor,
            f"target_{kind}_spread": np.fmax.reduce(five) - np.fmin.reduce(five),
        }
    if target.name == "wait":
        columns |= _of_the_queue(jobs, world, nodes, keys["size"])
    return replace(
        table,
        names=(*table.names, *columns),
        values=np.column_stack([table.values, *columns.values()]),
        anchor=anchor + np.log(target.scale),
    )


def kinds_of(jobs: JobTable) -> dict[str, Ints]:
    """Which jobs are like which, with the kinds of this module too."""
    keys = keys_of(jobs)
    asked = [np.nan_to_num(request_s(jobs), nan=-1.0), jobs["nodes"]]
    asked += [jobs[name] for name in ("cores", "memory_mb", "gpus", "queue", "qos", "name") if name in jobs]
    size = np.rint(np.log2(jobs["nodes"]))
    keys["user_alike"] = keyed(jobs.column("user"), *asked)
    keys["size"] = keyed(size)
    if "queue" in jobs:
        keys["queue"] = keyed(jobs["queue"])
        keys["queue_size"] = keyed(jobs["queue"], size)
    return keys


def _of_the_queue(jobs: JobTable, world: KnownTimes, nodes: int, size: Ints) -> Mapping[str, Floats]:
    """How long the queue is, how old, and how much running jobs may still take."""
    submit_s, everyone = jobs["submit_s"], np.zeros(len(jobs), np.int64)
    first_s = submit_s[0] if len(jobs) else 0.0
    submitted, started, ended = (
        PastEvents(everyone, at_s, submit_s) for at_s in (submit_s, world.start_s, world.end_s)
    )
    same = [PastEvents(size, at_s, submit_s).count for at_s in (submit_s, world.start_s)]
    # The first job that has not started is found by the largest start up to it, which only grows.
    front = np.searchsorted(np.maximum.accumulate(world.start_s), submit_s, side="right")
    row = np.arange(len(jobs))
    waits = front < row
    oldest_s = np.where(waits, submit_s - submit_s[np.minimum(front, row)], 0.0)
    hours = np.nan_to_num(request_s(jobs), nan=UNKNOWN_REQUEST_S) / 3600.0
    size_n = jobs["nodes"].astype(np.float64)
    until_h = (
        (np.where(np.isfinite(world.start_s), world.start_s, first_s) - first_s) / 3600.0 + hours
    ) * size_n
    now_h = (submit_s - first_s) / 3600.0
    running = started.sum(size_n) - ended.sum(size_n)
    left = started.sum(until_h) - ended.sum(until_h) - now_h * running
    return {
        "queued": np.log1p(submitted.count - started.count),
        "queued_size": np.log1p(same[0] - same[1]),
        "oldest": np.log1p(oldest_s),
        "left": np.log1p(np.maximum(left, 0.0) / nodes),
    }
