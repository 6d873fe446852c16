from __future__ import annotations

import json

import numpy as np
import pytest

from kilowait.errors import InputError, TraceError
from kilowait.jobs import JobTable
from kilowait.traces import CleaningReport, describe


def example_report() -> CleaningReport:
    report = CleaningReport(rows_read=5, jobs=2, folded=1)
    report.add("note", "a remark")
    report.add("corrected", "sorted", 2, 9)
    report.add("dropped", "never ran", 1, 4)
    report.add("dropped", "never ran", 1, 6)
    return report


def test_equal_reasons_are_summed() -> None:
    assert example_report().lines() == [
        "5 rows read, 2 jobs, 2 dropped, 2 corrected, 1 folded into their jobs",
        "dropped 2: never ran (first: line 4)",
        "corrected 2: sorted (first: line 9)",
        "note: a remark",
    ]


def test_json_round_trip() -> None:
    assert CleaningReport.from_dict(json.loads(json.dumps(example_report().to_dict()))) == example_report()


def test_strict_rejects_dropped_and_corrected_rows() -> None:
    with pytest.raises(TraceError, match=r"x\.swf is not clean.*corrected 2: sorted.*dropped 2: never ran"):
        example_report().check("x.swf")
    clean = CleaningReport()
    clean.add("note", "a remark")
    clean.check("x.swf")


def test_node_seconds_are_summed_exactly() -> None:
    runtime_s = np.array([1e15, *[1.0] * 1000])
    nodes = np.array([10, *[1] * 1000])
    jobs = JobTable(
        job_id=np.arange(1001), submit_s=np.zeros(1001), runtime_s=runtime_s, estimate_s=runtime_s, nodes=nodes
    )
    assert describe(jobs)["node_seconds"] == 1e16 + 1000


def test_description() -> None:
    jobs = JobTable(
        job_id=[1, 2, 3], submit_s=[0, 50, 100], runtime_s=[10, 20, 0], estimate_s=[10, 15, 60], nodes=[1, 4, 9],
        user=[4, 4, -1], status=[1, 1, 0], wait_s=[float("nan"), 3, 5],
        meta={"max_procs": 8, "format": "swf", "ledger": example_report().to_dict()},
    )  # fmt: skip
    description = describe(jobs)
    assert description["offered_load"] == pytest.approx(90 / 800)
    assert description["larger_than_machine"] == 1
    assert description["perfect_estimates"] == pytest.approx(1 / 3)
    assert description["overrun_estimates"] == pytest.approx(1 / 3)
    assert description["zero_runtimes"] == 1
    assert (description["users"], description["queues"]) == (1, 0)
    assert description["wait_s"]["mean"] == 4
    assert description["status"] == {0: 1, 1: 2}
    assert description["ledger"]["rows_read"] == 5
    json.dumps(description)
    assert describe(jobs, size=16)["offered_load"] == pytest.approx(90 / 1600)
    assert describe(jobs[:0])["jobs"] == 0
    with pytest.raises(InputError, match="a machine of 0 nodes"):
        describe(jobs, size=0)
