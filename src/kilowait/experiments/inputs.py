"""What people write on a command line becomes jobs, a machine and a rule.

A trace is a file or ``lublin:JOBS:NODES[:LOAD[:SEED]]``; a cluster is a preset's name, ``nodes:N``, ``N``, a TOML
file or ``auto``; jobs are ``N`` (the first N) or ``A:B``; columns are ``submit_s=submitted,estimate_s=limit_min*60``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kilowait.cluster import Cluster
from kilowait.cluster.presets import PRESETS
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.synth import lublin, rescale_load
from kilowait.traces import Ledger, read_trace_with_ledger

__all__ = [
    "Workload",
    "brought_to_load",
    "cluster_of",
    "parse_backfill",
    "parse_columns",
    "parse_rows",
    "workload_of",
]

T = TypeVar("T", int, float)
MADE = "lublin"
"""A trace that begins with this and a colon is made, not read."""


@dataclass(frozen=True)
class Workload:
    """Jobs and where they come from."""

    jobs: JobTable
    ledger: Ledger | None = None
    """Of the file; None for a workload that was made."""
    sha256: str | None = None
    """Of the file as it lies on the disk."""

    def provenance(self, trace: str, command: Sequence[str], date: str) -> dict[str, Any]:
        """What a manifest says of where the jobs come from; the date is the caller's."""
        return {
            "command": list(command),
            "date": date,
            "seeds": {"workload": self.jobs.meta.get("seed")},
            "inputs": {trace: self.sha256},
        }


def workload_of(
    trace: str,
    *,
    format: str | None = None,
    columns: str | None = None,
    strict: bool = False,
    rows: str | None = None,
) -> Workload:
    """The jobs of a file or of a made workload, all of them or some rows.

    >>> len(workload_of("lublin:50:16:0.8:3", rows="10:30").jobs)
    20
    """
    picked = None if rows is None else parse_rows(rows)
    if trace.partition(":")[0].lower() == MADE and not Path(trace).exists():
        if columns is not None or format is not None:
            raise InputError(f"{trace} is made, not read: it takes no format and no column map")
        made = Workload(_made(trace))
    else:
        mapping = None if columns is None else parse_columns(columns)
        jobs, ledger = read_trace_with_ledger(trace, format=format, columns=mapping, strict=strict)
        with Path(trace).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        made = Workload(jobs, ledger, digest)
    if picked is None:
        return made
    jobs = made.jobs[picked]
    if not len(jobs):
        raise InputError(f"jobs {rows} of {trace} are none: it has {len(made.jobs):,} jobs, counted from 0")
    return Workload(jobs, made.ledger, made.sha256)


def _made(text: str) -> JobTable:
    name, *fields = text.split(":")
    usage = f"{name}:JOBS:NODES[:LOAD[:SEED]], for instance {MADE}:1000:128:0.9:7"
    if not 2 <= len(fields) <= 4:
        raise InputError(f"trace {text!r}; a workload to be made is written {usage}")
    jobs = _number(int, "number of jobs", fields[0], usage)
    nodes = _number(int, "number of nodes", fields[1], usage)
    load = _number(float, "load", fields[2], usage) if len(fields) > 2 and fields[2] else None
    seed = _number(int, "seed", fields[3], usage) if len(fields) > 3 else 0
    return lublin(jobs, nodes, load=load, seed=seed)


def _number(kind: Callable[[str], T], what: str, text: str, usage: str) -> T:
    try:
        return kind(text.replace(",", "").replace("_", ""))
    except ValueError:
        raise InputError(f"the {what} is {text!r}, which is no number; write {usage}") from None


def parse_rows(text: str) -> slice:
    """Rows of a table, by submission: ``N`` is the first N, ``A:B`` those from A on and before B.

    >>> parse_rows("100"), parse_rows("100:200"), parse_rows("5_000:")
    (slice(0, 100, None), slice(100, 200, None), slice(5000, None, None))
    """
    usage = "N for the first N jobs, or A:B for those from the A-th on and before the B-th, counted from 0"
    first, colon, last = text.partition(":")
    low = _number(int, "range of jobs", first, usage) if colon and first else 0
    end = last if colon else first
    high = _number(int, "range of jobs", end, usage) if end else None
    if low < 0 or (high is not None and high <= low) or (not colon and not first):
        raise InputError(f"the range of jobs is {text!r}; write {usage}")
    return slice(low, high)


def parse_columns(text: str) -> dict[str, Any]:
    """A column map: kilowait's name = the file's name, times a factor where the unit differs.

    >>> parse_columns("submit_s=submitted,estimate_s=limit_min*60")
    {'submit_s': 'submitted', 'estimate_s': ('limit_min', 60.0)}
    """
    usage = (
        "kilowait's column=the file's column, with commas between: submit_s=submitted,estimate_s=limit_min*60"
    )
    mapping: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, source = (piece.strip() for piece in part.partition("="))
        if not (name and equals and source):
            raise InputError(f"the column map has {part!r}; write {usage}")
        if name in mapping:
            raise InputError(f"the column map names {name!r} twice")
        column, star, factor = source.rpartition("*")
        mapping[name] = (column, _number(float, "factor", factor, usage)) if star else source
    return mapping


def parse_backfill(text: str) -> str | int:
    """none, easy, conservative, or a number of reservations.

    >>> parse_backfill("easy"), parse_backfill("3")
    ('easy', 3)
    """
    return int(text) if text.strip().lstrip("-").isdecimal() else text.strip().lower()


def cluster_of(text: str, jobs: JobTable) -> tuple[Cluster, str | None]:
    """The machine, and a note where its size had to be guessed.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1])
    >>> cluster_of("auto", jobs)[0].nodes, cluster_of("nodes:64", jobs)[0].nodes
    (4, 64)
    """
    text = text.strip()
    if text.lower() == "auto":
        return _automatic(jobs)
    count = text[6:] if text.lower().startswith("nodes:") else text
    if count != text or count.lstrip("-").replace(",", "").replace("_", "").isdecimal():
        nodes = _number(int, "number of nodes", count, "nodes:N, for instance nodes:128")
        return Cluster.from_nodes(nodes), None
    if text.lower() in PRESETS:
        return Cluster.preset(text), None
    if text.endswith(".toml") or "/" in text or Path(text).exists():
        return Cluster.from_file(text), None
    raise UnknownNameError("cluster (a preset, nodes:N or a TOML file)", text, PRESETS)


def _automatic(jobs: JobTable) -> tuple[Cluster, str | None]:
    for key in ("max_procs", "max_nodes"):
        size = jobs.meta.get(key)
        if size is not None and size >= 1:
            return Cluster.from_nodes(int(size)), None
    if not len(jobs):
        raise InputError("the trace has no jobs and does not say how large its machine is; give a cluster")
    largest = int(jobs["nodes"].max())
    return (
        Cluster.from_nodes(largest),
        f"the trace does not say how large its machine is: {largest:,} nodes taken, as its largest job has; "
        "give the real size with --cluster",
    )


def brought_to_load(jobs: JobTable, cluster: Cluster, load: float | None) -> JobTable:
    """The jobs at another offered load on the cluster, or as they are."""
    return jobs if load is None else rescale_load(jobs, cluster.nodes, load)
