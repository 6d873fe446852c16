"""ExecutionLog and the per-job record derived from it."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from kilowait.errors import MissingExtraError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import Allocations, Outcome


def log(**changes):
    """Four jobs, unsorted: one ran twice (10–20 and 40–55), one once, one was cancelled, one was rejected."""
    jobs = JobTable(job_id=[40, 10, 20, 30], submit_s=[8, 0, 5, 6], runtime_s=[25, 5, 1, 1], nodes=[2, 4, 1, 999])
    parts = {
        "jobs_table": jobs,
        "job": np.array([1, 0, 0]),
        "start_s": np.array([0.0, 10.0, 40.0]),
        "end_s": np.array([5.0, 20.0, 55.0]),
        "group": np.array([0, 0, 1], np.int16),
        "level": np.zeros(3, np.int16),
        "outcome": np.full(3, Outcome.COMPLETED, np.int8),
        "eligible_s": np.array([8.0, 0.0, 5.0, np.nan]),
        "job_outcome": np.array([1, 1, Outcome.CANCELLED, Outcome.REJECTED], np.int8),
        "capacity_s": np.array([0.0]),
        "capacity": np.array([8]),
        "groups": ("a", "b"),
        "run": {"policy": "fcfs", "backfill": "easy"},
    }
    return ExecutionLog(**{**parts, **changes})


def test_job_records_keep_the_table_order():
    records = log().jobs()
    assert len(records) == 4
    assert records["job_id"].tolist() == [40, 10, 20, 30]
    np.testing.assert_equal(records["start_s"], [10, 0, np.nan, np.nan])
    np.testing.assert_equal(records["end_s"], [55, 5, np.nan, np.nan])
    np.testing.assert_equal(records["wait_s"], [2, 0, np.nan, np.nan])
    np.testing.assert_equal(records["turnaround_s"], [47, 5, np.nan, np.nan])
    assert records["group"].tolist() == [1, 0, -1, -1]
    assert records["outcome"].tolist() == [1, 1, 3, 4]
    assert records["nodes"].tolist() == [2, 4, 1, 999]


def test_wait_counts_from_eligible_time():
    late = log(eligible_s=np.array([10.0, 0.0, 5.0, np.nan])).jobs()
    assert late["wait_s"][0] == 0
    assert late["submit_s"][0] == 8


def test_job_records_are_cached():
    entries = log()
    assert entries.jobs() is entries.jobs()


def test_log_without_segments():
    none = {name: log().__dict__[name][:0] for name in ("job", "start_s", "end_s", "group", "level", "outcome")}
    empty = log(**none)
    assert len(empty) == 0
    assert np.isnan(empty.jobs()["start_s"]).all()
    assert empty.to_arrow().num_rows == 0


def test_no_jobs():
    nothing = log(
        jobs_table=log().jobs_table[:0],
        eligible_s=np.empty(0),
        job_outcome=np.empty(0, np.int8),
        **{name: log().__dict__[name][:0] for name in ("job", "start_s", "end_s", "group", "level", "outcome")},
    )
    assert len(nothing.jobs()) == 0


def test_unknown_record_column_is_an_error():
    with pytest.raises(UnknownNameError, match="unknown job record column 'wait'; did you mean 'wait_s'"):
        log().jobs()["wait"]


def test_a_column_name_is_in_the_records():
    records = log().jobs()
    assert all(name in records for name in records.columns)
    assert "wait" not in records
    assert 10 not in records  # a job_id; the columns are like those of a JobTable
    assert ("job_id" in records) == ("job_id" in records.to_pandas())


def test_records_have_no_rows_by_number():
    with pytest.raises(TypeError, match=r"records\[0\] is no column; write records\['wait_s'\]\[0\]"):
        log().jobs()[0]


def test_repr_shows_policy_and_settings():
    assert repr(log()) == "ExecutionLog(3 segments of 4 jobs; policy=fcfs, backfill=easy)"


def test_logs_are_immutable():
    with pytest.raises(AttributeError):
        log().job = np.array([0])


def test_segments_are_written_with_job_ids(tmp_path):
    log().to_parquet(tmp_path / "log.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    assert table["job_id"].to_pylist() == [10, 40, 40]
    assert table.column_names == ["job_id", "start_s", "end_s", "group", "level", "outcome"]


def test_job_records_convert_to_frames_and_files(tmp_path):
    records = log().jobs()
    frame = records.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert tuple(frame.columns) == records.columns
    np.testing.assert_equal(frame["wait_s"].to_numpy(), records["wait_s"])
    other = records.to_polars()
    assert isinstance(other, pl.DataFrame)
    np.testing.assert_equal(other["wait_s"].to_numpy(), records["wait_s"])
    records.to_parquet(tmp_path / "jobs.parquet")
    stored = pq.read_table(tmp_path / "jobs.parquet")
    for name in records.columns:
        assert stored[name].to_numpy().tobytes() == records[name].tobytes()


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_missing_library_error_names_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"\[{package}\]"):
        getattr(log().jobs(), f"to_{package}")()


def test_gpu_job_waits_between_its_segments():
    places = Allocations(
        segment=np.arange(3),
        node=np.zeros(3, np.int64),
        gpus=np.ones(3, np.int64),
        gpu_milli=np.full(3, 1000),
        count=np.ones(3, np.int64),
        work_s=np.array([5.0, 10.0, 15.0]),
        lost_s=np.zeros(3),
        node_group=np.zeros(1, np.int64),
    )
    records = log(pieces=places, eligible_s=np.array([8.0, 0.0, 5.0, np.nan])).jobs()
    np.testing.assert_equal(records["run_s"], [10 + 15, 5, np.nan, np.nan])
    np.testing.assert_equal(records["wait_s"], [2 + 20, 0, np.nan, np.nan])
    np.testing.assert_equal(records["turnaround_s"], [47, 5, np.nan, np.nan])


def test_outcomes_are_fixed_numbers():
    """Files store these numbers."""
    assert {item.name: int(item) for item in Outcome} == {
        "UNSTARTED": 0,
        "COMPLETED": 1,
        "KILLED": 2,
        "CANCELLED": 3,
        "REJECTED": 4,
        "PREEMPTED": 5,
        "MIGRATED": 6,
    }
