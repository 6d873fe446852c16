"""The fuzzing of the command line: its cases repeat, cover every command, and find what is wrong."""

from __future__ import annotations

import pytest

from benchmarks import fuzz_command_line, fuzz_command_line_inputs


def test_every_command_has_cases():
    assert set(fuzz_command_line._options()) == set(fuzz_command_line_inputs.COMMANDS)


def test_cases_repeat(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in fuzz_command_line_inputs.READERS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"a,b\n1,2\n")
    parameters = fuzz_command_line._options()
    cases = [fuzz_command_line.case(number, 0, parameters) for number in range(60)]
    assert cases == [fuzz_command_line.case(number, 0, parameters) for number in range(60)]
    assert any(file for _, file, _ in cases) and len({str(case) for case in cases}) > 50


@pytest.mark.parametrize(
    ("status", "text", "found"),
    [
        (0, "fine\n", ""),
        (2, "error: no\n", ""),
        (2, "", "without a message"),
        (7, "x", "exit status 7"),
        ("Traceback ...", "", "Traceback"),
        (0, "a\x1b[31m", "raw control character"),
        (1, "Traceback (most recent call last)", "Traceback"),
        (130, "interrupted", "blocked"),
    ],
)
def test_findings(status, text, found):
    result = fuzz_command_line._finding(["simulate", "x"], status, text, 0.0, {})
    assert found in result and bool(result) == bool(found)


@pytest.mark.slow
def test_nothing_is_found():
    counts, findings = fuzz_command_line.fuzz(60, seed=3)
    assert not findings
    assert sum(counts.values()) == 60
