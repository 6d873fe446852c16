"""Privacy baseline: differences between uncopied weeks are small, and a missing log is reported."""

from __future__ import annotations

from benchmarks.reproduce.privacy_baseline import apart, main

from tests.synth.test_generator import log


def test_weeks_of_regular_users_hardly_differ():
    found = apart(log(1500))
    assert list(found) == ["copies", "copied pairs", "nearer to seen", "advantage"]
    assert all(abs(more) < 0.15 for more in found.values())


def test_without_logs(tmp_path, capsys):
    assert main(["--data", str(tmp_path)]) == 2
    assert "it contains no swf/" in capsys.readouterr().err
