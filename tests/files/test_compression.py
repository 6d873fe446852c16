"""Decompression has a limit, which every reader of logs states and takes as an option."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kilowait.errors import InputError, TraceError
from kilowait.files.compression import decompressed, default_limit, parse_size
from kilowait.jobs import JobTable
from kilowait.traces import read_trace

ROWS = "job_id,submit_s,runtime_s,nodes\n" + "".join(f"{n},{n},60,4\n" for n in range(1, 5000))


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


COMPRESSIONS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_larger_files_than_the_limit_are_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t").write_bytes(COMPRESSIONS[kind](ROWS.encode()))
    assert len(read_trace(tmp_path / "t", unpack_limit=len(ROWS))) == 4999
    with pytest.raises(
        TraceError,
        match=rf"decompresses to more than the limit of 9.77 KiB \(10,000 bytes\): [\d,]+ bytes of {kind} data gave "
        r"[\d,]+ bytes so far; if the file is right, raise the limit with unpack_limit=20000",
    ):
        read_trace(tmp_path / "t", unpack_limit=10_000)


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_bombs_need_little_memory(kind: str) -> None:
    bomb = COMPRESSIONS[kind](bytes(1 << 26))
    twice = COMPRESSIONS[kind](bomb)
    for data in (bomb, twice):
        with pytest.raises(InputError, match="decompresses to more than the limit of 1 MiB"):
            decompressed(data, "bomb", 1 << 20)
    assert len(decompressed(bomb, "bomb", 1 << 26)[0]) == 1 << 26


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz"])
def test_several_streams_in_one_file(kind: str) -> None:
    compress = COMPRESSIONS[kind]
    assert decompressed(compress(b"a") + compress(b"b") + b"rest", "x") == (b"ab", 4)
    assert decompressed(compress(b"a" * 10_000_000) + compress(b"b"), "x")[0][-2:] == b"ab"


def test_parquet_bombs_are_refused(tmp_path: Path) -> None:
    rows = 2_000_000
    table = pa.table({name: np.zeros(rows, np.int64) for name in ("job_id", "submit_s", "runtime_s", "nodes")})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"2,000,000 rows\) decompresses to 32,000,000 bytes, more than the limit"):
        read_trace(tmp_path / "t.parquet", unpack_limit=1 << 20)
    jobs = JobTable(job_id=np.arange(9), submit_s=np.zeros(9), runtime_s=np.ones(9), nodes=np.ones(9, int))
    jobs.to_parquet(tmp_path / "own.parquet")
    assert len(read_trace(tmp_path / "own.parquet", unpack_limit=1 << 20)) == 9
    with pytest.raises(TraceError, match="more than the limit of 100 bytes"):
        read_trace(tmp_path / "own.parquet", unpack_limit=100)


def test_folder_has_one_limit(tmp_path: Path) -> None:
    from tests.traces.formats import sample_files

    for part in range(2):
        (tmp_path / f"part{part}").write_text(sample_files.GOOGLE_TASKS)
    size = len(sample_files.GOOGLE_TASKS)
    assert len(read_trace(tmp_path, unpack_limit=2 * size)) > 0
    with pytest.raises(TraceError, match=f"files up to .*part1 have {2 * size:,} bytes, more than the limit"):
        read_trace(tmp_path, unpack_limit=2 * size - 1)


def test_default_limit_is_a_part_of_the_memory() -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < default_limit() <= memory // 4


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "5X", "1e9", "0.1"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(InputError, match="is not a size; write bytes, or a number with K, M, G or T"):
        parse_size(text)
    with pytest.raises(TraceError, match="unpack_limit is 0; give a number of bytes"):
        read_trace("x", unpack_limit=0)
