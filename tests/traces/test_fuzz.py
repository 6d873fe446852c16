"""A part of benchmarks/fuzz_readers.py, and checks that it detects errors."""

from __future__ import annotations

import pytest

from benchmarks import fuzz_readers
from kilowait.traces import CleaningReport
from kilowait.traces.clean import RawColumns
from kilowait.traces.formats import swf


def test_fuzzing_finds_no_error() -> None:
    counts = fuzz_readers.fuzz(600, seed=20, real=False)
    assert counts["cases"] == 600
    assert counts["lines"] >= 3_000
    assert counts["variants"] > 40
    assert counts["written"] > 100
    assert counts["read"] > 50
    assert counts["refused"] > 10
    assert counts["compared"] > 500


def test_fuzzing_detects_other_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise IndexError("oops")

    monkeypatch.setattr("kilowait.traces.clean._estimates", broken)
    with pytest.raises(IndexError, match="oops"):
        fuzz_readers.fuzz(100, seed=1, real=False)


def test_fuzzing_detects_lost_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CleaningReport.add
    monkeypatch.setattr(CleaningReport, "add", lambda self, kind, *rest: original(self, "note", *rest))
    with pytest.raises(AssertionError, match="accounted for"):
        fuzz_readers.fuzz(600, seed=1, real=False)


def test_fuzzing_detects_shifted_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    original = swf._processors

    def shifted(draft: RawColumns, *rest: object) -> None:
        original(draft, *rest)  # type: ignore[arg-type]
        draft.numbers["nodes"] = draft.numbers["nodes"] + (len(draft) != 40)

    monkeypatch.setattr(swf, "_processors", shifted)
    monkeypatch.setattr(fuzz_readers, "check_written", lambda *_: 0)
    monkeypatch.setattr(fuzz_readers, "check_variant", lambda *_: None)
    with pytest.raises(AssertionError, match="its line says"):
        fuzz_readers.fuzz(2_000, seed=1, real=False)


def test_fuzzing_detects_silent_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilowait.traces.formats.table.unguarded", str.strip)
    with pytest.raises(AssertionError, match="a written table: .* was .* is "):
        fuzz_readers.fuzz(600, seed=1, real=False)


def test_the_number_of_cases_is_an_option_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KILOWAIT_DATA", raising=False)
    monkeypatch.setattr("sys.argv", ["fuzz_readers", "--cases", "20", "--seed", "3"])
    fuzz_readers.main()
    assert capsys.readouterr().out.startswith("nothing found: 20 cases, ")
