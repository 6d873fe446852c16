"""Writers of job tables as bytes: SWF, CSV, Parquet, Batsim workload (JSON) and Batsim platform (XML)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import TraceError
from kilowait.files.csv_text import csv_cell
from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABEL_COLUMNS

SHORTEST_S = 0.001
"""Minimum delay and walltime in Batsim files: Batsim refuses 0."""
_KEPT_HEADERS = ("Computer", "Installation", "Acknowledge", "Information", "Conversion", "Copyright")
_SWF_COLUMNS = frozenset(
    "job_id submit_s wait_s runtime_s nodes estimate_s memory_mb status user account name queue after_id "
    "think_s cancel_s".split()
)


def _machine(jobs: JobTable, cluster: Cluster | None) -> int:
    """The size of the machine, in the unit of the jobs."""
    if cluster is not None:
        return cluster.size
    largest = int(jobs.size.max()) if len(jobs) else 1
    return largest if jobs.machine_size is None else jobs.machine_size


def _sizes_in_header(jobs: JobTable, cluster: Cluster | None) -> list[str]:
    """MaxNodes and MaxProcs; a log of processors whose nodes are unknown has no MaxNodes."""
    size = _machine(jobs, cluster)
    if jobs.unit == "processor":
        return [f"; MaxProcs: {size}"]
    nodes = size if jobs.unit == "node" else jobs.meta["max_nodes"] if cluster is None else cluster.nodes
    return [f"; MaxNodes: {nodes}", f"; MaxProcs: {size}"]


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _texts(values: Any) -> list[str]:
    """Shortest exact text of each number; -1 for unknown."""
    if values.dtype.kind != "f":
        return [str(value) for value in values.tolist()]
    return ["-1" if not np.isfinite(value) else _format_number(value) for value in values.tolist()]


def _no_negative_times(jobs: JobTable, what: str) -> None:
    if len(jobs) and float(jobs["submit_s"].min()) < 0:
        raise TraceError(
            f"{what} does not allow negative times, but the first job is submitted at "
            f"{float(jobs['submit_s'].min()):g} s; "
            "shift them: jobs.with_columns(submit_s=jobs['submit_s'] - jobs['submit_s'].min())"
        )


def swf_bytes(jobs: JobTable, cluster: Cluster | None) -> bytes:
    """The jobs in the Standard Workload Format; columns without a field are named in the header."""
    _no_negative_times(jobs, "SWF")
    jobs = jobs if cluster is None else cluster.sized(jobs)
    header = [f"; {key}: {line}" for key, line in _header_lines(jobs)]
    kept = _SWF_COLUMNS if jobs.unit == "node" else _SWF_COLUMNS | {"cores"}
    lost = [name for name in jobs.columns if name not in kept]
    header += [f"; MaxJobs: {len(jobs)}", f"; MaxRecords: {len(jobs)}", *_sizes_in_header(jobs, cluster)]
    if lost:
        header.append(f"; Note: left out, because SWF has no field for it: {', '.join(lost)}")
    for number, name in enumerate(jobs.labels.get("queue", ())):
        header.append(f"; Queue: {number} {' '.join(name.split())}")
    size = jobs.size
    unknown = np.full(len(jobs), -1, np.int64)
    cancel = jobs.column("cancel_s")
    unrun = np.isfinite(cancel) & (jobs["runtime_s"] == 0)
    wait = np.where(unrun, np.maximum(cancel - jobs["submit_s"], 0), jobs.column("wait_s"))
    memory = jobs["memory_mb"] / 1.024e-3 / size if "memory_mb" in jobs else unknown
    columns = [
        jobs["job_id"],
        jobs["submit_s"],
        wait,
        np.where(unrun, -1.0, jobs["runtime_s"]),
        np.where(unrun, -1, size),
        unknown,
        unknown,
        size,
        jobs["estimate_s"],
        memory,
        np.where(unrun & (jobs.column("status") == -1), 5, jobs.column("status")),
        *(jobs.column(name) for name in ("user", "account", "name", "queue")),
        unknown,
        jobs.column("after_id"),
        jobs.column("think_s") if "think_s" in jobs else unknown,
    ]
    rows = map(" ".join, zip(*(_texts(np.asarray(column)) for column in columns), strict=True))
    return _utf8("\n".join([*header, *rows, ""]))


def _header_lines(jobs: JobTable) -> Iterable[tuple[str, str]]:
    yield "Version", "2.2"
    given = jobs.meta.get("header", {})
    for key in _KEPT_HEADERS:
        for line in str(given.get(key, "")).splitlines():
            yield key, line
    if "unix_start_s" in jobs.meta:
        yield "UnixStartTime", str(jobs.meta["unix_start_s"])
    if "time_zone" in jobs.meta:
        yield "TimeZoneString", " ".join(str(jobs.meta["time_zone"]).split())
    for what, names in jobs.meta.get("anonymized", {}).items():
        yield "Note", f"anonymized; {what}: {names}"


def csv_bytes(jobs: JobTable, cluster: Cluster | None) -> bytes:
    """CSV with kilowait's column names; an empty cell is unknown, and names cannot be formulas (`csv_text`)."""
    columns: list[list[str]] = []
    for name in jobs.columns:
        values = jobs[name]
        if name in jobs.labels:
            labels = [csv_cell(label) for label in jobs.labels[name]]
            columns.append([labels[code] if code >= 0 else "" for code in values.tolist()])
        elif values.dtype.kind == "f":
            infinite = "inf" if name == "checkpoint_s" else ""  # Other infinite values mean unknown.
            columns.append(
                [_format_number(v) if np.isfinite(v) else infinite if v > 0 else "" for v in values.tolist()]
            )
        else:
            optional = name in LABEL_COLUMNS or name in ("status", "after_id")
            columns.append(["" if optional and v == -1 else str(v) for v in values.tolist()])
    text = "\n".join([",".join(jobs.columns), *map(",".join, zip(*columns, strict=True)), ""])
    if "\x00" in text:
        raise TraceError("a name contains the character NUL, which CSV files cannot hold; write Parquet")
    return _utf8(text)


