from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kilowait.errors import TraceError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, read_trace, read_trace_with_report, write_trace


def read(folder: Path, text: str, **options: Any) -> tuple[JobTable, CleaningReport]:
    (folder / "t.csv").write_text(text)
    jobs, report = read_trace_with_report(folder / "t.csv", **options)
    assert report.rows_read == report.jobs + report.dropped
    return jobs, report


DJC = """\
"JOB_NAME","COBALT_JOBID","MACHINE_NAME","QUEUED_TIMESTAMP","QUEUED_DATE_ID","START_TIMESTAMP","END_TIMESTAMP",\
"USERNAME_GENID","PROJECT_NAME_GENID","QUEUE_NAME","WALLTIME_SECONDS","RUNTIME_SECONDS","NODES_USED",\
"NODES_REQUESTED","CORES_USED","EXIT_STATUS"
"311.theta",311,"theta","2019-01-01 00:00:36.000000",20190101,"2019-01-01 00:01:36.000000",\
"2019-01-01 00:11:36.500000",35012304659472,45081100820135,"default",3600.0,600.5,128,128,8192,0
"312.theta",312,"theta","2019-01-01 00:00:37.000000",20190101,"2019-01-01 00:01:36.000000",\
"2019-01-01 00:01:36.000000",35012304659472,45081100820135,"debug",3600.0,0.0,0,8,0,1
"""


def test_alcf_job_composite(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, DJC)
    assert jobs.meta["format"] == "alcf"
    assert jobs["job_id"].tolist() == [311]
    assert jobs["submit_s"].tolist() == [1546300836]
    assert (jobs["runtime_s"].tolist(), jobs["estimate_s"].tolist()) == ([600.5], [3600])
    assert (jobs["nodes"].tolist(), jobs["cores"].tolist(), jobs["wait_s"].tolist()) == ([128], [8192], [60])
    assert jobs.labels["user"] == ("35012304659472",)
    assert jobs["status"].tolist() == [1]
    assert report.dropped == 1
    with_never_ran, _ = read(tmp_path, DJC, never_ran="keep")
    assert with_never_ran["nodes"].tolist() == [128, 8]


def test_alcf_with_a_commented_header_and_the_older_names(tmp_path: Path) -> None:
    names = DJC.splitlines()[0].replace("NODES_USED", "USED_NODES").replace("COBALT_JOBID", "JOBID")
    jobs, _ = read(tmp_path, "\n".join([f"#{names}", *DJC.splitlines()[1:]]))
    assert jobs["job_id"].tolist() == [311]
    assert jobs["nodes"].tolist() == [128]


LUMOS = """\
,job,user,project,state,gpu_num,cpu_num,node_num,submit_time,wait_time,run_time,wall_time,node_hour,new_status
0,639487,0.0,0.0,0,0,512.0,8.0,1672529301,71,3632.92,3600.0,8.07,Killed
1,639448,70296325381051.0,5.0,0,0,16384.0,256.0,1672507846,7772,21654.66,21600.0,1539.8,Pass
"""


def test_alcf_derivative(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, LUMOS)
    assert jobs["job_id"].tolist() == [639448, 639487]
    assert jobs["user"].tolist() == [0, -1]
    assert jobs.labels["user"] == ("70296325381051",)
    assert jobs["account"].tolist() == [5, -1]
    assert jobs["status"].tolist() == [1, 5]
    assert jobs["runtime_s"].tolist() == [21654.66, 3632.92]
    assert [e.reason for e in report.entries if e.kind == "corrected"] == ["rows not in submit order: sorted"]


def test_gpus_counted_as_nodes_are_noted(tmp_path: Path) -> None:
    text = LUMOS.replace(",0,512.0,8.0,", ",8.0,0,8.0,").replace(",0,16384.0,256.0,", ",256.0,0,256.0,")
    jobs, report = read(tmp_path, text)
    assert jobs["gpus"].tolist() == jobs["nodes"].tolist() == [256, 8]
    assert "cores" not in jobs
    assert any("nodes are GPUs" in e.reason for e in report.entries)


