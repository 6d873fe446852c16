"""Label the jobs of a log with the energy that the meters of their nodes measured while they ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.telemetry.labels.job_locations import JobLocations, job_locations, job_starts
from kilowait.telemetry.labels.node_energy import EnergySplit, NodeShares, energy_curve, split_energy
from kilowait.telemetry.labels.sample_reader import SampleFiles

__all__ = ["LabelledJobs", "label_energy"]

Floats = npt.NDArray[np.float64]
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
    *,
    sharing: EnergySplit | None = None,
    coverage: float = 0.9,
    longest_gap_s: float | None = None,
    zone: str | None = None,
    start: str | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> LabelledJobs:
    """Label jobs with the measured energy of their nodes between their start and end in the log.

    A job gets no label if samples cover less than the share `coverage` of its time. For other jobs the time without
    samples is extrapolated: `energy_j` is the measured energy divided by the covered share. `longest_gap_s` is the
    longest time between two samples that is bridged (by default three median steps). `zone` is the time zone of a log
    whose times have none, `start` the date of the first submission of a log without dates. `on_progress` is called with
    the name of each node before it is processed.
    """
    sharing = sharing or EnergySplit()
    if not 0 < coverage <= 1:
        raise InputError(f"the coverage is {coverage:g}; it must be above 0 and at most 1, such as 0.9")
    if longest_gap_s is not None and not longest_gap_s > 0:
        raise InputError(f"the longest gap is {longest_gap_s:g} s; it must be above 0")
    begin, notes = job_starts(jobs, start, zone)
    end = begin + jobs["runtime_s"]
    locations = job_locations(jobs, samples.hosts, notes)
    usable = np.isfinite(begin) & (jobs["runtime_s"] > 0)
    counts = np.bincount(locations.job, minlength=len(jobs)) + locations.unsampled_nodes
    per_node = _per_node(jobs, counts, sharing)
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
        shares = _split_node_energy(
            samples, host, job_rows, begin, end, per_node, sharing, longest_gap_s, unknown_intervals
        )
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


# -- one node ------------------------------------------------------------------------------------


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


def _split_node_energy(
    samples: SampleFiles,
    host: str,
    job_rows: Ints,
    begin: Floats,
    end: Floats,
    per_node: dict[str, Floats],
    sharing: EnergySplit,
    longest_gap_s: float | None,
    unknown_intervals: Counter[str],
) -> NodeShares:
    meters = samples.read_host(host)
    origin = min(float(meter.utc_s[0]) for meter in meters)
    curves = [energy_curve(meter, origin, longest_gap_s, unknown_intervals) for meter in meters]
    size: dict[str, float | None] = {"node": None, "gpu": None}
    if sharing.idle == "nobody":
        size = {"node": sharing.node_cores, "gpu": sharing.node_gpus}
    resources = {kind: values[job_rows] for kind, values in per_node.items()}
    return split_energy(curves, begin[job_rows] - origin, end[job_rows] - origin, resources, size)


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