def parquet_bytes(jobs: JobTable, cluster: Cluster | None) -> bytes:
    """Like `JobTable.to_parquet`, with page checksums, so that damaged pages are detected."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(jobs.to_arrow(), sink, write_page_checksum=True)
    return sink.getvalue()


def batsim_bytes(jobs: JobTable, cluster: Cluster | None) -> bytes:
    """Batsim workload with delay profiles; jobs of equal run time share a profile."""
    _no_negative_times(jobs, "Batsim")
    jobs = jobs if cluster is None else cluster.sized(jobs)
    runtime = np.maximum(jobs["runtime_s"], SHORTEST_S).tolist()
    limit = jobs.column("limit_s")
    limit = np.where(np.isnan(limit), jobs["estimate_s"], limit)
    rows = zip(
        jobs["job_id"].tolist(),
        jobs["submit_s"].tolist(),
        np.maximum(limit, SHORTEST_S).tolist(),
        jobs.size.tolist(),
        runtime,
        strict=True,
    )
    listed = [
        {"id": str(job), "subtime": submit, "walltime": limit, "res": nodes, "profile": f"delay_{_format_number(run)}"}
        for job, submit, limit, nodes, run in rows
    ]
    profiles = {f"delay_{_format_number(run)}": {"type": "delay", "delay": run} for run in sorted(set(runtime))}
    return _utf8(json.dumps({"nb_res": _machine(jobs, cluster), "jobs": listed, "profiles": profiles}, indent=1))


def platform_bytes(jobs: JobTable, cluster: Cluster | None) -> bytes:
    """Batsim platform: one host per node and the required master host; no network, because delay profiles use none."""
    from xml.sax.saxutils import quoteattr

    groups = [("node", _machine(jobs, None))] if cluster is None else [(g.name, g.nodes) for g in cluster.groups]
    lines = [
        "<?xml version='1.0'?>",
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        '<platform version="4.1">',
        '  <zone id="cluster" routing="Full">',
        '    <host id="master_host" speed="1Gf"><prop id="role" value="master"/></host>',
    ]
    for name, count in groups:
        lines += [f'    <host id={quoteattr(f"{name}_{number}")} speed="1Gf"/>' for number in range(count)]
    return _utf8("\n".join([*lines, "  </zone>", "</platform>", ""]))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
