"""kilowait predict report."""

from __future__ import annotations

from kilowait.evaluation.storage import open_folder

LOG = "lublin:900:32:0.2:1"


def test_report_is_written(kilowait, tmp_path):
    out = tmp_path / "report"
    result = kilowait("predict", "report", LOG, "--job", 590, "--out", out)
    assert result.status == 0, result.err
    assert result.out.startswith("the last 270 of 900 jobs, each predicted when it was submitted")
    for text in ("the forest's most accurate value", "held for", f"write a page: kilowait report {out}"):
        assert text in result.out
    folder = open_folder(out)
    assert folder.manifest["seeds"]["forest"] == 0
    assert folder.scenario["trace"] == LOG
    assert folder.results["predictions"]["explained"][-1]["job_id"] == 590
    again = kilowait("predict", "report", LOG, "--out", out)
    assert "is not empty" in again.error()


def test_errors_write_nothing(kilowait, tmp_path):
    out = tmp_path / "report"
    assert "there is no job 9999 in this log" in kilowait("predict", "report", LOG, "--job", 9999, "--out", out).error()
    assert (
        "no forest was fitted on these 100 jobs"
        in kilowait("predict", "report", LOG, "--jobs", 100, "--out", out).error()
    )
    assert not out.exists()
    assert kilowait("predict", "report", LOG).status == 2
