"""Rules of sacct dumps: eligible times, lists of partitions, heterogeneous jobs, records of waiting arrays."""

from __future__ import annotations

import pytest

from kilowait.errors import TraceError
from kilowait.traces.formats.sacct_without_header import FIELD_LISTS

from .conftest import Read, entry_count

COLUMNS = (
    "JobID|Partition|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|ReqMem|State|NodeList|ExitCode"
)
DAY = 1609459200


def row(
    job: str = "7",
    partition: str = "batch",
    submit: str = "00:00:00",
    eligible: str = "00:00:00",
    start: str = "00:10:00",
    elapsed: int = 60,
    nodes: int = 2,
    cpus: int = 8,
    memory: str = "1Gn",
    state: str = "COMPLETED",
    node_list: str = "n[1-2]",
) -> str:
    times = [text if text == "Unknown" else f"2021-01-01T{text}" for text in (submit, eligible, start, "01:00:00")]
    return "|".join([job, partition, *times, f"{elapsed}|60|{nodes}|{cpus}|{memory}|{state}|{node_list}|0:0"])


def dump(*rows: str) -> str:
    return "\n".join([COLUMNS, *rows]) + "\n"


def test_the_wait_begins_at_eligible(read: Read) -> None:
    jobs, report = read(dump(row("1"), row("2", eligible="00:07:00"), row("3", eligible="Unknown")))
    assert jobs["job_id"].tolist() == [1, 3, 2]
    assert jobs["submit_s"].tolist() == [DAY, DAY, DAY + 420]
    assert jobs["wait_s"].tolist() == [600, 600, 180]
    assert entry_count(report, "submit_s is Eligible, not Submit") == 1
    [text] = [entry.reason for entry in report.entries if "not Submit" in entry.reason]
    assert "in total 7 min, longest 7 min" in text


@pytest.mark.parametrize("eligible", ["00:30:00"])
def test_an_eligible_time_after_the_start_is_not_used(read: Read, eligible: str) -> None:
    jobs, report = read(dump(row("1"), row("2", eligible=eligible)))
    assert jobs["wait_s"].tolist() == [600, 600]
    assert entry_count(report, "Eligible is before Submit or after Start: Submit used") == 1


def test_an_eligible_time_before_the_submission_is_not_used(read: Read) -> None:
    jobs, report = read(dump(row("1", submit="00:05:00")))
    assert jobs["submit_s"].tolist() == [DAY + 300]
    assert jobs["wait_s"].tolist() == [300]
    assert entry_count(report, "Eligible is before Submit or after Start") == 1


def test_a_dump_without_eligible_uses_submit(read: Read) -> None:
    text = dump(row("1")).replace("Eligible|", "").replace("T00:00:00|2021-01-01T00:00:00", "T00:00:00")
    jobs, report = read(text)
    assert jobs["wait_s"].tolist() == [600]
    assert not [entry for entry in report.entries if "Eligible" in entry.reason]


def test_the_first_of_several_partitions_is_the_queue(read: Read) -> None:
    jobs, report = read(dump(row("1", "batch,long", node_list="n7"), row("2", "long"), row("3", "batch")))
    assert set(jobs.labels["queue"]) == {"batch", "long"}
    assert jobs.labels["queue"][jobs["queue"][0]] == "batch"
    assert entry_count(report, "Partition is a list: the first one used") == 1


def test_the_partition_whose_jobs_ran_on_the_same_nodes_is_the_queue(read: Read) -> None:
    rows = [row("1", "batch,long", node_list="n7"), row("2", "long", node_list="n7"), row("3", node_list="n1")]
    jobs, report = read(dump(*rows))
    assert jobs.labels["queue"][jobs["queue"][0]] == "long"
    assert entry_count(report, "Partition is a list: the only one of them with other jobs on the same nodes used") == 1


def test_parts_that_start_together_are_one_job(read: Read) -> None:
    parts = [
        row("5+0", nodes=1, cpus=4, node_list="n1"),
        row("5+1", nodes=3, cpus=12, elapsed=90, memory="2Gn", node_list="g[1-3]"),
        row("5+0.batch"),
    ]
    jobs, report = read(dump(row("4"), *parts))
    assert jobs["job_id"].tolist() == [4, 5]
    assert (jobs["nodes"].tolist(), jobs["cores"].tolist()) == ([2, 4], [8, 16])
    assert jobs["runtime_s"].tolist() == [60, 90]
    assert jobs["memory_mb"].tolist()[1] == pytest.approx(7 * 2**30 / 1e6)
    assert jobs.labels["node_list"][jobs["node_list"][1]] == "n1,g[1-3]"
    assert report.folded == 2
    assert entry_count(report, "parts of a heterogeneous job that start together: one job with the sum") == 1


