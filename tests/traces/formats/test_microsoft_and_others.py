"""Philly, Helios and SuperCloud."""

from __future__ import annotations

import pytest

from kilowait.errors import TraceError
from tests.traces.formats import sample_files

from .conftest import Read, entry_count

SUBMITTED = 1507338699.0
"""2017-10-07 01:11:39 UTC"""


def test_philly_job_log(read: Read) -> None:
    jobs, ledger = read(sample_files.PHILLY)
    assert [jobs.labels["name"][code].rpartition("_")[2] for code in jobs["name"]] == ["2", "1", "3", "6"]
    assert jobs["submit_s"][1] == SUBMITTED
    assert jobs["runtime_s"].tolist() == [3600, 74 + 600, 1, 60]
    assert jobs["wait_s"].tolist() == [3600, 30, 0, 1200]
    assert jobs["gpus"].tolist() == [1, 8, 8, 1]
    assert jobs["nodes"].tolist() == [1, 2, 8, 1]
    assert jobs["gpus_may_span_nodes"].tolist() == [0, 0, 1, 0]
    assert jobs["status"].tolist() == [5, 1, 0, 1]
    assert jobs.labels["queue"] == ("ee9e8c",)
    assert entry_count(ledger, "it has no attempt") == 1
    assert entry_count(ledger, "its last attempt has no end") == 1
    assert entry_count(ledger, "an attempt without start or end") == 1
    assert entry_count(ledger, "several attempts") == 2
    assert entry_count(ledger, "different numbers of GPUs") == 1


def test_philly_broken_json_is_refused(read: Read) -> None:
    with pytest.raises(TraceError, match="JSON cannot be read"):
        read(sample_files.PHILLY[:-20])
    with pytest.raises(TraceError, match="not a job but another value in the list"):
        read("[1, [2]]\n", format="philly")


def test_sia_is_sorted_and_gpus_may_span_nodes(read: Read) -> None:
    jobs, ledger = read(sample_files.SIA)
    assert jobs["gpus"].tolist() == jobs["nodes"].tolist() == [8, 1]
    assert jobs["gpus_may_span_nodes"].tolist() == [1, 0]
    assert jobs["submit_s"][1] - jobs["submit_s"][0] == 2932
    assert jobs["job_id"].tolist() == [2, 1]
    assert entry_count(ledger, "not in submit order") == 1


def test_lumos_philly(read: Read) -> None:
    jobs, _ = read(sample_files.LUMOS)
    assert jobs["submit_s"].tolist() == [1502114581, 1502509727]
    assert jobs["wait_s"].tolist() == [0, 7]
    assert jobs["gpus_may_span_nodes"].tolist() == [0, 1]
    assert jobs.meta["unix_start_s"] == 0


def test_helios(read: Read) -> None:
    jobs, ledger = read(sample_files.HELIOS)
    assert jobs["job_id"].tolist() == [1425511, 1425512, 1425513, 1425514]
    assert jobs["runtime_s"].tolist() == [36848, 239, 675233, 10]
    assert jobs["wait_s"].tolist() == [0, 10, 0, 0]
    assert jobs["gpus"].tolist() == [1, 16, 10, 0]
    assert jobs["nodes"].tolist() == [1, 2, 10, 2]
    assert jobs["gpus_may_span_nodes"].tolist() == [0, 0, 1, 0]
    assert jobs["cores"].tolist() == [1, 64, 40, 4]
    assert jobs["status"].tolist() == [1, 0, 5, 0]
    assert jobs.labels["queue"] == ("vcJkd", "vchbv", "vcpDC")
    assert entry_count(ledger, "GPUs not equal on each node") == 1


def test_helios_slice(read: Read) -> None:
    jobs, ledger = read(sample_files.HELIOS_SLICE)
    assert jobs["submit_s"].tolist() == [5835, 5842.5]
    assert jobs["gpus"].tolist() == [128, 16]
    assert jobs["nodes"].tolist() == [16, 2]
    assert jobs["status"].tolist() == [5, 1]
    assert "vcvGl=20" in str(jobs.meta["header"])
    assert entry_count(ledger, "not used as a request") == 0
    with_limit, _ = read(sample_files.HELIOS_SLICE.replace("24.0,24.0", "24.0,60.0"))
    assert with_limit["estimate_s"].tolist() == [60, 46520]


def test_supercloud(read: Read) -> None:
    jobs, ledger = read(sample_files.SUPERCLOUD)
    assert jobs["gpus"].tolist() == [1, 4]
    assert jobs["nodes"].tolist() == [1, 2]
    assert jobs["cores"].tolist() == [20, 80]
    assert jobs["memory_mb"][0] == pytest.approx(170000 * 1.048576)
    assert jobs["estimate_s"].tolist() == [307, 86400]
    assert jobs["runtime_s"].tolist() == [307, 86400]
    assert jobs["status"].tolist() == [1, 0]
    assert jobs["priority"].tolist() == [10239, 10243]
    assert jobs["job_id"].tolist()[0] == 16051200000000
    assert entry_count(ledger, "duplicate job number") == 1
    assert entry_count(ledger, "unlimited") == 1
    assert entry_count(ledger, "it has no start") == 1
    with_never_ran, _ = read(sample_files.SUPERCLOUD, never_ran="keep")
    assert with_never_ran["nodes"].tolist() == [1, 2, 1]
    assert with_never_ran["cores"].tolist() == [20, 80, 4]
    assert with_never_ran["cancel_s"].tolist()[2] == 1609536090
