"""Reproduction of published CO2 savings: published values and the tables of the docs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.reproduce import gaia, lets_wait_awhile
from benchmarks.reproduce.__main__ import main
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.lets_wait_awhile import Job, Signal, emitted, random_jobs, slots_to_next_workday

from kilowait.energy.load_shifting import shift_jobs
from kilowait.jobs import JobTable
from kilowait.series import Series


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def sources(data_dir: Path) -> Sources:
    return Sources.find(str(data_dir))


@pytest.fixture(scope="module")
def avoided(sources: Sources) -> dict[str, Any]:
    return lets_wait_awhile.results(sources, quiet)


@pytest.fixture(scope="module")
def page(project: Path) -> str:
    return (project / "docs" / "reproduce.md").read_text(encoding="utf-8")


def signal(*g_per_kwh: float) -> Signal:
    time = np.datetime64("2020-01-01T00:00") + 30 * np.arange(len(g_per_kwh))
    return Signal(time, np.array(g_per_kwh))


# -- lets-wait-awhile -------------------------------------------------------------------------------


def test_published_values_are_reproduced(avoided):
    for country, published in lets_wait_awhile.PUBLISHED.items():
        assert avoided[country]["theirs"]["avoided_percent"] == pytest.approx(published, abs=0.005), country


def test_published_values_need_the_peculiarities(avoided):
    without = [avoided[country]["without"]["avoided_percent"] for country in ("DE", "GB", "FR")]
    assert np.abs(np.subtract(without, list(lets_wait_awhile.PUBLISHED.values()))).max() > 0.05


def test_docs_show_the_table(avoided, page):
    assert lets_wait_awhile.text(avoided) in page


def test_jobs_are_submitted_in_working_hours():
    jobs = random_jobs()
    submits = np.array([job.submit for job in jobs])
    assert len(jobs) == 3387
    assert (np.diff(submits) >= 0).all()
    assert set((submits % 48).tolist()) == set(range(18, 34))
    days = np.datetime64("2020-01-01") + submits // 48
    assert np.is_busday(days).all() and days.max() <= np.datetime64("2020-12-31")
    lengths = [job.length for job in jobs]
    assert (min(lengths), max(lengths)) == (8, 179)


@pytest.mark.parametrize(
    ("end", "due"),
    [
        ("2020-06-03T17:00", "2020-06-03T17:00"),
        ("2020-06-03T17:30", "2020-06-04T09:00"),
        ("2020-06-04T03:30", "2020-06-04T09:00"),
        ("2020-06-05T20:00", "2020-06-06T09:00"),  # a Friday evening, due on Saturday as in their code
        ("2020-06-06T10:00", "2020-06-08T09:00"),
        ("2020-06-06T03:00", "2020-06-08T09:00"),
        ("2020-06-07T23:30", "2020-06-08T09:00"),
    ],
)
def test_deadline_of_a_job(end, due):
    slots = slots_to_next_workday(np.datetime64(end))
    assert np.datetime64(end) + 30 * slots == np.datetime64(due)


def test_extra_slot_gives_unshiftable_jobs_two_starts():
    intensity = signal(5, 1, 1)
    assert emitted([Job(0, 2)], intensity, [0], intensity.g_per_kwh[None], peculiarities=False)[:2] == (6, 6)
    assert emitted([Job(0, 2)], intensity, [0], intensity.g_per_kwh[None], peculiarities=True)[:2] == (2, 2)


def test_interruptible_jobs_run_in_all_tied_slots():
    intensity = signal(2, 2, 2, 9)
    assert emitted([Job(0, 1)], intensity, [1], intensity.g_per_kwh[None], peculiarities=False)[2] == 2
    assert emitted([Job(0, 1)], intensity, [1], intensity.g_per_kwh[None], peculiarities=True)[2] == 6


def test_forecast_decides_and_true_intensity_counts():
    truth = signal(1, 9, 9)
    forecasts = np.array([[9.0, 1.0, 2.0], [1.0, 9.0, 9.0]])
    assert emitted([Job(0, 1)], truth, [2], forecasts, peculiarities=False) == (1, 5, 5)


def test_kilowait_shifts_non_interruptible_jobs_equally(sources):
    """Without the peculiarities: the same jobs, slack as a column, one of the noisy forecasts as the signal."""
    jobs, truth = random_jobs(), lets_wait_awhile._read(sources, "gb_ci.csv.gz")
    late = [slots_to_next_workday(truth.time[job.submit + job.length]) for job in jobs]
    noise = np.random.default_rng(0).normal(0, 0.05 * truth.g_per_kwh.mean(), len(truth.g_per_kwh))
    submit, length = 1800.0 * np.array(jobs).T
    table = JobTable(
        job_id=np.arange(len(jobs)),
        submit_s=submit,
        runtime_s=length,
        nodes=np.ones(len(jobs)),
        slack_s=1800.0 * np.array(late),
    )
    edge_s = 1800.0 * np.arange(len(noise) + 1)
    shift_until_s = shift_jobs(table, Series(edge_s, truth.g_per_kwh + noise), "wait_awhile", slack_s=0)
    start = np.maximum(shift_until_s, submit)
    shifted_sum = Series(edge_s, truth.g_per_kwh).integral(start, start + length).sum() / 1800
    reference_sums = emitted(jobs, truth, late, (truth.g_per_kwh + noise)[None], peculiarities=False)
    assert shifted_sum == pytest.approx(reference_sums[1], rel=1e-9)
    assert shifted_sum < 0.95 * reference_sums[0]


def test_missing_series_is_an_error(tmp_path, capsys):
    (tmp_path / "swf").mkdir()
    assert main(["lets-wait-awhile", "--data", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("error: ") and "does not exist" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [("Time,Carbon Intensity\nyesterday,3\n", "cannot be read"), ("Time,CI\n2020-01-01 00:00:00,3\n", "has 1 half")],
)
def test_broken_series_is_an_error(tmp_path, capsys, content, message):
    (tmp_path / "swf").mkdir()
    folder = tmp_path / "carbon" / "lets_wait_awhile"
    folder.mkdir(parents=True)
    with gzip.open(folder / "ger_ci.csv.gz", "wt") as file:
        file.write(content)
    assert main(["lets-wait-awhile", "--data", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


# -- GAIA -------------------------------------------------------------------------------------------


def relative(*hours: float, **job: int) -> dict[str, float]:
    """Emissions of one job by policy, on a series that ends with 40 hours of high intensity."""
    job_options = {"submit": 0, "length": gaia.HOUR, "cpus": 1, "wait": 4 * gaia.HOUR, "planned": gaia.HOUR, **job}
    sums = gaia.emitted([gaia.Job(**job_options)], np.repeat([*hours, *[50.0] * 40], gaia.HOUR))
    return {policy: total / gaia.HOUR for policy, total in sums.items()}


def test_lowest_slot_uses_the_first_slot_only():
    result = relative(9, 1, 30, 5, 5, length=2 * gaia.HOUR, planned=2 * gaia.HOUR)
    assert (result["no wait"], result["Lowest-Slot"], result["Lowest-Window"]) == (10, 31, 10)


def test_planning_uses_the_mean_length_of_the_class():
    """Planned with one hour the job starts in the cleanest hour; it runs two hours, the second at high intensity."""
    assert relative(9, 1, 30, 5, 5, length=2 * gaia.HOUR)["Lowest-Window"] == 31


def test_carbon_time_weighs_savings_against_delay():
    result = relative(9, 5, 6, 6, 4)
    assert (result["Carbon-Time"], result["Lowest-Window"]) == (5, 4)


def test_wait_awhile_uses_the_cleanest_steps():
    assert relative(9, 1, 30, 2, 5, length=2 * gaia.HOUR)["WaitAwhile"] == 3


def test_ecovisor_runs_below_the_percentile_or_at_the_wait_limit():
    """Below the percentile (50) the job runs at once; in a day of equal hours it waits to the limit."""
    assert relative(9, 1, 1, 1, 1)["Ecovisor"] == 9
    result = relative(*[9.0] * 30, wait=2 * gaia.HOUR)
    assert result["Ecovisor"] == 9
    series = np.repeat([9.0, 9.0, 8.0, *[9.0] * 40], gaia.HOUR)
    job = gaia.Job(0, gaia.HOUR, 1, gaia.HOUR, gaia.HOUR)
    assert gaia.emitted([job], series)["Ecovisor"] == 9 * gaia.HOUR, "it may wait an hour, the clean one is the third"


def test_missing_job_list_is_reported(tmp_path, capsys, page):
    (tmp_path / "swf").mkdir()
    assert main(["gaia", "--data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("GAIA cannot be run")
    assert out in page


def test_job_list_is_read_and_classified(tmp_path, data_dir, capsys):
    folder = tmp_path / "gpu" / "pai"
    folder.mkdir(parents=True)
    (tmp_path / "swf").mkdir()
    (tmp_path / "carbon").symlink_to(data_dir / "carbon")
    (folder / "gaia_pai_1k.csv").write_text("arrival_time,length,cpus\n0.0,7204.0,1\n7.0,3600.0,2\n9.0,1800.0,1\n")
    jobs = gaia._jobs(folder / "gaia_pai_1k.csv")
    assert jobs == [
        gaia.Job(0, 1440, 1, 24 * 720, 1440),
        gaia.Job(1, 720, 2, 6 * 720, 540),
        gaia.Job(1, 360, 1, 6 * 720, 540),
    ]
    assert main(["gaia", "--json", "--data", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["jobs"] == 3
    assert all(0 < share < 1.2 for share in result["relative"].values())
    assert min(result["relative"].values()) == result["relative"]["WaitAwhile"]


def test_broken_job_list_is_an_error(tmp_path, data_dir, capsys):
    (tmp_path / "gpu").mkdir()
    (tmp_path / "swf").mkdir()
    (tmp_path / "carbon").symlink_to(data_dir / "carbon")
    (tmp_path / "gpu" / "pai_1k.csv").write_text("arrival_time,length,cpus\nsoon,1,1\n")
    assert main(["gaia", "--data", str(tmp_path)]) == 2
    assert "cannot be read as arrival" in capsys.readouterr().err
    (tmp_path / "gpu" / "pai_1k.csv").write_text("arrival_time,length,cpus\n2500000.0,90000.0,1\n")
    assert main(["gaia", "--data", str(tmp_path)]) == 2
    assert "but the series has 720" in capsys.readouterr().err


def test_gaia_policies_are_reproduced(sources, page):
    result = gaia.results(sources, quiet)
    if not result:
        pytest.skip("GAIA's list of 1,000 jobs is not in the folder of data")
    assert result["relative"] == pytest.approx(gaia.RECORDED, abs=0.005)
    assert gaia.text(result) in page
