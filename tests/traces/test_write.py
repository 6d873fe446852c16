from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.cluster import Cluster, NodeGroup
from kilowait.errors import TraceError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABEL_COLUMNS
from kilowait.traces import read_trace, read_trace_with_report, write_parts, write_trace

SECONDS = st.one_of(st.integers(0, 10**9).map(float), st.floats(0, 1e9, allow_subnormal=False))
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Z")), min_size=1, max_size=8)


@st.composite
def tables(draw: st.DrawFn, *, labelled: bool) -> JobTable:
    """Random job tables with random optional columns."""
    n = draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    ids = draw(st.lists(st.integers(0, 2**50), min_size=n, max_size=n, unique=True))
    columns: dict[str, Any] = {
        "job_id": ids,
        "submit_s": column(SECONDS),
        "runtime_s": column(SECONDS),
        "estimate_s": column(st.integers(1, 10**9).map(float)),
        "nodes": column(st.integers(1, 10**6)),
    }
    labels: dict[str, tuple[str, ...]] = {}
    for name in ("user", "account", "queue", "name"):
        if draw(st.booleans()):
            columns[name] = column(st.integers(-1, 3))
            if labelled and draw(st.booleans()):
                labels[name] = tuple(draw(st.lists(NAMES, min_size=4, max_size=4, unique=True)))
    if draw(st.booleans()):
        columns["status"] = column(st.sampled_from([-1, 0, 1, 5]))
    if draw(st.booleans()):
        columns["wait_s"] = column(st.one_of(st.just(float("nan")), SECONDS))
    table = JobTable(labels=labels, **columns).sorted()
    if n > 1 and draw(st.booleans()):
        after = np.full(n, -1)
        after[-1] = table["job_id"][0]
        table = table.with_columns(after_id=after, think_s=np.where(after >= 0, 7.5, 0))
    return table


def named(jobs: JobTable, name: str) -> list[str]:
    codes = jobs.column(name).tolist()
    return ["" if c < 0 else jobs.labels[name][c] if name in jobs.labels else str(c) for c in codes]


def assert_same(read_back: JobTable, jobs: JobTable) -> None:
    for name in jobs.columns:
        if name in LABEL_COLUMNS:
            assert named(read_back, name) == named(jobs, name)
        else:
            assert np.array_equal(read_back.column(name), jobs[name], equal_nan=jobs[name].dtype.kind == "f"), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("written")


@given(jobs=tables(labelled=False), suffix=st.sampled_from(["", ".gz", ".zst"]))
def test_swf_round_trip(folder: Path, jobs: JobTable, suffix: str) -> None:
    path = folder / f"t.swf{suffix}"
    write_trace(jobs, path)
    read_back, report = read_trace_with_report(path)
    assert_same(read_back, jobs)
    assert report.dropped == report.corrected == 0
    assert read_back.meta["max_procs"] == jobs["nodes"].max()


@given(jobs=tables(labelled=True), suffix=st.sampled_from(["", ".gz", ".zst"]))
def test_csv_round_trip(folder: Path, jobs: JobTable, suffix: str) -> None:
    path = folder / f"t.csv{suffix}"
    write_trace(jobs, path)
    read_back, report = read_trace_with_report(path, strict=True)
    assert_same(read_back, jobs)
    assert report.rows_read == len(jobs)


@given(jobs=tables(labelled=True))
def test_parquet_round_trip(folder: Path, jobs: JobTable) -> None:
    write_trace(jobs, folder / "t.parquet")
    read_back = read_trace(folder / "t.parquet")
    assert read_back.columns == jobs.columns
    assert all(read_back[name].tobytes() == jobs[name].tobytes() for name in jobs.columns)
    assert read_back.labels == jobs.labels


JOBS = JobTable(
    job_id=[3, 5, 9], submit_s=[0, 10, 20.5], runtime_s=[60, 0, 60], estimate_s=[100, 50, 60], nodes=[4, 2, 1],
    memory_mb=[4.0, 2.0, 0.1], queue=[0, 1, -1], cancel_s=[np.inf, 40, np.inf], gpus=[1, 0, 0],
    labels={"queue": ("fast lane", "slow")},
    meta={"unix_start_s": 77, "time_zone": "UTC", "header": {"Computer": "Toy", "Acknowledge": "Ann\nBob"}},
)  # fmt: skip


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_planned_times_and_limits_are_kept(tmp_path: Path, name: str) -> None:
    planned = {"planned_s": [7.5, np.nan, 1], "limit_s": [np.nan, 600, 0], "overrun_planned_s": [90, np.nan, np.nan]}
    jobs = JOBS.with_columns(**planned, cancel_s=None)
    write_trace(jobs, tmp_path / name)
    read_back, report = read_trace_with_report(tmp_path / name)
    for column, values in planned.items():
        np.testing.assert_array_equal(read_back[column], values)
    assert report.dropped == report.corrected == 0


def test_batsim_walltime_is_the_limit(tmp_path: Path) -> None:
    write_trace(JOBS.with_columns(limit_s=[70, np.nan, 90]), tmp_path / "t.json")
    workload = json.loads((tmp_path / "t.json").read_text())
    assert [job["walltime"] for job in workload["jobs"]] == [70, 50, 90]


