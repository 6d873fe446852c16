"""Formats of job logs: name, description, reader, writer, and what a file is recognised by.

This is the one place where a format is declared; the reader of a format is in its own module or in that of its origin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kilowait.cluster import Cluster
from kilowait.jobs import JobTable
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats import alibaba, google, slurm_events, swf, table, writers
from kilowait.traces.formats.fdata import read_fdata
from kilowait.traces.formats.helios import read_helios
from kilowait.traces.formats.kueue import read_kueue
from kilowait.traces.formats.oda import read_oda
from kilowait.traces.formats.philly import read_philly
from kilowait.traces.formats.pm100 import read_pm100
from kilowait.traces.formats.sacct import read_sacct
from kilowait.traces.formats.sacct_without_header import count_lines
from kilowait.traces.formats.supercloud import read_supercloud
from kilowait.traces.formats.workflows import read_opendc, read_wta
from kilowait.traces.trace_input import TraceInput

__all__ = ["FORMATS", "WRITERS", "JsonForm", "RowForm", "TraceFormat"]

Reader = Callable[[TraceInput, CleaningReport], tuple[RawColumns, dict[str, Any]]]
Writer = Callable[[JobTable, Cluster | None], bytes]


class RowForm(NamedTuple):
    """Form of the rows of files without a header."""

    description: str
    least_share: float
    """Least share of the first rows that must fit."""
    count: Callable[[Sequence[str]], int]
    """Number of rows that fit."""


class JsonForm(NamedTuple):
    """Form of JSON files."""

    first: str
    """Characters of which the file begins with one."""
    keys: tuple[str, ...]
    """Keys that the first rows have, all of them."""
    description: str


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of job logs."""

    name: str
    description: str = ""
    read: Reader | None = None
    """None: kilowait only writes it."""
    in_folders: bool = False
    """Whether a trace may be a folder of files; the reader then takes all files."""
    headers: Sequence[str] = ()
    """First lines, each of which decides for the format."""
    columns: Sequence[str] = ()
    """Sets of names; a header with all names of one of them decides for the format."""
    tables: Sequence[str] = ()
    """Sets of names; a table in CSV or Parquet with all names of one of them is in this format."""
    json: JsonForm | None = None
    rows: Sequence[RowForm] = ()
    """Google's events are mostly numbers, so each row is checked in many columns, and more rows must fit."""
    write: Writer | None = None
    """None: kilowait only reads it."""
    suffix: str = ""
    """Suffix of the names of files that are written in this format."""


