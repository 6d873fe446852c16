"""Privacy baseline: differences between uncopied weeks are small, and a missing log is reported."""

from __future__ import annotations

from benchmarks.reproduce.privacy_baseline import excess_between_weeks, main

from tests.synth.test_generator import log


def test_weeks_of_regular_users_barely_differ():
    excess = excess_between_weeks(log(1500))
    assert list(excess) == ["copies", "copied pairs", "nearer to seen", "advantage"]
    assert all(abs(value) < 0.15 for value in excess.values())


def test_missing_logs_are_an_error(tmp_path, capsys):
    assert main(["--data", str(tmp_path)]) == 2
    assert "it contains no swf/" in capsys.readouterr().err
