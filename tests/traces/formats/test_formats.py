"""Trace formats: detection by content, forced formats, documentation, speed."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path
from typing import get_args

import pytest

from kilowait.errors import KilowaitError, TraceError
from kilowait.experiments import settings
from kilowait.jobs import JobTable
from kilowait.traces import FORMATS, read_trace, write_trace
from kilowait.traces.detect import detect_format
from tests.traces.formats import sample_files

from .conftest import Read


@pytest.mark.parametrize("name", sample_files.SAMPLES)
def test_formats_are_detected_by_content(name: str) -> None:
    assert detect_format(sample_files.SAMPLES[name].encode()).format == sample_files.FORMAT_OF[name]
    assert (
        detect_format(sample_files.SAMPLES[name].replace("\n", "\r\n").encode()).format == sample_files.FORMAT_OF[name]
    )


@pytest.mark.parametrize("name", sample_files.SAMPLES)
def test_forced_formats_compression_and_line_ends(read: Read, tmp_path: Path, name: str) -> None:
    text = sample_files.SAMPLES[name]
    jobs, _ = read(text)
    forced, _ = read(text, format=sample_files.FORMAT_OF[name])
    (tmp_path / "packed.gz").write_bytes(gzip.compress(text.replace("\n", "\r\n").encode()))
    compressed = read_trace(tmp_path / "packed.gz")
    if name not in ("google2019",):  # Lines of JSON end as on Unix or Windows.
        assert read(text.replace("\n", "\r"))[0]["runtime_s"].tolist() == jobs["runtime_s"].tolist()
    for column in jobs.columns:
        assert jobs[column].tolist() == pytest.approx(forced[column].tolist(), nan_ok=True)
        assert jobs[column].tolist() == pytest.approx(compressed[column].tolist(), nan_ok=True)


@pytest.mark.parametrize("format", [name for name, each in FORMATS.items() if each.in_folders])
def test_wrong_forced_format(read: Read, format: str) -> None:
    with pytest.raises(TraceError, match="cannot read|no job in"):
        read("job_id,submit_s,runtime_s,nodes\n1,0,5,1\n", format=format)


@pytest.mark.parametrize("name", sample_files.SAMPLES)
def test_write_and_read_round_trip(read: Read, tmp_path: Path, name: str) -> None:
    jobs, _ = read(sample_files.SAMPLES[name])
    for suffix in ("csv", "parquet"):
        write_trace(jobs, tmp_path / f"again.{suffix}")
        read_back = read_trace(tmp_path / f"again.{suffix}")
        assert set(read_back.columns) == set(jobs.columns)
        for column in jobs.columns:
            if column in jobs.labels:
                assert names(read_back, column) == names(jobs, column)
            else:
                assert read_back[column].tolist() == pytest.approx(jobs[column].tolist(), nan_ok=True)


def names(jobs: JobTable, column: str) -> list[str]:
    return [jobs.labels[column][code] if code >= 0 else "" for code in jobs[column]]


def test_every_format_is_documented(project: Path) -> None:
    manual = (project / "docs" / "formats.md").read_text()
    format_help = get_args(settings.Format)[1].help
    for name in FORMATS:
        assert f"| `{name}` |" in manual
        assert re.search(rf"\b{name}\b", format_help)


def test_node_list_is_not_a_log(read: Read) -> None:
    with pytest.raises(TraceError, match="list of nodes, not of jobs; read it with kilowait.traces.read_nodes"):
        read("sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\n")


def test_folders_with_no_or_several_traces(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is a directory with no files of a multi-file trace"):
        read_trace(tmp_path)
    (tmp_path / "a").write_text(sample_files.GOOGLE_JOBS)
    (tmp_path / "b").write_text(sample_files.HELIOS)
    with pytest.raises(TraceError, match="logs in google2011, helios; name one"):
        read_trace(tmp_path)
    assert len(read_trace(tmp_path, format="helios")) == 4
    (tmp_path / "c").write_text(sample_files.HELIOS)
    with pytest.raises(TraceError, match="a cluster log is one file, and there are 2"):
        read_trace(tmp_path, format="helios")
    with pytest.raises(TraceError, match="a log in format swf is one file"):
        read_trace(tmp_path, format="swf")
    with pytest.raises(TraceError, match="column map is for one file"):
        read_trace(tmp_path, columns={"submit_s": "x"})


def test_broken_rows_are_counted(read: Read) -> None:
    text = sample_files.SIA + "2017-10-09 06:13:03,1\n" + '"2017-10-09 06:13:04","5","2","10","a,b"\n' + "# note\n\n"
    jobs, ledger = read(text)
    assert len(jobs) == 3
    assert ledger.dropped == 1
    assert "a,b" in jobs.labels["queue"]
    assert jobs["gpus"].tolist() == [8, 2, 1]


def test_a_hundred_thousand_rows_take_less_than_two_seconds(read: Read) -> None:
    head, first, *_ = sample_files.HELIOS.splitlines()
    text = "\n".join([head, *(first.replace("1425511", str(n)) for n in range(1, 100_001))])
    start_s = time.process_time()  # CPU time, because the machine may be shared.
    jobs, _ = read(text)
    assert len(jobs) == 100_000
    assert time.process_time() - start_s < 2


def test_missing_columns_are_named(read: Read) -> None:
    for name, text in sample_files.SAMPLES.items():
        if "," not in text.splitlines()[0] or name in (
            "pai",
            "google2011_tasks",
            "google2011_jobs",
            "philly",
            "google2019",
            "kueue",
        ):
            continue
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        first_columns = "\n".join(line.partition(",")[0] for line in lines)
        with pytest.raises(KilowaitError, match="lacks|cannot"):
            read(first_columns, format=sample_files.FORMAT_OF[name])
