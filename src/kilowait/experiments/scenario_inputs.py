"""Parsing of command-line texts for traces, clusters, job ranges, column maps and backfilling.

A trace is a file, a folder, or a synthetic workload (`SYNTHETIC_WORKLOADS`). A cluster is the name of a preset,
``nodes:N``, ``N``, a TOML file, a list of nodes (``nodes.csv``), ``auto`` or ``+20%``. Jobs are ``N`` (the first N) or
``A:B``. Columns are ``submit_s=submitted,estimate_s=limit_min*60``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.cluster import machine_of_trace, peak_use
from kilowait.cluster.presets import PRESETS
from kilowait.errors import InputError, UnknownNameError
from kilowait.files.compression import parse_size
from kilowait.jobs import JobTable
from kilowait.jobs.table import table_of_new_arrays
from kilowait.synth import gavel_jobs, gpu_load, gpu_workload, lublin, offered_load, rescale_load
from kilowait.synth.gpu_workload import counts_gpus
from kilowait.traces import CleaningReport, read_nodes, read_trace_with_report, trace_sha256

if TYPE_CHECKING:
    from kilowait.experiments.predictors import SavedPredictor
    from kilowait.experiments.settings import Scenario
    from kilowait.experiments.workload_settings import PredictionTask

T = TypeVar("T", int, float)
SYNTHETIC_WORKLOADS = {
    "lublin": "lublin:JOBS:NODES[:LOAD[:SEED]], for instance lublin:1000:128:0.9:7",
    "gpu": "gpu:JOBS:CLUSTER[:LOAD[:SEED]], for instance gpu:2000:gpu-mixed:0.9:7",
    "gavel": "gavel:JOBS:JOBS_PER_HOUR[:SEED[:multi]], for instance gavel:1000:4:0:multi",
}
"""Synthetic workloads by name, with their text format: a trace NAME:... is generated instead of read."""

GPU_LOAD = 0.9
"""Default load of a GPU workload."""
NODE_LIST = re.compile(r"\.csv(\.(gz|bz2|xz|zst))?$")
"""Suffix of node lists; all other cluster files are TOML."""


@dataclass(frozen=True)
class Workload:
    """Jobs and their provenance."""

    jobs: JobTable
    cleaning_report: CleaningReport | None = None
    """Cleaning report of the file; None for a synthetic workload."""
    sha256: str | None = None
    """Digest of the file or folder; None for a synthetic workload."""
    predictors: tuple[SavedPredictor, ...] = ()
    """Saved predictors that were applied to these jobs."""

    def evaluated_from(self, first: int) -> Workload:
        """The workload with only the jobs from row `first`, by submission, evaluated; this affects `leakage_notes`."""
        predictors = tuple(predictor.evaluated_from(first) for predictor in self.predictors)
        return replace(self, predictors=predictors)

    @property
    def leakage_notes(self) -> tuple[str, ...]:
        """Notes about predictors that may have been trained on evaluated jobs."""
        return tuple(predictor.note for predictor in self.predictors if predictor.note is not None)

    def provenance(self, trace: str, command: Sequence[str], date: str) -> dict[str, Any]:
        """The command, date, seed and inputs of the jobs for a manifest."""
        return {
            "command": list(command),
            "date": date,
            "seeds": {"workload": self.jobs.meta.get("seed")},
            "inputs": {trace: self.sha256},
            **({"predictors": [predictor.to_dict() for predictor in self.predictors]} if self.predictors else {}),
        }


def read_workload(
    trace: str,
    *,
    format: str | None = None,
    unpack_limit: str | None = None,
    columns: str | None = None,
    strict: bool = False,
    rows: str | None = None,
) -> Workload:
    """Read or generate the jobs of a trace, and select rows; `unpack_limit` is a size in bytes, or such as 64G.

    >>> len(read_workload("lublin:50:16:0.8:3", rows="10:30").jobs)
    20
    """
    selection = None if rows is None else parse_rows(rows)
    if _is_synthetic(trace):
        if columns is not None or format is not None:
            raise InputError(f"{trace} is a synthetic workload: it takes no format and no column map")
        workload = Workload(_synthetic(trace))
    else:
        mapping = None if columns is None else parse_columns(columns)
        limit = None if unpack_limit is None else parse_size(unpack_limit)
        jobs, report = read_trace_with_report(trace, format=format, columns=mapping, strict=strict, unpack_limit=limit)
        workload = Workload(jobs, report, trace_sha256(trace))
    if selection is None:
        return workload
    jobs = _with_recorded_peak(workload.jobs)[selection]
    if not len(jobs):
        raise InputError(f"the range {rows} selects no jobs: {trace} has {len(workload.jobs):,} jobs, counted from 0")
    return Workload(jobs, workload.cleaning_report, workload.sha256)


def _with_recorded_peak(jobs: JobTable) -> JobTable:
    """The jobs with the peak of their recorded use in `meta`, if the log does not state the size of its machine."""
    peak = None if jobs.machine_size is not None else peak_use(jobs)
    if peak is None:
        return jobs
    columns = {name: jobs[name] for name in jobs.columns}
    return table_of_new_arrays(columns, labels=jobs.labels, meta={**jobs.meta, "recorded_peak": peak})


def read_log(log: Scenario | PredictionTask) -> Workload:
    """Read or generate the jobs of the trace that these settings name."""
    names = ("format", "unpack_limit", "columns", "strict")
    return read_workload(log.trace, rows=log.jobs, **{name: getattr(log, name) for name in names})


def jobs_sha256(*tables: JobTable) -> Any:
    """The SHA-256 hash object of the columns of job tables."""
    digest = hashlib.sha256()
    for jobs in tables:
        for name in jobs.columns:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(jobs[name]).data)
    return digest


def _is_synthetic(trace: str) -> bool:
    return ":" in trace and trace.partition(":")[0].lower() in SYNTHETIC_WORKLOADS and not Path(trace).exists()


def _synthetic(text: str) -> JobTable:
    name, *fields = text.split(":")
    name = name.lower()
    usage = SYNTHETIC_WORKLOADS[name]
    if not 2 <= len(fields) <= 4:
        raise InputError(f"trace {text!r}: this synthetic workload is written {usage}")
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
    cluster = named_cluster(fields[1])
    workload = gpu_workload(jobs, cluster, load=GPU_LOAD if load is None else load, seed=seed)
    # For --cluster auto: the text, because it may name a file.
    columns = {column: workload[column] for column in workload.columns}
    return JobTable(labels=workload.labels, meta={**workload.meta, "cluster": fields[1]}, **columns)


def _seed(text: str, usage: str) -> int:
    return _number(int, "seed", text, usage) if text else 0


def _number(convert: Callable[[str], T], what: str, text: str, usage: str) -> T:
    try:
        return convert(text.replace("_", ""))
    except ValueError:
        raise InputError(f"the {what} is {text!r}, which is not a number; write {usage}") from None


def parse_rows(text: str) -> slice:
    """The rows of a job range, by submission: ``N`` is the first N, ``A:B`` is from A up to but not including B.

    >>> parse_rows("100"), parse_rows("100:200"), parse_rows("5_000:")
    (slice(0, 100, None), slice(100, 200, None), slice(5000, None, None))
    """
    usage = "N for the first N jobs, or A:B for jobs A up to but not including B, counted from 0"
    first, colon, last = text.partition(":")
    low = _number(int, "range of jobs", first, usage) if colon and first else 0
    end = last if colon else first
    high = _number(int, "range of jobs", end, usage) if end else None
    if low < 0 or (high is not None and high <= low) or (not colon and not first):
        raise InputError(f"the range of jobs is {text!r}; write {usage}")
    return slice(low, high)


def parse_columns(text: str) -> dict[str, Any]:
    """A column map: kilowait's name = the file's name, times a factor if the units differ.

    >>> parse_columns("submit_s=submitted,estimate_s=limit_min*60")
    {'submit_s': 'submitted', 'estimate_s': ('limit_min', 60.0)}
    """
    usage = "kilowait's column=the file's column, with commas between: submit_s=submitted,estimate_s=limit_min*60"
    mapping: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, source = (piece.strip() for piece in part.partition("="))
        if not (name and equals and source):
            raise InputError(f"the column map contains {part!r}; write {usage}")
        if name in mapping:
            raise InputError(f"the column map names {name!r} twice")
        column, star, factor = source.rpartition("*")
        mapping[name] = (column, _number(float, "factor", factor, usage)) if star else source
    return mapping


@dataclass(frozen=True)
class Machine:
    """The cluster of a scenario, and its jobs counted in the unit of the cluster."""

    cluster: Cluster
    jobs: JobTable
    note: str | None = None
    """How the size of the cluster was found, if the log does not state it."""


def resolve_machine(
    text: str, jobs: JobTable, *, cores_per_node: int | None = None, exclusive_nodes: bool = False
) -> Machine:
    """The cluster that a text names, and the jobs in its unit.

    ``auto`` is the machine of the log, ``+20%`` is this machine with 20 % more nodes. A number is a number of nodes, or
    of processors if the log counts these; ``nodes:N`` is always a number of nodes.

    Args:
        text: the cluster.
        jobs: the jobs of the log.
        cores_per_node: cores of a node, for a log that counts processors.
        exclusive_nodes: allocate whole nodes, not single cores.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[88, 1], meta={"max_procs": 1728})
    >>> jobs = jobs.with_unit("processor", cores=jobs["nodes"])
    >>> resolve_machine("auto", jobs).cluster.size_text
    '1,728 processors'
    >>> machine = resolve_machine("auto", jobs, cores_per_node=72, exclusive_nodes=True)
    >>> machine.cluster.size_text, machine.jobs.size.tolist()
    ('24 nodes', [2, 1])
    """
    cluster, note = None, None
    text = text.strip()
    change = _RELATIVE.fullmatch(text)
    if text.lower() == "auto" or change is not None:
        cluster, note = _cluster_of_jobs(jobs)
    if cores_per_node is not None:
        size = jobs.machine_size if cluster is None else cluster.size
        jobs = _with_cores_per_node(jobs, cores_per_node, size)
        cluster = None if cluster is None else Cluster.from_trace(jobs)
    if cluster is None:
        cluster = _numbered_cluster(text, jobs) or named_cluster(text, jobs.meta.get("unix_start_s"))
    if change is not None:
        cluster = _scaled(cluster, 1 + float(change.group(1)) / 100, text)
    if exclusive_nodes:
        cluster = _with_exclusive_nodes(cluster)
    return Machine(cluster, cluster.sized(jobs), note)


def resolve_cluster(text: str, jobs: JobTable) -> tuple[Cluster, str | None]:
    """The cluster, and a note if its size had to be guessed.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1])
    >>> resolve_cluster("auto", jobs)[0].nodes, resolve_cluster("nodes:64", jobs)[0].nodes
    (4, 64)
    """
    machine = resolve_machine(text, jobs)
    return machine.cluster, machine.note


_RELATIVE = re.compile(r"([+-]\d+(?:\.\d+)?)\s*%")
"""A machine relative to that of the log."""


def _numbered_cluster(text: str, jobs: JobTable) -> Cluster | None:
    """The cluster of ``N`` or ``nodes:N`` for these jobs; None: another text."""
    size = _size_in(text)
    if size is None or jobs.unit == "node":
        return None
    processors, nodes = jobs.meta.get("max_procs"), jobs.meta.get("max_nodes")
    if jobs.unit == "core" and processors is not None and nodes is not None:
        if text.lower().startswith("nodes:"):
            return Cluster.from_processors(size * processors // nodes, nodes=size)
        return Cluster.from_processors(size, nodes=-(-size * nodes // processors))
    return None if text.lower().startswith("nodes:") else Cluster.from_processors(size)


def _with_cores_per_node(jobs: JobTable, cores: int, processors: int | None) -> JobTable:
    """The jobs of a log of processors, which are the cores of nodes with this many cores."""
    if jobs.unit == "node" and jobs.meta.get("format") != "swf":
        raise InputError(
            f"--cores-per-node {cores} is for logs that count processors, and this log counts nodes; leave it out, or "
            "state the cores of the nodes in a cluster file"
        )
    if cores < 1:
        raise InputError(f"--cores-per-node is {cores}; a node has at least 1 core")
    size = jobs.size
    sized = jobs.with_unit("core", cores=size, nodes=-(-size // cores))
    known = processors if processors is not None else int(size.max(initial=1))
    meta = {**sized.meta, "max_procs": known, "max_nodes": -(-known // cores)}
    return table_of_new_arrays({name: sized[name] for name in sized.columns}, labels=sized.labels, meta=meta)


def _with_exclusive_nodes(cluster: Cluster) -> Cluster:
    """The cluster with whole nodes in place of shared ones."""
    for group in cluster.groups:
        if not group.nodes_known:
            raise InputError(
                f"--exclusive-nodes: {cluster.name!r} is a number of processors, and its nodes are unknown; give the "
                "cores of a node with --cores-per-node"
            )
    groups = tuple(
        replace(group, shared=False, total_cores=0, cores=int(group.cores_per_node)) if group.shared else group
        for group in cluster.groups
    )
    return replace(cluster, groups=groups)


def _scaled(cluster: Cluster, factor: float, text: str) -> Cluster:
    """The cluster with every group's nodes, rounded, multiplied by a factor."""
    if not factor > 0:
        raise InputError(f"--cluster {text} leaves no node of the machine; give more than -100%")
    groups = tuple(
        replace(group, nodes=max(1, round(group.nodes * factor)), total_cores=0)
        if not group.total_cores
        else replace(group, nodes=(nodes := max(1, round(group.nodes * factor))), total_cores=group.cores_of(nodes))
        for group in cluster.groups
    )
    return replace(cluster, groups=groups, name=f"{cluster.name} {text}")


