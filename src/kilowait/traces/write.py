"""Writing of a JobTable into a file, in one of the formats that have a writer; a file is replaced as a whole."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from kilowait.cluster import Cluster
from kilowait.errors import TraceError, UnknownNameError
from kilowait.files import atomic_file
from kilowait.jobs import JobTable
from kilowait.traces.formats import WRITERS

_SUFFIXES = {each.suffix: name for name, each in WRITERS.items()}


def write_trace(
    jobs: JobTable, path: str | PathLike[str], *, format: str | None = None, cluster: Cluster | None = None
) -> None:
    """Write the jobs in `format` (one of `WRITERS`; default: by suffix), compressed if the name ends in .gz or .zst.

    `cluster` gives the machine size for SWF's header and Batsim; without it the size is that of the log's header, or
    of the largest job.

    >>> import tempfile, pathlib
    >>> from kilowait.traces import read_trace
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.swf.gz"
    >>> write_trace(JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1]), path)
    >>> read_trace(path)["nodes"].tolist()
    [4, 1]
    """
    path = Path(path)
    packed = _packed(path)
    format = written_format(path, format)
    if format == "parquet" and packed:
        raise TraceError(f"Parquet is already compressed; write to {path.with_suffix('')} without {packed}")
    write = WRITERS[format].write
    assert write is not None
    data = write(jobs, cluster)
    if packed == ".gz":
        data = gzip.compress(data, 6, mtime=0)
    elif packed == ".zst":
        import pyarrow as pa

        # A stream instead of pa.compress, so that the frame has an end mark.
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        data = sink.getvalue().to_pybytes()
    with _atomic_file(path) as part_path:
        part_path.write_bytes(data)


def write_parts(tables: Iterable[JobTable], path: str | PathLike[str]) -> None:
    """Write tables with the same columns one after another into one Parquet file, without holding the log in memory.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.parquet"
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1])
    >>> write_parts([jobs[:1], jobs[1:]], path)
    >>> JobTable.from_parquet(path)["nodes"].tolist()
    [4, 1]
    """
    import pyarrow.parquet as pq

    writer = None
    with _atomic_file(Path(path)) as part_path:
        try:
            for table in tables:
                part = table.to_arrow()
                writer = writer or pq.ParquetWriter(part_path, part.schema, write_page_checksum=True)
                writer.write_table(part)
        finally:
            if writer is not None:
                writer.close()


@contextmanager
def _atomic_file(path: Path) -> Iterator[Path]:
    """A temporary file that replaces `path` when it is complete, so that no partial file remains after an error."""
    try:
        with atomic_file(path) as part_path:
            yield part_path
    except OSError as problem:
        raise TraceError(f"cannot write {path}: {problem.strerror or problem}") from None


def written_format(path: str | PathLike[str], format: str | None = None) -> str:
    """The output format of `write_trace`: `format`, or that of the suffix.

    >>> written_format("log.swf.gz"), written_format("log.txt", "csv")
    ('swf', 'csv')
    """
    path = Path(path)
    if format is None:
        packed = _packed(path)
        plain = next((s for s in reversed(path.suffixes[-2:]) if s != packed), "")
        if plain not in _SUFFIXES:
            raise UnknownNameError("suffix to write jobs to", plain, _SUFFIXES)
        format = _SUFFIXES[plain]
    if format not in WRITERS:
        raise UnknownNameError("format to write jobs in", format, WRITERS)
    return format


def _packed(path: Path) -> str:
    return path.suffix if path.suffix in (".gz", ".zst") else ""
