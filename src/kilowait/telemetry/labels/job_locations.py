"""Start times of jobs in Unix time, and the sampled nodes on which they ran, from the host lists of a log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

import numpy as np
import numpy.typing as npt

from kilowait.energy.signals.align import ClockOrigin
from kilowait.energy.signals.timestamps import time_zone
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["expand_hosts", "JobLocations", "job_locations", "job_starts"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_HOSTS = 1_000_000
"""Maximum number of nodes in one list; a longer list counts as invalid."""

_LIST = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PARTS = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")


def expand_hosts(text: str) -> tuple[str, ...]:
    """The unique names in a host list, in order; leading zeros are kept.

    >>> expand_hosts("node[08-10,12],gpu7")
    ('node08', 'node09', 'node10', 'node12', 'gpu7')
    >>> expand_hosts("r[1-2]n[0-1]")
    ('r1n0', 'r1n1', 'r2n0', 'r2n1')
    """
    names: dict[str, None] = {}
    entries = _LIST.findall(text)
    if ",".join(entries) != text.strip():
        raise InputError(f"{text!r:.60} is not a list of nodes; write it as Slurm does: node[01-04],gpu7")
    for entry in entries:
        parts = [
            _range_names(bracketed, text) if literal == "" else [literal]
            for bracketed, literal in _PARTS.findall(entry)
        ]
        size = len(names)
        for part in parts:
            size = max(size, 1) * len(part)
        if size > MAX_HOSTS:
            raise InputError(f"{text!r:.60} stands for more than {MAX_HOSTS:,} nodes; correct the list")
        names |= dict.fromkeys("".join(pieces).strip() for pieces in product(*parts))
    return tuple(names)


def _range_names(bracketed: str, text: str) -> list[str]:
    names: list[str] = []
    for span in bracketed.split(","):
        first, dash, last = span.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise InputError(f"{text!r:.60} is not a list of nodes: [{bracketed:.40}] is no range such as [01-04]")
        if dash and int(last) - int(first) >= MAX_HOSTS:
            raise InputError(f"{text!r:.60} stands for more than {MAX_HOSTS:,} nodes; correct the list")
        names += [f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)]
    return names


@dataclass(frozen=True)
class JobLocations:
    """The sampled nodes of each job: one row per pair of job and node."""

    job: Ints
    host: Ints
    unsampled_nodes: Ints
    """Per job: number of its nodes without samples."""
    named: npt.NDArray[np.bool_]
    """Per job: whether the log names its nodes."""
    example: str
    """Name of a node in the log, for error messages."""


def job_starts(jobs: JobTable, start: str | None, zone: str | None) -> tuple[Floats, list[str]]:
    """Start times of jobs, Unix seconds; NaN if not recorded. Also returns notes."""
    if "wait_s" not in jobs or np.isnan(jobs["wait_s"]).all():
        raise InputError(
            "the log has no start times of jobs (no wait_s); give a log with submit and start times, such as "
            "sacct -P --format=JobIDRaw,Submit,Start,End,NNodes,NCPUS,NodeList"
        )
    dated = ClockOrigin.of(jobs, start)
    if dated.unix_zero_s is None:
        raise InputError(
            "the samples have dates, but the log has none; give the date of the first submission, such as "
            "--log-start 2026-01-31"
        )
    begin = jobs["submit_s"] + jobs["wait_s"] + dated.unix_zero_s
    assumed = start is None and "assumed" in dated.note
    if zone is None:
        note = f"{dated.note}; --timezone names another" if assumed else dated.note
        return begin, [note] if note else []
    if not assumed:
        raise InputError(f"zone is {zone!r}, but the time zone of this log is already known; leave it out")
    local = time_zone(zone)
    # Offsets change only at full quarters of an hour: each quarter is looked up once.
    quarter, index_of = np.unique(np.floor(np.where(np.isnan(begin), 0.0, begin) / 900), return_inverse=True)
    offsets = [datetime.fromtimestamp(at * 900, UTC).replace(tzinfo=local).utcoffset() for at in quarter.tolist()]
    offset_s = np.array([0.0 if offset is None else offset.total_seconds() for offset in offsets])
    return begin - offset_s[index_of], [f"times of the log taken as {zone}"]


def job_locations(jobs: JobTable, hosts: Sequence[str], notes: list[str]) -> JobLocations:
    """The sampled nodes of each job, as indices into `hosts`; assumptions are appended to `notes`."""
    size = len(jobs)
    codes = jobs.column("node_list").astype(np.int64)
    if (codes < 0).all():
        if len(hosts) > 1:
            raise InputError(
                f"the log names no nodes, but there are samples of {len(hosts)} ({', '.join(hosts[:3])} ...); export "
                "it with NodeList (sacct -P --format=...,NodeList), or give the samples of one machine"
            )
        notes.append(f"the log names no nodes: all jobs are assumed to have run on {hosts[0]}")
        zeros = np.zeros(size, np.int64)
        return JobLocations(np.arange(size), zeros, zeros, np.ones(size, np.bool_), hosts[0])
    unique, index_of = np.unique(codes, return_inverse=True)
    labels = jobs.labels.get("node_list")
    lists = [() if code < 0 else _names(labels[code] if labels else str(code), notes) for code in unique.tolist()]
    number = _numbers(hosts)
    sampled_hosts = [
        sorted({number[key] for name in names for key in (name, _short(name)) if key in number}) for names in lists
    ]
    sampled = np.array([len(each) for each in sampled_hosts])
    named = np.array([len(names) for names in lists])
    host = [at for each in index_of.tolist() for at in sampled_hosts[each]]
    return JobLocations(
        np.repeat(np.arange(size), sampled[index_of]),
        np.array(host, np.int64),
        (named - sampled)[index_of],
        (named > 0)[index_of],
        next((names[0] for names in lists if names), ""),
    )


def _names(text: str, notes: list[str]) -> tuple[str, ...]:
    try:
        return expand_hosts(text)
    except InputError as problem:
        notes.append(str(problem))
        return ()


def _numbers(hosts: Sequence[str]) -> dict[str, int]:
    """Indices of hosts by full name, and by name without domain if that is unique."""
    count_by_short = Counter(map(_short, hosts))
    unique_short = {_short(host): at for at, host in enumerate(hosts) if count_by_short[_short(host)] == 1}
    return unique_short | {host: at for at, host in enumerate(hosts)}


def _short(host: str) -> str:
    return host.partition(".")[0]
