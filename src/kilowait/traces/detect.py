"""Detection of the format of a job log by its content."""

from __future__ import annotations

import re
from collections import Counter

from kilowait.errors import TraceError
from kilowait.traces import gpu, slurm, swf, tables
from kilowait.traces.decompress import refuse_binary

__all__ = ["FORMATS", "find_format"]

FORMATS: dict[str, str] = {
    "swf": "Standard Workload Format, 18 to 21 fields",
    "sacct": "dump of Slurm's accounting, sacct -P",
    "events": "events of the Slurm simulator",
    "csv": "any table of text with a header, ALCF's and NREL's among them",
    "parquet": "any Parquet table",
    **gpu.GPU_FORMATS,
}
"""Names for ``format=``."""

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def find_format(data: bytes) -> str:
    """Detect the format of these bytes; returns a name in `FORMATS`.

    >>> find_format(b"; Version: 2\\n1 0 -1 60 4 -1 -1 4 60 -1 1 1 1 1 1 -1 -1 -1\\n")
    'swf'
    """
    if data.startswith(b"PAR1"):
        return "parquet"
    refuse_binary(data)
    head = data[:262_144].decode("utf-8", "replace")
    lines = [line for line in re.split(r"\r\n|\n|\r", head) if line.strip()]
    if not lines:
        raise TraceError("it contains only blank lines")
    plain = [line for line in lines if line.lstrip()[0] not in ";#"]
    if any(line.lstrip().startswith(";") for line in lines) and not plain:
        raise TraceError("there are no lines of jobs, only comments")
    cluster = gpu.gpu_format(lines)
    if cluster is not None:
        return cluster
    if gpu.node_list(lines) is not None:
        raise TraceError("this is a list of nodes, not of jobs; read it with kilowait.traces.read_nodes")
    sample = plain[:50]
    if Counter("submit_batch_job" in line or line.lstrip().startswith("-dt") for line in sample)[True] * 2 > len(
        sample
    ):
        return "events"
    likely = sum(_swf_like(line) for line in sample)
    if sample and likely * 2 >= len(sample):
        return "swf"
    if any(slurm.sacct_delimiter(line) is not None for line in lines[:20]):
        return "sacct"
    if likely or any(re.match(r"\s*;\s*(Version|MaxJobs|MaxNodes|MaxProcs|UnixStartTime)\s*:", x) for x in lines):
        return "swf"
    if any(tables.csv_delimiter(line) is not None for line in lines[:20]) or tables.is_table(plain[:10]):
        return "csv"
    raise TraceError(
        f"this is none of the formats that kilowait reads ({', '.join(FORMATS)}); it starts with "
        f"{lines[0][:60]!r}. Force one with format=, or map columns with columns="
    )


def _swf_like(line: str) -> bool:
    words = line.split()[: swf.FIELDS]
    if len(words) < swf.FIELDS - 3:
        return False
    return sum(len(word) < 40 and _NUMBER.fullmatch(word) is not None for word in words) >= swf.FIELDS - 4
