"""The Alibaba trace formats: openb, PAI and spot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kilowait.errors import TraceError
from kilowait.traces import read_trace, read_trace_with_report
from tests.traces.formats import sample_files

from .conftest import Read, entry_count


def test_openb(read: Read) -> None:
    jobs, ledger = read(sample_files.OPENB)
    assert jobs["job_id"].tolist() == [0, 2, 1, 4]
    assert jobs["submit_s"].tolist() == [0, 20, 40, 70]
    assert jobs["runtime_s"].tolist() == [1000, 65, 250, 920]
    assert jobs["wait_s"].tolist() == [0, 5, 10, 10]
    assert jobs["cpu_milli"].tolist() == [12000, 4000, 6500, 1000]
    assert jobs["cores"].tolist() == [12, 4, 7, 1]
    assert jobs["gpus"].tolist() == [1, 0, 1, 1]
    assert jobs["gpu_milli"].tolist() == [1000, 1000, 460, 220]
    assert jobs["nodes"].tolist() == [1] * 4
    assert jobs["memory_mb"][0] == 16384 * 2**20 / 1e6
    assert [jobs.labels["gpu_types"][code] if code >= 0 else None for code in jobs["gpu_types"]] == [
        None, None, "V100M16|V100M32", None,
    ]  # fmt: skip
    assert jobs["status"].tolist() == [-1, 0, 1, -1]
    assert entry_count(ledger, "still pending when it was deleted") == 1
    assert entry_count(ledger, "not deleted in the trace: assumed to end with it, at 1,000 s") == 1
    assert entry_count(ledger, "deleted at the last moment of the trace, 1,000 s") == 1


def test_pending_pods_may_be_kept(read: Read) -> None:
    jobs, _ = read(sample_files.OPENB, never_ran="keep")
    row = jobs["job_id"].tolist().index(3)
    assert (jobs["gpus"][row], jobs["runtime_s"][row], jobs["cancel_s"][row]) == (8, 0, 160)


def test_openb_without_times(read: Read) -> None:
    jobs, ledger = read(sample_files.OPENB_BARE)
    assert jobs["job_id"].tolist() == [5, 3]
    assert jobs["submit_s"].tolist() == [0, 1]
    assert set(jobs["runtime_s"].tolist()) == {1e10}
    assert entry_count(ledger, "pods never end") == 0
    assert entry_count(ledger, "one a second") == 0


def test_openb_fraction_of_several_gpus_is_corrected(read: Read) -> None:
    jobs, ledger = read(sample_files.OPENB.replace("12000,16384,1,1000", "12000,16384,2,500"))
    assert (jobs["gpus"][0], jobs["gpu_milli"][0]) == (2, 1000)
    assert entry_count(ledger, "other than 1 GPU") == 1


def pai_folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"pai_{name}.csv").write_text(text)
    return path


def test_pai_task_table_alone(read: Read) -> None:
    jobs, ledger = read(sample_files.PAI_TASKS)
    assert jobs["submit_s"].tolist() == [110, 310, 320, 330, 340]
    assert jobs["runtime_s"].tolist() == [100, 200, 180, 100, 100]
    assert jobs["gpus"].tolist() == [1, 0, 1, 3, 4]
    assert jobs["gpu_milli"].tolist() == [500, 1000, 1000, 1000, 1000]
    assert jobs["nodes"].tolist() == [1, 2, 1, 3, 2]
    assert jobs["gpus_may_span_nodes"].tolist() == [0, 0, 0, 1, 0]
    assert jobs["cpu_milli"].tolist() == [6000, 8000, 24000, 24000, 16000]
    assert jobs["memory_mb"][0] == pytest.approx(30000 * 1.048576)
    assert jobs["status"].tolist() == [1, 1, 0, 1, 1]
    ran_on = [jobs.labels["runtime_gpu_type"][code] if code >= 0 else "" for code in jobs["runtime_gpu_type"]]
    assert ran_on == ["MISC", "", "T4", "V100", "V100"]
    assert "user" not in jobs
    assert entry_count(ledger, "still waiting when the trace ends") == 1
    assert entry_count(ledger, "run time unknown") == 1
    assert entry_count(ledger, "several workers with a fractional GPU") == 1
    assert entry_count(ledger, "one of several tasks of a job") == 2


def test_pai_tables_are_joined(tmp_path: Path) -> None:
    folder = pai_folder(
        tmp_path,
        task_table=sample_files.PAI_TASKS,
        job_table=sample_files.PAI_JOBS,
        group_tag_table=sample_files.PAI_TAGS,
        machine_spec=sample_files.PAI_MACHINES,
    )
    (folder / "notes.txt").write_text("no log\n")
    jobs, ledger = read_trace_with_report(folder)
    assert ledger.rows_read == ledger.jobs + ledger.dropped == 7
    assert jobs["submit_s"].tolist() == [100, 300, 300, 330, 340]
    assert jobs["wait_s"][:3].tolist() == [10, 10, 20]
    assert np.isnan(jobs["wait_s"][3:]).all()
    assert (
        entry_count(ledger, "submission of the job unknown or after the start") == 3
    )  # One is dropped later: it never ended.
    assert [jobs.labels["user"][code] for code in jobs["user"][:3]] == ["b0b0b0b0b0b0"] + ["c0c0c0c0c0c0"] * 2
    assert jobs["user"][4] == -1
    assert [jobs.labels["gpu_types"][code] if code >= 0 else "" for code in jobs["gpu_types"]] == ["V100M32"] + [""] * 4
    assert jobs.labels["model"] == ("nmt",)
    assert entry_count(ledger, "other files in the folder") == 0


def test_pai_with_its_header(read: Read) -> None:
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    assert len(read(header + sample_files.PAI_TASKS)[0]) == 5


def test_pai_requires_the_task_table(read: Read, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="PAI's task table .* is required"):
        read(sample_files.PAI_JOBS)
    pai_folder(tmp_path, task_table=sample_files.PAI_TASKS, again=sample_files.PAI_TASKS)
    (tmp_path / "log").unlink()
    with pytest.raises(TraceError, match="both PAI's task table"):
        read_trace(tmp_path)


def test_gaia_times_are_in_hours(read: Read) -> None:
    jobs, ledger = read(sample_files.GAIA)
    assert jobs["submit_s"].tolist() == [0, 900]
    assert jobs["runtime_s"].tolist() == [1800, 7200]
    assert jobs["nodes"].tolist() == jobs["cores"].tolist() == [1, 4]
    assert entry_count(ledger, "in hours") == 0


def test_spot_derivative(read: Read) -> None:
    jobs, ledger = read(sample_files.SPOT)
    assert jobs["gpus"].tolist() == [4, 1, 1]
    assert jobs["priority"].tolist() == [2.5, 0.5, 0.5]
    assert jobs["nodes"].tolist() == [1, 1, 1]
    assert entry_count(ledger, "gpus is 0") == 1
    with pytest.raises(TraceError, match="gpus is 0"):
        read(sample_files.SPOT, strict=True)


def test_spot_as_published(read: Read) -> None:
    jobs, _ = read(sample_files.SPOT_PUBLISHED)
    assert jobs["job_id"].tolist() == [239255, 437260, 437261, 437262]
    assert jobs["gpus"].tolist() == [1, 16, 16, 1]
    assert jobs["nodes"].tolist() == [1, 16, 2, 1]
    assert jobs["gpus_may_span_nodes"].tolist() == [0, 1, 0, 0]
    assert jobs["gpu_milli"].tolist() == [1000, 1000, 1000, 500]
    assert jobs["cores"].tolist() == [20, 240, 30, 4]
    assert jobs["priority"].tolist() == [1, 0, 0, 0]
    assert jobs.labels["gpu_types"] == ("A10", "A100-SXM4-80GB")
