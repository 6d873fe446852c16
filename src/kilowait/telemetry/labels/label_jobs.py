"""The jobs of a log get the energy that the meters of their nodes counted while they ran."""

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
from kilowait.telemetry.labels.energy_curve import course_of
from kilowait.telemetry.labels.job_locations import JobLocations, places_of, starts_of
from kilowait.telemetry.labels.samples import SampleFiles
from kilowait.telemetry.labels.split import NodeShares, Sharing, divided

__all__ = ["LabelledJobs", "label_energy"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LabelledJobs:
    """Jobs with `energy_j` and `power_w`, and an account of every joule and of every job without a label."""

    jobs: JobTable
    coverage: Floats
    """Share of each job's time, over its nodes, that samples cover."""
    measured_j: Floats
    """Each job's part of the joules that were measured, labelled or not."""
    node_j: float
    """Measured in all: the sum of `measured_j`, and `unattributed_j`."""
    unattributed_j: float
    """Measured while no job held what drew it."""
    unlabelled: dict[str, int] = field(default_factory=dict)
    """Jobs without a label, by reason."""
    notes: tuple[str, ...] = ()

    @property
    def labelled(self) -> int:
        """Jobs with a label."""
        return int((~np.isnan(self.jobs["energy_j"])).sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        got = ~np.isnan(self.jobs["energy_j"])
        return {
            "jobs": len(self.jobs),
            "labelled": self.labelled,
            "unlabelled": dict(self.unlabelled),
            "node_j": self.node_j,
            "labelled_j": float(self.measured_j[got].sum()),
            "unlabelled_j": float(self.measured_j[~got].sum()),
            "unattributed_j": self.unattributed_j,
            "extrapolated_j": float((self.jobs["energy_j"] - self.measured_j)[got].sum()),
            "notes": list(self.notes),
        }


def label_energy(
    jobs: JobTable,
    samples: SampleFiles,
    *,
    sharing: Sharing | None = None,
    coverage: float = 0.9,
    longest_gap_s: float | None = None,
    zone: str | None = None,
    start: str | None = None,
    heard: Callable[[str], None] | None = None,
) -> LabelledJobs:
    """The jobs with the energy of their nodes between their recorded start and end.

    A job that samples cover for less than a share of `coverage` of its time gets no label. Of others what is not
    covered is taken to be like the rest: `energy_j` is the joules measured, over the share covered. `longest_gap_s`
    is the longest time between two samples that is bridged (by default three usual steps). `zone` is that of a log
    whose times have none, `start` the moment of the first submission of a log without dates. `heard` is told which
    node is being looked at.
    """
    sharing = sharing or Sharing()
    if not 0 < coverage <= 1:
        raise InputError(f"the coverage is {coverage:g}; it must be above 0 and at most 1, such as 0.9")
    if longest_gap_s is not None and not longest_gap_s > 0:
        raise InputError(f"the longest gap is {longest_gap_s:g} s; it must be above 0")
    begin, notes = starts_of(jobs, start, zone)
    end = begin + jobs["runtime_s"]
    places = places_of(jobs, samples.hosts, notes)
    usable = np.isfinite(begin) & (jobs["runtime_s"] > 0)
    counts = np.bincount(places.job, minlength=len(jobs)) + places.elsewhere
    per_node = _per_node(jobs, counts, sharing)
    measured, known_s, alone_s = np.zeros((3, len(jobs)))
    trouble: Counter[str] = Counter()
    node_j = unattributed_j = 0.0
    by_host = np.argsort(places.host, kind="stable")
    bounds = np.searchsorted(places.host[by_host], np.arange(len(samples.hosts) + 1))
    for number, host in enumerate(samples.hosts):
        if heard is not None:
            heard(host)
        here = places.job[by_host[bounds[number] : bounds[number + 1]]]
        here = here[usable[here]]
        shares = _node(samples, host, here, begin, end, per_node, sharing, longest_gap_s, trouble)
        measured[here] += shares.job_j
        known_s[here] += shares.known_s
        alone_s[here] += shares.alone_s
        node_j, unattributed_j = node_j + shares.node_j, unattributed_j + shares.unattributed_j
    whole = np.where(usable, jobs["runtime_s"] * np.maximum(counts, 1), 1.0)
    seen = known_s / whole
    covered = seen if sharing.nodes == "shared" else alone_s / whole
    if not (seen > 0).any():
        raise InputError(_apart(samples, jobs, begin, end, usable, places))
    labelled = usable & (covered >= coverage * (1 - 1e-9))
    energy = np.divide(measured, seen, out=np.full(len(jobs), np.nan), where=labelled)
    energy = np.where(labelled & (seen >= 1 - 1e-6), measured, energy)
    power = np.divide(energy, jobs["runtime_s"], out=np.full(len(jobs), np.nan), where=labelled)
    reasons = _reasons(jobs, usable, begin, places, seen, covered, coverage)
    notes += [f"stretches between samples that are not known: {_listed(trouble)}"] if +trouble else []
    notes += [f"samples not used: {_listed(samples.trouble)}"] if +samples.trouble else []
    if "energy_j" in jobs and not np.isnan(jobs["energy_j"]).all():
        notes.append("the log's own energy_j was replaced")
    made = jobs.with_columns(energy_j=energy, power_w=power)
    return LabelledJobs(made, covered, measured, node_j, unattributed_j, reasons, tuple(notes))


# -- one node ------------------------------------------------------------------------------------


def _per_node(jobs: JobTable, counts: Ints, sharing: Sharing) -> dict[str, Floats]:
    """What each job holds of each of its nodes, by kind of meter: an even part of all it holds."""
    one = np.ones(len(jobs))
    if sharing.nodes == "exclusive":
        return {"node": one, "gpu": one}
    if "cores" not in jobs:
        raise InputError(
            "the log does not say how many cores jobs held, by which shared nodes are divided; dump it with NCPUS, or "
            "give --share exclusive"
        )
    spread = np.maximum(counts, 1)
    cores = jobs["cores"] / spread
    return {"node": cores, "gpu": jobs["gpus"] / spread if "gpus" in jobs else cores}


def _node(
    samples: SampleFiles,
    host: str,
    here: Ints,
    begin: Floats,
    end: Floats,
    per_node: dict[str, Floats],
    sharing: Sharing,
    longest_gap_s: float | None,
    trouble: Counter[str],
) -> NodeShares:
    meters = samples.of(host)
    origin = min(float(meter.utc_s[0]) for meter in meters)
    courses = [course_of(meter, origin, longest_gap_s, trouble) for meter in meters]
    size: dict[str, float | None] = {"node": None, "gpu": None}
    if sharing.idle == "nobody":
        size = {"node": sharing.node_cores, "gpu": sharing.node_gpus}
    held = {kind: values[here] for kind, values in per_node.items()}
    return divided(courses, begin[here] - origin, end[here] - origin, held, size)


# -- in words --------------------------------------------------------------------------------------


def _reasons(
    jobs: JobTable,
    usable: npt.NDArray[np.bool_],
    begin: Floats,
    places: JobLocations,
    seen: Floats,
    covered: Floats,
    coverage: float,
) -> dict[str, int]:
    enough = coverage * (1 - 1e-9)
    sampled = np.bincount(places.job, minlength=len(jobs)) > 0
    rules = {
        "its start is not known": np.isnan(begin),
        "it ran for no time": ~usable,
        "its nodes are not named": ~places.named,
        "no samples of its nodes": ~sampled,
        "no samples while it ran": seen <= 0,
        f"samples cover less than {coverage:.0%} of its time": seen < enough,
        "it shared its nodes with others (label with --share shared)": covered < enough,
    }
    left = np.ones(len(jobs), np.bool_)
    found = {}
    for reason, rows in rules.items():
        count = int((left & rows).sum())
        left &= ~rows
        if count:
            found[reason] = count
    return found


def _listed(counts: Counter[str]) -> str:
    return "; ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)


def _apart(
    samples: SampleFiles,
    jobs: JobTable,
    begin: Floats,
    end: Floats,
    usable: npt.NDArray[np.bool_],
    places: JobLocations,
) -> str:
    """Why not one job has a sample."""
    if not usable.any():
        return (
            f"of {len(jobs):,} jobs none has a known start and a run time above 0; there is nothing to label"
        )
    if not len(places.job):
        return (
            f"no job ran on a node there are samples of: the samples are of {', '.join(samples.hosts[:3])}, the log "
            f"names such as {places.example!r}; sample with --host NAME as Slurm calls the node"
        )
    spans = [(samples.first_s, samples.last_s), (float(begin[usable].min()), float(end[usable].max()))]
    said = [" to ".join(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in span) for span in spans]
    return (
        f"no job ran while there were samples of its nodes: samples are from {said[0]} UTC, jobs from {said[1]} UTC; "
        "is the log in another zone (--zone) or without dates (--log-start)?"
    )