def is_node_level(text: str, trace: str) -> bool:
    """Whether a text names a GPU cluster; with ``auto`` the name of the trace decides, and the trace is not read.

    >>> (
    ...     is_node_level("gpu-mixed", "log.swf"),
    ...     is_node_level("auto", "lublin:10:4"),
    ...     is_node_level("auto", "gavel:10:4"),
    ... )
    (True, False, True)
    """
    if text.strip().lower() == "auto" or _RELATIVE.fullmatch(text.strip()):
        return _is_synthetic(trace) and trace.partition(":")[0].lower() in ("gpu", "gavel")
    return named_cluster(text, 0.0).node_level


def all_node_level(cluster: str, traces: Sequence[str]) -> bool:
    """Whether all traces run on GPU clusters; raises if only some do.

    >>> all_node_level("auto", ["gpu:10:gpu-mixed"]), all_node_level("nodes:4", ["log.swf"])
    (True, False)
    """
    node_level = [is_node_level(cluster, trace) for trace in traces]
    if any(node_level) and not all(node_level):
        one, other = traces[node_level.index(True)], traces[node_level.index(False)]
        raise InputError(
            f"{one} runs on a GPU cluster and {other} on a batch cluster; policies and metrics differ: compare them "
            "separately, or name one cluster with --cluster"
        )
    return all(node_level)


