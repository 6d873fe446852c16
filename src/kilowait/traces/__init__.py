"""Readers and writers of job logs (SWF, sacct, CSV, Parquet, GPU traces), with a cleaning report."""

from kilowait.traces.catalogue import ARCHIVE_LOGS, ARCHIVES
from kilowait.traces.cleaning_report import CleaningEntry, CleaningReport, describe
from kilowait.traces.fetch import fetch
from kilowait.traces.formats import FORMATS, WRITERS
from kilowait.traces.node_lists import read_nodes
from kilowait.traces.read import read_trace, read_trace_with_report, trace_sha256
from kilowait.traces.write import write_parts, write_trace, written_format

__all__ = [
    "ARCHIVES",
    "ARCHIVE_LOGS",
    "FORMATS",
    "WRITERS",
    "CleaningEntry",
    "CleaningReport",
    "describe",
    "fetch",
    "read_nodes",
    "read_trace",
    "read_trace_with_report",
    "trace_sha256",
    "write_parts",
    "write_trace",
    "written_format",
]
