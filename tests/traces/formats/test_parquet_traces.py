"""Traces published as Parquet tables: PM100, F-DATA, oda.job, Workflow Trace Archive, OpenDC."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from kilowait.errors import TraceError
from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, read_trace, read_trace_with_report
from kilowait.traces.detect import detect_format

from . import sample_files
from .conftest import Read, entry_count


def read_parquet(folder: Path, table: pa.Table, **options: Any) -> tuple[JobTable, CleaningReport]:
    pq.write_table(table, folder / "t.parquet")
    jobs, report = read_trace_with_report(folder / "t.parquet", **options)
    assert report.rows_read == report.jobs + report.dropped + report.folded
    return jobs, report


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2020-05-06T{text}").replace(tzinfo=UTC)


def pm100(**columns: list[Any]) -> pa.Table:
    """Four jobs with the columns of PM100's documentation; `columns` replaces some."""
    times = {
        "submit_time": [at("10:00:00")] * 4,
        "eligible_time": [at("10:00:00"), at("10:05:00"), at("10:00:00"), at("10:00:00")],
        "start_time": [at("10:10:00")] * 4,
        "end_time": [at("10:11:00"), at("10:12:00"), at("10:11:00"), at("10:11:00")],
    }
    data: dict[str, Any] = {
        "job_id": [5, 6, 7, 8],
        "run_time": [60, 120, 60, 400],
        "time_limit": [30, 1440, 4294967294, 60],
        "num_nodes_req": [1, 2, 1, 1],
        "num_nodes_alloc": [1, 2, 1, 0],
        "num_cores_alloc": [128, 256, 4, 4],
        "num_gpus_alloc": [4, 8, 0, 0],
        "mem_alloc": [230, 460, 8, 8],
        "partition": ["1", "1", "2", "1"],
        "qos": ["1"] * 4,
        "user_id": [17, 17, 18, 18],
        "group_id": [3, 3, 3, 3],
        "job_state": ["COMPLETED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY"],
        "nodes": ["['12', '13']"[:6] + "]", "['12', '13']", "[7]", ""],
        "shared": ["0"] * 4,
        "priority": [1000] * 4,
        "node_power_consumption": [[1000.0, 1200.0, 1400.0], [2000.0] * 6, None, [900.0, -5.0, float("nan")]],
        "cpu_power_consumption": [[200.0]] * 4,
    }
    data |= columns
    arrays = {name: pa.array(values, pa.timestamp("us", tz="UTC")) for name, values in times.items()}
    return pa.table({**arrays, **{name: pa.array(values) for name, values in data.items()}})


def test_pm100(tmp_path: Path) -> None:
    jobs, report = read_parquet(tmp_path, pm100())
    assert jobs.meta["format"] == "pm100"
    assert report.format_reason.startswith("its header has job_id, eligible_time")
    assert jobs["job_id"].tolist() == [5, 7, 8, 6]
    submit = at("10:00:00").timestamp()
    assert jobs["submit_s"].tolist() == [submit, submit, submit, submit + 300]
    assert jobs["wait_s"].tolist() == [600, 600, 600, 300]
    assert jobs["runtime_s"].tolist() == [60, 60, 400, 120]
    assert jobs["estimate_s"].tolist() == [1800, 60, 3600, 86400]
    assert jobs["nodes"].tolist() == [1, 1, 1, 2]
    assert jobs["gpus"].tolist() == [4, 0, 0, 8]
    assert jobs["memory_mb"].tolist() == [230_000, 8_000, 8_000, 460_000]
    assert jobs["status"].tolist() == [1, 5, 0, 0]


def test_power_samples_of_pm100_are_power_and_energy(tmp_path: Path) -> None:
    jobs, report = read_parquet(tmp_path, pm100())
    assert np.array_equal(jobs["power_w"], [1200, np.nan, 900, 2000], equal_nan=True)
    assert np.array_equal(jobs["energy_j"], [72_000, np.nan, 360_000, 240_000], equal_nan=True)
    assert entry_count(report, "energy_j is power_w x run_time") == 3
    assert entry_count(report, "no known value in node_power_consumption") == 1
    assert entry_count(report, "samples in node_power_consumption that are negative or no number") == 2
    assert entry_count(report, "covers less than half of the run time") == 1
    assert entry_count(report, "columns left out: shared, priority, cpu_power_consumption") == 0


