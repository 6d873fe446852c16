"""Power of jobs: measured, from utilization columns, from a utilization profile."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.energy.power import (
    ConstantUtilization,
    PowerModel,
    UtilizationByClass,
    UtilizationClass,
    job_power_w,
    power_sources,
    utilization,
    with_measured_power,
)
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

POLARIS = PowerModel.preset("polaris")


def jobs_of(nodes, runtime_s=600, **columns):
    n = len(nodes)
    runtime = np.broadcast_to(runtime_s, n)
    return JobTable(job_id=range(1, n + 1), submit_s=[0] * n, runtime_s=runtime, nodes=nodes, **columns)


def test_constant_utilization():
    power = job_power_w(jobs_of([1, 10]), POLARIS, ConstantUtilization(0.0, 0.0))
    assert power.tolist() == [432, 4320]
    power = job_power_w(jobs_of([1]), POLARIS, ConstantUtilization(1.0, 0.5))
    assert power.tolist() == [1919 - 2 * 338]


def test_measured_power_overrides_columns_and_profile():
    nan = np.nan
    jobs = jobs_of(
        [1, 1, 1, 1], power_w=[500, nan, nan, nan], cpu_utilization=[1, 1, nan, nan], gpu_utilization=[1, nan, 1, nan]
    )
    assert job_power_w(jobs, POLARIS, ConstantUtilization(0, 0)).tolist() == [500, 432 + 135, 432 + 1352, 432]
    assert power_sources(jobs) == {"measured": 1, "columns": 2, "utilization": 1}


def test_first_matching_class_counts():
    jobs = JobTable(
        job_id=[1, 2, 3, 4],
        submit_s=[0] * 4,
        runtime_s=[10, 5000, 5000, 5000],
        nodes=[1, 1, 64, 64],
        queue=[0, 0, 0, 1],
        labels={"queue": ("prod", "debug")},
    )
    profile = UtilizationByClass(
        (
            UtilizationClass("debug", cpu=0.1, queue="debug"),
            UtilizationClass("short", cpu=0.2, runtime_s=(0, 60)),
            UtilizationClass("wide", cpu=0.9, gpu=0.8, nodes=(64, np.inf)),
        ),
        ConstantUtilization(0.5, 0.4),
    )
    cpu, gpu = utilization(jobs, profile)
    assert cpu.tolist() == [0.2, 0.5, 0.9, 0.1]
    assert gpu.tolist() == [0.0, 0.4, 0.8, 0.0]
    with pytest.raises(UnknownNameError, match="did you mean 'debug'"):
        UtilizationByClass((UtilizationClass("x", 1, queue="debg"),), ConstantUtilization()).use(jobs)


def test_measured_energy_is_converted_to_power():
    nan = np.nan
    jobs = jobs_of(
        [2, 1, 1, 1, 1, 1, 1],
        runtime_s=[10, 10, 10, 0, 10, 10, 10],
        energy_j=[4000, 4000, nan, 50, 0, 1, 1e9],
        power_w=[nan, 123, nan, nan, nan, nan, nan],
    )
    measured, report = with_measured_power(jobs)
    np.testing.assert_array_equal(measured["power_w"], [400, 123, nan, nan, nan, nan, nan])
    counts = [getattr(report, name) for name in report.__slots__]
    assert counts == [1, 1, 1, 1, 1, 1, 1]
    assert "1 implausibly high" in report.text()
    assert with_measured_power(jobs, most_w=1e9)[1].too_high == 0


def test_power_limits_are_per_node():
    jobs = jobs_of([10, 1], runtime_s=1, energy_j=[5000, 5000])
    assert with_measured_power(jobs, 100, 600)[1].attached == 1


def test_no_jobs_and_no_energy():
    empty, report = with_measured_power(jobs_of([1])[:0])
    assert (len(empty), report.attached) == (0, 0)
    unchanged, report = with_measured_power(jobs_of([1, 1]))
    assert report.unmeasured == 2
    assert np.isnan(unchanged["power_w"]).all()


def test_measured_energy_of_kabre(data_dir):
    jobs = kw.read_trace(data_dir / "slurm" / "kabre_sacct_2024.psv.gz")
    measured, report = with_measured_power(jobs)
    counts = [getattr(report, name) for name in report.__slots__]
    assert sum(counts) == len(jobs) > 20_000
    energy = measured["power_w"] * measured["runtime_s"]
    known = ~np.isnan(energy)
    assert known.sum() == report.attached > 0
    np.testing.assert_allclose(energy[known], jobs["energy_j"][known])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConstantUtilization(1.2), "cpu utilization is 1.2"),
        (lambda: UtilizationClass("x", 0.5, nodes=(5, 1)), "the lower bound must not exceed the upper"),
        (lambda: UtilizationClass("x", 0.5, gpu=-1), "gpu utilization of the class 'x' is -1"),
        (lambda: with_measured_power(jobs_of([1]), 10, 5), "most_w is 5"),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()
