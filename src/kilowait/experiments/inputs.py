"""What people write on a command line becomes jobs, a machine and a rule.

A trace is a file, a folder, or a workload to be made (`MADE`); a cluster is a preset's name, ``nodes:N``, ``N``, a TOML
file, a list of nodes (``nodes.csv``) or ``auto``; jobs are ``N`` (the first N) or ``A:B``; columns are
``submit_s=submitted,estimate_s=limit_min*60``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.presets import PRESETS
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.saved_predictor import SavedPredictor
from kilowait.jobs import JobTable
from kilowait.synth import gavel_jobs, gpu_load, gpu_workload, lublin, offered_load, rescale_load
from kilowait.synth.gpu_workload import counts_gpus
from kilowait.traces import CleaningReport, read_nodes, read_trace_with_report, trace_sha256

__all__ = [
    "MADE",
    "Workload",
    "all_placed",
    "rescaled_to_load",
    "cluster_of",
    "is_placed",
    "load_of",
    "named_cluster",
    "parse_backfill",
    "parse_columns",
    "parse_rows",
    "workload_of",
]

T = TypeVar("T", int, float)
MADE = {
    "lublin": "lublin:JOBS:NODES[:LOAD[:SEED]], for instance lublin:1000:128:0.9:7",
    "gpu": "gpu:JOBS:CLUSTER[:LOAD[:SEED]], for instance gpu:2000:gpu-mixed:0.9:7",
    "gavel": "gavel:JOBS:JOBS_PER_HOUR[:SEED[:multi]], for instance gavel:1000:4:0:multi",
}
"""A trace that begins with one of these and a colon is made, not read; and how it is written."""


GPU_LOAD = 0.9
"""Of a GPU workload that does not say."""
NODE_LIST = re.compile(r"\.csv(\.(gz|bz2|xz|zst))?$")
"""How files of nodes are called; the other machine files are TOML."""


@dataclass(frozen=True)
class Workload:
    """Jobs and where they come from."""

    jobs: JobTable
    ledger: CleaningReport | None = None
    """Of the file; None for a workload that was made."""
    sha256: str | None = None
    """Of the file or folder as it lies on the disk."""
    predictors: tuple[SavedPredictor, ...] = ()
    """Kept ones that say something of these jobs."""

    def judged_from(self, first: int) -> Workload:
        """The same where only jobs from a place on, by submission, are judged."""
        return replace(self, predictors=tuple(one.evaluated_from(first) for one in self.predictors))

    @property
    def leakage_notes(self) -> tuple[str, ...]:
        """What people are told where a predictor may have seen the jobs that are judged."""
        return tuple(one.note for one in self.predictors if one.note is not None)

    def provenance(self, trace: str, command: Sequence[str], date: str) -> dict[str, Any]:
        """What a manifest says of where the jobs come from; the date is the caller's."""
        return {
            "command": list(command),
            "date": date,
            "seeds": {"workload": self.jobs.meta.get("seed")},
            "inputs": {trace: self.sha256},
            **({"predictors": [one.to_dict() for one in self.predictors]} if self.predictors else {}),
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
    if _is_made(trace):
        if columns is not None or format is not None:
            raise InputError(f"{trace} is made, not read: it takes no format and no column map")
        made = Workload(_made(trace))
    else:
        mapping = None if columns is None else parse_columns(columns)
        jobs, ledger = read_trace_with_report(trace, format=format, columns=mapping, strict=strict)
        made = Workload(jobs, ledger, trace_sha256(trace))
    if picked is None:
        return made
    jobs = made.jobs[picked]
    if not len(jobs):
        raise InputError(f"jobs {rows} of {trace} are none: it has {len(made.jobs):,} jobs, counted from 0")
    return Workload(jobs, made.ledger, made.sha256)


def _is_made(trace: str) -> bool:
    return ":" in trace and trace.partition(":")[0].lower() in MADE and not Path(trace).exists()


def _made(text: str) -> JobTable:
    name, *fields = text.split(":")
    name = name.lower()
    usage = MADE[name]
    if not 2 <= len(fields) <= 4:
        raise InputError(f"trace {text!r}; a workload to be made is written {usage}")
    jobs = _number(int, "number of jobs", fields[0], usage)
    fields += [""] * (4 - len(fields))
    if name == "gavel":
        rate = _number(float, "number of jobs an hour", fields[1], usage)
        if fields[3] not in ("", "multi"):
            raise InputError(f"trace {text!r} ends in {fields[3]!r}, not in multi; write {usage}")
        return gavel_jobs(jobs, rate, _seed(fields[2], usage), multi_gpu=fields[3] == "multi")
    load = _number(float, "load", fields[2], usage) if fields[2] else None
    seed = _seed(fields[3], usage)
    if name == "lublin":
        return lublin(jobs, _number(int, "number of nodes", fields[1], usage), load=load, seed=seed)
    machine = named_cluster(fields[1])
    made = gpu_workload(jobs, machine, load=GPU_LOAD if load is None else load, seed=seed)
    # --cluster auto is the cluster as it was written here, which may be a file.
    columns = {column: made[column] for column in made.columns}
    return JobTable(labels=made.labels, meta={**made.meta, "cluster": fields[1]}, **columns)


def _seed(text: str, usage: str) -> int:
    return _number(int, "seed", text, usage) if text else 0


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
    """none, easy, conservative, or a number of reservations; on placed nodes none or skip.

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
    if text.strip().lower() == "auto":
        return _automatic(jobs)
    return named_cluster(text), None


def is_placed(text: str, trace: str) -> bool:
    """Whether the machine so written gives out single nodes and GPUs; with ``auto`` the trace says so, and is not read.

    >>> is_placed("gpu-mixed", "log.swf"), is_placed("auto", "lublin:10:4"), is_placed("auto", "gavel:10:4")
    (True, False, True)
    """
    if text.strip().lower() == "auto":
        return _is_made(trace) and trace.partition(":")[0].lower() in ("gpu", "gavel")
    return named_cluster(text).node_level


def all_placed(cluster: str, traces: Sequence[str]) -> bool:
    """Whether the traces run on machines of placed nodes; an error where some do and some do not.

    >>> all_placed("auto", ["gpu:10:gpu-mixed"]), all_placed("nodes:4", ["log.swf"])
    (True, False)
    """
    placed = [is_placed(cluster, trace) for trace in traces]
    if any(placed) and not all(placed):
        one, other = traces[placed.index(True)], traces[placed.index(False)]
        raise InputError(
            f"{one} runs on single GPUs and {other} on whole nodes; rules and metrics differ: compare them apart, or "
            "name one machine with --cluster"
        )
    return all(placed)


def named_cluster(text: str) -> Cluster:
    """The machine written in words that do not depend on the jobs."""
    text = text.strip()
    count = text[6:] if text.lower().startswith("nodes:") else text
    if count != text or count.lstrip("-").replace(",", "").replace("_", "").isdecimal():
        nodes = _number(int, "number of nodes", count, "nodes:N, for instance nodes:128")
        return Cluster.from_nodes(nodes)
    if text.lower() in PRESETS:
        return Cluster.preset(text)
    if NODE_LIST.search(text.lower()):
        return read_nodes(text)
    if text.endswith(".toml") or "/" in text or Path(text).exists():
        return Cluster.from_file(text)
    raise UnknownNameError(
        "cluster (a preset, nodes:N, a TOML file or a list of nodes in CSV)", text, PRESETS
    )


def _automatic(jobs: JobTable) -> tuple[Cluster, str | None]:
    if jobs.meta.get("workload") == "gpu":  # its cluster may be a file
        return named_cluster(str(jobs.meta["cluster"])), None
    cluster = Cluster.from_trace(jobs)
    if jobs.meta.get("workload") == "gavel" or any(
        (jobs.meta.get(key) or 0) >= 1 for key in ("max_procs", "max_nodes")
    ):
        return cluster, None
    largest = cluster.nodes
    return (
        cluster,
        f"the trace does not say how large its machine is: {largest:,} nodes taken, as its largest job has; "
        "give the real size with --cluster",
    )


def rescaled_to_load(jobs: JobTable, cluster: Cluster, load: float | None) -> JobTable:
    """The jobs at another offered load on the cluster, or as they are; on placed nodes with GPUs the load of these."""
    if load is None:
        return jobs
    nodes = cluster.nodes
    if not counts_gpus(cluster):
        return rescale_load(jobs, nodes, load)
    now = gpu_load(jobs, cluster)
    if not now > 0:
        raise InputError("none of these jobs has a GPU, so they cannot be brought to a load of GPUs")
    # Both loads fall alike with the time between submissions, so the one is brought about through the other.
    return rescale_load(jobs, nodes, offered_load(jobs, nodes) * load / now)


def load_of(jobs: JobTable, cluster: Cluster) -> float:
    """The offered load: of GPUs on placed nodes that have some, else of nodes; 0 where there is none to speak of.

    >>> load_of(JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1]), Cluster.from_nodes(4))
    0.0
    """
    if len(jobs) < 2 or not np.ptp(jobs["submit_s"]) > 0:
        return 0.0
    if counts_gpus(cluster):
        return gpu_load(jobs, cluster) if "gpus" in jobs else 0.0
    return offered_load(jobs, cluster.nodes)
