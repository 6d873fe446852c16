"""A slice of benchmarks/fuzz_readers.py, and proof that it would tell."""

from __future__ import annotations

import pytest

from benchmarks import fuzz_readers
from kilowait.traces import CleaningReport, swf
from kilowait.traces.clean import RawColumns


def test_a_slice_of_the_fuzzer_finds_nothing() -> None:
    tally = fuzz_readers.fuzz(6_000, seed=20, real=False)
    assert tally["lines"] >= 6_000
    assert tally["read"] > 50
    assert tally["refused"] > 10
    assert tally["compared"] > 500


def test_it_tells_of_another_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise IndexError("oops")

    monkeypatch.setattr("kilowait.traces.clean._estimates", broken)
    with pytest.raises(IndexError, match="oops"):
        fuzz_readers.fuzz(100, seed=1, real=False)


def test_it_tells_of_rows_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CleaningReport.add
    monkeypatch.setattr(CleaningReport, "add", lambda self, kind, *rest: honest(self, "note", *rest))
    with pytest.raises(AssertionError, match="accounted for"):
        fuzz_readers.fuzz(6_000, seed=1, real=False)


def test_it_tells_of_shifted_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = swf._processors

    def shifted(draft: RawColumns, *rest: object) -> None:
        honest(draft, *rest)  # type: ignore[arg-type]
        draft.numbers["nodes"] = draft.numbers["nodes"] + (len(draft) != 40)

    monkeypatch.setattr(swf, "_processors", shifted)
    with pytest.raises(AssertionError, match="its line says"):
        fuzz_readers.fuzz(20_000, seed=1, real=False)