_ALL = (
    TraceFormat(
        "swf",
        "Standard Workload Format, 18 to 21 fields",
        swf.read_swf,
        rows=(RowForm("15 to 18 numbers", 0.5, swf.count_jobs),),
        write=writers.swf_bytes,
        suffix=".swf",
    ),
    TraceFormat(
        "sacct",
        "dump of Slurm's accounting, sacct -P",
        read_sacct,
        rows=(RowForm("lines of sacct in Open XDMoD's columns, without a header", 0.5, count_lines),),
    ),
    TraceFormat(
        "events",
        "events of the Slurm simulator",
        slurm_events.read_events,
        rows=(RowForm("events of the Slurm simulator", 0.5, slurm_events.count_events),),
    ),
    TraceFormat(
        "csv",
        "any table of text with a header, ALCF's and NREL's among them",
        table.read_csv,
        write=writers.csv_bytes,
        suffix=".csv",
    ),
    TraceFormat("parquet", "any Parquet table", table.read_parquet, write=writers.parquet_bytes, suffix=".parquet"),
    TraceFormat(
        "openb",
        "Alibaba 2023, pod lists of the GPU-sharing cluster",
        alibaba.read_openb,
        in_folders=True,
        columns=("name cpu_milli memory_mib num_gpu gpu_milli",),
    ),
    TraceFormat(
        "pai",
        "Alibaba 2020 (PAI), tables of tasks, jobs and tags, or GAIA's sample",
        alibaba.read_pai,
        in_folders=True,
        headers=(alibaba.GAIA_HEADER, *(names for kind, names in alibaba.PAI_TABLES.items() if kind != "machine")),
        rows=(RowForm("rows of a table of PAI", 0.5, alibaba.count_rows),),
    ),
    TraceFormat(
        "spot",
        "Alibaba 2026, jobs of the cluster with spot GPUs, or batches made of them",
        alibaba.read_spot,
        in_folders=True,
        headers=("arrival_time,runtime,gpus,priority",),
        columns=("job_name gpu_request worker_num submit_time duration job_type",),
    ),
    TraceFormat(
        "philly",
        "Microsoft Philly 2017, cluster_job_log, or Sia's or Lumos' table",
        read_philly,
        in_folders=True,
        headers=("timestamp,duration,num_gpus,gpu_time,cluster", ",run_time,wait_time,submit_time,gpu_num"),
        json=JsonForm("[{", ("attempts", "jobid"), "it is JSON with jobid and attempts"),
    ),
    TraceFormat(
        "helios",
        "SenseTime Helios 2020, cluster_log.csv, or slices of it",
        read_helios,
        in_folders=True,
        columns=(
            "job_id vc gpu_num node_num state submit_time start_time end_time",
            "job_id tenant submit_time num_chips num_nodes duration_s final_status",
        ),
    ),
    TraceFormat(
        "supercloud",
        "MIT SuperCloud 2021, slurm-log.csv",
        read_supercloud,
        in_folders=True,
        columns=("id_job time_submit time_start time_end mem_req tres_alloc",),
    ),
    TraceFormat(
        "pm100",
        "PM100, jobs of Marconi100 2020 with the power of their nodes",
        read_pm100,
        tables=(
            "job_id eligible_time run_time time_limit num_nodes_alloc node_power_consumption",
            "job_id eligible_time run_time time_limit num_nodes_alloc power_consumption",
        ),
    ),
    TraceFormat(
        "fdata",
        "F-DATA, jobs of Fugaku 2021 to 2024",
        read_fdata,
        in_folders=True,
        tables=("jid adt sdt edt elpl nnuma duration",),
    ),
    TraceFormat(
        "oda",
        "hpc-oda-commons, tables of jobs in the schema oda.job",
        read_oda,
        tables=(
            "job_id start_time end_time runtime_seconds requested_seconds",
            "job_id start_time end_time runtime_seconds allocated_cpus",
        ),
    ),
    TraceFormat(
        "wta",
        "Workflow Trace Archive, tables of tasks",
        read_wta,
        in_folders=True,
        tables=("id ts_submit runtime resource_amount_requested workflow_id",),
    ),
    TraceFormat(
        "opendc",
        "OpenDC, tables of tasks",
        read_opendc,
        in_folders=True,
        tables=(
            "id submission_time cpu_count cpu_capacity mem_capacity",
            "id start_time stop_time cpu_count mem_capacity",
        ),
    ),
    TraceFormat(
        "kueue",
        "Kueue's workloads, kubectl get workloads -o json",
        read_kueue,
        json=JsonForm("{", ("apiVersion", "items"), "it is a list of Kubernetes objects"),
    ),
    TraceFormat(
        "google2011",
        "Google 2011, job_events or task_events, a file or a folder of parts",
        google.read_google2011,
        in_folders=True,
        rows=(
            RowForm("job events in 8 columns, in order of time", 0.6, google.count_job_events),
            RowForm("task events in 13 columns, in order of time", 0.6, google.count_task_events),
        ),
    ),
    TraceFormat(
        "google2019",
        "Google 2019, collection or instance events, CSV or JSON lines",
        google.read_google2019,
        in_folders=True,
        columns=("time type collection_id",),
        json=JsonForm("{", ("collection_id",), "its lines are JSON records with collection_id"),
    ),
    TraceFormat("batsim", write=writers.batsim_bytes, suffix=".json"),
    TraceFormat("batsim-platform", write=writers.platform_bytes, suffix=".xml"),
)

FORMATS: dict[str, TraceFormat] = {each.name: each for each in _ALL if each.read is not None}
"""Formats that are read, by their names for ``format=``."""
WRITERS: dict[str, TraceFormat] = {each.name: each for each in _ALL if each.write is not None}
"""Formats that are written, by their names for ``format=``."""
