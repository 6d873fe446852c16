"""Changes of a log that keep its jobs, and random tables, for `benchmarks.fuzz_readers`: no silent changes."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kilowait.errors import TraceError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS
from kilowait.traces import CleaningReport, read_trace_with_report, write_trace

__all__ = ["COMPRESSIONS", "check_same", "check_written", "compressed", "random_table", "variant"]

_BLOCK = 300 << 10
"""Characters of a long block of comments: more than a reader that looks only at the head of a file would see."""
_FRACTIONS = ("expected_inverse_runtime", "beta", "cpu_utilization", "gpu_utilization")
_NAMES = (
    "alice|bob|=1+1|+1|-1|@x|'=1|''|'a| a |a,b|a;b|a\"b|\"|#x|007|3.0|é|٣|1e5|nan|inf|None|-|.|'|''=|a\nb|a\r\nb|"
    "\t|\r|\n|1,2,3\n4,5,6,7,8|job_id|=|\u2028|x\u00a0|\ufeff|0x1|1_000|2019-01-01"
).split("|")
_SWF_COLUMNS = frozenset("job_id submit_s wait_s runtime_s nodes estimate_s status user account name after_id".split())


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "bzip2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": _zstd,
}


def compressed(data: bytes, rng: np.random.Generator, *, truncated: bool = False) -> bytes:
    """The data compressed once or twice, possibly cut short."""
    for _ in range(1 + int(rng.integers(8) == 0)):
        data = list(COMPRESSIONS.values())[int(rng.integers(len(COMPRESSIONS)))](data)
    return data[: int(rng.integers(1, len(data)))] if truncated else data


def variant(name: str, data: bytes, rng: np.random.Generator) -> bytes:
    """A file with the same jobs: other comments, line ends, spelling of the header, encoding or compression."""
    if not name.endswith("parquet"):
        text = data.decode("utf-8", "replace")
        if name.startswith(("own", "nrel", "djc")) and rng.integers(2):
            text = _other_header(text, rng)
        if name not in ("philly", "google2019", "kueue", "sacct_xdmod"):  # These have no comments.
            text = _comments(";" if name.startswith("swf") else "#", rng) + text
        if rng.integers(4) == 0:
            text = text.rstrip("\n")
        if rng.integers(4) == 0 and name != "own_names":  # There the names contain line ends.
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        marks: tuple[Callable[[str], bytes], ...] = (
            str.encode, str.encode, lambda text: b"\xef\xbb\xbf" + text.encode(), lambda text: text.encode("utf-16"),
        )  # fmt: skip
        data = marks[int(rng.integers(len(marks)))](text)
    return compressed(data, rng) if rng.integers(2) else data


def _comments(mark: str, rng: np.random.Generator) -> str:
    words = ("", " a note", " 1,2,3", " user, nodes, queue", f" {'x' * 90}", ' "quoted', "# - - -", " MaxNodes: many")
    lines = [mark + words[int(rng.integers(len(words)))] for _ in range(int(rng.integers(4)))]
    if rng.integers(12) == 0:
        lines += [mark + "x" * 99] * (_BLOCK // 100)
    return "".join(line + "\n" for line in lines)


def _other_header(text: str, rng: np.random.Generator) -> str:
    header, _, rows = text.partition("\n")
    mark = ";" if header.count(";") > header.count(",") else ","
    names = [name.strip('"') for name in header.split(mark)]
    match int(rng.integers(5)):
        case 0:
            header = mark.join(f'"{name}"' for name in names)
        case 1:
            header = f"# {header}"
        case 2:
            header = mark.join(f" {name} " for name in names)
        case 3:
            header = f"Jobs of a month\n\n{header}"
        case _:
            rows = rows + header + "\n"
    return f"{header}\n{rows}"


def random_table(rng: np.random.Generator) -> JobTable:
    """A table of random optional columns with small numbers, times and fractions, and names that are hard to write."""
    size = int(rng.integers(1, 40))
    columns: dict[str, Any] = {
        "job_id": np.sort(rng.choice(1000, size, replace=False)),
        "submit_s": np.sort(_times(rng, size)),
        "runtime_s": _times(rng, size),
        "nodes": rng.integers(1, 9, size),
    }
    if rng.integers(2):
        columns["estimate_s"] = _times(rng, size)
    optional = [name for name in COLUMNS if name not in (*columns, "estimate_s", "after_id", "think_s")]
    labels: dict[str, tuple[str, ...]] = {}
    for name in rng.choice(optional, int(rng.integers(0, 10)), replace=False).tolist():
        if name in LABEL_COLUMNS:
            columns[name] = rng.integers(-1, 4, size)
            if rng.integers(4):
                labels[name] = tuple(rng.choice(_NAMES, 4, replace=False).tolist())
        elif name == "status":
            columns[name] = rng.choice([-1, 0, 1, 5], size)
        elif name == "gpu_milli":
            columns[name], columns["gpus"] = rng.integers(1, 1001, size), np.ones(size, np.int64)
        elif COLUMNS[name].dtype is not np.float64:
            columns.setdefault(name, rng.integers(0, 2, size))
        elif name in _FRACTIONS:
            columns[name] = rng.choice([0, 0.25, 1, np.nan, rng.random()], size)
        else:
            unknown = {
                "cancel_s": np.inf,
                "begin_s": -np.inf,
                "hold_until_s": -np.inf,
                "priority": 0.0,
                "memory_mb": 0.0,
            }
            columns[name] = np.where(rng.random(size) < 0.3, unknown.get(name, np.nan), _times(rng, size))
            if name == "checkpoint_s":
                columns[name][0] = np.inf
    return JobTable(labels=labels, **columns)


def _times(rng: np.random.Generator, size: int) -> Any:
    whole = rng.integers(0, int(rng.choice([9, 100_000, 10**9])), size).astype(np.float64)
    return whole if rng.integers(2) else whole + rng.random(size)


def check_written(jobs: JobTable, folder: Path) -> int:
    """Write the table in every format and read it; AssertionError if it changes. Returns the number of files read."""
    files = 0
    for suffix in ("csv", "csv.gz", "parquet", "swf"):
        path = folder / f"written.{suffix}"
        try:
            write_trace(jobs, path)
        except TraceError as refused:
            assert "negative times" in str(refused) or "NUL" in str(refused), refused
            continue
        read_back, report = read_trace_with_report(path, never_ran="keep")
        assert report.format == suffix.removesuffix(".gz"), f"written as {suffix}, {report.format_reason}"
        check_same(read_back, jobs, report, suffix)
        files += 1
    return files


def check_same(read_back: JobTable, jobs: JobTable, report: CleaningReport, what: str) -> None:
    """Raise an AssertionError unless the tables are equal, as far as the format can hold them."""
    reported = any(text in str(entry) for entry in report.entries for text in ("exit codes", "log has none"))
    if what == "swf" and (report.corrected or report.dropped or reported):
        return  # SWF holds no limit of 0 s and only its own status codes: reported, not silent.
    assert report.dropped == report.corrected == 0, f"{what}: {report.lines()}"
    assert len(read_back) == len(jobs), f"{what}: {len(jobs)} jobs became {len(read_back)}"
    order = np.lexsort((jobs["job_id"], jobs["submit_s"]))
    never_ran = np.isfinite(jobs.column("cancel_s")) & (jobs["runtime_s"] == 0)
    for name in jobs.columns:
        if what == "swf" and (
            name not in _SWF_COLUMNS or name in jobs.labels or (never_ran.any() and name in ("wait_s", "status"))
        ):
            continue
        if name in LABEL_COLUMNS:
            found, expected = _named(read_back, name), _named(jobs, name)
            expected = [expected[row] for row in order.tolist()]
            assert found == expected, f"{what}: {name} was {expected}, is {found}"
        else:
            values = jobs[name][order]
            same = np.array_equal(read_back.column(name), values, equal_nan=values.dtype.kind == "f")
            assert same, f"{what}: {name} was {values.tolist()}, is {read_back.column(name).tolist()}"


def _named(jobs: JobTable, name: str) -> list[str]:
    labels = jobs.labels.get(name)
    codes = jobs.column(name).tolist()
    return ["" if code < 0 else labels[code] if labels else str(code) for code in codes]
