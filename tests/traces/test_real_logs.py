"""Every real log: all rows are accounted for, and their number equals that of MANIFEST.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, describe, read_trace_with_report

ROWS = {
    "alcf/lumos_mira.csv.gz": 22_508,
    "alcf/lumos_theta.csv.gz": 14_374,
    "alcf/lumos_thetagpu.csv.gz": 22_606,
    "alcf/rlhpc_theta_2023_feb_dec.swf.gz": 26_671,
    "slurm/fixtures/sacct_dump2101.log.gz": 15,
    "slurm/fixtures/sacct_dump2110.log.gz": 7,
    "slurm/fixtures/sacct_simple.log.gz": 4,
    "slurm/fixtures/sacct_submitline_multiline.log.gz": 13,
    "slurm/kabre_sacct_2024.psv.gz": 30_376,
    "slurm/nrel_eagle_sample_1000.csv.gz": 1_000,
    "slurm/ubhpc_workload_week.events.gz": 19_579,
    "swf/ANL-Intrepid-2009-1.swf.gz": 68_936,
    "swf/CEA-Curie-2011-2.1-cln.swf.gz": 312_826,
    "swf/HPC2N-2002-2.2-cln.swf.gz": 202_871,
    "swf/KTH-SP2_pyss.swf.gz": 28_481,
    "swf/KTH-SP2-1996-2.1-cln.swf.gz": 28_476,
    "swf/LLNL-Thunder-2007-1.1-cln.swf.gz": 121_039,
    "swf/METACENTRUM-2009-2.swf.gz": 103_656,
    "swf/NASA-iPSC-1993-3.1-cln.swf.gz": 18_239,
    "swf/SDSC-BLUE-2000-4.2-cln.swf.gz": 243_306,
    "swf/SDSC-SP2-1998-4.2-cln.swf.gz": 59_715,
    "swf/Sandia-Ross-2001-1.1-cln.swf.gz": 57_882,
    "swf/UniLu-Gaia-2014-1.swf.gz": 51_987,
    "swf/lublin_256.swf.gz": 10_000,
    "swf/metacentrum-wagap-2013.alea.swf.gz": 17_900,
}
"""Rows by MANIFEST.md; of the four fixtures, records (their lines less the header and the line breaks in values)."""

DROPPED = {
    "swf/SDSC-SP2-1998-4.2-cln.swf.gz": 5_671,
    "swf/SDSC-BLUE-2000-4.2-cln.swf.gz": 10_744,
    "swf/KTH-SP2_pyss.swf.gz": 0,
    "swf/lublin_256.swf.gz": 0,
    "swf/ANL-Intrepid-2009-1.swf.gz": 0,
    "swf/HPC2N-2002-2.2-cln.swf.gz": 0,
    "swf/LLNL-Thunder-2007-1.1-cln.swf.gz": 1_190 + 1_058,
    "slurm/kabre_sacct_2024.psv.gz": 0,
    "slurm/ubhpc_workload_week.events.gz": 0,
    "alcf/lumos_theta.csv.gz": 0,
}
SIZES = {
    "swf/CEA-Curie-2011-2.1-cln.swf.gz": 93_312,
    "swf/KTH-SP2-1996-2.1-cln.swf.gz": 100,
    "swf/SDSC-BLUE-2000-4.2-cln.swf.gz": 1_152,
    "swf/Sandia-Ross-2001-1.1-cln.swf.gz": 1_524,
    "swf/UniLu-Gaia-2014-1.swf.gz": 2_004,
    "alcf/rlhpc_theta_2023_feb_dec.swf.gz": 4_360,
}


def load(data_dir: Path, name: str) -> tuple[JobTable, CleaningReport]:
    if not (data_dir / name).exists():
        pytest.skip(f"{name} is not among the data")
    return read_trace_with_report(data_dir / name)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_accounted_for(data_dir: Path, name: str) -> None:
    jobs, report = load(data_dir, name)
    assert report.rows_read == ROWS[name]
    assert report.rows_read == report.jobs + report.dropped + report.folded
    assert report.jobs == len(jobs) > 0
    assert jobs.order is None
    assert report.dropped == DROPPED.get(name, report.dropped)
    assert jobs.meta.get("max_procs") == SIZES.get(name, jobs.meta.get("max_procs"))
    assert describe(jobs)["jobs"] == len(jobs)


def test_alea_queues_and_dependencies(data_dir: Path) -> None:
    jobs, _ = load(data_dir, "swf/metacentrum-wagap-2013.alea.swf.gz")
    assert "q_1d" in jobs.labels["queue"]
    assert "after_id" not in jobs
    assert jobs["memory_mb"].max() < 2e6


def test_names_with_delimiters(data_dir: Path) -> None:
    jobs, _ = load(data_dir, "slurm/fixtures/sacct_simple.log.gz")
    assert jobs.labels["name"] == ("job_00001", "job_0||0002", "job_0|0003", "job_|00004")
    assert jobs["runtime_s"].tolist() == [84805, 12688, 2009, 2003]
    jobs, _ = load(data_dir, "slurm/fixtures/sacct_dump2110.log.gz")
    assert set(jobs["runtime_s"].tolist()) == {56}
    assert set(jobs["estimate_s"].tolist()) == {86400}
    assert "qlo|gin" in jobs.labels["name"]
    jobs, _ = load(data_dir, "slurm/fixtures/sacct_dump2101.log.gz")
    assert jobs["runtime_s"].tolist() == [128930] + [259222] * 5
    assert jobs["nodes"].tolist() == [1] * 6
    assert [jobs.labels["qos"][c] for c in jobs["qos"]] == ["general-compute"] + ["mrisupport"] * 5


def test_values_equal_those_read_by_numpy(data_dir: Path) -> None:
    """The vectorized reader agrees with numpy on the fields that cleaning does not change."""
    import gzip

    name = "swf/SDSC-SP2-1998-4.2-cln.swf.gz"
    jobs, _ = load(data_dir, name)
    with gzip.open(data_dir / name, "rt") as file:
        rows = np.loadtxt((line for line in file if not line.startswith(";")), dtype=np.float64)
    has_run = rows[rows[:, 3] >= 0]
    assert np.array_equal(jobs["job_id"], has_run[:, 0])
    assert np.array_equal(jobs["submit_s"], has_run[:, 1])
    assert np.array_equal(jobs["runtime_s"], has_run[:, 3])
    assert np.array_equal(jobs["nodes"], np.where(has_run[:, 4] > 0, has_run[:, 4], has_run[:, 7]))
    assert np.array_equal(jobs["user"], has_run[:, 11])
