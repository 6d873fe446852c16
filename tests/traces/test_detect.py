"""The order in which formats are detected, and what decides."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
from pathlib import Path

import numpy as np
import pytest

from kilowait.errors import TraceError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS
from kilowait.traces import read_trace, read_trace_with_report, write_trace
from kilowait.traces.detect import detect_format, file_head
from tests.traces.formats import sample_files

REQUIRED = ("job_id", "submit_s", "runtime_s", "estimate_s", "nodes")
OTHERS = [name for name in COLUMNS if name not in (*REQUIRED, "think_s", "after_id", "cancel_s", "gpu_milli")]


@pytest.mark.parametrize("width", [8, 13])
def test_own_tables_of_small_numbers_are_not_events_of_google(tmp_path: Path, width: int) -> None:
    rng = np.random.default_rng(width)
    for extra in itertools.islice(itertools.combinations(OTHERS, width - 5), 0, None, 97 if width == 8 else 40_000):
        columns = {name: rng.integers(0, 2, 30) for name in extra}
        jobs = JobTable(
            job_id=np.arange(30), submit_s=np.arange(30), runtime_s=np.full(30, 3), nodes=np.ones(30, int), **columns
        )
        write_trace(jobs, tmp_path / "t.csv")
        read_back, report = read_trace_with_report(tmp_path / "t.csv")
        assert report.format == "csv"
        assert report.format_reason.startswith("its header has kilowait's columns job_id, submit_s, runtime_s")
        for name in jobs.columns:
            assert np.array_equal(read_back.column(name), jobs[name]), (name, extra)


@pytest.mark.parametrize(
    "header",
    [
        "job_id;submit_s;runtime_s;estimate_s;nodes;user;queue;status",
        "# job_id,submit_s,runtime_s,estimate_s,nodes,user,queue,status",
        '"job_id","submit_s","runtime_s","estimate_s","nodes","user","queue","status"',
        "Jobs of the year\n\njob_id,submit_s,runtime_s,estimate_s,nodes,user,queue,status",
        "id,submitted,duration,walltime,nnodes,user,queue,state",
    ],
)
def test_header_decides_before_the_rows(header: str) -> None:
    mark = ";" if ";" in header else ","
    rows = "\n".join(mark.join(map(str, (n, n, 7, 5, 1, 0, 3, 0))) for n in range(1, 40))
    assert detect_format(f"{header}\n{rows}\n".encode()).format == "csv"


def test_own_names_decide_before_the_header_of_another_trace() -> None:
    header = "job_id,submit_s,name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
    assert detect_format(header.encode() + b"1,0,a,1,1,1,1\n").format == "csv"
    assert detect_format(b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1\n").format == "openb"


@pytest.mark.parametrize(
    "row", ["{n},0,7,5,1,0,1,0", "{n},0,7,5,1,0,1,0,3,0,0,0,0", "{n},,7,5,u=,9,name=,logical=", "{n},,7,0,u=,0,5,6"]
)
def test_numbers_without_header_are_not_events_of_google(row: str) -> None:
    data = "".join(row.format(n=n) + "\n" for n in range(50)).encode()
    assert detect_format(data).format == "csv"


def test_events_must_be_many_and_in_order_of_time() -> None:
    rows = [f"{n},,7,0,u=,0,name=,logical=\n" for n in range(20)]
    assert detect_format("".join(rows).encode()).reason == (
        "20 of the first 20 rows are job events in 8 columns, in order of time"
    )
    assert detect_format("".join(rows[::-1]).encode()).format == "csv"
    assert detect_format("".join(rows[:2]).encode()).format == "csv"


def test_several_formats_are_an_error_that_names_them() -> None:
    names = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,time,type,collection_id"
    with pytest.raises(
        TraceError, match=r"may be in 2 formats \(openb: .*; google2019: .*\); name the right one with format='openb'"
    ):
        detect_format(f"{names}\na,1,1,1,1,0,0,0\n".encode())


LONG_COMMENT = "# " + "x" * 1000 + "\n"


@pytest.mark.parametrize(
    "name", [name for name in sample_files.SAMPLES if name not in ("philly", "google2019", "kueue")]
)
def test_logs_behind_many_comments(tmp_path: Path, name: str) -> None:
    text = sample_files.SAMPLES[name]
    (tmp_path / "plain").write_text(text)
    (tmp_path / "commented").write_text(LONG_COMMENT * 300 + text)
    jobs, commented = read_trace(tmp_path / "plain"), read_trace(tmp_path / "commented")
    assert commented["runtime_s"].tolist() == jobs["runtime_s"].tolist()


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (";", "1 0 5 60 4 -1 -1 4 600 -1 1 3 2 7 1 -1 -1 -1\n"),
        ("#", "job_id,submit_s,runtime_s,nodes\n1,0,60,4\n"),
        ("#", "# job_id,submit_s,runtime_s,nodes\n1,0,60,4\n"),
        ("#", "JobID|Submit|State|ElapsedRaw|NNodes\n1|2020-01-01T00:00:00|COMPLETED|60|4\n"),
        ("#", "-dt 0 -e submit_batch_job | -sim-walltime 60 -J jobid_1 -N 4 -t 10\n"),
    ],
)
def test_own_formats_behind_many_comments(tmp_path: Path, mark: str, text: str) -> None:
    (tmp_path / "log").write_text(f"{mark} {'x' * 100}\n" * 5000 + text)
    jobs = read_trace(tmp_path / "log")
    assert (jobs["runtime_s"].tolist(), jobs["nodes"].tolist()) == ([60], [4])
    columns = {"submit_s": "submit_s"} if "job_id," in text else None
    if columns:
        assert read_trace(tmp_path / "log", columns=columns)["nodes"].tolist() == [4]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_folders_with_many_comments_and_any_compression(tmp_path: Path, compress: object) -> None:
    for part in range(2):
        data = (LONG_COMMENT * 300 + sample_files.GOOGLE_TASKS).encode()
        (tmp_path / f"part{part}").write_bytes(compress(data))  # type: ignore[operator]
    assert read_trace(tmp_path).meta["format"] == "google2011"


def test_head_keeps_the_comments_at_the_top_and_before_the_rows() -> None:
    head = file_head(("; Version: 2\n" + "; x\n" * 10_000 + "# job_id,submit_s\n1,2\n" * 1000).encode())
    assert head.comments[0] == "; Version: 2"
    assert head.comments[-1] == "# job_id,submit_s"
    assert len(head.comments) < 4000
    assert len(head.rows) == 200


@pytest.mark.parametrize("label", LABEL_COLUMNS)
def test_names_that_are_formulas_or_rows(tmp_path: Path, label: str) -> None:
    names = [
        "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''=1", "'", "''", "'a", " a ", "a\r\nb",
        "a\n2,9,9,9,9,9",        'a"b', 'a,"b', "#x", "007", "3.0", "é", "x;y", "\n", "a\rb", "\u2028x", "-",
    ]  # fmt: skip
    jobs = JobTable(
        job_id=np.arange(len(names)), submit_s=np.arange(len(names)), runtime_s=np.ones(len(names)),
        nodes=np.ones(len(names), int), wait_s=np.zeros(len(names)), labels={label: tuple(names)},
        **{label: np.arange(len(names))},
    )  # fmt: skip
    write_trace(jobs, tmp_path / "t.csv")
    cells = (tmp_path / "t.csv").read_bytes().decode()
    assert "'=1+1" in cells and ",=" not in cells and ",-" not in cells and ",@" not in cells and '"\t' not in cells
    read_back, report = read_trace_with_report(tmp_path / "t.csv", strict=True)
    assert [read_back.labels[label][code] for code in read_back[label]] == names
    assert report.rows_read == len(names)


def test_names_with_the_character_nul_are_refused(tmp_path: Path) -> None:
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1], user=[0], labels={"user": ("a\0b",)})
    with pytest.raises(TraceError, match="character NUL, which CSV files cannot hold; write Parquet"):
        write_trace(jobs, tmp_path / "t.csv")


def test_all_columns_survive_csv(tmp_path: Path) -> None:
    whole = {name: [1, 0] for name in COLUMNS if COLUMNS[name].dtype is not np.float64 and name not in REQUIRED}
    parts = {name: [0.25, 1.0] for name in COLUMNS if COLUMNS[name].dtype is np.float64 and name not in REQUIRED}
    columns = whole | parts | {"after_id": [-1, 1], "think_s": [0, 2.5], "checkpoint_s": [np.inf, 5]}
    columns |= {"gpus": [1, 1], "gpu_milli": [500, 1000], "cancel_s": [np.inf, 7], "begin_s": [-np.inf, 1.5]}
    jobs = JobTable(job_id=[1, 2], submit_s=[-1.5, 1], runtime_s=[3, 4], estimate_s=[0, 9], nodes=[1, 2], **columns)
    write_trace(jobs, tmp_path / "t.csv")
    read_back = read_trace(tmp_path / "t.csv", strict=True)
    for name in jobs.columns:
        assert np.array_equal(read_back.column(name), jobs[name]), name
