"""Label the jobs of a log with the energy that the meters of their nodes measured while they ran.

The sampled nodes on which a job ran are those of the host lists of the log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.energy.signals.align import ClockOrigin
from kilowait.energy.signals.units import time_zone
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.telemetry.node_energy import energy_curve, split_energy
from kilowait.telemetry.sample_reader import Floats, SampleFiles
from kilowait.telemetry.settings import EnergySplit, LabelSettings

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LabelledJobs:
    """Jobs with `energy_j` and `power_w`, an energy balance, and the number of unlabelled jobs by reason."""

    jobs: JobTable
    coverage: Floats
    """Share of each job's node time that samples cover."""
    measured_j: Floats
    """Measured energy of each job, labelled or not."""
    node_j: float
    """Total measured energy: the sum of `measured_j` plus `unattributed_j`."""
    unattributed_j: float
    """Energy measured on resources that no job held."""
    unlabelled: dict[str, int] = field(default_factory=dict)
    """Jobs without a label, by reason."""
    notes: tuple[str, ...] = ()

    @property
    def labelled(self) -> int:
        """Number of jobs with a label."""
        return int((~np.isnan(self.jobs["energy_j"])).sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        has_label = ~np.isnan(self.jobs["energy_j"])
        return {
            "jobs": len(self.jobs),
            "labelled": self.labelled,
            "unlabelled": dict(self.unlabelled),
            "node_j": self.node_j,
            "labelled_j": float(self.measured_j[has_label].sum()),
            "unlabelled_j": float(self.measured_j[~has_label].sum()),
            "unattributed_j": self.unattributed_j,
            "extrapolated_j": float((self.jobs["energy_j"] - self.measured_j)[has_label].sum()),
            "notes": list(self.notes),
        }


def label_energy(
    jobs: JobTable,
    samples: SampleFiles,
    settings: LabelSettings | None = None,
    *,
    on_progress: Callable[[str], None] | None = None,
) -> LabelledJobs:
    """Label jobs with the measured energy of their nodes between their start and end in the log.

    A job gets no label if samples cover less than the share `coverage` of its time. For other jobs the time without
    samples is extrapolated: `energy_j` is the measured energy divided by the covered share. `on_progress` is called
    with the name of each node before it is processed.
    """
    settings = settings or LabelSettings()
    sharing, coverage = settings.sharing, settings.coverage
    begin, notes = job_starts(jobs, settings.start, settings.zone)
    end = begin + jobs["runtime_s"]
    locations = job_locations(jobs, samples.hosts, notes)
    usable = np.isfinite(begin) & (jobs["runtime_s"] > 0)
    counts = np.bincount(locations.job, minlength=len(jobs)) + locations.unsampled_nodes
    per_node = _per_node(jobs, counts, sharing)
    size: dict[str, float | None] = {"node": None, "gpu": None}
    if sharing.idle == "nobody":
        size = {"node": sharing.node_cores, "gpu": sharing.node_gpus}
    measured, known_s, alone_s = np.zeros((3, len(jobs)))
    unknown_intervals: Counter[str] = Counter()
    node_j = unattributed_j = 0.0
    by_host = np.argsort(locations.host, kind="stable")
    host_bounds = np.searchsorted(locations.host[by_host], np.arange(len(samples.hosts) + 1))
    for number, host in enumerate(samples.hosts):
        if on_progress is not None:
            on_progress(host)
        job_rows = locations.job[by_host[host_bounds[number] : host_bounds[number + 1]]]
        job_rows = job_rows[usable[job_rows]]
        held = {kind: values[job_rows] for kind, values in per_node.items()}
        meters = samples.read_host(host)
        origin = min(float(meter.utc_s[0]) for meter in meters)
        curves = [energy_curve(meter, origin, settings.longest_gap_s, unknown_intervals) for meter in meters]
        shares = split_energy(curves, begin[job_rows] - origin, end[job_rows] - origin, held, size)
        measured[job_rows] += shares.job_j
        known_s[job_rows] += shares.known_s
        alone_s[job_rows] += shares.alone_s
        node_j, unattributed_j = node_j + shares.node_j, unattributed_j + shares.unattributed_j
    node_time_s = np.where(usable, jobs["runtime_s"] * np.maximum(counts, 1), 1.0)
    known_share = known_s / node_time_s
    coverage_share = known_share if sharing.nodes == "shared" else alone_s / node_time_s
    if not (known_share > 0).any():
        raise InputError(_no_overlap_message(samples, jobs, begin, end, usable, locations))
    labelled = usable & (coverage_share >= coverage * (1 - 1e-9))
    energy = np.divide(measured, known_share, out=np.full(len(jobs), np.nan), where=labelled)
    energy = np.where(labelled & (known_share >= 1 - 1e-6), measured, energy)
    power = np.divide(energy, jobs["runtime_s"], out=np.full(len(jobs), np.nan), where=labelled)
    reasons = _reasons(jobs, usable, begin, locations, known_share, coverage_share, coverage)
    notes += [f"unknown intervals between samples: {_counts_text(unknown_intervals)}"] if +unknown_intervals else []
    notes += [f"samples not used: {_counts_text(samples.unusable_rows)}"] if +samples.unusable_rows else []
    if "energy_j" in jobs and not np.isnan(jobs["energy_j"]).all():
        notes.append("the energy_j of the log was replaced")
    labelled_jobs = jobs.with_columns(energy_j=energy, power_w=power)
    return LabelledJobs(labelled_jobs, coverage_share, measured, node_j, unattributed_j, reasons, tuple(notes))


def _per_node(jobs: JobTable, counts: Ints, sharing: EnergySplit) -> dict[str, Floats]:
    """Resources that each job holds per node, by kind of meter: an even share of all its resources."""
    ones = np.ones(len(jobs))
    if sharing.nodes == "exclusive":
        return {"node": ones, "gpu": ones}
    if "cores" not in jobs:
        raise InputError(
            "the log has no cores of jobs, by which the energy of shared nodes is split; export it with NCPUS, or give "
            "--node-sharing exclusive"
        )
    nodes = np.maximum(counts, 1)
    cores = jobs["cores"] / nodes
    return {"node": cores, "gpu": jobs["gpus"] / nodes if "gpus" in jobs else cores}


# -- messages --------------------------------------------------------------------------------------


def _reasons(
    jobs: JobTable,
    usable: npt.NDArray[np.bool_],
    begin: Floats,
    locations: JobLocations,
    known_share: Floats,
    coverage_share: Floats,
    coverage: float,
) -> dict[str, int]:
    min_coverage = coverage * (1 - 1e-9)
    sampled = np.bincount(locations.job, minlength=len(jobs)) > 0
    conditions = {
        "its start is unknown": np.isnan(begin),
        "it ran for 0 s": ~usable,
        "its nodes are not named": ~locations.named,
        "no samples of its nodes": ~sampled,
        "no samples while it ran": known_share <= 0,
        f"samples cover less than {coverage:.0%} of its time": known_share < min_coverage,
        "it shared its nodes with others (label with --node-sharing shared)": coverage_share < min_coverage,
    }
    remaining = np.ones(len(jobs), np.bool_)
    counts = {}
    for reason, rows in conditions.items():
        count = int((remaining & rows).sum())
        remaining &= ~rows
        if count:
            counts[reason] = count
    return counts


def _counts_text(counts: Counter[str]) -> str:
    return "; ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)


def _no_overlap_message(
    samples: SampleFiles,
    jobs: JobTable,
    begin: Floats,
    end: Floats,
    usable: npt.NDArray[np.bool_],
    locations: JobLocations,
) -> str:
    """Error message that explains why no job has a sample."""
    if not usable.any():
        return f"none of {len(jobs):,} jobs has a known start and a run time above 0; there is nothing to label"
    if not len(locations.job):
        return (
            f"no job ran on a sampled node: the samples are of {', '.join(samples.hosts[:3])}, the log has nodes such "
            f"as {locations.example!r}; sample with --host NAME and Slurm's name of the node"
        )
    spans = [(samples.first_s, samples.last_s), (float(begin[usable].min()), float(end[usable].max()))]
    dates = [" to ".join(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in span) for span in spans]
    return (
        f"no job ran while its nodes were sampled: samples are from {dates[0]} UTC, jobs from {dates[1]} UTC; give "
        "the time zone of the log (--timezone) or its date (--log-start)"
    )


# -- where and when jobs ran -----------------------------------------------------------------------


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
