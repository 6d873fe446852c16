"""Additional features for targets other than the run time: target values of earlier similar jobs.

Values are ln(target / scale) of jobs whose target was known by then, less the target's own anchor. For waits there are
also features of the wait queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kilowait.errors import UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.features import KINDS, Features, feature_table, first_known, job_keys, nearest_median
from kilowait.predict.features import runtime_feature_meaning as meaning_of_job
from kilowait.predict.job_history import UNKNOWN_REQUEST_S, JobHistory, request_s
from kilowait.predict.past_events import Ints, PastEvents, group_keys, row_median
from kilowait.predict.targets import Target

__all__ = ["all_job_keys", "features_for", "feature_meaning"]

Floats = npt.NDArray[np.float64]

OTHER_KINDS = {
    "user_identical": "of the user with an identical request",
    "queue": "of all users in the same queue",
    "size": "of all users with a similar size (octaves of nodes)",
    "queue_size": "of all users with a similar size in the same queue",
}
"""Kinds of similar jobs besides those in `features.KINDS`."""
MEAN_JOBS = 30
"""Number of jobs in a mean."""
STATISTICS = {
    "last": "ln(target) of the last job {kind} with a known value, less the target's anchor",
    "median": "median of ln(target) of the last five jobs {kind}, less the target's anchor",
    "mean": "mean of ln(target) of the last 30 jobs {kind}, less the target's anchor",
    "spread": "range of ln(target) of the last five jobs {kind}",
}
MEANINGS = {
    "target_anchor": "ln of the median of the last five target values of the most similar jobs",
    "queued": "ln(1 + waiting jobs)",
    "queued_size": "ln(1 + waiting jobs of a similar size)",
    "longest_wait": "ln(1 + wait so far of the longest-waiting job in seconds)",
    "remaining": "ln(1 + remaining requested node-hours of running jobs, over the machine's nodes)",
}


def feature_meaning(name: str) -> str:
    """Description of a feature, of any target.

    >>> feature_meaning("target_queue_last")
    "ln(target) of the last job of all users in the same queue with a known value, less the target's anchor"
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
            f"target_{kind}_mean": events.mean(logarithm, MEAN_JOBS) - anchor,
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
    """Group keys of the jobs, including the kinds of this module."""
    keys = job_keys(jobs)
    requested = [np.nan_to_num(request_s(jobs), nan=-1.0), jobs["nodes"]]
    requested += [jobs[name] for name in ("cores", "memory_mb", "gpus", "queue", "qos", "name") if name in jobs]
    size = np.rint(np.log2(jobs["nodes"]))
    keys["user_identical"] = group_keys(jobs.column("user"), *requested)
    keys["size"] = group_keys(size)
    if "queue" in jobs:
        keys["queue"] = group_keys(jobs["queue"])
        keys["queue_size"] = group_keys(jobs["queue"], size)
    return keys


def _queue_features(jobs: JobTable, times: JobHistory, nodes: int, size: Ints) -> Mapping[str, Floats]:
    """Length and age of the wait queue, and remaining work of running jobs."""
    submit_s, everyone = jobs["submit_s"], np.zeros(len(jobs), np.int64)
    first_s = submit_s[0] if len(jobs) else 0.0
    submitted, started, ended = (
        PastEvents(everyone, at_s, submit_s) for at_s in (submit_s, times.start_s, times.end_s)
    )
    same_size = [PastEvents(size, at_s, submit_s).count for at_s in (submit_s, times.start_s)]
    # The first job that has not started is found by the largest start up to it, which only grows.
    first_waiting = np.searchsorted(np.maximum.accumulate(times.start_s), submit_s, side="right")
    rows = np.arange(len(jobs))
    has_waiting = first_waiting < rows
    oldest_s = np.where(has_waiting, submit_s - submit_s[np.minimum(first_waiting, rows)], 0.0)
    request_h = np.nan_to_num(request_s(jobs), nan=UNKNOWN_REQUEST_S) / 3600.0
    job_nodes = jobs["nodes"].astype(np.float64)
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
