from __future__ import annotations

import json

import pytest

from kilowait.errors import InputError, TraceError
from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, describe


def made() -> CleaningReport:
    ledger = CleaningReport(rows_read=5, jobs=2, folded=1)
    ledger.add("note", "a remark")
    ledger.add("corrected", "sorted", 2, 9)
    ledger.add("dropped", "never ran", 1, 4)
    ledger.add("dropped", "never ran", 1, 6)
    return ledger


def test_the_same_reason_adds_up_and_keeps_its_first_line() -> None:
    assert made().lines() == [
        "5 rows read, 2 jobs, 2 dropped, 2 corrected, 1 folded into their jobs",
        "dropped 2: never ran (first: line 4)",
        "corrected 2: sorted (first: line 9)",
        "note: a remark",
    ]


def test_there_and_back_through_json() -> None:
    assert CleaningReport.from_dict(json.loads(json.dumps(made().to_dict()))) == made()


def test_strict_refuses_dropped_and_corrected_rows_but_not_notes() -> None:
    with pytest.raises(TraceError, match=r"x\.swf is not clean.*corrected 2: sorted.*dropped 2: never ran"):
        made().check("x.swf")
    clean = CleaningReport()
    clean.add("note", "a remark")
    clean.check("x.swf")


def test_description() -> None:
    jobs = JobTable(
        job_id=[1, 2, 3], submit_s=[0, 50, 100], runtime_s=[10, 20, 0], estimate_s=[10, 15, 60], nodes=[1, 4, 9],
        user=[4, 4, -1], status=[1, 1, 0], wait_s=[float("nan"), 3, 5],
        meta={"max_procs": 8, "format": "swf", "ledger": made().to_dict()},
    )  # fmt: skip
    facts = describe(jobs)
    assert facts["offered_load"] == pytest.approx(90 / 800)
    assert facts["larger_than_machine"] == 1
    assert facts["perfect_estimates"] == pytest.approx(1 / 3)
    assert facts["overrun_estimates"] == pytest.approx(1 / 3)
    assert facts["zero_runtimes"] == 1
    assert (facts["users"], facts["queues"]) == (1, 0)
    assert facts["wait_s"]["mean"] == 4
    assert facts["status"] == {0: 1, 1: 2}
    assert facts["ledger"]["rows_read"] == 5
    json.dumps(facts)
    assert describe(jobs, nodes=16)["offered_load"] == pytest.approx(90 / 1600)
    assert describe(jobs[:0])["jobs"] == 0
    with pytest.raises(InputError, match="a machine of 0 nodes"):
        describe(jobs, nodes=0)
