"""Per-job records as CSV, and run records read as a log."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup
from kilowait.evaluation.storage import load_run, save_run
from kilowait.evaluation.storage.record_csv import write_records_csv
from kilowait.jobs import JobTable
from kilowait.traces import read_trace_with_report

JOBS = JobTable(
    job_id=[7, 3, 5, 9],
    submit_s=[0.0, 10.0, 20.5, 30.0],
    runtime_s=[100.0, 50.25, 40.0, 400.0],
    estimate_s=[100.0, 60.0, 40.0, 200.0],
    nodes=[4, 2, 2, 2],
    cancel_s=[np.inf, np.inf, 25.0, np.inf],
    user=[0, 1, 0, -1],
    queue=[0, 0, 0, 0],
    labels={"user": ("=cmd", 'a "b", c'), "queue": ("batch",)},
)


@pytest.fixture
def log() -> kw.ExecutionLog:
    return kw.simulate(JOBS, Cluster((NodeGroup("fat", 4),)), "fcfs", "none", at_limit="kill")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_records_have_times_outcome_and_names(log: kw.ExecutionLog, tmp_path: Path) -> None:
    write_records_csv([({}, log)], tmp_path / "records.csv")
    found = rows(tmp_path / "records.csv")
    assert [row["job_id"] for row in found] == ["7", "3", "5", "9"]
    assert [row["start_s"] for row in found] == ["0", "100", "", "100"]
    assert [row["end_s"] for row in found] == ["100", "150.25", "", "300"]
    assert [row["outcome"] for row in found] == ["completed", "completed", "cancelled", "killed"]
    assert [row["group"] for row in found] == ["fat", "fat", "", "fat"]
    assert [row["user"] for row in found] == ["'=cmd", 'a "b", c', "'=cmd", ""]


def test_records_of_several_runs(log: kw.ExecutionLog, tmp_path: Path) -> None:
    write_records_csv([({"policy": "a"}, log), ({"policy": "b,c"}, log)], tmp_path / "records.csv")
    assert [row["policy"] for row in rows(tmp_path / "records.csv")] == ["a"] * 4 + ["b,c"] * 4


@pytest.mark.parametrize("name", ["records.csv", "records.parquet"])
def test_run_records_are_read_as_a_log(log: kw.ExecutionLog, tmp_path: Path, name: str) -> None:
    """Start, end and outcome are kept; the node group is no account."""
    save_run(tmp_path / "run", log, scenario={}, results={}, csv=True)
    jobs, report = read_trace_with_report(tmp_path / "run" / name)
    assert jobs["job_id"].tolist() == [7, 3, 9]
    assert (jobs["submit_s"] + jobs["wait_s"]).tolist() == [0, 100, 100]
    assert (jobs["submit_s"] + jobs["wait_s"] + jobs["runtime_s"]).tolist() == [100, 150.25, 300]
    assert jobs["status"].tolist() == [1, 1, 0]
    assert "account" not in jobs
    assert report.dropped == 1
    if name == "records.csv":
        assert jobs["estimate_s"].tolist() == [100, 60, 200]
        assert jobs.labels["user"] == ("=cmd", 'a "b", c')


def test_the_start_of_a_dependent_job_is_kept(tmp_path: Path) -> None:
    jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[50, 10], nodes=[1, 1], after_id=[-1, 1])
    log = kw.simulate(jobs, Cluster.from_nodes(4))
    assert log.jobs()["wait_s"].tolist() == [0, 0]
    write_records_csv([({}, log)], tmp_path / "records.csv")
    read, _ = read_trace_with_report(tmp_path / "records.csv")
    assert (read["submit_s"] + read["wait_s"]).tolist() == [0, 50]


def test_records_are_written_on_request_only(log: kw.ExecutionLog, tmp_path: Path) -> None:
    save_run(tmp_path / "plain", log, scenario={}, results={})
    assert not (tmp_path / "plain" / "records.csv").exists()
    save_run(tmp_path / "both", log, scenario={}, results={}, csv=True)
    assert "records.csv" in load_run(tmp_path / "both").manifest["files"]
