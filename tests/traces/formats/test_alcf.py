"""ALCF's job composite table: machine, node lists, job numbers and the wait a scheduler answers for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.traces import read_trace_with_report

from .conftest import Read, entry_count

HEADER = (
    '"JOB_NAME","COBALT_JOBID","MACHINE_NAME","QUEUED_TIMESTAMP","QUEUED_DATE_ID","START_TIMESTAMP","END_TIMESTAMP",'
    '"USERNAME_GENID","PROJECT_NAME_GENID","QUEUE_NAME","WALLTIME_SECONDS","RUNTIME_SECONDS","NODES_USED",'
    '"NODES_REQUESTED","CORES_USED","LOCATION","EXIT_STATUS","ELIGIBLE_WAIT_SECONDS","QUEUED_WAIT_SECONDS"'
)


def row(
    number: int,
    *,
    cobalt: int | None = None,
    machine: str = "mira",
    queued: str = "2020-01-01 00:00:00",
    start: str = "2020-01-01 02:00:00",
    location: str = "MIR-48000-7B7F1-4096",
    used: int = 512,
    requested: int = 512,
    eligible: float = 7200,
) -> str:
    cobalt = number if cobalt is None else cobalt
    return (
        f'"{number}.{machine}",{cobalt},"{machine}","{queued}",20200101,"{start}","2020-01-01 03:00:00",'
        f'55029654575059,82547079018571,"prod-short","7200.0","3600.0","{used}.00","{requested}.00","8192.00",'
        f'"{location}",0,{eligible},7200'
    )


def table(*rows: str) -> str:
    return "\n".join([HEADER, *rows]) + "\n"


def test_the_machine_is_the_cluster_of_the_log(read: Read) -> None:
    jobs, report = read(table(row(1), row(2)))
    assert (jobs.meta["machine"], jobs.meta["max_nodes"]) == ("mira", 49_152)
    assert Cluster.from_trace(jobs) == Cluster.preset("mira")
    assert any("MACHINE_NAME is mira" in entry.reason for entry in report.entries)


@pytest.mark.parametrize(("machine", "nodes"), [("theta", 4392), ("polaris", 560), ("cooley", 126)])
def test_other_machines(read: Read, machine: str, nodes: int) -> None:
    jobs, _ = read(table(row(1, machine=machine)))
    assert Cluster.from_trace(jobs) == Cluster.preset(machine)
    assert jobs.meta["max_nodes"] == nodes


def test_a_node_level_machine_becomes_as_many_whole_nodes(read: Read) -> None:
    """The log of ThetaGPU counts whole nodes; the preset allocates single GPUs."""
    jobs, _ = read(table(row(1, machine="thetagpu", used=4)))
    assert Cluster.from_trace(jobs) == Cluster.from_nodes(24)


def test_an_unknown_machine_has_no_cluster(read: Read) -> None:
    jobs, _ = read(table(row(1, machine="vesta")))
    assert jobs.meta["machine"] == "vesta"
    assert "max_nodes" not in jobs.meta
    assert Cluster.from_trace(jobs) == Cluster.from_nodes(512)


def test_several_machines_are_no_single_cluster(read: Read) -> None:
    jobs, report = read(table(row(1), row(2, machine="cetus"), row(3)))
    assert "machine" not in jobs.meta
    assert entry_count(report, "jobs of 2 machines in one table: mira (2), cetus (1)") == 3


def test_locations_are_node_lists(read: Read) -> None:
    jobs, _ = read(table(row(1), row(2, location="thetagpu19:thetagpu18"), row(3, location="")))
    lists = jobs.labels["node_list"]
    assert [lists[code] if code >= 0 else None for code in jobs["node_list"]] == [
        "MIR-48000-7B7F1-4096",
        "thetagpu19,thetagpu18",
        None,
    ]


def test_the_number_in_the_name_replaces_an_unknown_job_number(read: Read) -> None:
    jobs, report = read(table(row(1992814), row(77, cobalt=-1), row(78, cobalt=-1)))
    assert sorted(jobs["job_id"].tolist()) == [77, 78, 1992814]
    assert entry_count(report, "COBALT_JOBID is not a job number: the number in JOB_NAME used") == 2
    assert "name" not in jobs  # Job numbers with the name of the machine are no names.


def test_the_wait_begins_when_the_job_is_eligible(read: Read) -> None:
    jobs, report = read(table(row(1), row(2, eligible=600)))
    start = 1_577_844_000
    assert jobs["wait_s"].tolist() == [7200, 600]
    assert jobs["submit_s"].tolist() == [start - 7200, start - 600]
    assert entry_count(report, "submit_s is START_TIMESTAMP - ELIGIBLE_WAIT_SECONDS, not QUEUED_TIMESTAMP") == 1
    [text] = [entry.reason for entry in report.entries if "ELIGIBLE_WAIT_SECONDS" in entry.reason]
    assert "1 h 50 min" in text  # The held time that is no longer part of the wait.


def test_an_impossible_eligible_wait_is_not_used(read: Read) -> None:
    jobs, report = read(table(row(1), row(2, eligible=7500), row(3, eligible=-1)))
    assert jobs["wait_s"].tolist() == [7200] * 3
    assert entry_count(report, "ELIGIBLE_WAIT_SECONDS is negative, unknown or longer than the time since") == 2


def test_a_column_of_zeros_is_not_a_recorded_wait(read: Read) -> None:
    """ThetaGPU's table of 2020 has 0 in every row."""
    jobs, report = read(table(row(1, eligible=0), row(2, eligible=0)))
    assert jobs["wait_s"].tolist() == [7200, 7200]
    assert entry_count(report, "ELIGIBLE_WAIT_SECONDS is 0 in every row") == 2


def test_requested_nodes_instead_of_used_ones_are_counted(read: Read) -> None:
    jobs, report = read(table(row(1), row(2, used=0, requested=1024)))
    assert jobs["nodes"].tolist() == [512, 1024]
    assert entry_count(report, "NODES_USED is 0: NODES_REQUESTED used") == 1


def test_columns_that_are_not_read_are_named(read: Read) -> None:
    _, report = read(table(row(1)))
    [text] = [entry.reason for entry in report.entries if "columns not read" in entry.reason]
    assert text == "columns not read: QUEUED_DATE_ID, QUEUED_WAIT_SECONDS"


def test_mapped_columns_are_not_replaced(read: Read) -> None:
    jobs, _ = read(table(row(1, eligible=600)), columns={"submit_s": "QUEUED_TIMESTAMP"})
    assert jobs["wait_s"].tolist() == [7200]
    assert jobs["submit_s"].tolist() == [1_577_836_800]


@pytest.mark.parametrize(("name", "rows", "jobs_kept"), [("mira", 6_833, 6_833), ("thetagpu", 5_115, 5_088)])
def test_real_tables(data_dir: Path, name: str, rows: int, jobs_kept: int) -> None:
    path = data_dir / "alcf_djc" / f"{name}_2020.csv.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not among the data")
    jobs, report = read_trace_with_report(path)
    assert (report.rows_read, len(jobs)) == (rows, jobs_kept)
    assert jobs.meta["machine"] == name
    assert (jobs["node_list"] >= 0).all()
    if name == "mira":
        assert np.median(jobs["wait_s"]) == 1839
        assert jobs["wait_s"].max() == 7_841_010
        assert entry_count(report, "not QUEUED_TIMESTAMP") == 2_295
    else:
        assert entry_count(report, "ELIGIBLE_WAIT_SECONDS is 0 in every row") == 5_115