def named_cluster(text: str, unix_start_s: float | None = None) -> Cluster:
    """The cluster of a text other than ``auto``; `unix_start_s` is the Unix time of second 0 of the log."""
    text = text.strip()
    size = _size_in(text)
    if size is not None:
        return Cluster.from_nodes(size)
    if text.lower() in PRESETS:
        return Cluster.preset(text)
    if NODE_LIST.search(text.lower()):
        return read_nodes(text)
    if text.endswith(".toml") or "/" in text or Path(text).exists():
        return Cluster.from_file(text, unix_start_s=unix_start_s)
    raise UnknownNameError("cluster (a preset, nodes:N, a TOML file or a list of nodes in CSV)", text, PRESETS)


def _size_in(text: str) -> int | None:
    """The number in ``N`` or ``nodes:N``; None: another text."""
    count = text[6:] if text.lower().startswith("nodes:") else text
    if count != text or count.lstrip("-").replace(",", "").replace("_", "").isdecimal():
        usage = (
            "nodes:N, for instance nodes:128, without commas; kilowait compare takes several with --clusters 128,256"
        )
        return _number(int, "number of nodes", count, usage)
    return None


def _cluster_of_jobs(jobs: JobTable) -> tuple[Cluster, str | None]:
    if jobs.meta.get("workload") == "gpu":  # the text, because it may name a file
        return named_cluster(str(jobs.meta["cluster"])), None
    cluster, source = machine_of_trace(jobs)
    if source in ("header", "workload"):
        return cluster, None
    reason = {
        "peak": "the largest number in use at one time by the waits and run times of the log",
        "largest": "as many as its largest job has, since the log has no waits",
    }[source]
    return (
        cluster,
        f"the trace does not contain the size of its cluster: {cluster.size_text} are assumed, {reason}; give the real "
        "size with --cluster",
    )