@pytest.mark.parametrize("kind", ["text", "list", "list of numbers"])
def test_nodes_of_pm100_are_node_lists(tmp_path: Path, kind: str) -> None:
    nodes: list[Any] = ["['12']", "['12', '13']", "[7]", ""]
    if kind != "text":
        nodes = [["12"], ["12", "13"], ["7"], []]
    if kind == "list of numbers":
        nodes = [[int(node) for node in each] for each in nodes]
    jobs, _ = read_parquet(tmp_path, pm100(nodes=nodes))
    by_id = dict(zip(jobs["job_id"].tolist(), jobs["node_list"].tolist(), strict=True))
    names = jobs.labels["node_list"]
    assert {job: names[code] if code >= 0 else "" for job, code in by_id.items()} == {
        5: "12",
        6: "12,13",
        7: "7",
        8: "",
    }


def test_the_first_version_of_pm100(tmp_path: Path) -> None:
    table = pm100()
    names = [
        {"node_power_consumption": "power_consumption", "num_cores_alloc": "num_cpus_alloc"}.get(n, n)
        for n in table.column_names
    ]
    jobs, _ = read_parquet(tmp_path, table.rename_columns(names))
    assert jobs.meta["format"] == "pm100"
    assert jobs["cores"].tolist() == [128, 4, 4, 256]
    assert "power_w" in jobs


def test_pm100_can_be_read_as_any_table(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="lacks nodes"):
        read_parquet(tmp_path, pm100().drop_columns(["num_nodes_alloc", "nodes", "num_nodes_req"]), format="parquet")


def fdata(**columns: list[Any]) -> pa.Table:
    table = pc.read_csv(io.BytesIO(sample_files.FDATA.encode()))
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values))
    return table


def test_fdata(tmp_path: Path) -> None:
    jobs, report = read_parquet(tmp_path, fdata().append_column("embedding", pa.array([[0.1] * 4] * 2)))
    assert jobs.meta["format"] == "fdata"
    assert jobs["job_id"].tolist() == [7, 8]
    assert jobs["runtime_s"].tolist() == [1800, 60]
    assert jobs["wait_s"].tolist() == [600, 180]
    assert jobs["estimate_s"].tolist() == [3600, 120]
    assert (jobs["nodes"].tolist(), jobs["cores"].tolist()) == ([2, 1], [96, 48])
    assert jobs["status"].tolist() == [1, 0]
    assert jobs["energy_j"].tolist() == pytest.approx([360_000, 5760])
    assert jobs["power_w"].tolist() == [200, 96]
    assert entry_count(report, "econ read in Wh and avgpcon as W of the job") == 2
    assert entry_count(report, "(2000 MHz: 1, 2200 MHz: 1)") == 2
    assert any("left out" in entry.reason and "embedding" in entry.reason for entry in report.entries)


def test_power_of_fdata_per_node_is_recognised(tmp_path: Path) -> None:
    jobs, report = read_parquet(tmp_path, fdata(avgpcon=[100.0, 96.0]))
    assert jobs["power_w"].tolist() == [200, 96]
    assert entry_count(report, "avgpcon as W of a node") == 2


def test_energy_of_fdata_without_a_fitting_unit_is_left_out(tmp_path: Path) -> None:
    jobs, report = read_parquet(tmp_path, fdata(econ=[9.0, 9.0]))
    assert "energy_j" not in jobs
    assert "power_w" not in jobs
    assert entry_count(report, "econ does not agree with avgpcon x duration") == 2


def test_jobs_of_fdata_without_allocated_nodes_or_start(tmp_path: Path) -> None:
    jobs, report = read_parquet(tmp_path, fdata(nnuma=[0, 1], nnumr=[3, 1]))
    assert jobs["nodes"].tolist() == [3, 1]
    assert entry_count(report, "nnuma is 0 or unknown: nnumr used") == 1
    jobs, report = read_parquet(tmp_path, fdata(sdt=["", "2023-06-01 09:04:00"], duration=[0.0, 60.0]))
    assert jobs["job_id"].tolist() == [8]
    assert entry_count(report, "never ran: it has no start") == 1


def test_only_used_columns_count_towards_the_limit(tmp_path: Path) -> None:
    big = fdata().append_column("embedding", pa.array([np.arange(100_000.0), np.arange(100_000.0)]))
    jobs, _ = read_parquet(tmp_path, big, unpack_limit=100_000)
    assert len(jobs) == 2


