"""kilowait predict report: figures in the terminal, the rest in a folder."""

from __future__ import annotations

from kilowait.evaluation.storage import open_folder

LOG = "lublin:900:32:0.2:1"


def test_a_log_is_foretold(kilowait, tmp_path):
    out = tmp_path / "foretold"
    said = kilowait("predict", "report", LOG, "--job", 590, "--out", out)
    assert said.status == 0, said.err
    assert said.out.startswith("the last 270 of 900 jobs, each predicted when it was submitted")
    for words in ("the forest's most accurate value", "held for", f"write a page: kilowait report {out}"):
        assert words in said.out
    opened = open_folder(out)
    assert opened.manifest["seeds"]["forest"] == 0
    assert opened.scenario["trace"] == LOG
    assert opened.results["predictions"]["explained"][-1]["job_id"] == 590
    again = kilowait("predict", "report", LOG, "--out", out)
    assert "is not empty" in again.error()


def test_errors_come_before_anything_is_written(kilowait, tmp_path):
    out = tmp_path / "foretold"
    assert (
        "there is no job 9999 in this log"
        in kilowait("predict", "report", LOG, "--job", 9999, "--out", out).error()
    )
    assert (
        "no forest was fitted on these 100 jobs"
        in kilowait("predict", "report", LOG, "--jobs", 100, "--out", out).error()
    )
    assert not out.exists()
    assert kilowait("predict", "report", LOG).status == 2
