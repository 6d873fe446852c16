"""The reference simulator against the starts that other people's simulators computed on a generated log."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.oracle.priority_rules import rule_for
from tests.oracle.reference import ReferenceGroup, ReferenceJob, simulate

DATA = os.environ.get("KILOWAIT_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="KILOWAIT_DATA does not name the folder of logs")

Settings = tuple[str, str, int | None, str, int]
RUNS: list[Settings] = [
    ("fcfs", "fcfs", 0, "instant", 1500),
    ("sjf", "sjf", 0, "instant", 1500),
    ("fcfs+easy", "fcfs", 1, "instant", 1500),
    ("fcfs+easy per event", "fcfs", 1, "event", 1500),
    ("fcfs+conservative", "fcfs", None, "instant", 500),
]
"""Run, rule, depth, passes, how many jobs of the log."""


def read_swf(path: Path, count: int) -> list[ReferenceJob]:
    """The first jobs of the log; it has no requests, so the estimate is the run time."""
    jobs = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            fields = line.split()
            if not fields or fields[0].startswith(";"):
                continue
            assert len(fields) == 18
            run = float(fields[3])
            jobs.append(ReferenceJob(int(fields[0]), float(fields[1]), run, run, int(fields[4])))
            if len(jobs) == count:
                break
    return jobs


@needs_data
@pytest.mark.parametrize(("name", "policy", "depth", "schedule_per", "count"), RUNS, ids=[run[0] for run in RUNS])
def test_starts_equal_those_of_other_simulators(
    name: str, policy: str, depth: int | None, schedule_per: str, count: int
) -> None:
    """Only the first jobs of the log are run, and only the starts before the first one left out are compared.

    No rule here looks ahead, so what is started before a time depends on the jobs submitted up to then; every
    start before the submit of the first job left out is therefore the same as in the whole log. Later starts
    are not: under SJF a job left out may overtake, under backfilling it may fill a hole.
    """
    assert DATA is not None
    folder = Path(DATA)
    jobs = read_swf(folder / "swf" / "lublin_256.swf.gz", count + 1)
    cut = jobs.pop().submit
    with gzip.open(folder.parent / "oracles" / "lublin_256.json.gz", "rt") as file:
        oracle = json.load(file)
    assert [job.job_id for job in jobs] == oracle["job_ids"][:count]
    rule, fixed = rule_for(policy, jobs)
    run = simulate(
        jobs,
        [ReferenceGroup("nodes", oracle["processors"])],
        queues={},
        outages=(),
        reservations=(),
        rule=rule,
        fixed=fixed,
        depth=depth,
        schedule_per=schedule_per,
    )
    compared = 0
    for job, result, start in zip(jobs, run.results, oracle["runs"][name]["start"], strict=False):
        assert result.start is not None
        if start < cut or result.start < cut:
            assert result.start == start, f"job {job.job_id} started at {result.start}, theirs at {start}"
            compared += 1
    assert compared > count // 2
