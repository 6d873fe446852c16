from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pytest

from kilowait.errors import TraceError, UnknownNameError
from kilowait.traces import read_trace, read_trace_with_report
from kilowait.traces.detect import detect_format

ROW = "{n} {n} 5 60 4 -1 -1 4 600 -1 1 3 2 7 1 -1 -1 -1"
SWF = "; Version: 2.2\n" + "".join(ROW.format(n=n) + "\n" for n in range(1, 400))


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


PACKED = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "gzip of two members": lambda data: gzip.compress(data[:500]) + gzip.compress(data[500:]),
    "gzip, padded": lambda data: gzip.compress(data) + b"\x00" * 512,
    "zstd": zstd,
    "zstd, two frames": lambda data: zstd(data[:500]) + zstd(data[500:]),
    "zstd, one shot": lambda data: pa.compress(data, "zstd", asbytes=True),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "twice": lambda data: gzip.compress(gzip.compress(data)),
    "UTF-8 with a mark": lambda data: b"\xef\xbb\xbf" + data,
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "Windows": lambda data: data.replace(b"\n", b"\r\n"),
    "old Mac": lambda data: data.replace(b"\n", b"\r"),
    "no last line end": lambda data: data.rstrip(),
}


@pytest.mark.parametrize("packing", PACKED)
def test_compressed_files_with_any_name(tmp_path: Path, packing: str) -> None:
    (tmp_path / "misleading.csv").write_bytes(PACKED[packing](SWF.encode()))
    jobs, report = read_trace_with_report(tmp_path / "misleading.csv")
    assert len(jobs) == report.rows_read == 399
    assert jobs.meta["source"] == "misleading.csv"


@pytest.mark.parametrize("cut", [20, 0.3, 0.9, -1])
def test_truncated_gzip_reports_its_length(tmp_path: Path, cut: float) -> None:
    data = gzip.compress(SWF.encode())
    (tmp_path / "t.gz").write_bytes(data[: int(cut * len(data)) if 0 < cut < 1 else int(cut)])
    with pytest.raises(TraceError, match=r"cut short: its gzip data stop after [\d,]+ bytes \([\d,]+ lines\)"):
        read_trace(tmp_path / "t.gz")


def test_damaged_gzip(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(SWF.encode()))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "t.gz").write_bytes(data)
    with pytest.raises(TraceError, match="damaged gzip"):
        read_trace(tmp_path / "t.gz")


@pytest.mark.parametrize("compress", [zstd, bz2.compress, lzma.compress])
def test_other_truncated_compressions(tmp_path: Path, compress: object) -> None:
    data = compress(SWF.encode())  # type: ignore[operator]
    (tmp_path / "t").write_bytes(data[: len(data) // 2])
    with pytest.raises(TraceError, match="damaged or cut short"):
        read_trace(tmp_path / "t")


def test_garbage_after_gzip_is_noted(tmp_path: Path) -> None:
    (tmp_path / "t.gz").write_bytes(gzip.compress(SWF.encode()) + b"garbage")
    _, report = read_trace_with_report(tmp_path / "t.gz")
    assert any("7 bytes after the end of the compressed data" in e.reason for e in report.entries)


BAD = {
    "empty": (b"", "is empty"),
    "blanks": (b" \n\n\t\n", "contains only blank lines"),
    "empty gzip": (gzip.compress(b""), "empty after decompression"),
    "binary": (bytes(range(256)) * 20, "binary data or damaged"),
    "zip": (b"PK\x03\x04" + b"x" * 50, "a zip archive"),
    "tar": (b"a" * 257 + b"ustar" + b"\0" * 300, "a tar archive"),
    "words": (b"It was the best of times,\nit was the worst of times.\n", "none of the formats"),
    "json": (b'{"nb_res": 4}\n', "none of the formats"),
    "one odd line": (b"\xff\xfe\xff", "UTF-16"),
    "wrong delimiter": (b"job_id:submit_s:runtime_s:nodes\n1:0:5:1\n", "none of the formats"),
    "numbers": (b"1 2 3\n4 5 6\n", "none of the formats"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_are_not_logs_are_refused_with_the_reason(tmp_path: Path, case: str) -> None:
    data, message = BAD[case]
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(tmp_path / "t")
    assert str(tmp_path / "t") in str(caught.value)


def test_missing_file_directory_and_invalid_name(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no file .* kilowait traces fetch"):
        read_trace(tmp_path / "none")
    with pytest.raises(TraceError, match="is a directory"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="cannot read"):
        read_trace("a\0b")


def test_unknown_names_suggest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'swf'"):
        read_trace(tmp_path / "x", format="swff")
    (tmp_path / "x").write_text(SWF)
    with pytest.raises(UnknownNameError, match="keep"):
        read_trace(tmp_path / "x", never_ran="kep")  # type: ignore[arg-type]


def test_strict_lists_the_errors(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(SWF)
    assert len(read_trace(tmp_path / "t", strict=True)) == 399
    (tmp_path / "t").write_text(SWF + "1 2 3\n" + ROW.format(n=5) + "\n")
    with pytest.raises(
        TraceError, match=r"dropped 1: 3 fields .*\(first: line 401\); corrected 1: duplicate job number"
    ):
        read_trace(tmp_path / "t", strict=True)


def test_invalid_utf8_is_noted(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes("job_id,submit_s,runtime_s,nodes,user\n1,0,5,1,José\n".encode("latin-1"))
    jobs, report = read_trace_with_report(tmp_path / "t")
    assert jobs.labels["user"] == ("Jos\ufffd",)
    assert any("not UTF-8" in e.reason for e in report.entries)


def test_wrong_forced_format(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(SWF)
    for name in ("parquet", "csv", "sacct"):
        with pytest.raises(TraceError, match="cannot read"):
            read_trace(tmp_path / "t", format=name)


def test_formats_are_detected_from_the_first_lines() -> None:
    assert detect_format(ROW.format(n=1).encode()).format == "swf"
    assert detect_format(b"JobID|State|Submit\n1|COMPLETED|2020-01-01T00:00:00\n").format == "sacct"
    assert detect_format(b"-dt 1 -e submit_batch_job | -N 1\n").format == "events"
    assert detect_format(b"job_id,submit_s,nodes\n").format == "csv"
    # As many columns as Google's events of 2011, whole numbers, and a request below 9 s, but with a header.
    header = b"job_id,submit_s,runtime_s,estimate_s,nodes,wait_s,after_id,think_s\n"
    assert detect_format(header + b"1,0,7,5,1,0,-1,0\n2,3,7,5,1,0,-1,0\n").format == "csv"
    assert detect_format(b"PAR1....").format == "parquet"
