"""Readers of GPU and cloud traces: Alibaba, Microsoft, SenseTime, MIT and Google, one module per family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.gpu.csv import TraceFile
from kilowait.traces.gpu.detect import header_formats, job_events, json_formats, node_list, task_events
from kilowait.traces.gpu.google import read_google2011, read_google2019
from kilowait.traces.gpu.helios import read_helios
from kilowait.traces.gpu.openb import read_openb
from kilowait.traces.gpu.pai import pai_table, read_pai
from kilowait.traces.gpu.philly import read_philly
from kilowait.traces.gpu.spot import read_spot
from kilowait.traces.gpu.supercloud import read_supercloud

__all__ = [
    "GPU_FORMATS",
    "GPU_READERS",
    "TraceFile",
    "header_formats",
    "job_events",
    "json_formats",
    "node_list",
    "pai_table",
    "task_events",
]

GPU_FORMATS: dict[str, str] = {
    "openb": "Alibaba 2023, pod lists of the GPU-sharing cluster",
    "pai": "Alibaba 2020 (PAI), tables of tasks, jobs and tags, or GAIA's sample",
    "spot": "Alibaba 2026, jobs of the cluster with spot GPUs, or batches made of them",
    "philly": "Microsoft Philly 2017, cluster_job_log, or Sia's or Lumos' table",
    "helios": "SenseTime Helios 2020, cluster_log.csv, or slices of it",
    "supercloud": "MIT SuperCloud 2021, slurm-log.csv",
    "google2011": "Google 2011, job_events or task_events, a file or a folder of parts",
    "google2019": "Google 2019, collection or instance events, CSV or JSON lines",
}
"""Names for ``format=``."""

GPU_READERS: dict[str, Callable[[Sequence[TraceFile], CleaningReport], tuple[RawColumns, dict[str, Any]]]] = {
    "openb": read_openb,
    "pai": read_pai,
    "spot": read_spot,
    "philly": read_philly,
    "helios": read_helios,
    "supercloud": read_supercloud,
    "google2011": read_google2011,
    "google2019": read_google2019,
}
"""Readers by format. All take the files of the trace; most require exactly one."""