def test_swf_keeps_header_queues_memory_and_withdrawn_jobs(tmp_path: Path) -> None:
    write_trace(JOBS, tmp_path / "t.swf", cluster=Cluster.from_nodes(64))
    read_back = read_trace(tmp_path / "t.swf", never_ran="keep")
    assert read_back.meta["max_procs"] == 64
    assert read_back.meta["unix_start_s"] == 77
    assert read_back.meta["header"]["Acknowledge"] == "Ann\nBob"
    assert named(read_back, "queue") == ["fast lane", "slow", ""]
    assert read_back["memory_mb"] == pytest.approx(JOBS["memory_mb"])
    assert read_back["cancel_s"].tolist() == [np.inf, 40, np.inf]
    assert "left out, because SWF has no field for it: gpus" in (tmp_path / "t.swf").read_text()
    assert len(read_trace(tmp_path / "t.swf")) == 2


@pytest.mark.parametrize("name", ["t.swf", "t.json"])
def test_negative_times_are_refused_by_formats_without_them(tmp_path: Path, name: str) -> None:
    negative = JobTable(job_id=[1], submit_s=[-5], runtime_s=[1], nodes=[1])
    with pytest.raises(
        TraceError, match="does not allow negative times, but the first job is submitted at -5 s; shift"
    ):
        write_trace(negative, tmp_path / name)
    write_trace(negative, tmp_path / "t.csv")
    assert read_trace(tmp_path / "t.csv")["submit_s"].tolist() == [-5]


def test_batsim_workload(tmp_path: Path) -> None:
    write_trace(JOBS, tmp_path / "t.json", cluster=Cluster.from_nodes(8))
    workload = json.loads((tmp_path / "t.json").read_text())
    assert workload["nb_res"] == 8
    assert workload["jobs"][0] == {"id": "3", "subtime": 0.0, "walltime": 100.0, "res": 4, "profile": "delay_60"}
    assert workload["profiles"] == {
        "delay_0.001": {"type": "delay", "delay": 0.001},
        "delay_60": {"type": "delay", "delay": 60.0},
    }
    assert all(job["profile"] in workload["profiles"] for job in workload["jobs"])


def test_batsim_platform(tmp_path: Path) -> None:
    cluster = Cluster(groups=(NodeGroup("a&b", 3), NodeGroup("gpu", 2)))
    write_trace(JOBS, tmp_path / "p.xml", cluster=cluster)
    root = ElementTree.parse(tmp_path / "p.xml").getroot()
    assert root.attrib["version"] == "4.1"
    hosts = [host.attrib["id"] for host in root.iter("host")]
    assert hosts == ["master_host", "a&b_0", "a&b_1", "a&b_2", "gpu_0", "gpu_1"]
    write_trace(JOBS, tmp_path / "q.xml")
    assert len(list(ElementTree.parse(tmp_path / "q.xml").getroot().iter("host"))) == 5


def test_unknown_suffix_and_format(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown suffix to write jobs to '\.swff'; did you mean '\.swf'"):
        write_trace(JOBS, tmp_path / "t.swff")
    with pytest.raises(UnknownNameError, match="did you mean 'batsim'"):
        write_trace(JOBS, tmp_path / "t", format="batsin")
    with pytest.raises(TraceError, match="Parquet is already compressed"):
        write_trace(JOBS, tmp_path / "t.parquet.gz")
    write_trace(JOBS, tmp_path / "t.dat", format="swf")
    assert len(read_trace(tmp_path / "t.dat")) == 2


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "t.swf").mkdir()
    with pytest.raises(TraceError, match="cannot write"):
        write_trace(JOBS, tmp_path / "t.swf")
    assert [path.name for path in tmp_path.iterdir()] == ["t.swf"]


def test_missing_folders_are_created(tmp_path: Path) -> None:
    write_trace(JOBS, tmp_path / "a" / "b" / "t.swf")
    assert len(read_trace(tmp_path / "a" / "b" / "t.swf")) == 2


def test_damaged_parquet_is_detected(tmp_path: Path) -> None:
    n = 2000
    jobs = JobTable(job_id=np.arange(n), submit_s=np.arange(n) * 1.5, runtime_s=np.full(n, 9.25), nodes=np.ones(n, int))
    write_trace(jobs, tmp_path / "t.parquet")
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    for position in range(200, 260):
        data[position] ^= 0x55
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(TraceError, match="damaged or cut short"):
        read_trace(tmp_path / "t.parquet")


class TestParts:
    def example_jobs(self) -> JobTable:
        return JobTable(
            job_id=np.arange(50),
            submit_s=np.arange(50.0),
            runtime_s=np.full(50, 9.0),
            nodes=np.arange(1, 51),
            queue=np.arange(50) % 3 - 1,
            labels={"queue": ("a", "b")},
            meta={"max_procs": 64},
        )

    def test_parts_are_read_as_one_log(self, tmp_path):
        jobs = self.example_jobs()
        write_parts([jobs[:7], jobs[7:30], jobs[30:]], tmp_path / "log.parquet")
        read_back = read_trace(tmp_path / "log.parquet")
        assert (
            read_back.columns == jobs.columns and read_back.labels == jobs.labels and read_back.meta["max_procs"] == 64
        )
        for name in jobs.columns:
            np.testing.assert_array_equal(read_back[name], jobs[name])

    def test_interrupted_write_leaves_no_file(self, tmp_path):
        def interrupted():
            yield self.example_jobs()[:7]
            raise RuntimeError("stop")

        with pytest.raises(RuntimeError, match="stop"):
            write_parts(interrupted(), tmp_path / "log.parquet")
        assert not list(tmp_path.iterdir())

    def test_unwritable_folder(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(TraceError, match="cannot write .*log.parquet"):
            write_parts([self.example_jobs()], tmp_path / "file" / "log.parquet")