def test_column_map_with_factors(tmp_path: Path) -> None:
    text = "nr;when;minutes;limit_h;n\n4;100;2;1;3\n5;50;1;2;4\n"
    columns = {"job_id": "nr", "submit_s": "when", "runtime_s": ("minutes", 60), "estimate_s": ("limit_h", 3600)}
    jobs, _ = read(tmp_path, text, columns={**columns, "nodes": "n"})
    assert jobs["job_id"].tolist() == [5, 4]
    assert jobs["runtime_s"].tolist() == [60, 120]
    assert jobs["estimate_s"].tolist() == [7200, 3600]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_detected(tmp_path: Path, delimiter: str) -> None:
    text = "job_id,submit_time,run_time,num_nodes\n1,0,60,4\n".replace(",", delimiter)
    jobs, _ = read(tmp_path, text)
    assert jobs["nodes"].tolist() == [4]


def test_start_and_end_give_run_time_and_wait(tmp_path: Path) -> None:
    text = "job_id,submit_time,start_time,end_time,cpus\n1,10,15,75,4\n2,20,,,4\n"
    jobs, report = read(tmp_path, text)
    assert jobs["runtime_s"].tolist() == [60]
    assert jobs["wait_s"].tolist() == [5]
    assert jobs["nodes"].tolist() == [4]
    reasons = [entry.reason for entry in report.entries]
    assert "no column of nodes: cores used as nodes" in reasons
    assert "never ran: it has no start" in reasons


def test_start_time_zero_is_valid(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, "submit_time,start_time,end_time,num_nodes\n0,0,60,4\n")
    assert jobs["runtime_s"].tolist() == [60]
    jobs, report = read(
        tmp_path, "submit_time,start_time,end_time,num_nodes\n1546300800,0,0,4\n1546300801,1546300802,1546300803,1\n"
    )
    assert (len(jobs), report.dropped) == (1, 1)


def test_time_limit_without_a_unit_is_ignored(tmp_path: Path) -> None:
    text = "submit_time,run_time,num_nodes,timelimit\n0,50,1,60\n1,50,1,01:00:00\n"
    jobs, report = read(tmp_path, text)
    assert jobs["estimate_s"].tolist() == [50, 3600]
    assert any("without a unit" in entry.reason for entry in report.entries)
    jobs, _ = read(tmp_path, text, columns={"estimate_s": ("timelimit", 60)})
    assert jobs["estimate_s"].tolist() == [3600, 3600]


def test_number_among_dates_is_dropped(tmp_path: Path) -> None:
    text = "submit_time,run_time,num_nodes\n2019-01-01 00:00:00,5,1\n1546300801,5,1\n2019-01-01 00:00:02+01:00,5,1\n"
    jobs, report = read(tmp_path, text)
    assert jobs["submit_s"].tolist() == [1546297202, 1546300800]
    assert any("a number among dates" in e.reason for e in report.entries)


def test_quotes_line_breaks_and_a_stray_quote(tmp_path: Path) -> None:
    text = 'job_id,submit_s,runtime_s,nodes,name\n1,0,5,1,"a, b"\n2,1,5,1,"x\ny"\n3,2,5,1,"stray\n4,3,5,1,z\n'
    jobs, report = read(tmp_path, text)
    assert jobs["job_id"].tolist() == [1, 2, 3, 4]
    assert jobs.labels["name"] == ("a, b", "x\ny", "stray", "z")
    assert report.rows_read == 4


def test_missing_and_existing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"lacks runtime_s .* nodes; it has the columns submit_time, colour.*columns="):
        read(tmp_path, "submit_time,colour\n1,red\n", format="csv")


