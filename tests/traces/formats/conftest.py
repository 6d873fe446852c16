"""A fixture that reads a text as a trace file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, read_trace_with_report

Read = Callable[..., tuple[JobTable, CleaningReport]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """`read_trace_with_report` of a text; checks that every row is accounted for and that jobs are sorted."""

    def read_text(text: str, **options: Any) -> tuple[JobTable, CleaningReport]:
        (tmp_path / "log").write_text(text)
        jobs, ledger = read_trace_with_report(tmp_path / "log", **options)
        assert ledger.rows_read == ledger.jobs + ledger.dropped + ledger.folded
        assert jobs.order is None
        return jobs, ledger

    return read_text


def entry_count(ledger: CleaningReport, text: str) -> int:
    """Row count of the only entry of the cleaning report that contains this text."""
    found = [entry for entry in ledger.entries if text in entry.reason]
    assert len(found) == 1, ledger.lines()
    return found[0].count