def test_oda_jobs(tmp_path: Path, read: Read) -> None:
    jobs, report = read(sample_files.ODA)
    assert jobs.meta["format"] == "oda"
    start = 1_704_067_200
    assert jobs["submit_s"].tolist() == [start, start + 180]
    assert np.array_equal(jobs["wait_s"], [60, np.nan], equal_nan=True)
    assert jobs["runtime_s"].tolist() == [60, 60]
    assert jobs["estimate_s"].tolist() == [600, 600]
    assert (jobs["nodes"].tolist(), jobs["cores"].tolist()) == ([2, 1], [8, 4])
    assert jobs["status"].tolist() == [1, 0]
    assert jobs.labels["queue"] == ("debug", "batch")
    assert entry_count(report, "submit_time unknown: start_time used") == 1
    assert entry_count(report, "runtime_seconds unknown: end_time - start_time used") == 1
    assert entry_count(report, "num_nodes_alloc unknown: num_nodes_req used") == 1
    stamps = {name: pa.array([at("10:00:00"), at("10:02:00")]) for name in ("start_time", "end_time")}
    table = pa.table({"job_id": ["1", "x"], **stamps, "runtime_seconds": [120, 120], "allocated_cpus": [4, 2]})
    jobs, report = read_parquet(tmp_path, table.append_column("job_state", pa.array(["0", "1"])))
    assert jobs["nodes"].tolist() == [4, 2]
    assert jobs["job_id"].tolist() == [1, 2]
    assert jobs.labels["log_id"] == ("x",)
    assert entry_count(report, "CPUs used as nodes") == 0
    assert entry_count(report, "job_state is a number of unknown meaning") == 2


def test_machine_of_oda_jobs(read: Read) -> None:
    head, *rows = sample_files.ODA.splitlines()
    jobs, _ = read("\n".join([f"{head},machine", *(f"{row},theta" for row in rows)]))
    assert (jobs.meta["machine"], jobs.meta["max_nodes"]) == ("theta", 4392)


def test_wta_tasks(tmp_path: Path, read: Read) -> None:
    jobs, report = read(sample_files.WTA)
    assert jobs.meta["format"] == "wta"
    assert jobs["job_id"].tolist() == [1, 2, 3, 4]
    assert jobs["submit_s"].tolist() == [1, 6.5, 6.5, 16.5]
    assert jobs["runtime_s"].tolist() == [5, 8, 1, 1]
    assert np.array_equal(jobs["wait_s"], [0.5, 0, np.nan, 0], equal_nan=True)
    assert jobs["nodes"].tolist() == jobs["cores"].tolist() == [2, 2, 1, 1]
    assert jobs["after_id"].tolist() == [-1, 1, 1, 2]
    assert jobs["think_s"].tolist() == [0, 0, 0, 2]
    assert jobs["account"].tolist() == [4] * 4
    assert jobs["user"].tolist() == [7, 7, 7, -1]
    assert entry_count(report, "resource_amount_requested is a fraction: rounded up") == 1
    assert entry_count(report, "several parents: the dependency on the one that ended last") == 1
    assert entry_count(report, "group_id left out") == 1
    assert any("left out" in e.reason and "memory_requested" in e.reason for e in report.entries)
    table = pc.read_csv(io.BytesIO(sample_files.WTA.encode())).drop_columns(["parents"])
    table = table.append_column("parents", pa.array([[], [1], [1], [2, 3]], pa.list_(pa.int64())))
    from_parquet, _ = read_parquet(tmp_path, table)
    assert from_parquet["after_id"].tolist() == [-1, 1, 1, 2]


def test_wta_gpu_tasks_and_missing_parents(read: Read) -> None:
    jobs, report = read(sample_files.WTA.replace(",cpu,2.0,[]", ",gpu,2.0,[99]"))
    assert jobs["gpus"].tolist() == [2, 0, 0, 0]
    assert jobs["gpus_may_span_nodes"].tolist() == [1, 0, 0, 0]
    assert entry_count(report, "parent that is not in the table: left out") == 1


def test_opendc_tasks(read: Read) -> None:
    jobs, report = read(sample_files.OPENDC)
    assert jobs.meta["format"] == "opendc"
    assert jobs["submit_s"].tolist() == [1_704_067_200, 1_704_067_260]
    assert jobs["runtime_s"].tolist() == [3600, 60]
    assert (jobs["nodes"].tolist(), jobs["cores"].tolist(), jobs["gpus"].tolist()) == ([1, 1], [4, 2], [0, 1])
    assert jobs["memory_mb"].tolist() == [10_000, 20_000]
    assert np.array_equal(jobs["slack_s"], [3600, np.nan], equal_nan=True)
    assert jobs["after_id"].tolist() == [-1, 0]
    assert entry_count(report, "columns left out: cpu_capacity") == 0