def test_unknown_columns_are_listed(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"lacks submit_s, runtime_s .* it has the columns a, b, c"):
        read(tmp_path, "a,b,c\n1,2,3\n")


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"submit": "when"}, UnknownNameError, "did you mean 'submit_s'"),
        ({"submit_s": "wen"}, TraceError, "names 'wen' for submit_s, but the file has the columns when"),
        ({"submit_s": 3}, TraceError, "give a column name"),
        ({"submit_s": ("when", -1)}, TraceError, "give a column name"),
    ],
)
def test_wrong_column_maps(tmp_path: Path, columns: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read(tmp_path, "when,ran,nodes\n1,2,3\n", columns=columns)


def test_column_map_for_another_format(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="a column map is for csv and parquet"):
        read(tmp_path, "x\n", columns={"submit_s": "x"}, format="swf")


def test_rows_with_wrong_field_count_are_dropped(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, "job_id,submit_s,runtime_s,nodes\n1,0,5,1\n2,1,5\n3,2,5,1,9\n4,3,5,1,\n")
    assert jobs["job_id"].tolist() == [1, 4]
    assert report.dropped == 2


def test_table_without_rows(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="a header, but no rows"):
        read(tmp_path, "job_id,submit_s,runtime_s,nodes\n")


def test_slurm_database_table(tmp_path: Path) -> None:
    text = (
        "id_job,id_user,nodes_alloc,cpus_req,state,time_submit,time_start,time_end,timelimit,partition\n"
        "5,77,2,40,3,1609459200,1609459210,1609459310,60,batch\n6,78,1,4,4,1609459200,1609459210,1609459310,4294967295,b\n"
    )
    jobs, _ = read(tmp_path, text)
    assert jobs["estimate_s"].tolist() == [3600, 100]
    assert jobs["status"].tolist() == [1, 5]
    assert jobs["runtime_s"].tolist() == [100, 100]


def test_any_parquet_table(tmp_path: Path) -> None:
    submit_times = [datetime(2020, 1, 1, tzinfo=UTC), None, datetime(2020, 1, 2, tzinfo=UTC)]
    table = pa.table({
        "submit_time": pa.array(submit_times, pa.timestamp("ns", tz="UTC")),
        "run_time": [60.5, 1.0, 30.0],
        "num_nodes": pa.array([1, 2, 3], pa.int16()),
        "user": ["a", "b", None],
        "tags": [["x"], [], None],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.bin")
    jobs, report = read_trace_with_report(tmp_path / "t.bin")
    assert jobs["submit_s"].tolist() == [1577836800, 1577923200]
    assert jobs["runtime_s"].tolist() == [60.5, 30]
    assert jobs["user"].tolist() == [0, -1]
    assert report.rows_read == 3
    mapped = read_trace(tmp_path / "t.bin", columns={"submit_s": "submit_time", "runtime_s": ("run_time", 2)})
    assert mapped["runtime_s"].tolist() == [121, 60]


def test_kilowait_parquet_round_trip(tmp_path: Path) -> None:
    jobs = JobTable(
        job_id=[2**60, 1], submit_s=[0.1, 7], runtime_s=[3, 1e9 + 0.5], nodes=[1, 2], user=[1, -1],
        wait_s=[np.nan, 2], labels={"user": ("x", "y")}, meta={"max_procs": 9},
    )  # fmt: skip
    jobs.to_parquet(tmp_path / "own")
    read_back, report = read_trace_with_report(tmp_path / "own")
    assert read_back.columns == jobs.columns
    assert all(read_back[name].tobytes() == jobs[name].tobytes() for name in jobs.columns)
    assert (read_back.labels, read_back.meta) == (jobs.labels, jobs.meta)
    assert report.rows_read == report.jobs == 2


def test_damaged_parquet_is_an_error(tmp_path: Path) -> None:
    JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1]).to_parquet(tmp_path / "p")
    data = (tmp_path / "p").read_bytes()
    (tmp_path / "p").write_bytes(data[: len(data) // 2])
    with pytest.raises(TraceError, match="damaged or cut short"):
        read_trace(tmp_path / "p")


def reasons(report: CleaningReport, kind: str) -> list[str]:
    return [f"{entry.count} {entry.reason}" for entry in report.entries if entry.kind == kind]


def test_hint_on_missing_columns_is_an_option_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(
        TraceError, match=r"--columns runtime_s=NAME,nodes=NAME \(in Python: columns=\{'runtime_s': 'NAME'"
    ):
        read(tmp_path, "submit_time,colour\n1,red\n", format="csv")


def test_words_for_priorities_are_numbers(tmp_path: Path) -> None:
    text = "submit_time,run_time,num_nodes,priority\n0,5,1,high\n1,5,1,Low\n2,5,1,normal\n3,5,1,\n4,5,1,7\n"
    jobs, report = read(tmp_path, text)
    assert jobs["priority"].tolist() == [1, -1, 0, 0, 7]
    assert "3 priority: words read as numbers: high 1, low -1, normal 0" in reasons(report, "note")
    assert reasons(report, "corrected") == []


def test_values_that_are_lost_are_counted_with_their_column(tmp_path: Path) -> None:
    text = (
        "id,submit_time,run_time,num_nodes,priority,memory_mb,gpus,req_time,state,end_time,colour\n"
        "1,0,5,1,gold,lots,two,later,EXPLODED,yesterday,red\n2,1,5,1,silver,4G,1,UNLIMITED,PASS,,red\n"
    )
    jobs, report = read(tmp_path, text)
    assert reasons(report, "corrected") == [
        "1 end_s: 'yesterday' is not a number of seconds or a date: treated as unknown",
        "1 estimate_s: 'later' is not a time span: treated as unknown",
        "1 memory_mb: 'lots' is not a number: treated as unknown",
        "1 gpus: 'two' is not a number: treated as unknown",
        "2 priority: 'gold' (and 1 other texts) is not a number: treated as unknown",
        "1 status: 'EXPLODED' is not a known state of a job: treated as unknown",
    ]
    assert jobs["memory_mb"].tolist() == [0, 4294.967296]
    assert "0 columns not read: colour" in reasons(report, "note")
    with pytest.raises(TraceError, match="gold"):
        read(tmp_path, text, strict=True)


def test_text_in_a_required_column_is_named_where_its_row_is_dropped(tmp_path: Path) -> None:
    jobs, report = read(tmp_path, "submit_time,run_time,num_nodes\n0,5,1\n1,long,1\n2,5,all\nnoon,5,1\n")
    assert (len(jobs), report.dropped, report.corrected) == (1, 3, 0)
    assert {"1 runtime_s: 'long' is not a time span: treated as unknown"} <= set(reasons(report, "note"))
    assert "1 nodes: 'all' is not a number: treated as unknown" in reasons(report, "note")


def test_text_job_ids_are_kept_and_dependencies_found(tmp_path: Path) -> None:
    text = "job_id,submit_time,run_time,num_nodes,after_id\n7,0,5,1,\na-1,1,5,1,7\nb-2,2,5,1,a-1\nc-3,3,5,1,gone\n"
    jobs, report = read(tmp_path, text)
    assert jobs["job_id"].tolist() == [7, 8, 9, 10]
    assert jobs.labels["log_id"] == ("a-1", "b-2", "c-3")
    assert jobs["log_id"].tolist() == [-1, 0, 1, 2]
    assert jobs["after_id"].tolist() == [-1, 7, 8, -1]
    assert "3 job_id is text: the job is numbered, and the text is in the column log_id" in reasons(report, "note")
    assert reasons(report, "corrected") == [
        "1 after_id: 'gone' is not the ID of a job in the table: treated as unknown"
    ]


def test_written_text_job_ids_are_read_back(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, "job_id,submit_time,run_time,num_nodes\na-1,1,5,1\nb-2,2,5,1\n")
    write_trace(jobs, tmp_path / "own.csv")
    again, report = read_trace_with_report(tmp_path / "own.csv", strict=True)
    assert again.labels["log_id"] == ("a-1", "b-2")
    assert again["job_id"].tolist() == [1, 2]
    assert reasons(report, "note") == []


def test_columns_that_are_read_once_or_not_at_all_are_noted(tmp_path: Path) -> None:
    text = "job_id,submit_time,run_time,num_nodes,user,user\n1,0,5,1,7.0,b\n2,1,5,1,8.0,b\n"
    jobs, report = read(tmp_path, text)
    assert jobs["user"].tolist() == [7, 8]
    assert "0 several columns have the same name, and the first one is read: user" in reasons(report, "note")
    assert "2 user: numbers such as '7.0' are read as '7'" in reasons(report, "note")
    table = pa.table({"submit_time": [0.0], "run_time": [5.0], "num_nodes": [1], "tags": [["x"]]})
    pq.write_table(table, tmp_path / "t.parquet")
    _, report = read_trace_with_report(tmp_path / "t.parquet")
    assert "0 columns not read, because their values are lists or structures: tags" in reasons(report, "note")
