"""The real GPU and cloud traces have the row counts and properties of MANIFEST.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, describe, read_trace_with_report

ROWS = {
    "google2011/job_events/part-00000-of-00500.csv.gz": (10_704, "google2011"),
    "google2011/job_events/part-00001-of-00500.csv.gz": (3_099, "google2011"),
    "google2011/job_events/part-00002-of-00500.csv.gz": (3_360, "google2011"),
    "google2011/job_events/part-00003-of-00500.csv.gz": (4_179, "google2011"),
    "google2011/job_events/part-00004-of-00500.csv.gz": (4_095, "google2011"),
    "google2011/job_events/part-00005-of-00500.csv.gz": (3_033, "google2011"),
    "google2011/task_events/part-00000-of-00500.csv.gz": (450_146, "google2011"),
    "gpu/alibaba_v2020/gaia_pai-100k.csv.gz": (99_998, "pai"),
    "gpu/alibaba_v2023/openb_pod_list_cpu250.csv.gz": (9_420, "openb"),
    "gpu/alibaba_v2023/openb_pod_list_default.csv.gz": (8_152, "openb"),
    "gpu/alibaba_v2023/openb_pod_list_gpushare40.csv.gz": (8_152, "openb"),
    "gpu/alibaba_v2023/openb_pod_list_gpuspec33.csv.gz": (8_152, "openb"),
    "gpu/alibaba_v2023/openb_pod_list_multigpu50.csv.gz": (9_061, "openb"),
    "gpu/alibaba_v2026_spot/derived_batch_1.csv.gz": (116_717, "spot"),
    "gpu/alibaba_v2026_spot/derived_batch_2.csv.gz": (116_717, "spot"),
    "gpu/helios/helios_venus_2vc_sept.csv.gz": (1_867, "helios"),
    "gpu/mit_supercloud/slurm-log-queueing-clean.csv.gz": (9_628, "supercloud"),
    "gpu/philly/lumos_philly_df_schedule.csv.gz": (151_816, "philly"),
    "gpu/philly/sia_philly.csv.gz": (82_247, "philly"),
}
"""Rows by MANIFEST.md, and the format."""


def load(data_dir: Path, name: str) -> tuple[JobTable, CleaningReport]:
    if not (data_dir / name).exists():
        pytest.skip(f"{name} is not among the data")
    return read_trace_with_report(data_dir / name)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_accounted_for(data_dir: Path, name: str) -> None:
    jobs, ledger = load(data_dir, name)
    rows, format = ROWS[name]
    assert ledger.rows_read == rows == ledger.jobs + ledger.dropped + ledger.folded
    assert jobs.meta["format"] == format
    assert jobs.order is None
    assert describe(jobs)["jobs"] == len(jobs)


def test_openb_pods(data_dir: Path) -> None:
    jobs, ledger = load(data_dir, "gpu/alibaba_v2023/openb_pod_list_default.csv.gz")
    assert ledger.dropped == 897
    assert "gpu_types" not in jobs
    whole = jobs["gpus"] * jobs["gpu_milli"]
    assert (jobs["gpu_milli"] < 1000).any() and whole.max() == 8000
    jobs, _ = load(data_dir, "gpu/alibaba_v2023/openb_pod_list_gpuspec33.csv.gz")
    assert "V100M16|V100M32" in jobs.labels["gpu_types"]
    with_never_ran, _ = read_trace_with_report(
        data_dir / "gpu/alibaba_v2023/openb_pod_list_default.csv.gz", never_ran="keep"
    )
    assert len(with_never_ran) == 8_152
    assert int((with_never_ran["gpus"] == 8).sum()) == 44


def test_spot_priorities_and_parts(data_dir: Path) -> None:
    for batch, parts in ((1, 2_334), (2, 21_787)):
        jobs, ledger = load(data_dir, f"gpu/alibaba_v2026_spot/derived_batch_{batch}.csv.gz")
        assert ledger.corrected == parts
        assert set(np.unique(jobs["priority"])) == {0.5, 1.0, 2.5, 5.0}
        assert jobs["gpus"].min() == 1


def test_philly_tables(data_dir: Path) -> None:
    jobs, ledger = load(data_dir, "gpu/philly/sia_philly.csv.gz")
    assert ledger.corrected == 44_878
    assert len(jobs.labels["queue"]) == 15
    assert jobs["gpus_may_span_nodes"].sum() == (jobs["gpus"] > 1).sum() == 5_620
    jobs, ledger = load(data_dir, "gpu/philly/lumos_philly_df_schedule.csv.gz")
    assert ledger.corrected == 0
    assert jobs["gpus"].max() == 128


def test_supercloud_numbers(data_dir: Path) -> None:
    jobs, _ = load(data_dir, "gpu/mit_supercloud/slurm-log-queueing-clean.csv.gz")
    assert int((jobs["gpus"] > 0).sum()) == 2_401
    assert int((jobs["estimate_s"] == jobs["runtime_s"]).sum()) >= 3_216
    assert jobs["memory_mb"].max() < 1e9
    assert len(np.unique(jobs["job_id"])) == 9_628


def test_google_tasks(data_dir: Path) -> None:
    jobs, ledger = load(data_dir, "google2011/task_events/part-00000-of-00500.csv.gz")
    # 190,926 tasks: 11,178 with a submission only, 71 ended while they waited.
    assert (len(jobs), ledger.dropped) == (190_926 - 11_178 - 71, 11_178 + 71)
    assert jobs["submit_s"].min() == 600
    assert float((jobs["submit_s"] + jobs["runtime_s"]).max()) <= 5611.1
    jobs, ledger = load(data_dir, "google2011/job_events")
    assert ledger.rows_read == 28_470
    assert np.bincount(jobs["status"] + 1, minlength=7).tolist() == [4_024, 104, 4_375, 0, 0, 0, 2_327]


def test_gaia_spans_a_year(data_dir: Path) -> None:
    jobs, _ = load(data_dir, "gpu/alibaba_v2020/gaia_pai-100k.csv.gz")
    assert jobs["submit_s"].max() / 3600 == pytest.approx(8759.45, abs=0.1)


def test_helios_slice(data_dir: Path) -> None:
    jobs, _ = load(data_dir, "gpu/helios/helios_venus_2vc_sept.csv.gz")
    assert (jobs["gpus"] % jobs["nodes"] == 0).all()
    assert jobs["submit_s"].max() / 86400 == pytest.approx(25.7, abs=0.1)