def test_tasks_of_opendc_with_ids_that_are_texts(read: Read) -> None:
    text = sample_files.OPENDC.replace("\n0,", "\nfirst,").replace("\n1,", "\nsecond,").replace("[0]", "['first']")
    jobs, _ = read(text)
    assert jobs["job_id"].tolist() == [1, 2]
    assert jobs.labels["log_id"] == ("first", "second")
    assert jobs["after_id"].tolist() == [-1, 1]


def test_jobs_of_fdata_with_ids_without_a_number(tmp_path: Path) -> None:
    jobs, _ = read_parquet(tmp_path, fdata(jid=["jid_7", "b"]))
    assert jobs["job_id"].tolist() == [7, 8]
    assert jobs.labels["log_id"] == ("b",)


def test_the_first_version_of_opendc_and_a_table_without_durations(tmp_path: Path) -> None:
    times = {"start_time": [at("10:00:00")], "stop_time": [at("11:00:00")]}
    sizes = {"id": ["3"], "cpu_count": [2], "cpu_capacity": [2000.0], "mem_capacity": [512]}
    stamps = {name: pa.array(value, pa.timestamp("ms")) for name, value in times.items()}
    jobs, report = read_parquet(tmp_path, pa.table({**sizes, **stamps}))
    assert jobs["runtime_s"].tolist() == [3600]
    assert entry_count(report, "start_time is read as submission") == 0
    with pytest.raises(TraceError, match=r"lacks the column\(s\) duration"):
        read_parquet(tmp_path, pa.table({**sizes, "submission_time": stamps["start_time"]}))


def test_formats_of_parquet_tables_are_detected_and_can_be_forced(tmp_path: Path) -> None:
    pq.write_table(fdata(), tmp_path / "t")
    data = (tmp_path / "t").read_bytes()
    assert detect_format(data).format == "fdata"
    assert read_trace(tmp_path / "t", format="fdata").meta["format"] == "fdata"
    with pytest.raises(TraceError, match="lacks"):
        read_trace(tmp_path / "t", format="wta")
    pq.write_table(fdata()[:0], tmp_path / "empty")
    with pytest.raises(TraceError, match="no rows"):
        read_trace(tmp_path / "empty")
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(TraceError, match="damaged or cut short"):
        read_trace(tmp_path / "cut")


def test_parts_of_a_table_in_a_folder(tmp_path: Path) -> None:
    table = pc.read_csv(io.BytesIO(sample_files.WTA.encode())).drop_columns(["parents"])
    (tmp_path / "tasks" / "schema-1.0").mkdir(parents=True)
    for part in range(2):
        pq.write_table(table[2 * part : 2 * part + 2], tmp_path / "tasks" / "schema-1.0" / f"part.{part}.parquet")
    (tmp_path / "tasks" / "_SUCCESS").write_text("")
    jobs, report = read_trace_with_report(tmp_path / "tasks")
    assert jobs.meta["format"] == "wta"
    assert jobs["job_id"].tolist() == [1, 2, 3, 4]
    assert entry_count(report, "2 files; lines are counted over all of them") == 0
    assert "part.0.parquet" in report.format_reason


def test_the_table_of_tasks_in_a_folder_of_opendc(tmp_path: Path) -> None:
    pq.write_table(pc.read_csv(io.BytesIO(sample_files.OPENDC.encode())), tmp_path / "tasks.parquet")
    pq.write_table(pa.table({"id": [0], "duration": [1], "cpu_usage": [2.0]}), tmp_path / "fragments.parquet")
    jobs, report = read_trace_with_report(tmp_path)
    assert len(jobs) == 2
    assert entry_count(report, "1 other files in the folder left out") == 0


def test_parts_that_do_not_fit_together(tmp_path: Path) -> None:
    pq.write_table(fdata(), tmp_path / "a.parquet")
    pq.write_table(fdata(duration=[[1.0], [2.0]]), tmp_path / "b.parquet")
    with pytest.raises(TraceError, match="the 2 files are not parts of one table: .* name one file"):
        read_trace(tmp_path)


def test_the_limit_holds_for_all_parts_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(fdata(jnam=["x" * 40_000, "y" * 40_000]), tmp_path / f"{name}.parquet")
    assert len(read_trace(tmp_path / "a.parquet", unpack_limit=150_000)) == 2
    with pytest.raises(TraceError, match="more than the limit"):
        read_trace(tmp_path, unpack_limit=150_000)