def test_parts_that_start_apart_remain_jobs(read: Read) -> None:
    jobs, report = read(dump(row("5+0"), row("5+1", start="00:20:00")))
    assert len(jobs) == 2
    assert entry_count(report, "parts of a heterogeneous job that do not start together: separate jobs") == 2


def test_parts_of_a_waiting_job_are_one_record(read: Read) -> None:
    waiting = [row(f"5+{part}", start="Unknown", elapsed=0, state="PENDING", node_list="") for part in (0, 1)]
    jobs, report = read(dump(row("4"), *waiting))
    assert jobs["job_id"].tolist() == [4]
    assert (report.dropped, report.folded) == (1, 1)


def test_throttles_of_waiting_arrays_are_named(read: Read) -> None:
    waiting = {"start": "Unknown", "elapsed": 0, "state": "PENDING", "node_list": ""}
    rows = [row("8_[1-100%5]", **waiting), row("9_[3,5-9:2]", **waiting), row("10_[1-4,7,...]", **waiting)]  # type: ignore[arg-type]
    jobs, report = read(dump(row("4"), *rows))
    assert len(jobs) == 1
    assert entry_count(report, "at most 5 at a time") == 1
    [text] = [entry.reason for entry in report.entries if "waiting tasks" in entry.reason]
    assert "stand for 109 waiting tasks" in text  # 100, then 3, 5, 7, 9, then at least 5


def test_columns_that_are_not_read_are_named(read: Read) -> None:
    _, report = read(dump(row("1")))
    [text] = [entry.reason for entry in report.entries if "columns left out" in entry.reason]
    assert text == "columns left out: exitcode"


XDMOD = {
    "jobid": "7",
    "jobidraw": "7",
    "cluster": "ub",
    "partition": "batch",
    "qos": "normal",
    "account": "acc",
    "group": "grp",
    "gid": "100",
    "user": "ann",
    "uid": "1000",
    "submit": "2021-01-01T00:00:00",
    "eligible": "2021-01-01T00:01:00",
    "start": "2021-01-01T00:10:00",
    "end": "2021-01-01T01:10:00",
    "elapsed": "01:00:00",
    "exitcode": "0:0",
    "state": "COMPLETED",
    "nnodes": "2",
    "ncpus": "8",
    "reqcpus": "8",
    "reqmem": "4Gn",
    "reqgres": "gpu:2",
    "reqtres": "cpu=8,mem=8G,node=2,gres/gpu=4",
    "alloctres": "cpu=8,mem=8G,node=2,gres/gpu=4",
    "timelimit": "2-00:00:00",
    "nodelist": "n[1-2]",
    "jobname": "a|b",
}
"""A record in the columns of Open XDMoD's documentation."""


@pytest.mark.parametrize("version", FIELD_LISTS)
def test_lines_without_a_header_in_xdmods_columns(read: Read, version: str) -> None:
    records = [XDMOD | {"jobid": str(n), "jobidraw": str(n)} for n in (7, 8, 9)]
    records[2] |= {"state": "CANCELLED by 5", "start": "Unknown", "elapsed": "00:00:00", "nodelist": "None assigned"}
    text = "".join("|".join(record[name] for name in FIELD_LISTS[version]) + "\n" for record in records)
    jobs, report = read(text)
    assert jobs.meta["format"] == "sacct"
    assert "3 of the first 3 rows are lines of sacct" in report.format_reason
    assert jobs["job_id"].tolist() == [7, 8]
    assert jobs["submit_s"].tolist() == [DAY + 60] * 2
    assert jobs["wait_s"].tolist() == [540] * 2
    assert (jobs["runtime_s"].tolist(), jobs["estimate_s"].tolist()) == ([3600] * 2, [172_800] * 2)
    assert (jobs["nodes"].tolist(), jobs["gpus"].tolist()) == ([2] * 2, [4] * 2)
    assert jobs.labels["name"] == ("a|b",)
    assert jobs.labels["user"] == ("ann",)
    assert entry_count(report, f"columns as Open XDMoD prescribes them, {version}") == 0
    assert report.dropped == 1


def test_other_lines_with_bars_are_not_sacct(read: Read) -> None:
    with pytest.raises(TraceError, match="no sacct header"):
        read("7|7|ub|batch\n8|8|ub|batch\n", format="sacct")