def rescale_to_load(jobs: JobTable, cluster: Cluster, load: float | None) -> JobTable:
    """The jobs with arrivals scaled to an offered load (of GPUs on GPU clusters); None: unchanged."""
    if load is None:
        return jobs
    nodes = cluster.size
    if not (cluster.node_level and counts_gpus(cluster)):
        return rescale_load(jobs, nodes, load)
    now = gpu_load(jobs, cluster)
    if not now > 0:
        raise InputError("none of these jobs has a GPU, so their arrivals cannot be scaled to a GPU load")
    # Both loads are inversely proportional to the time between submissions, so node load can be used to set GPU load.
    return rescale_load(jobs, nodes, offered_load(jobs, nodes) * load / now)


def cluster_load(jobs: JobTable, cluster: Cluster) -> float:
    """The offered load: of GPUs on clusters with GPUs, else of nodes; 0 if all jobs are submitted at one time.

    >>> cluster_load(JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1]), Cluster.from_nodes(4))
    0.0
    """
    if len(jobs) < 2 or not np.ptp(jobs["submit_s"]) > 0:
        return 0.0
    if cluster.node_level and counts_gpus(cluster):
        return gpu_load(jobs, cluster) if "gpus" in jobs else 0.0
    return offered_load(jobs, cluster.size)
